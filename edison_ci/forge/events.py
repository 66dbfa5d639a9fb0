"""The event that started this job, what the job may do, and its commits.

Everything comes from the runner: `GITHUB_EVENT_NAME`, the file at `GITHUB_EVENT_PATH`, and a few
variables beside them. Nothing in the repository has a say in whether a job is trusted.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Mode = Literal["live", "replay"]

MAX_EVENT_BYTES = 30_000_000
DEPENDABOT = "dependabot[bot]"

_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ZEROS = re.compile(r"0{40}|0{64}")


class Situation(StrEnum):
    """Why a job runs, as far as it matters for what it may do."""

    PULL_REQUEST = "pull request"
    FORK = "pull request from a fork"
    DEPENDABOT = "Dependabot"
    MERGE_GROUP = "merge queue"
    PUSH = "push"
    SCHEDULE = "schedule"
    DISPATCH = "started by hand"
    AFTER_WORKFLOW = "after another workflow"
    OTHER = "another event"


_WHY = {
    Situation.PULL_REQUEST: "the branch is in this repository",
    Situation.FORK: "GitHub gives a fork no secrets and a token that may only read; a maintainer "
    "who has read the change can start the workflow by hand",
    Situation.DEPENDABOT: "GitHub treats Dependabot like a fork: no secrets, and a token that may "
    "only read",
    Situation.MERGE_GROUP: "the merge queue is in this repository; there is no pull request to "
    "comment on",
    Situation.PUSH: "whoever pushed may write here",
    Situation.SCHEDULE: "schedules run on the default branch",
    Situation.DISPATCH: "whoever started it may write here",
    Situation.AFTER_WORKFLOW: "it reports on a run that may come from a fork",
    Situation.OTHER: "it is not known whether whoever caused it may be trusted",
}
_TRUSTED = {
    Situation.PULL_REQUEST,
    Situation.MERGE_GROUP,
    Situation.PUSH,
    Situation.SCHEDULE,
    Situation.DISPATCH,
}


@dataclass(frozen=True, slots=True)
class Event:
    """What started a job."""

    name: str
    situation: Situation
    repository: str
    """`owner/name`."""
    sha: str | None = None
    """What the job was started for: of a pull request, the commit that merges it into its base."""
    number: int | None = None
    """The pull request, where the event names one."""
    head_sha: str | None = None
    """The last commit that somebody wrote."""
    head_branch: str | None = None
    head_owner: str | None = None
    """Whose repository the branch is in."""
    base_sha: str | None = None
    """What the head is measured against; None when the event does not say."""
    base_branch: str | None = None
    default_branch: str | None = None
    draft: bool = False
    run_id: int = 0
    attempt: int = 1
    actor: str = ""

    @property
    def trusted(self) -> bool:
        """Whether the job has keys, and a token that may write."""
        return self.situation in _TRUSTED

    @property
    def on_default(self) -> bool:
        """Whether it is about the default branch as it is, and not about what may become of it."""
        if self.situation is Situation.SCHEDULE:
            return True
        by_push = self.situation in {Situation.PUSH, Situation.DISPATCH}
        return (
            by_push and self.default_branch is not None and self.head_branch == self.default_branch
        )

    @property
    def mode(self) -> Mode:
        """`live` calls models; `replay` uses recorded answers only."""
        return "live" if self.trusted else "replay"

    @property
    def why(self) -> str:
        """Why the job may do what it may."""
        return _WHY[self.situation]


def read_event(environment: Mapping[str, str]) -> Event:
    """Return the event of this job; raises UsageError outside of GitHub Actions."""
    name, path = environment.get("GITHUB_EVENT_NAME", ""), environment.get("GITHUB_EVENT_PATH", "")
    if not name:
        raise UsageError(
            "this is no job of GitHub Actions: GITHUB_EVENT_NAME is not set",
            hint="it only works in a workflow",
        )
    # A schedule has next to nothing to say, so its file may be missing.
    payload = _payload(Path(path)) if path else {}
    return parse_event(name, payload, environment)


def parse_event(name: str, payload: Mapping[str, Any], environment: Mapping[str, str]) -> Event:
    """Return the event that GitHub describes so."""
    about = _About(payload, environment)
    if name in {"pull_request", "pull_request_target"}:
        return _pull_request(name, about)
    if name == "merge_group":
        return _merge_group(name, about)
    if name == "push":
        return _push(name, about)
    if name == "workflow_run":
        return _workflow_run(name, about)
    plain = {"schedule": Situation.SCHEDULE, "workflow_dispatch": Situation.DISPATCH}
    branch = _branch(environment.get("GITHUB_REF"))
    situation = plain.get(name, Situation.OTHER)
    return about.event(name, situation, head_sha=about.job_sha, head_branch=branch)


# --- kinds of events ------------------------------------------------------------------------------


def _pull_request(name: str, about: _About) -> Event:
    ours = about.get("pull_request", "base", "repo", "id")
    theirs = about.get("pull_request", "head", "repo", "id")  # None when the fork is gone
    same = ours is not None and theirs == ours
    situation = Situation.PULL_REQUEST if same else Situation.FORK
    if name == "pull_request_target" and situation is Situation.FORK:
        raise UsageError(
            "pull_request_target gives the code of a fork our keys and a token that may write, so "
            "nothing is evaluated",
            hint="use `on: pull_request`: forks are then replayed without keys; a maintainer who "
            "has read the change can evaluate it with workflow_dispatch",
        )
    if situation is Situation.PULL_REQUEST and about.actor == DEPENDABOT:
        situation = Situation.DEPENDABOT
    number = about.get("pull_request", "number")
    if not isinstance(number, int) or isinstance(number, bool):
        raise _odd("pull_request.number")
    return about.event(
        name,
        situation,
        number=number,
        head_sha=about.sha("pull_request", "head", "sha"),
        head_branch=about.text("pull_request", "head", "ref"),
        head_owner=about.text("pull_request", "head", "repo", "owner", "login"),
        base_sha=about.sha("pull_request", "base", "sha"),
        base_branch=about.text("pull_request", "base", "ref"),
        draft=about.get("pull_request", "draft") is True,
    )


def _merge_group(name: str, about: _About) -> Event:
    return about.event(
        name,
        Situation.MERGE_GROUP,
        head_sha=about.sha("merge_group", "head_sha"),
        head_branch=_branch(about.text("merge_group", "head_ref")),
        base_sha=about.sha("merge_group", "base_sha"),
        base_branch=_branch(about.text("merge_group", "base_ref")),
    )


def _push(name: str, about: _About) -> Event:
    by_dependabot = about.actor == DEPENDABOT
    return about.event(
        name,
        Situation.DEPENDABOT if by_dependabot else Situation.PUSH,
        head_sha=about.sha("after"),
        head_branch=_branch(about.text("ref")),
        base_sha=about.sha("before"),
    )


def _workflow_run(name: str, about: _About) -> Event:
    """Describe the run that this job reports on; which pull request it was has to be asked for."""
    return about.event(
        name,
        Situation.AFTER_WORKFLOW,
        head_sha=about.sha("workflow_run", "head_sha"),
        head_branch=about.text("workflow_run", "head_branch"),
        head_owner=about.text("workflow_run", "head_repository", "owner", "login"),
    )


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _About:
    """A payload and the variables beside it."""

    payload: Mapping[str, Any]
    environment: Mapping[str, str]

    def event(self, name: str, situation: Situation, **more: Any) -> Event:
        return Event(
            name,
            situation,
            self.environment.get("GITHUB_REPOSITORY") or self.text("repository", "full_name") or "",
            sha=self.job_sha,
            default_branch=self.text("repository", "default_branch"),
            run_id=self.number("GITHUB_RUN_ID", 0),
            attempt=self.number("GITHUB_RUN_ATTEMPT", 1),
            actor=self.actor,
            **more,
        )

    @property
    def actor(self) -> str:
        """Whose rights the job has; running it again as somebody else does not change that."""
        return self.environment.get("GITHUB_ACTOR") or self.text("sender", "login") or ""

    @property
    def job_sha(self) -> str | None:
        sha = self.environment.get("GITHUB_SHA", "")
        return sha if _SHA.fullmatch(sha) else None

    def get(self, *path: str) -> Any:
        value: Any = self.payload
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def text(self, *path: str) -> str | None:
        value = self.get(*path)
        return value if isinstance(value, str) and value else None

    def sha(self, *path: str) -> str | None:
        """Return a commit; zeros, which stand for none, are None."""
        value = self.get(*path)
        if not isinstance(value, str) or not _SHA.fullmatch(value):
            raise _odd(".".join(path))
        return None if _ZEROS.fullmatch(value) else value

    def number(self, variable: str, otherwise: int) -> int:
        text = self.environment.get(variable, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else otherwise


def _payload(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_EVENT_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"the event in {str(path)!r} cannot be read: {error.strerror}",
            hint="GITHUB_EVENT_PATH names the file that the runner wrote",
        ) from None
    if len(data) > MAX_EVENT_BYTES:
        raise UsageError(
            f"the event in {str(path)!r} has more than {MAX_EVENT_BYTES:,} bytes",
            hint="GITHUB_EVENT_PATH names the file that the runner wrote",
        )
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(
            f"the event in {str(path)!r} is not a JSON object",
            hint="GITHUB_EVENT_PATH names the file that the runner wrote",
        )
    return value


def _branch(ref: str | None) -> str | None:
    return ref.removeprefix("refs/heads/") if ref and ref.startswith("refs/heads/") else None


def _odd(place: str) -> UsageError:
    return UsageError(
        f"the event has no usable {place}",
        hint="GITHUB_EVENT_NAME and the file at GITHUB_EVENT_PATH must belong together",
    )
