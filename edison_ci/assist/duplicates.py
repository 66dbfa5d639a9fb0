"""Duplicates among written cases, and of cases that are there.

Three measures, from the strict to the loose: equal inputs but for case and blanks, nearly equal
texts (words in order), and, where embeddings are installed, texts that mean the same. How near is
too near depends on the diversity that was ordered. Inputs that repeat from case to case, such as a
policy, say nothing about whether two cases are alike, and are left out.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edison_ci.checks.similarity import Meanings, NearTexts
from edison_ci.records import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.records import Json

MOST_COMPARED = 20_000
"""Cases that are compared by more than equality."""
_NEAR = (0.95, 0.7)
_SAME_MEANING = (0.97, 0.77)
"""The similarity that is too much, at the diversities 1 and 10."""
_LONGEST = 2_000
_REPEATS = 0.5
_ENOUGH = 6


class KnownCases:
    """Cases that further ones are compared with."""

    def __init__(self, rows: Iterable[Mapping[str, Json]], names: Iterable[str], diversity: int):
        at = (diversity - 1) / 9
        self._near = _NEAR[0] + at * (_NEAR[1] - _NEAR[0])
        self._meaning = _SAME_MEANING[0] + at * (_SAME_MEANING[1] - _SAME_MEANING[0])
        self._exact: set[str] = set()
        self._texts = NearTexts()
        self._meanings = Meanings()
        names = [*names]
        first: list[Mapping[str, Json]] = []
        for row in rows:
            self._exact.add(_key(row))
            if len(first) < MOST_COMPARED:
                first.append(row)
        self._names = [name for name in names if not _repeats(name, first)] or names
        for row in first:
            self._remember(self._text(row))

    @property
    def by_meaning(self) -> bool:
        """Whether texts are compared by their meaning too."""
        return self._meanings.available

    def like(self, row: Mapping[str, Json]) -> str:
        """Return how a case repeats another one; empty if it does not."""
        if _key(row) in self._exact:
            return "the same as another one"
        text = self._text(row)
        if not text:
            return ""
        if self._texts.has(text, self._near):
            return "nearly the same as another one"
        if self._meanings.nearest(text) >= self._meaning:
            return "with the meaning of another one"
        return ""

    def add(self, row: Mapping[str, Json]) -> None:
        """Remember a case."""
        self._exact.add(_key(row))
        self._remember(self._text(row))

    def _remember(self, text: str) -> None:
        if text:
            self._texts.add(text)
            self._meanings.add(text)

    def _text(self, row: Mapping[str, Json]) -> str:
        texts = (_plain(row.get(name)) for name in self._names)
        return " ".join(texts).strip()[:_LONGEST]


def _plain(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical_json(value)


def _key(row: Mapping[str, Json]) -> str:
    return " ".join(canonical_json(dict(row)).casefold().split())


def _repeats(name: str, rows: list[Mapping[str, Json]]) -> bool:
    """Whether most cases share the value of an input with another case."""
    if len(rows) < _ENOUGH:
        return False
    seen = Counter(_plain(row.get(name)) for row in rows)
    return sum(n for n in seen.values() if n > 1) > _REPEATS * len(rows)
