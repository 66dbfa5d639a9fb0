"""How does a run come out by kind of case: tag, length, difficulty, kind?

The cases are read one by one, and only sums are kept.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.config.facets import NONE, length_of, level_of
from edison_ci.frozen import dataclass
from edison_ci.stats.correction import benjamini_hochberg
from edison_ci.stats.slices import Scores, against_rest
from edison_ci.store.breakdown import NOTHING, Facet, Shown

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from edison_ci.stats.scores import Interval

MOST_TAGS = 100
"""Tags that are looked at: the most frequent ones."""
_GRADED = "c.run_id = ? and c.side = 'head' and c.status in ('ok', 'malformed', 'blocked')"


@dataclass(slots=True)
class _Slice:
    cases: int
    composites: Scores
    passes: Scores

    @classmethod
    def empty(cls, *, clustered: bool) -> _Slice:
        kinds = (Scores.empty(clustered=clustered) for _ in range(2))
        return cls(0, *kinds)

    def add(self, composite: float | None, passed: float | None, group: str) -> None:
        self.cases += 1
        self.composites.add(composite, group)
        self.passes.add(passed, group)


_Key = tuple[str, str, str, str]
"""Prompt, model, facet, value; facet and value are empty for all cases."""


def facets_of(connection: sqlite3.Connection, run_id: str) -> list[Facet]:
    """Return how each kind of case came out, with what stands out (STATS 8)."""
    slices = _sliced(connection, run_id, per_model=True)
    single = len({key[:2] for key in slices}) == 1
    found = _compared(slices)
    if single:
        overall = [_facet(("", "", *key[2:]), one) for key, one in slices.items() if key[2]]
    else:
        overall = [_facet(key, one) for key, one in _sliced(connection, run_id).items() if key[2]]
    return overall + found


def _sliced(
    connection: sqlite3.Connection, run_id: str, *, per_model: bool = False
) -> dict[_Key, _Slice]:
    known, clustered = _tags(connection, run_id), is_clustered(connection, run_id)
    who = "c.prompt, c.model" if per_model else "'', ''"
    rows = connection.execute(
        f"select {who}, c.case_id, avg(c.composite), avg(c.passed), max(c.cluster), f.tags, "
        "f.difficulty, f.kind, f.words from cell c "
        "join run_case f on f.run_id = c.run_id and f.case_id = c.case_id "
        f"where {_GRADED} group by {'c.prompt, c.model, ' if per_model else ''}c.case_id",
        (run_id,),
    )
    slices: dict[_Key, _Slice] = {}
    for prompt, model, case, composite, passed, cluster, *facts in rows:
        group = f"cluster {cluster}" if cluster is not None else f"case {case}"
        for facet, value in (("", ""), *_values(facts, known)):
            key = (prompt, model, facet, value)
            if key not in slices:
                slices[key] = _Slice.empty(clustered=clustered)
            slices[key].add(composite, passed, group)
    return slices


def _values(facts: list[str | int | None], known: set[str]) -> Iterator[tuple[str, str]]:
    tags, difficulty, kind, words = facts
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


def is_clustered(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether some cases of a run belong together."""
    row = connection.execute(
        "select 1 from cell where run_id = ? and cluster is not null limit 1", (run_id,)
    ).fetchone()
    return row is not None


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
