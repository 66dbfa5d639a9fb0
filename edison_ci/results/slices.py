"""Breakdown of a run: slices of its cases, reliability over repeats, bounds for missing answers.

Written with the other rollups when a run ends.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import astuple, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config import case_facts
from edison_ci.numeric import mean
from edison_ci.records import Side
from edison_ci.results.components import component_spreads
from edison_ci.results.scores import (
    EstimateWithInterval,
    Totals,
    all_totals,
    group_of,
    read_cases,
    spread_of,
)
from edison_ci.stats import intervals
from edison_ci.stats import slices as stat_slices
from edison_ci.stats import verdicts as stat_verdicts
from edison_ci.stats.scores import unit_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    from edison_ci.results.components import ComponentSpread
    from edison_ci.results.scores import CaseScore, Spread


SOME = (2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100)
"""Numbers of repeats that are reported, besides the number there is."""
_RepeatKey = tuple[str, str, int]
"""Prompt, model, k."""


def reliability_of(connection: sqlite3.Connection, run_id: str) -> list[Reliability]:
    """Return pass^k and pass@k over cases (STATS 5), for each prompt and model and over all."""
    (last,) = connection.execute(
        "select max(repeat) from cell where run_id = ? and side = 'head'", (run_id,)
    ).fetchone()
    repeats = (last or 0) + 1
    if repeats < 2:
        return []
    ks = [*(k for k in SOME if k < repeats), repeats]
    clustered = spread_of(connection, run_id).clustered
    sums: defaultdict[_RepeatKey, tuple[stat_slices.Scores, stat_slices.Scores]] = defaultdict(
        lambda: (
            stat_slices.Scores.empty(clustered=clustered),
            stat_slices.Scores.empty(clustered=clustered),
        )
    )
    rows = connection.execute(
        "select case_id, max(cluster), prompt, model, sum(passed), count(passed) from cell "
        "where run_id = ? and side = 'head' and passed is not null "
        "group by case_id, prompt, model order by case_id",
        (run_id,),
    )
    for case, case_rows in groupby(rows, key=itemgetter(0)):
        same = list(case_rows)
        group = unit_of(case, same[0][1])
        for k in ks:
            _add(sums, group, k, [row[2:] for row in same])
    several = len({key[:2] for key in sums}) > 2
    return [
        row
        for key, both in sorted(sums.items(), key=itemgetter(0))
        if key[0] or several
        for row in _row(key, *both)
    ]


def _add(
    sums: dict[_RepeatKey, tuple[stat_slices.Scores, stat_slices.Scores]],
    group: str,
    k: int,
    rows: Iterable[tuple[str, str, int, int]],
) -> None:
    """Take a case: a value for each prompt and model that has k repeats, and their mean."""
    values: list[tuple[float, float]] = []
    for prompt, model, passes, runs in rows:
        every, some = intervals.pass_all_k(passes, runs, k), intervals.pass_at_k(passes, runs, k)
        if every is None or some is None:
            continue  # it has fewer repeats
        values.append((every, some))
        for sample, share in zip(sums[prompt, model, k], (every, some), strict=True):
            sample.add(share, group)
    if values:
        for place, sample in enumerate(sums["", "", k]):
            sample.add(mean([value[place] for value in values]), group)


def _row(key: _RepeatKey, every: stat_slices.Scores, some: stat_slices.Scores) -> list[Reliability]:
    both, either = every.interval(), some.interval()
    if both is None or either is None:
        return []
    return [
        Reliability(
            *key,
            *(both.estimate, both.low, both.high),
            *(either.estimate, either.low, either.high),
            both.n,
            both.method,
        )
    ]


# The cases are read one by one, and only sums stay in memory.
MOST_TAGS = 100
"""Number of tags that become slices: the most frequent ones."""
_MOST_KNOWN = 5_000
"""Sets of facts whose slices are remembered."""


@dataclass(slots=True)
class _Slice:
    """Sums over the cases of a slice."""

    cases: int
    composites: stat_slices.Scores
    passes: stat_slices.Scores
    waiting: list[CaseScore]
    """Cases that are not counted yet."""

    @classmethod
    def empty(cls, *, clustered: bool) -> _Slice:
        composites, passes = (stat_slices.Scores.empty(clustered=clustered) for _ in range(2))
        return cls(0, composites, passes, [])

    def count(self) -> None:
        """Count what waits; many at once, as there is a slice for each slice."""
        self.cases += len(self.waiting)
        for at, scores in ((3, self.composites), (4, self.passes)):
            same = [case for case in self.waiting if case[at] is not None]
            scores.extend([case[at] for case in same], map(group_of, same))  # type: ignore[misc]
        self.waiting.clear()


_Key = tuple[str, str, str, str]
"""Prompt, model, slice, value; slice and value are empty for all cases."""


class Slices:
    """The scores of a run by slice."""

    def __init__(self, connection: sqlite3.Connection, run_id: str, spread: Spread) -> None:
        self._spread, self._tags = spread, _tags(connection, run_id)
        self._slices: dict[_Key, _Slice] = {}
        self._known: dict[tuple[Any, ...], list[_Slice]] = {}

    def take(self, cases: Sequence[CaseScore]) -> None:
        """Add cases; one without facts belongs to no slice."""
        slices_by_facts = self._known
        for case in cases:
            if case[8] is None:
                continue
            facts = (*case[:2], *case[6:])
            slices = slices_by_facts.get(facts)
            if slices is None:
                slices = slices_by_facts[facts] = self._of(case)
            for part in slices:
                part.waiting.append(case)
        for part in self._slices.values():
            part.count()
        if len(slices_by_facts) > _MOST_KNOWN:
            slices_by_facts.clear()

    def _of(self, case: CaseScore) -> list[_Slice]:
        """Return the slices that a case belongs to."""
        slices = []
        for slice_, value in (("", ""), *_values(case[6:], self._tags)):
            key = (case[0], case[1], slice_, value)
            if key not in self._slices:
                self._slices[key] = _Slice.empty(clustered=self._spread.clustered)
            slices.append(self._slices[key])
        return slices

    def slices(self) -> list[Slice]:
        """Return the slices, marked where they stand out (STATS 8)."""
        by_variant = {key: part for key, part in self._slices.items() if key[0]}
        every = {key: part for key, part in self._slices.items() if not key[0]}
        overall = [(key[2:], part) for key, part in (every or by_variant).items() if key[2]]
        return [_slice(("", "", *kind), part) for kind, part in overall] + _compare_with_rest(
            by_variant
        )


def slices_of(connection: sqlite3.Connection, run_id: str) -> list[Slice]:
    """Return the slices, marked where they stand out (STATS 8)."""
    spread = spread_of(connection, run_id)
    slices = Slices(connection, run_id, spread)
    read_cases(connection, run_id, spread, slices)
    return slices.slices()


def _values(facts: Sequence[Any], tags_counted: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the slices of a case by its tags, difficulty, kind and number of words."""
    tags, difficulty, kind, words = facts
    mine = json.loads(str(tags))
    for tag in mine or [case_facts.NONE]:
        if tag in tags_counted or not mine:
            yield "tag", tag
    yield "difficulty", case_facts.level_of(None if difficulty is None else int(difficulty))
    yield "kind", str(kind)
    yield "length", case_facts.length_of(int(words or 0))


