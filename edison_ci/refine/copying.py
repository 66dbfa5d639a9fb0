"""Does a change repeat what stands in the cases?

A prompt that contains its test cases does well on them and proves nothing. So a run of words that a
case has, and that the prompt did not have before, may not be long. The words of the change are few
and are held in memory; the cases, which may be many, are read once.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.records import Case, Json

# Scripts that write no blanks between words; there a character counts as half a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_TEMPLATE = (("{{", "}}"), ("{%", "%}"), ("{#", "#}"))
_FULL, _HALF = 2, 1


class _Windows(NamedTuple):
    """Runs of words, by the number of words in them."""

    sizes: frozenset[int]
    runs: frozenset[tuple[str, ...]]


def words_of(text: str) -> list[str]:
    """Return the words of a text as they are compared: without case, marks and blanks."""
    return _WORD.findall(text.casefold())


def copied(lines: Iterable[str], before: str, texts: Iterable[str], *, longest: int) -> str:
    """Return a run of more than `longest` words that the lines share with a text; '' if none.

    Runs that stood in the prompt before are its own.
    """
    windows = _windows(lines, before, longest + 1)
    if not windows.runs:
        return ""
    for text in texts:
        words = words_of(text)
        for size in windows.sizes:
            for start in range(len(words) - size + 1):
                run = tuple(words[start : start + size])
                if run in windows.runs:
                    return " ".join(run)
    return ""


def _windows(lines: Iterable[str], before: str, least: int) -> _Windows:
    old = words_of(before)
    runs: set[tuple[str, ...]] = set()
    for line in lines:
        words = words_of(_without_templates(line))
        runs.update(_runs(words, least))
    sizes = frozenset(map(len, runs))
    known = {
        tuple(old[start : start + size]) for size in sizes for start in range(len(old) - size + 1)
    }
    return _Windows(sizes, frozenset(runs - known))


def _without_templates(text: str) -> str:
    for opening, closing in _TEMPLATE:
        pieces, at = [], 0
        while (start := text.find(opening, at)) >= 0:
            end = text.find(closing, start + 2)
            if end < 0:
                break
            pieces.append(text[at:start])
            at = end + 2
        text = " ".join([*pieces, text[at:]])
    return text


def _runs(words: list[str], least: int) -> Iterator[tuple[str, ...]]:
    """Yield the shortest run from each word that is worth so many words."""
    for start in range(len(words)):
        worth = 0
        for stop in range(start, len(words)):
            worth += _HALF if re.match(f"[{_UNSPACED}]", words[stop]) else _FULL
            if worth >= _FULL * least:
                yield tuple(words[start : stop + 1])
                break


def texts_of(cases: Iterable[Case]) -> Iterator[str]:
    """Yield what stands in cases: their inputs and what they expect."""
    for case in cases:
        for value in (*case.inputs.values(), case.expected):
            if value is not None:
                yield _text(value)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
