"""Other texts than that of a signature, a key or a box, which lenient readers take for it."""

from __future__ import annotations

import base64
import string
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LETTERS = f"{string.ascii_letters}{string.digits}+/-_="
_LAST = 4
"""Characters at the end that are changed; spare bits are in the last one before the padding."""


def respelled(text: str) -> Iterator[str]:
    """Yield a text with each other letter in its last places, and with more or less padding."""
    for place in range(len(text) - _LAST, len(text)):
        for letter in _LETTERS:
            if letter != text[place]:
                yield f"{text[:place]}{letter}{text[place + 1 :]}"
    middle = len(text) // 2
    for ignored in (" ", "\n", "\t", "!", "=", "\0", "é", "\udc80"):
        yield f"{text[:middle]}{ignored}{text[middle:]}"
        yield f"{text}{ignored}"
        yield f"{ignored}{text}"
    if text.endswith("="):
        yield text.rstrip("=")


def same_bytes(text: str) -> list[str]:
    """Return the spellings of a text that Python's own decoder takes for the same bytes."""
    raw, others = base64.b64decode(text), []
    for other in respelled(text):
        with suppress(ValueError):
            if base64.b64decode(other) == raw:
                others.append(other)
    assert others, "there are spare bits, or characters that are ignored"
    return others