def cases_by_tag(connection: sqlite3.Connection, run_id: str) -> dict[str, frozenset[str]]:
    """Return the cases of each tag, of the most frequent ones, and those without a tag."""
    tags_counted, cases = _tags(connection, run_id), defaultdict[str, set[str]](set)
    rows = connection.execute("select case_id, tags from run_case where run_id = ?", (run_id,))
    for case, tags in rows:
        for tag in json.loads(tags) or [case_facts.NONE]:
            if tag in tags_counted or tag == case_facts.NONE:
                cases[tag].add(case)
    return {tag: frozenset(cases[tag]) for tag in sorted(cases)}


def cases_by_slice(
    connection: sqlite3.Connection, run_id: str
) -> dict[tuple[str, str], frozenset[str]]:
    """Return the cases of each slice, by its dimension and value."""
    tags_counted, cases = _tags(connection, run_id), defaultdict[tuple[str, str], set[str]](set)
    rows = connection.execute(
        "select case_id, tags, difficulty, kind, words from run_case where run_id = ?", (run_id,)
    )
    for case, *facts in rows:
        for slice_ in _values(facts, tags_counted):
            cases[slice_].add(case)
    return {slice_: frozenset(members) for slice_, members in sorted(cases.items())}


def _tags(connection: sqlite3.Connection, run_id: str) -> set[str]:
    rows = connection.execute(
        "select t.value from run_case f, json_each(f.tags) t where f.run_id = ? "
        "group by t.value order by count(*) desc, t.value limit ?",
        (run_id, MOST_TAGS),
    )
    return {tag for (tag,) in rows}


