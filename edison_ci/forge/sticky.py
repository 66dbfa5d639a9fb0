"""The one comment of a pull request: always the newest, and never anybody else's.

The first line of the comment is a marker, the second holds data for us; both are invisible. Ours is
a comment that we wrote and that STARTS with the marker: a quote of it is not. Of two (two jobs may
have raced) the older one is kept. A report never replaces one of a later run. The bodies of two
states of one run go forward only: running, partial, then final or cancelled.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.forge.capping import MAX_BODY_CHARS, capped
from edison_ci.forge.marker import hidden_lines, marker_of, stamp_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.forge.marker import Stamp
    from edison_ci.forge.models import Comment, Forge

_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Report:
    """A text to show on a pull request; `key` tells apart the reports that one may have."""

    body: str
    stamp: Stamp
    key: str = "edison"
    elsewhere: str = "the job summary"
    """Where a reader finds what did not fit."""

    @property
    def text(self) -> str:
        """The comment as it is sent, within what GitHub takes."""
        head = hidden_lines(self.key, self.stamp)
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
        stamp, first = stamp_of(text), marker_of(text)
        if stamp is None or first is None:
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
        if marker_of(comment.body) == report.marker and forge.is_ours(comment)
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


def _order(body: str) -> tuple[int, int, int]:
    stamp = stamp_of(body)
    return stamp.order if stamp else (-1, 0, 0)


def _same(one: str, two: str) -> bool:
    return _plain(one) == _plain(two)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").rstrip()
