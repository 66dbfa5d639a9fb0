"""Line differences of two texts, with bounded work."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# The time of `difflib` grows with the cube of the length where lines repeat, and both texts may be
# written to make it so. Here lines that repeat too often are not used as anchors; they are only
# matched next to others. If even that would take too long, all old lines are replaced by all new
# lines.
_MOST_STEPS = 3_000_000
"""A few tenths of a second."""


def matcher(old: Sequence[str], new: Sequence[str]) -> difflib.SequenceMatcher[str]:
    """Return a matcher whose work is bounded."""
    shorter = min(len(old), len(new))
    left = _MOST_STEPS // max(shorter, 1) - len(old)
    if left < 0:
        return difflib.SequenceMatcher(lambda _: True, old, new, autojunk=False)
    counts, others = Counter(old), Counter(new)
    pairs = {line: number * others[line] for line, number in counts.items() if line in others}
    common: set[str] = set()
    if sum(pairs.values()) > left:
        for line in sorted(pairs, key=pairs.__getitem__):
            left -= pairs[line]
            if left < 0:
                common.add(line)
    return difflib.SequenceMatcher(common.__contains__, old, new, autojunk=False)


def unified_diff(
    old: Sequence[str], new: Sequence[str], old_name: str, new_name: str, *, end: str = ""
) -> Iterator[str]:
    """Yield the lines of a unified diff; `end` is appended to the header lines."""
    started = False
    for group in matcher(old, new).get_grouped_opcodes(3):
        if not started:
            started = True
            yield f"--- {old_name}{end}"
            yield f"+++ {new_name}{end}"
        first, last = group[0], group[-1]
        spans = _span(first[1], last[2]), _span(first[3], last[4])
        yield f"@@ -{spans[0]} +{spans[1]} @@{end}"
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in old[a1:a2])
                continue
            yield from (f"-{line}" for line in old[a1:a2])
            yield from (f"+{line}" for line in new[b1:b2])


def _span(start: int, stop: int) -> str:
    """Return a line range as a unified diff writes it; an empty one names the line before it."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"
