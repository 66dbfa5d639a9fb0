"""The sticky comment of a pull request: its marker, its length, and how it is updated.

The first line of the comment is a marker with a key, the second holds data as JSON; both are HTML
comments, so readers do not see them. A comment counts as this tool's own when its account wrote it
and it STARTS with the marker: a quote of it does not. If two jobs raced and made two, the older
comment is kept. A report never replaces that of a later run, and the states of one run only move
forward: running, partial, then final or cancelled.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.proposals import proposal_text
from edison_ci.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.git.forge import Comment, Forge


_KEY = re.compile(r"[A-Za-z0-9._-]{1,100}")
_MARKER = re.compile(rf"<!-- edison-ci:report:v1 key={_KEY.pattern} -->")
_DATA = re.compile(r"<!-- edison-ci:data (\{.*\}) -->")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHORT = 12
"""Digits of a commit in the list of pushes."""
_SHORT_SHA = re.compile(r"[0-9a-f]{12}")
_MOST_PUSHES = 500


class ReportState(StrEnum):
    """The state of the run that is reported."""

    RUNNING = "running"
    PARTIAL = "partial"
    FINAL = "final"
    CANCELLED = "cancelled"

    @property
    def rank(self) -> int:
        """Later states of one run rank higher: a cancelled report never replaces a final one."""
        return {"running": 0, "partial": 1, "cancelled": 2, "final": 3}[self.value]


@dataclass(frozen=True, slots=True)
class ReportMarker:
    """The data in a comment that decides which of two reports is newer."""

    head_sha: str
    """The commit that was evaluated."""
    state: ReportState = ReportState.FINAL
    run_id: int = 0
    """The workflow run; 0 for a report sent by hand, which any other may replace."""
    attempt: int = 1
    verdict: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def decided(self) -> bool:
        """Whether gates have decided on the commit."""
        verdicts = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
        return self.state is ReportState.FINAL and self.verdict in verdicts

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key, higher for later reports: ids of runs and numbers of attempts only grow."""
        return self.run_id, self.attempt, self.state.rank


def marker_line(key: str) -> str:
    """Return the first line of the comment with this key."""
    if not _KEY.fullmatch(key):
        raise UsageError(
            f"{key!r} is not a valid key of a comment",
            hint="use letters, digits, '-', '_' and '.'",
        )
    return f"<!-- edison-ci:report:v1 key={key} -->"


def marker_line_of(body: str) -> str | None:
    """Return the marker line that a comment starts with; None if there is none."""
    first = body.split("\n", 1)[0].rstrip("\r")
    return first if _MARKER.fullmatch(first) else None


def hidden_lines(key: str, marker: ReportMarker, more: Mapping[str, Any] | None = None) -> str:
    """Return the marker line and the data line; `more` is data for other programs."""
    data = {
        "run_id": marker.run_id,
        "attempt": marker.attempt,
        "head": marker.head_sha,
        "state": str(marker.state),
        "verdict": marker.verdict,
        "counts": dict(marker.counts),
        "pushes": [marker.head_sha[:_SHORT]] if marker.decided else [],
        **(more or {}),
    }
    return f"{marker_line(key)}\n{_data_line(data)}\n"


def _data_line(data: Mapping[str, Any]) -> str:
    # An HTML comment ends at the first "-->", so these characters are escaped as JSON allows.
    text = json.dumps(data).replace("--", r"-\u002d").replace(">", r"\u003e")
    return f"<!-- edison-ci:data {text.replace('<', chr(92) + 'u003c')} -->"


def parse_data(body: str) -> dict[str, Any] | None:
    """Return the data in the second line of a comment; None if there is none."""
    lines = body.split("\n", 2)
    match = _DATA.fullmatch(lines[1].strip()) if len(lines) > 1 else None
    if match is None:
        return None
    try:
        data = json.loads(match[1])
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def parse_pushes(body: str) -> list[str]:
    """Return the commits of the pull request that its comment has reported on, oldest first."""
    pushes = (parse_data(body) or {}).get("pushes")
    listed = pushes if isinstance(pushes, list) else []
    return [push for push in listed if isinstance(push, str) and _SHORT_SHA.fullmatch(push)]


def with_pushes(text: str, earlier: str) -> str:
    """Return a comment that also lists the commits that an earlier comment has reported on."""
    data = parse_data(text)
    pushes = list(dict.fromkeys([*parse_pushes(earlier), *parse_pushes(text)]))
    if data is None or pushes == parse_pushes(text):
        return text
    first, _, rest = text.split("\n", 2)
    return "\n".join((first, _data_line({**data, "pushes": pushes[:_MOST_PUSHES]}), rest))


async def read_data(forge: Forge, number: int, key: str) -> list[dict[str, Any]]:
    """Return the data in the comments of a pull request with this key, by this tool's account."""
    ours = await _ours(forge, number, marker_line(key))
    return [data for comment in ours if (data := parse_data(comment.body)) is not None]


async def push_number(forge: Forge, number: int, key: str, head_sha: str) -> int:
    """Return which push of a pull request a commit is, by the commits reported on so far."""
    ours = await _ours(forge, number, marker_line(key))
    pushes = [push for comment in ours for push in parse_pushes(comment.body)]
    pushes = list(dict.fromkeys([*pushes, head_sha[:_SHORT]]))
    return pushes.index(head_sha[:_SHORT]) + 1


