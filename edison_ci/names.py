"""Is this name readable, which known name is nearest to it, and how is a commit called?"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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
