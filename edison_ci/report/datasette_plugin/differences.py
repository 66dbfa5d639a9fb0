"""In which words does a text differ from another?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.matching import matcher
from edison_ci.report.markup import Html, element, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS = re.compile(r"(\S+)(\s*)")
MOST_WORDS = 3_000
"""Comparing takes time that grows with the square of a text's length."""


def word_diff(before: str, after: str) -> Html | None:
    """Return the later text with what was added and taken away; None if one is too long.

    Blanks are those of the later text: nobody asks how they changed.
    """
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if max(len(old), len(new)) > MOST_WORDS:
        return None
    return joined(_pieces(old, new))


def _pieces(old: list[tuple[str, str]], new: list[tuple[str, str]]) -> Iterator[Html | str]:
    words = [word for word, _ in old], [word for word, _ in new]
    for tag, i1, i2, j1, j2 in matcher(*words).get_opcodes():
        gone, come = _text(old[i1:i2]), _text(new[j1:j2])
        if tag == "equal":
            yield come
            continue
        if gone.strip():
            yield element("del", gone.rstrip())
            yield " "
        if come.strip():
            yield element("ins", come.rstrip())
        yield come[len(come.rstrip()) :]


def _text(words: list[tuple[str, str]]) -> str:
    return "".join(word + blank for word, blank in words)
