"""How does a run come out by kind of case: tag, length, difficulty, kind?

The cases are read one by one, and only sums are kept.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edison_ci.config.facets import NONE, length_of, level_of
from edison_ci.frozen import dataclass
from edison_ci.results.scores import group_of, read_cases, spread_of
from edison_ci.results.slices import NOTHING, Facet, Shown
from edison_ci.stats.correction import benjamini_hochberg
from edison_ci.stats.slices import Scores, against_rest

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.results.scores import CaseScore, Spread
    from edison_ci.stats.scores import Interval

MOST_TAGS = 100
"""Tags that are looked at: the most frequent ones."""
_MOST_KNOWN = 5_000
"""Sets of facts whose slices are remembered."""


@dataclass(slots=True)
class _Slice:
    cases: int
    composites: Scores
    passes: Scores
    waiting: list[CaseScore]
    """Cases that are not counted yet."""

    @classmethod
    def empty(cls, *, clustered: bool) -> _Slice:
        composites, passes = (Scores.empty(clustered=clustered) for _ in range(2))
        return cls(0, composites, passes, [])

    def count(self) -> None:
        """Count what waits; many at once, as there is a slice for each kind of case."""
        self.cases += len(self.waiting)
        for at, scores in ((3, self.composites), (4, self.passes)):
            same = [case for case in self.waiting if case[at] is not None]
            scores.extend([case[at] for case in same], map(group_of, same))  # type: ignore[misc]
        self.waiting.clear()


_Key = tuple[str, str, str, str]
"""Prompt, model, facet, value; facet and value are empty for all cases."""


class Slices:
    """The scores of a run by kind of case."""

    def __init__(self, connection: sqlite3.Connection, run_id: str, spread: Spread) -> None:
        self._spread, self._tags = spread, _tags(connection, run_id)
        self._slices: dict[_Key, _Slice] = {}
        self._known: dict[tuple[Any, ...], list[_Slice]] = {}

    def take(self, cases: Sequence[CaseScore]) -> None:
        """Take some cases; one that nobody said anything of is of no kind."""
        known = self._known
        for case in cases:
            if case[8] is None:
                continue
            facts = (*case[:2], *case[6:])
            slices = known.get(facts)
            if slices is None:
                slices = known[facts] = self._of(case)
            for one in slices:
                one.waiting.append(case)
        for one in self._slices.values():
            one.count()
        if len(known) > _MOST_KNOWN:
            known.clear()

    def _of(self, case: CaseScore) -> list[_Slice]:
        """Return the slices that a case belongs to."""
        found = []
        for facet, value in (("", ""), *_values(case, self._tags)):
            key = (case[0], case[1], facet, value)
            if key not in self._slices:
                self._slices[key] = _Slice.empty(clustered=self._spread.clustered)
            found.append(self._slices[key])
        return found

    def facets(self) -> list[Facet]:
        """Return how each kind of case came out, with what stands out (STATS 8)."""
        each = {key: one for key, one in self._slices.items() if key[0]}
        every = {key: one for key, one in self._slices.items() if not key[0]}
        overall = [(key[2:], one) for key, one in (every or each).items() if key[2]]
        return [_facet(("", "", *kind), one) for kind, one in overall] + _compared(each)


def facets_of(connection: sqlite3.Connection, run_id: str) -> list[Facet]:
    """Return how each kind of case came out, with what stands out (STATS 8)."""
    spread = spread_of(connection, run_id)
    slices = Slices(connection, run_id, spread)
    read_cases(connection, run_id, spread, slices)
    return slices.facets()


def _values(case: CaseScore, known: set[str]) -> Iterator[tuple[str, str]]:
    tags, difficulty, kind, words = case[6:]
    mine = json.loads(str(tags))
    for tag in mine or [NONE]:
        if tag in known or not mine:
            yield "tag", tag
    yield "difficulty", level_of(None if difficulty is None else int(difficulty))
    yield "kind", str(kind)
    yield "length", length_of(int(words or 0))


def _tags(connection: sqlite3.Connection, run_id: str) -> set[str]:
    rows = connection.execute(
        "select t.value from run_case f, json_each(f.tags) t where f.run_id = ? "
        "group by t.value order by count(*) desc, t.value limit ?",
        (run_id, MOST_TAGS),
    )
    return {tag for (tag,) in rows}


def _compared(slices: dict[_Key, _Slice]) -> list[Facet]:
    """Hold each part against the other cases of the same prompt and model."""
    found, tests = [], dict[_Key, float]()
    values = Counter(key[:3] for key in slices)
    for key, part in slices.items():
        if not key[2]:
            continue
        whole = slices[key[0], key[1], "", ""].composites
        rest = whole.moments.without(part.composites.moments)
        apart = part.composites.moments.n and rest.n
        difference = part.composites.moments.mean - rest.mean if apart else None
        test = against_rest(*part.composites.apart_from(whole))
        found.append((_question(key, values), replace(_facet(key, part), difference=difference)))
        if test is not None:
            tests[found[-1][0]] = test.p
    adjusted = benjamini_hochberg(list(tests.values()))
    verdicts = dict(zip(tests, zip(adjusted.value, adjusted.stands_out, strict=True), strict=True))
    return [_judged(one, tests.get(q), verdicts.get(q), adjusted.n) for q, one in found]


def _question(key: _Key, values: Counter[tuple[str, str, str]]) -> _Key:
    """Return what names a comparison; of two kinds, either against the other is the same one."""
    once = key[2] != "tag" and values[key[:3]] == 2
    return (*key[:3], "") if once else key


def _judged(one: Facet, p: float | None, verdict: tuple[float, bool] | None, family: int) -> Facet:
    if verdict is None:
        return replace(one, family=family)
    return replace(one, p=p, p_adjusted=verdict[0], stands_out=verdict[1], family=family)


def _facet(key: _Key, part: _Slice) -> Facet:
    composite, rate = part.composites.interval(), part.passes.rate()
    return Facet(*key, part.cases, _shown(composite), _shown(rate))


def _shown(found: Interval | None) -> Shown:
    if found is None:
        return NOTHING
    return Shown(found.estimate, found.low, found.high, found.n, found.method)
