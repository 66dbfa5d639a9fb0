"""In which words does a text differ from another?"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from edison_ci.report.markup import Html, element, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
MOST_WORDS = 3_000
"""Comparing takes time that grows with the square of a text's length."""


def word_diff(before: str, after: str) -> Html | None:
    """Return the later text with what was added and taken away; None if one is too long."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if max(len(old), len(new)) > MOST_WORDS:
        return None
    return joined(_pieces(old, new))


def _pieces(old: list[str], new: list[str]) -> Iterator[Html | str]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        gone, come = "".join(old[i1:i2]), "".join(new[j1:j2])
        if tag == "equal":
            yield come
            continue
        if gone.strip():
            yield element("del", gone)
        if come.strip():
            yield element("ins", come)
        elif come:
            yield come