def _compare_with_rest(slices: dict[_Key, _Slice]) -> list[Slice]:
    """Compare each slice with the other cases of the same prompt and model."""
    compared, tests = [], dict[_Key, float]()
    values = Counter(key[:3] for key in slices)
    for key, part in slices.items():
        if not key[2]:
            continue
        whole = slices[key[0], key[1], "", ""].composites
        rest = whole.moments.without(part.composites.moments)
        apart = part.composites.moments.n and rest.n
        difference = part.composites.moments.mean - rest.mean if apart else None
        test = stat_slices.against_rest(*part.composites.apart_from(whole))
        compared.append((_question(key, values), replace(_slice(key, part), difference=difference)))
        if test is not None:
            tests[compared[-1][0]] = test.p
    adjusted = stat_verdicts.benjamini_hochberg(list(tests.values()))
    verdicts = dict(zip(tests, zip(adjusted.value, adjusted.stands_out, strict=True), strict=True))
    return [
        _with_test(slice_, tests.get(q), verdicts.get(q), adjusted.n, once=not q[3])
        for q, slice_ in compared
    ]


def _question(key: _Key, values: Counter[tuple[str, str, str]]) -> _Key:
    """Return what names a comparison; of two kinds, either against the other is the same one."""
    once = key[2] != "tag" and values[key[:3]] == 2
    return (*key[:3], "") if once else key


def _with_test(
    part: Slice, p: float | None, verdict: tuple[float, bool] | None, family: int, *, once: bool
) -> Slice:
    """Return a part with its test; where two are one comparison, only the weaker stands out."""
    if verdict is None:
        return replace(part, family=family)
    adjusted, stands_out = verdict
    if once:
        stands_out = stands_out and (part.difference or 0.0) < 0
    return replace(part, p=p, p_adjusted=adjusted, stands_out=stands_out, family=family)


def _slice(key: _Key, part: _Slice) -> Slice:
    composite, rate = part.composites.interval(), part.passes.rate()
    return Slice(
        *key, part.cases, EstimateWithInterval.of(composite), EstimateWithInterval.of(rate)
    )


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the cases, with a prompt and model or over all of them."""

    prompt: str
    """Empty, like `model`, over all of them."""
    model: str
    dimension: str
    value: str
    cases: int
    composite: EstimateWithInterval
    pass_rate: EstimateWithInterval
    difference: float | None = None
    """Its mean score minus that of the other cases."""
    p: float | None = None
    p_adjusted: float | None = None
    family: int = 0
    stands_out: bool = False


_DIMENSIONS = ("kind", "difficulty", "length", "tag")
_VALUES = ("easy", "medium", "hard", "golden", *case_facts.SIZES)


def slice_order(slice_: Slice) -> tuple[int, int, int, str]:
    """Return the place of a slice in a list: by dimension, then by level or size, then by cases."""
    dimension, value = (
        values.index(name) if name in values else len(values)
        for name, values in ((slice_.dimension, _DIMENSIONS), (slice_.value, _VALUES))
    )
    return dimension, value, -slice_.cases, slice_.value


@dataclass(frozen=True, slots=True)
class Reliability:
    """Share of cases of which k repeats all pass, and of which at least one passes."""

    prompt: str
    model: str
    k: int
    pass_all: float
    pass_all_low: float | None
    pass_all_high: float | None
    pass_any: float
    pass_any_low: float | None
    pass_any_high: float | None
    n: int
    method: str


@dataclass(frozen=True, slots=True)
class Breakdown:
    """All of it."""

    slices: tuple[Slice, ...] = ()
    reliability: tuple[Reliability, ...] = ()
    components: tuple[ComponentSpread, ...] = ()
    totals: tuple[Totals, ...] = ()
    """Of the run, with an empty prompt and model, then of each prompt with each model."""


def write_slices(connection: sqlite3.Connection, run_id: str, slices: Iterable[Slice]) -> None:
    """Write the parts of the cases in the place of what was there."""
    connection.execute("delete from rollup_slice where run_id = ?", (run_id,))
    connection.executemany(
        f"insert into rollup_slice values ({', '.join('?' * 22)})",
        [
            (
                run_id,
                Side.HEAD,
                *(part.prompt, part.model, part.dimension, part.value, part.cases),
                *part.composite,
                *part.pass_rate,
                *(part.difference, part.p, part.p_adjusted, part.family, part.stands_out),
            )
            for part in slices
        ],
    )


def write_reliability(
    connection: sqlite3.Connection, run_id: str, rows: Iterable[Reliability]
) -> None:
    """Write how repeats passed together in the place of what was there."""
    connection.execute("delete from rollup_reliability where run_id = ?", (run_id,))
    connection.executemany(
        f"insert into rollup_reliability values ({', '.join('?' * 13)})",
        [(run_id, Side.HEAD, *astuple(row)) for row in rows],
    )


def write_bounds(connection: sqlite3.Connection, run_id: str) -> None:
    """Add what the scores could be at worst and at best, where answers are missing."""
    broken = connection.execute(
        "select exists (select 1 from rollup_run where run_id = ?1 and error > 0) or "
        "exists (select 1 from rollup_component where run_id = ?1 and errors > 0)",
        (run_id,),
    ).fetchone()[0]
    if broken:
        connection.execute(_bounds("rollup_run", ("side",)), {"run": run_id})
        connection.execute(_bounds("rollup_model", ("side", "prompt", "model")), {"run": run_id})


def _bounds(table: str, keys: Sequence[str]) -> str:
    """Return the statement that fills the bounds of a table.

    A case's score is the mean of its repeats, with each missing one at 0 or at 1.
    """
    by = ", ".join(keys)
    same = " and ".join(f"{table}.{key} = b.{key}" for key in keys)
    broken = (
        "(c.status = 'error' or (c.status = 'ok' and c.{0} is null and exists "
        "(select 1 from component p where p.cell_id = c.id and p.status = 'error')))"
    )
    return f"""
