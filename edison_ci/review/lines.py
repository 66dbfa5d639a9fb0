"""Which lines of somebody's own pull request would a suggestion replace?

A forge takes suggested lines only where the pull request's diff shows them. If one part of the
suggestion lies elsewhere, none of it is offered so: half a change was never measured.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.hosted import SuggestedLines
from edison_ci.matching import matcher

if TYPE_CHECKING:
    from collections.abc import Iterator

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def lines_shown(patch: str) -> frozenset[int]:
    """Return the lines of the new file that a diff shows."""
    shown: set[int] = set()
    at = 0
    for line in patch.split("\n"):
        if found := _HUNK.match(line):
            at = int(found[1])
        elif at and line[:1] in (" ", "+", ""):
            shown.add(at)
            at += 1
    return frozenset(shown)


def suggested_lines(path: str, before: str, after: str, note: str = "") -> list[SuggestedLines]:
    """Return what to put in the place of which lines to get from one text to the other."""
    old, new = before.split("\n"), after.split("\n")
    found: list[SuggestedLines] = []
    for first, last, replacement in _parts(old, new):
        text = "\n".join(replacement)
        found.append(SuggestedLines(path, first, last, text, note if not found else ""))
    return found


def _parts(old: list[str], new: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the first and last line that go, counted from 1, and what comes instead."""
    for what, i1, i2, j1, j2 in matcher(old, new).get_opcodes():
        if what == "equal":
            continue
        if i1 == i2:  # lines are only added: the one before them is said again
            if i1 == 0:
                yield 1, 1, [*new[j1:j2], old[0]]
            else:
                yield i1, i1, [old[i1 - 1], *new[j1:j2]]
        elif new[j1:j2] == [""] and i1 > 0:  # nothing but a blank line would read as nothing
            yield i1, i2, [old[i1 - 1], ""]
        else:
            yield i1 + 1, i2, new[j1:j2]


def fit(suggested: list[SuggestedLines], shown: frozenset[int]) -> bool:
    """Whether every line that goes is one that the diff shows."""
    return bool(suggested) and all(
        line in shown for each in suggested for line in range(each.first_line, each.last_line + 1)
    )
