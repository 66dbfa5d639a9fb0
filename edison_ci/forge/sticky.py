"""How is there one comment per pull request, always the newest, and never anybody else's?

The first line of the comment is a marker, the second holds data for us; both are invisible. Ours is
a comment that we wrote and that STARTS with the marker: a quote of it is not. Of two (two jobs may
have raced) the older one is kept. A report never replaces one of a later run. The bodies of two
states of one run go forward only: running, partial, then final or cancelled.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.forge.capping import MAX_BODY_CHARS, capped
from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.contracts import Forge
    from edison_ci.hosted import Comment

_ROUNDS = 3
_KEY = re.compile(r"[A-Za-z0-9._-]{1,100}")
_MARKER = re.compile(rf"<!-- edison-ci:report:v1 key={_KEY.pattern} -->")
_DATA = re.compile(r"<!-- edison-ci:data (\{.*\}) -->")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class State(StrEnum):
    """How far the run had come."""

    RUNNING = "running"
    PARTIAL = "partial"
    FINAL = "final"
    CANCELLED = "cancelled"

    @property
    def rank(self) -> int:
        """Later states of one run are higher; a finished run cannot be cancelled any more."""
        return {"running": 0, "partial": 1, "cancelled": 2, "final": 3}[self.value]


@dataclass(frozen=True, slots=True)
class Stamp:
    """What we need to know about a report when we meet it again."""

    head_sha: str
    """The commit that was evaluated."""
    state: State = State.FINAL
    run_id: int = 0
    """The workflow run; 0 for a report that a person sent, which anything may replace."""
    attempt: int = 1
    verdict: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int, int]:
        """Later reports are higher: ids of runs grow, and so do attempts to run them again."""
        return self.run_id, self.attempt, self.state.rank


@dataclass(frozen=True, slots=True)
class Report:
    """A text to show on a pull request; `key` tells apart the reports that one may have."""

    body: str
    stamp: Stamp
    key: str = "edison"
    elsewhere: str = "the job summary"
    """Where a reader finds what did not fit."""

    @property
    def marker(self) -> str:
        """The first line, by which the comment is found again."""
        if not _KEY.fullmatch(self.key):
            raise UsageError(
                f"{self.key!r} cannot be the key of a comment",
                hint="use letters, digits, '-', '_' and '.'",
            )
        return f"<!-- edison-ci:report:v1 key={self.key} -->"

    @property
    def text(self) -> str:
        """The comment as it is sent, within what GitHub takes."""
        head = f"{self.marker}\n{_data_line(self.stamp)}\n"
        return head + capped(self.body, MAX_BODY_CHARS - len(head), elsewhere=self.elsewhere)


class Outcome(StrEnum):
    """What became of a report."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    SUPERSEDED = "superseded"
    """A later report is there, and stays."""


class Posted(NamedTuple):
    """Where a report is."""

    outcome: Outcome
    comment: Comment
    removed: tuple[int, ...] = ()
    """Further comments of ours that were one too many."""


async def post(forge: Forge, number: int, text: str) -> Posted:
    """Show a text on a pull request, in the one comment that is ours; raises ForgeError.

    The text starts with the marker and the data, as that of a `Report` does.
    """
    report = _Written.read(text)
    for left in reversed(range(_ROUNDS)):
        try:
            return await _post(forge, number, report)
        except ForgeError as error:
            # Deleted between our looking and our writing: look again.
            if (
                error.fault is not ForgeFault.NOT_FOUND
                or not left
                or not await _exists(forge, number)
            ):
                raise
    raise AssertionError("unreachable")


async def is_there(forge: Forge, number: int, text: str) -> bool:
    """Whether a pull request has a comment of ours in the place of this one."""
    return bool(await _ours(forge, number, _Written.read(text)))


@dataclass(frozen=True, slots=True)
class _Written:
    """A text that is ready to be sent, and what its first two lines say."""

    marker: str
    stamp: Stamp
    text: str

    @classmethod
    def read(cls, text: str) -> _Written:
        stamp, first = stamp_of(text), _first_line(text)
        if stamp is None or not _MARKER.fullmatch(first):
            raise UsageError(
                "a comment must start with its marker and its data", hint="make it with Report"
            )
        return cls(first, stamp, capped(text, elsewhere="the job summary"))


async def _exists(forge: Forge, number: int) -> bool:
    try:
        await forge.pull_request(number)
    except ForgeError:
        return False
    return True


