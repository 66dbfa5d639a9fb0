"""Jobs of GitHub Actions: the event that started one, its trust, base commit and permissions.

All of it comes from the runner: `GITHUB_EVENT_NAME`, the file at `GITHUB_EVENT_PATH`, and a few
more variables. Files of the repository never decide whether a job is trusted.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edison_ci._dataclass import dataclass
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.git import command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.git.repository import Repository

Mode = Literal["live", "replay"]

MAX_EVENT_BYTES = 30_000_000
DEPENDABOT = "dependabot[bot]"

_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ZEROS = re.compile(r"0{40}|0{64}")


class Situation(StrEnum):
    """The reason why a job runs, as far as its rights depend on it."""

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
    Situation.PUSH: "only people with write access can push",
    Situation.SCHEDULE: "schedules run on the default branch",
    Situation.DISPATCH: "only people with write access can start it",
    Situation.AFTER_WORKFLOW: "it reports on a run that may come from a fork",
    Situation.OTHER: "it is not known whether the author of the event can be trusted",
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
    """The event that started a job."""

    name: str
    situation: Situation
    repository: str
    """`owner/name`."""
    sha: str | None = None
    """The commit of the job; for a pull request the one that merges it into its base."""
    number: int | None = None
    """The pull request; None if the event has none."""
    head_sha: str | None = None
    """The last commit of the author, unlike a merge commit made by GitHub."""
    head_branch: str | None = None
    head_owner: str | None = None
    """The owner of the repository that has the branch."""
    base_sha: str | None = None
    """The commit that the head is compared with; None if the event has none."""
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
        """Whether the job runs on the default branch itself, not on a proposal to change it."""
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
        """The reason for the rights of the job, for readers."""
        return _WHY[self.situation]


def read_event(environment: Mapping[str, str]) -> Event:
    """Return the event of this job; raises UsageError outside of GitHub Actions."""
    name, path = environment.get("GITHUB_EVENT_NAME", ""), environment.get("GITHUB_EVENT_PATH", "")
    if not name:
        raise UsageError(
            "this is not a job of GitHub Actions: GITHUB_EVENT_NAME is not set",
            hint="run this command in a workflow",
        )
    # The payload of a schedule is almost empty, so its file may be missing.
    payload = _payload(Path(path)) if path else {}
    return parse_event(name, payload, environment)


def parse_event(name: str, payload: Mapping[str, Any], environment: Mapping[str, str]) -> Event:
    """Return the event of a name and a payload."""
    about = _EventSource(payload, environment)
    if name in {"pull_request", "pull_request_target", "pull_request_review"}:
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


def _pull_request(name: str, about: _EventSource) -> Event:
    ours = about.get("pull_request", "base", "repo", "id")
    theirs = about.get("pull_request", "head", "repo", "id")  # None when the fork is gone
    same = ours is not None and theirs == ours
    situation = Situation.PULL_REQUEST if same else Situation.FORK
    if name == "pull_request_target" and situation is Situation.FORK:
        raise UsageError(
            "pull_request_target gives the code of a fork the keys of this repository and a token "
            "with write access, so nothing is evaluated",
            hint="use `on: pull_request`: forks are then evaluated from recorded answers, without "
            "keys; a maintainer who has read the change can start workflow_dispatch",
        )
    if situation is Situation.PULL_REQUEST and about.actor == DEPENDABOT:
        situation = Situation.DEPENDABOT
    number = about.get("pull_request", "number")
    if not isinstance(number, int) or isinstance(number, bool):
        raise _unusable("pull_request.number")
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


def _merge_group(name: str, about: _EventSource) -> Event:
    return about.event(
        name,
        Situation.MERGE_GROUP,
        head_sha=about.sha("merge_group", "head_sha"),
        head_branch=_branch(about.text("merge_group", "head_ref")),
        base_sha=about.sha("merge_group", "base_sha"),
        base_branch=_branch(about.text("merge_group", "base_ref")),
    )


def _push(name: str, about: _EventSource) -> Event:
    by_dependabot = about.actor == DEPENDABOT
    return about.event(
        name,
        Situation.DEPENDABOT if by_dependabot else Situation.PUSH,
        head_sha=about.sha("after"),
        head_branch=_branch(about.text("ref")),
        base_sha=about.sha("before"),
    )


def _workflow_run(name: str, about: _EventSource) -> Event:
    """Return the event of the workflow run that this job reports on, without a pull request."""
    return about.event(
        name,
        Situation.AFTER_WORKFLOW,
        head_sha=about.sha("workflow_run", "head_sha"),
        head_branch=about.text("workflow_run", "head_branch"),
        head_owner=about.text("workflow_run", "head_repository", "owner", "login"),
    )


@dataclass(frozen=True, slots=True)
class _EventSource:
    """A payload and the variables of the runner."""

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
        """The account whose rights the job has; a rerun by another account does not change it."""
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
        """Return a commit; None for zeros, by which Git means none."""
        value = self.get(*path)
        if not isinstance(value, str) or not _SHA.fullmatch(value):
            raise _unusable(".".join(path))
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


def _unusable(place: str) -> UsageError:
    return UsageError(
        f"the event has no valid {place}",
        hint="GITHUB_EVENT_NAME does not fit the file at GITHUB_EVENT_PATH",
    )


# Checkouts in workflows are shallow. For a pull request the runner checks out the commit that
# merges it into its base, whose first parent is exactly that base. If the head itself is checked
# out, history is deepened until the merge base is known. A push is compared with the former tip of
# the branch; a new branch, or one whose former tip is gone, with the default branch.
@dataclass(frozen=True, slots=True)
class BaseCommit:
    """The commit that a change is compared with."""

    commit: str | None
    """None if there is nothing to compare with: everything counts as changed."""
    why: str


def find_base(event: Event, repository: Repository) -> BaseCommit:
    """Return the commit that the change of an event is compared with.

    May fetch into a shallow clone.
    """
    head = repository.head()
    if head is None:
        raise UsageError(
            "the repository has no commit", hint="check it out first, with actions/checkout"
        )
    if event.name in {"pull_request", "pull_request_target", "pull_request_review"}:
        return _pull_request_base(event, repository, head)
    if event.situation is Situation.MERGE_GROUP and event.base_sha:
        base = repository.base_for(event.base_sha)
        return BaseCommit(base, "the branch that the merge queue merges into")
    if event.name == "push":
        return _push_base(event, repository)
    if is_other_checkout(event, head):
        base = repository.base_for(str(event.sha))
        return BaseCommit(base, "the merge base with the commit that the job was started for")
    return BaseCommit(None, f"an event {event.name!r} has no commit to compare with")


def is_other_checkout(event: Event, head: str) -> bool:
    """Whether another commit is checked out than the one that the job was started for.

    A maintainer evaluates a fork by hand this way. The commit of the job is on a branch of this
    repository, and so is its merge base with the commit that is checked out.
    """
    return event.situation is Situation.DISPATCH and event.sha is not None and head != event.sha


def is_proposal(event: Event, head: str | None) -> bool:
    """Whether a job works on a proposal, whose files must not decide about trust.

    The default branch is no proposal: a push to it, a schedule, or a job started by hand for it.
    Any other event, or any other commit that is checked out, is one.
    """
    return not event.on_default or (event.sha is not None and head != event.sha)


def policy_commit(event: Event, repository: Repository) -> str | None:
    """Return the commit whose files decide what a proposal may do; None if it is unavailable.

    It is the tip of the target branch, not the merge base, which the author of a proposal can
    choose as old as they like. Only the default branch counts as a target: any other may have been
    created for the purpose by the author of the pull request.
    """
    default = event.default_branch
    if event.base_branch is not None and event.base_branch == default:
        head = repository.head()
        parents = repository.parents(head) if head is not None else ()
        # GitHub made this merge: a commit of the author cannot have itself as its second parent.
        if len(parents) == 2 and parents[1] == event.head_sha and repository.obtain(parents[0]):
            return parents[0]
        return event.base_sha if event.base_sha and repository.obtain(event.base_sha) else None
    if event.on_default and event.sha is not None and repository.obtain(event.sha):
        return event.sha
    try:
        return (
            repository.resolve(command.fetch_branch(repository.root, default)) if default else None
        )
    except UsageError:
        return None


def _pull_request_base(event: Event, repository: Repository, head: str) -> BaseCommit:
    parents = repository.parents(head)
    # The merge commit of the runner may be newer than the event; then it is the job's commit.
    merged = len(parents) == 2 and (parents[1] == event.head_sha or head == event.sha)
    if merged and repository.obtain(parents[0]):
        return BaseCommit(parents[0], "the base that the pull request was merged into")
    if event.base_sha is None:
        return BaseCommit(None, "the event has no base")
    return BaseCommit(repository.base_for(event.base_sha), "the merge base of head and base")


def _push_base(event: Event, repository: Repository) -> BaseCommit:
    if event.base_sha is not None and repository.obtain(event.base_sha):
        return BaseCommit(event.base_sha, "the tip of the branch before the push")
    missing = "is new" if event.base_sha is None else "was force-pushed, and its former tip is gone"
    default = event.default_branch
    if default is None or event.head_branch == default:
        return BaseCommit(None, f"the branch {missing}")
    base = repository.base_for(f"origin/{default}")
    return BaseCommit(base, f"the branch {missing}: its merge base with {default}")


COMMENT = {"contents": "read", "pull-requests": "write"}
"""Permissions of a job that evaluates a pull request."""
PROPOSE = {"contents": "write", "pull-requests": "write"}
"""Permissions of a job that opens pull requests."""


def permissions_block(permissions: dict[str, str]) -> str:
    """Return permissions as YAML of a workflow."""
    return "\n".join(["permissions:", *(f"  {name}: {how}" for name, how in permissions.items())])


def permission_hint(error: ForgeError, needed: dict[str, str], *, untrusted: bool = False) -> str:
    """Return the hint for an error of the forge: which permissions are missing, where they are."""
    if error.fault is not ForgeFault.FORBIDDEN:
        return error.hint
    if "locked" in error.message:
        return "the conversation of the pull request is locked: unlock it to allow comments"
    if untrusted:
        return (
            "GitHub gives pull requests from forks and from Dependabot a read-only token, which a "
            "workflow cannot change: the result is in the job summary"
        )
    return f"add this to the job in the workflow:\n\n{permissions_block(needed)}"
