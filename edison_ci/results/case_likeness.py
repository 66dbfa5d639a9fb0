"""Duplicates among written cases, and of cases that are there.

Three measures, from the strict to the loose: equal inputs but for case and blanks, nearly equal
texts (words in order), and, where embeddings are installed, texts that mean the same. How near is
too near depends on the diversity that was ordered. A case repeats another one if all its longer
inputs do; a name or a number that differs makes no other case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.checks.similarity import Meanings, NearTexts
from edison_ci.records import canonical_json, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.records import Json

MOST_COMPARED = 20_000
"""Cases that are compared by more than equality."""
_NEAR = (0.95, 0.7)
_SAME_MEANING = (0.97, 0.77)
"""The similarity that is too much, at the diversities 1 and 10."""
_LONGEST = 2_000
_WORDS = 4
_ALL = ""
"""The column of cases whose inputs are all short."""


SAME = "the same as another one"
NEARLY_THE_SAME = "nearly the same as another one"
SAME_MEANING = "with the meaning of another one"


class _Column:
    """The texts of one input, by the place of the case."""

    def __init__(self, *, by_meaning: bool) -> None:
        self.near = NearTexts()
        self.meanings = Meanings() if by_meaning else None

    def add(self, text: str) -> None:
        self.near.add(text)
        if self.meanings is not None:
            self.meanings.add(text)


class KnownCases:
    """Cases that further ones are compared with."""

    def __init__(
        self,
        rows: Iterable[Mapping[str, Json]],
        names: Iterable[str],
        diversity: int,
        *,
        by_meaning: bool = True,
    ) -> None:
        at = (diversity - 1) / 9
        self._near = _NEAR[0] + at * (_NEAR[1] - _NEAR[0])
        self._meaning = _SAME_MEANING[0] + at * (_SAME_MEANING[1] - _SAME_MEANING[0])
        self._exact: set[str] = set()
        columns = (*names, _ALL)
        self._columns = {name: _Column(by_meaning=by_meaning) for name in columns}
        self._count = 0
        for row in rows:
            self.add(row)

    @property
    def by_meaning(self) -> bool:
        """Whether texts are compared by their meaning too."""
        meanings = self._columns[_ALL].meanings
        return meanings is not None and meanings.available

    def has(self, row: Mapping[str, Json]) -> bool:
        """Whether the same case is there."""
        return _key(row) in self._exact

    def like(self, row: Mapping[str, Json]) -> str:
        """Return how a case repeats another one; empty if it does not."""
        if self.has(row):
            return SAME
        near, alike = set[int](), set[int]()
        for number, (name, text) in enumerate(self._texts(row).items()):
            column = self._columns[name]
            close = column.near.similar(text, self._near)
            meant = close
            if column.meanings is not None:
                meant = close | column.meanings.similar(text, self._meaning)
            near = near & close if number else close
            alike = alike & meant if number else meant
        if near:
            return NEARLY_THE_SAME
        return SAME_MEANING if alike else ""

    def add(self, row: Mapping[str, Json]) -> None:
        """Remember a case."""
        self._exact.add(_key(row))
        if self._count < MOST_COMPARED:
            self._count += 1
            texts = self._texts(row)
            for name, column in self._columns.items():
                column.add(texts.get(name, ""))

    def _texts(self, row: Mapping[str, Json]) -> dict[str, str]:
        """Return the longer inputs; all as one text if there is none."""
        plain = {name: _plain(row.get(name))[:_LONGEST] for name in self._columns if name != _ALL}
        longer = {name: text for name, text in plain.items() if len(text.split()) >= _WORDS}
        joined = " ".join(plain.values()).strip()
        return longer or ({_ALL: joined} if joined else {})


def _plain(value: Json) -> str:
    return "" if value is None else plain_text(value)


def _key(row: Mapping[str, Json]) -> str:
    return " ".join(canonical_json(dict(row)).casefold().split())
