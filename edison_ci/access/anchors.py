"""Anchors of the audit: numbers and hashes of rows that are kept outside of the results file.

The comment of a pull request holds one, or a person notes it. A person who cuts off the end
of the log, or rewrites it, cannot change them. Rows after the newest anchor are not covered.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import UsageError
from edison_ci.store.audit import verify_copy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from edison_ci.access.site import Site
    from edison_ci.store.audit import Chain

_LINE = re.compile(r"([1-9][0-9]{0,17})\s*:\s*([0-9a-f]{12,64})")
_HASH = re.compile(r"[0-9a-f]{64}")


class Anchor(NamedTuple):
    """What someone outside of the results file knows about the log."""

    name: str
    rows: int
    head: str
    """Hash of that row, or its first digits."""


class AnchorState(StrEnum):
    """Whether the log agrees with an anchor."""

    HELD = "held"
    SET_ASIDE = "set aside"
    """The row is in a copy that was made when a backup was restored."""
    CUT = "cut off"
    CHANGED = "changed"


PROBLEMS = frozenset({AnchorState.CUT, AnchorState.CHANGED})


class AnchorResult(NamedTuple):
    """An anchor, compared with the log."""

    anchor: Anchor
    state: AnchorState
    sentence: str


def parse_anchor(text: str) -> Anchor:
    """Return the anchor of a text such as 12:3f9a...; raises UsageError."""
    match = _LINE.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(
            f"{text!r} is not the head of a log",
            hint="give the number of a row and at least 12 digits of its hash: 12:3f9a0c...",
        )
    return Anchor(f"--head {match[1]}", int(match[1]), match[2])


def anchor_in_comment(number: int, data: Mapping[str, Any]) -> Anchor | None:
    """Return the anchor in the data of a comment on a pull request; None if there is none."""
    audit = data.get("audit")
    if not isinstance(audit, dict):
        return None
    rows, head = audit.get("rows"), audit.get("head")
    if type(rows) is not int or rows < 1 or not isinstance(head, str) or not _HASH.fullmatch(head):
        return None
    return Anchor(f"the comment on pull request {number}", rows, head)


def compare_anchors(site: Site, chain: Chain, anchors: Iterable[Anchor]) -> list[AnchorResult]:
    """Return how the log agrees with each anchor."""
    return [_compared(site, chain, anchor) for anchor in anchors]


def _compared(site: Site, chain: Chain, anchor: Anchor) -> AnchorResult:
    name, rows = anchor.name, anchor.rows
    if chain.hashes.get(rows, "-").startswith(anchor.head):
        return AnchorResult(anchor, AnchorState.HELD, f"row {rows} is the one that {name} holds")
    copy = _copy_with(site, anchor)
    if copy:
        sentence = f"row {rows}, which {name} holds, is in {copy}: a backup was restored after it"
        return AnchorResult(anchor, AnchorState.SET_ASIDE, sentence)
    if rows > chain.rows:
        sentence = (
            f"the log ends at row {chain.rows}, but {name} holds row {rows}: its end was cut off"
        )
        return AnchorResult(anchor, AnchorState.CUT, sentence)
    sentence = f"row {rows} is not the one that {name} holds: the log was rewritten"
    return AnchorResult(anchor, AnchorState.CHANGED, sentence)


def _copy_with(site: Site, anchor: Anchor) -> str:
    """Return the name of a sound copy, kept when a backup was restored, that has the row."""
    for path in sorted(site.backups.glob("before-restore-*.db")):
        chain = verify_copy(path, [anchor.rows])
        if chain is None or chain.problem or anchor.rows not in chain.hashes:
            continue
        if chain.hashes[anchor.rows].startswith(anchor.head):
            return path.name
    return ""
