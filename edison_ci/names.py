"""Names: whether one is readable, which known one is nearest, and how a commit is called."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


# The matcher of `difflib` takes time that grows with the cube of the length where the same lines
# come again and again, and both texts may be written to make it so. Here lines that come too often
# are no anchors: they are matched beside others only. Where even that would take long, all of the
# old is replaced by all of the new.
_MOST_STEPS = 3_000_000
"""Some tenths of a second."""


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
    """Yield the lines of a unified diff; `end` ends the lines that are not of the texts."""
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
    """Return a range of lines as a unified diff names it: an empty one by the line before it."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_MOST_LISTED = 25
_LONGEST = 200
"""Comparing takes time that grows with the square of a name's length."""


def did_you_mean(
    name: str, known: Iterable[str], *, label: str = "allowed", otherwise: str = ""
) -> str:
    """Return a hint that names the nearest known name, or all of them when they are few."""
    import difflib  # only needed once something is wrong

    names = sorted({str(each) for each in known if len(each) <= _LONGEST})
    folded = {k.casefold(): k for k in names}
    near = difflib.get_close_matches(name[:_LONGEST].casefold(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    if 0 < len(names) <= _MOST_LISTED:
        return f"{label}: {', '.join(names)}"
    return otherwise


def commit_names(ref: str, commit: str) -> tuple[str, ...]:
    """Return what a commit was asked for by and its short id; once, if it was asked for by id."""
    short = commit[:8]
    return (short,) if commit.startswith(ref) else (ref, short)


def odd_character(text: str, *, ascii_only: bool = True) -> str:
    """Describe the first character that a reader could miss or mistake, or return ''."""
    for character in text:
        if character.isascii() and character.isprintable():
            continue
        name = unicodedata.name(character, "unnamed character")
        if ascii_only or unicodedata.category(character) in _INVISIBLE:
            return f"U+{ord(character):04X} ({name.lower()})"
    return ""


def mixed_scripts(text: str) -> str:
    """Describe a look-alike letter: Cyrillic or Greek inside Latin text; '' if there is none."""
    if text.isascii() or not any(c.isascii() and c.isalpha() for c in text):
        return ""
    for character in text:
        name = unicodedata.name(character, "")
        if name.startswith(("CYRILLIC", "GREEK")):
            return f"U+{ord(character):04X} ({name.lower()})"
    return ""