def parse_marker(body: str) -> ReportMarker | None:
    """Return the report marker in a comment; None if it is missing or not valid."""
    data = parse_data(body)
    if data is None:
        return None
    try:
        state = ReportState(data["state"])
        head_sha, run_id, attempt = data["head"], data["run_id"], data["attempt"]
    except (ValueError, KeyError, TypeError):
        return None
    numbers = all(type(number) is int and 0 <= number < 2**63 for number in (run_id, attempt))
    if not numbers or not isinstance(head_sha, str) or not _SHA.fullmatch(head_sha):
        return None
    verdict = data.get("verdict")
    verdict = verdict if isinstance(verdict, str) else None
    counts = _whole_numbers(data.get("counts"))
    return ReportMarker(head_sha, state, run_id, attempt, verdict, counts)


def _whole_numbers(counts: Any) -> dict[str, int]:
    listed = counts.items() if isinstance(counts, dict) else ()
    return {str(name): count for name, count in listed if type(count) is int}


_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Report:
    """A text to show on a pull request, which has one comment for each `key`."""

    body: str
    marker: ReportMarker
    key: str = "edison"
    elsewhere: str = "the job summary"
    """Where a reader finds the rest of a truncated body."""

    @property
    def text(self) -> str:
        """The comment as it is sent, within GitHub's limit of length."""
        head = hidden_lines(self.key, self.marker)
        room = proposal_text.MAX_BODY_CHARS - len(head)
        return head + proposal_text.truncate(self.body, room, elsewhere=self.elsewhere)


class Outcome(StrEnum):
    """The result of posting a report."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    SUPERSEDED = "superseded"
    """The comment shows a later report, and keeps it."""


class StickyResult(NamedTuple):
    """The comment of a report, and what was done to it."""

    outcome: Outcome
    comment: Comment
    removed: tuple[int, ...] = ()
    """Ids of duplicate comments that were deleted."""


async def post(forge: Forge, number: int, text: str) -> StickyResult:
    """Create or update the sticky comment of a pull request; raises ForgeError.

    The text starts with the marker and the data, as `Report.text` does.
    """
    report = _PreparedComment.read(text)
    for left in reversed(range(_ROUNDS)):
        try:
            return await _post(forge, number, report)
        except ForgeError as error:
            # Deleted between the read and the write: try again.
            if (
                error.fault is not ForgeFault.NOT_FOUND
                or not left
                or not await _exists(forge, number)
            ):
                raise
    raise AssertionError("unreachable")


async def has_comment(forge: Forge, number: int, text: str) -> bool:
    """Whether a pull request has a comment with the marker of this text."""
    return bool(await _ours(forge, number, _PreparedComment.read(text).marker_line))


@dataclass(frozen=True, slots=True)
class _PreparedComment:
    """A text that is ready to be sent, and its marker."""

    marker_line: str
    marker: ReportMarker
    text: str

    @classmethod
    def read(cls, text: str) -> _PreparedComment:
        marker, first = parse_marker(text), marker_line_of(text)
        if marker is None or first is None:
            raise UsageError(
                "the comment does not start with its marker and data lines",
                hint="create it with `Report.text`",
            )
        return cls(first, marker, proposal_text.truncate(text, elsewhere="the job summary"))


async def _exists(forge: Forge, number: int) -> bool:
    try:
        await forge.pull_request(number)
    except ForgeError:
        return False
    return True


async def _post(forge: Forge, number: int, report: _PreparedComment) -> StickyResult:
    comments = await _ours(forge, number, report.marker_line)
    if not comments:
        made = await _create(forge, number, report)
        comments = await _ours(forge, number, report.marker_line)
        if not comments or [comment.id for comment in comments] == [made.id]:
            return StickyResult(Outcome.CREATED, made)
    return await _settle(forge, number, report, comments)


async def _ours(forge: Forge, number: int, marker: str) -> list[Comment]:
    comments = await forge.comments(number)
    return [
        comment
        for comment in comments
        if marker_line_of(comment.body) == marker and forge.is_ours(comment)
    ]


async def _create(forge: Forge, number: int, report: _PreparedComment) -> Comment:
    try:
        return await forge.create_comment(number, report.text)
    except ForgeError as error:
        if error.fault is not ForgeFault.UNAVAILABLE:
            raise
        # The request may have been carried out although the reply was lost.
        made = [
            c for c in await _ours(forge, number, report.marker_line) if _same(c.body, report.text)
        ]
        return made[0] if made else await forge.create_comment(number, report.text)


async def _settle(
    forge: Forge, number: int, report: _PreparedComment, comments: Sequence[Comment]
) -> StickyResult:
    """Put the latest of all reports into the oldest comment, and delete the others."""
    kept, *others = comments
    latest = max(comments, key=lambda comment: _order(comment.body))
    outcome, text = Outcome.UPDATED, report.text
    if await _is_later(forge, number, latest, report):
        outcome, text = Outcome.SUPERSEDED, latest.body
    for comment in comments:
        text = with_pushes(text, comment.body)
    if _same(kept.body, text):
        outcome = Outcome.UNCHANGED if outcome is Outcome.UPDATED else outcome
    else:
        kept = await forge.update_comment(kept.id, text)
    for comment in others:
        await forge.delete_comment(comment.id)
    return StickyResult(outcome, kept, tuple(comment.id for comment in others))


async def _is_later(forge: Forge, number: int, comment: Comment, report: _PreparedComment) -> bool:
    """Whether a comment reports on a later run than `report` does."""
    theirs = parse_marker(comment.body)
    if theirs is None or report.marker.run_id == 0 or theirs.order <= report.marker.order:
        return False
    if theirs.head_sha == report.marker.head_sha:
        return True
    # A forged comment of a bot could claim any run id, but not the current head of the pull
    # request, so only that head decides.
    return (await forge.pull_request(number)).head_sha != report.marker.head_sha


def _order(body: str) -> tuple[int, int, int]:
    marker = parse_marker(body)
    return marker.order if marker else (-1, 0, 0)


def _same(first: str, second: str) -> bool:
    return _plain(first) == _plain(second)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").rstrip()