with cells as (
  select {", ".join(f"c.{key}" for key in keys)}, c.case_id, c.composite, c.passed,
    {broken.format("composite")} as lost, {broken.format("passed")} as undecided
  from cell c where c.run_id = :run and c.status <> 'skipped'
), cases as (
  select {by}, total(composite) as score, count(composite) + sum(lost) as n, sum(lost) as lost,
    total(passed) as passes, count(passed) + sum(undecided) as pass_n,
    sum(undecided) as undecided
  from cells group by {by}, case_id
), b as (
  select {by}, sum(lost) as missing,
    round(avg(case when n then score / n end), 12) as low,
    round(avg(case when n then (score + lost) / n end), 12) as high,
    round(avg(case when pass_n then passes / pass_n end), 12) as pass_low,
    round(avg(case when pass_n then (passes + undecided) / pass_n end), 12) as pass_high
  from cases group by {by}
)
update {table} set missing = b.missing, composite_worst = b.low, composite_best = b.high,
  pass_worst = b.pass_low, pass_best = b.pass_high
from b where {table}.run_id = :run and {same} and b.missing > 0
"""


def breakdown_of(connection: sqlite3.Connection, run_id: str) -> Breakdown:
    """Return what was written when the run ended; nothing of a run that has not."""
    return Breakdown(
        _slices(connection, run_id),
        tuple(
            Reliability(*row)
            for row in connection.execute(
                "select prompt, model, k, pass_all, pass_all_low, pass_all_high, pass_any, "
                "pass_any_low, pass_any_high, n, method from rollup_reliability "
                "where run_id = ? and side = 'head' order by prompt, model, k",
                (run_id,),
            )
        ),
        component_spreads(connection, run_id),
        all_totals(connection, run_id),
    )


def _slices(connection: sqlite3.Connection, run_id: str) -> tuple[Slice, ...]:
    rows = connection.execute(
        "select prompt, model, dimension, value, cases, composite, composite_low, composite_high, "
        "composite_n, composite_method, pass_rate, pass_low, pass_high, pass_n, pass_method, "
        "difference, p, p_adjusted, family, stands_out from rollup_slice "
        "where run_id = ? and side = 'head' order by prompt, model, dimension, cases desc, value",
        (run_id,),
    )
    slices = []
    for prompt, model, slice_, value, cases, *numbers in rows:
        composite, rate = EstimateWithInterval(*numbers[:5]), EstimateWithInterval(*numbers[5:10])
        difference, p, p_adjusted, family, stands_out = numbers[10:]
        part = Slice(prompt, model, slice_, value, cases, composite, rate, difference, p)
        slices.append(
            replace(part, p_adjusted=p_adjusted, family=family, stands_out=bool(stands_out))
        )
    return tuple(slices)