async def _post(forge: Forge, number: int, report: _Written) -> Posted:
    found = await _ours(forge, number, report)
    if not found:
        made = await _create(forge, number, report)
        found = await _ours(forge, number, report)
        if not found or [comment.id for comment in found] == [made.id]:
            return Posted(Outcome.CREATED, made)
    return await _settle(forge, number, report, found)


async def _ours(forge: Forge, number: int, report: _Written) -> list[Comment]:
    comments = await forge.comments(number)
    return [
        comment
        for comment in comments
        if _first_line(comment.body) == report.marker and forge.is_ours(comment)
    ]


async def _create(forge: Forge, number: int, report: _Written) -> Comment:
    try:
        return await forge.create_comment(number, report.text)
    except ForgeError as error:
        if error.fault is not ForgeFault.UNAVAILABLE:
            raise
        # It may have been made all the same.
        made = [c for c in await _ours(forge, number, report) if _same(c.body, report.text)]
        return made[0] if made else await forge.create_comment(number, report.text)


async def _settle(forge: Forge, number: int, report: _Written, found: Sequence[Comment]) -> Posted:
    """Put the latest of all reports into the oldest comment, and take the others away."""
    kept, *others = found
    latest = max(found, key=lambda comment: _order(comment.body))
    outcome, text = Outcome.UPDATED, report.text
    if await _is_later(forge, number, latest, report):
        outcome, text = Outcome.SUPERSEDED, latest.body
    if _same(kept.body, text):
        outcome = Outcome.UNCHANGED if outcome is Outcome.UPDATED else outcome
    else:
        kept = await forge.update_comment(kept.id, text)
    for comment in others:
        await forge.delete_comment(comment.id)
    return Posted(outcome, kept, tuple(comment.id for comment in others))


async def _is_later(forge: Forge, number: int, comment: Comment, report: _Written) -> bool:
    """Whether a comment reports on a later run than ours does."""
    theirs = stamp_of(comment.body)
    if theirs is None or report.stamp.run_id == 0 or theirs.order <= report.stamp.order:
        return False
    if theirs.head_sha == report.stamp.head_sha:
        return True
    # Whoever got a bot to write a comment for them could claim any number, but not the head that
    # the pull request has now.
    return (await forge.pull_request(number)).head_sha != report.stamp.head_sha


# --- lines that nobody sees -----------------------------------------------------------------------


def stamp_of(body: str) -> Stamp | None:
    """Return the data in the second line of a comment; None if it cannot be understood."""
    lines = body.split("\n", 2)
    found = _DATA.fullmatch(lines[1].strip()) if len(lines) > 1 else None
    if found is None:
        return None
    try:
        data = json.loads(found[1])
        state = State(data["state"])
        head_sha, run_id, attempt = data["head"], data["run_id"], data["attempt"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    numbers = all(type(number) is int and 0 <= number < 2**63 for number in (run_id, attempt))
    if not numbers or not isinstance(head_sha, str) or not _SHA.fullmatch(head_sha):
        return None
    verdict, counts = data.get("verdict"), data.get("counts")
    return Stamp(
        head_sha,
        state,
        run_id,
        attempt,
        verdict if isinstance(verdict, str) else None,
        _whole_numbers(counts),
    )


def _whole_numbers(counts: Any) -> dict[str, int]:
    listed = counts.items() if isinstance(counts, dict) else ()
    return {str(name): count for name, count in listed if type(count) is int}


def _data_line(stamp: Stamp) -> str:
    data = {
        "run_id": stamp.run_id,
        "attempt": stamp.attempt,
        "head": stamp.head_sha,
        "state": str(stamp.state),
        "verdict": stamp.verdict,
        "counts": dict(stamp.counts),
    }
    # A comment in HTML ends at the first "-->"; JSON can write both characters otherwise.
    text = json.dumps(data).replace("--", "-\\u002d").replace(">", "\\u003e")
    return f"<!-- edison-ci:data {text.replace('<', chr(92) + 'u003c')} -->"


def _order(body: str) -> tuple[int, int, int]:
    stamp = stamp_of(body)
    return stamp.order if stamp else (-1, 0, 0)


def _first_line(body: str) -> str:
    return body.split("\n", 1)[0].rstrip("\r")


def _same(one: str, two: str) -> bool:
    return _plain(one) == _plain(two)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").rstrip()
