"""What does a prompt say that has the changes of two versions?

Both versions are changes of one text. What only one of them changes is taken over; where both add
lines at the same place, both additions follow each other and what they have in common stands there
once; where both rewrite the same lines, the first one keeps its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.matching import matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORD = re.compile(r"\w+")


class Edit(NamedTuple):
    """Lines of a text that are replaced; none are where it only adds some."""

    start: int
    stop: int
    lines: tuple[str, ...]

    @property
    def adds(self) -> bool:
        """Whether it takes nothing away."""
        return self.start == self.stop

    def clashes(self, other: Edit) -> bool:
        """Whether both want to change the same lines."""
        if self.adds and other.adds:
            return False
        if self.adds:
            return other.start < self.start < other.stop
        if other.adds:
            return self.start < other.start < self.stop
        return self.start < other.stop and other.start < self.stop


def edits(before: str, after: str) -> list[Edit]:
    """Return what makes one text of another, line by line, in the order of the lines."""
    old, new = before.split("\n"), after.split("\n")
    return [
        Edit(start, stop, tuple(new[new_start:new_stop]))
        for tag, start, stop, new_start, new_stop in matcher(old, new).get_opcodes()
        if tag != "equal"
    ]


def applied(text: str, changes: Sequence[Edit]) -> str:
    """Return a text after edits that do not clash, in the order of the lines."""
    lines, at = text.split("\n"), 0
    found: list[str] = []
    for edit in changes:
        found += lines[at : edit.start]
        found += edit.lines
        at = edit.stop
    return "\n".join([*found, *lines[at:]])


def crossed(base: str, first: str, second: str) -> str | None:
    """Return the text with the changes of both; None where that is one of the two."""
    text = applied(base, _united(edits(base, first), edits(base, second)))
    return None if text in (base, first, second) else text


def _united(own: Sequence[Edit], others: Sequence[Edit]) -> list[Edit]:
    """Return the edits of both, in the order of the lines; an addition comes before a rewriting."""
    found = {(edit.start, edit.stop): edit for edit in own}
    said = {_words(line) for edit in own for line in edit.lines}
    for edit in others:
        if edit in own or any(edit.clashes(mine) for mine in own):
            continue
        lines = edit.lines
        if edit.adds:
            lines = tuple(line for line in lines if not line.strip() or _words(line) not in said)
            if lines != edit.lines and not any(line.strip() for line in lines):
                continue
        place = (edit.start, edit.stop)
        before = found[place].lines if place in found else ()
        found[place] = Edit(*place, (*before, *lines))
    return sorted(found.values())


def _words(line: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(line.casefold()))
