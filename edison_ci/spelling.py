"""Spelling of names: the nearest known name for a hint, and characters a reader could mistake."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_MOST_LISTED = 25
_LONGEST = 200
"""Longer names are not compared: the time grows with the square of the length."""


def did_you_mean(
    name: str, known_names: Iterable[str], *, label: str = "allowed", otherwise: str = ""
) -> str:
    """Return a hint with the nearest known name, or with all of them if they are few."""
    import difflib  # only needed after an error; the import takes milliseconds

    names = sorted({str(known_name) for known_name in known_names if len(known_name) <= _LONGEST})
    folded = {k.casefold(): k for k in names}
    near = difflib.get_close_matches(name[:_LONGEST].casefold(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    if 0 < len(names) <= _MOST_LISTED:
        return f"{label}: {', '.join(names)}"
    return otherwise


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
    """Describe the first Cyrillic or Greek letter inside Latin text, or return ''."""
    if text.isascii() or not any(c.isascii() and c.isalpha() for c in text):
        return ""
    for character in text:
        name = unicodedata.name(character, "")
        if name.startswith(("CYRILLIC", "GREEK")):
            return f"U+{ord(character):04X} ({name.lower()})"
    return ""
