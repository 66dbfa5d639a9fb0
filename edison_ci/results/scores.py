"""Scores of a run: of cases, of prompts with models, and of each check, criterion and grader.

The cases are read once for all readers, in the order of an index: sorting the cells would take
longer than everything that is computed from them.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import defaultdict
from dataclasses import field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.stats import intervals, scores

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence


GRADING = ("criterion", "grader", "rubric", "check")
"""Kinds of components that give scores; others only say what they found."""
MOST_SEARCHED = 100
"""Number of weakest, or strongest, cases that are searched for the worst and best answers."""


class ComponentName(NamedTuple):
    """A check, criterion or grader."""

    kind: str
    name: str

    @property
    def key(self) -> str:
        """As marks and request hashes have it."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class ComponentSpread:
    """How the scores of a component are spread with a prompt and a model, cell by cell."""

    prompt: str
    model: str
    name: str
    kind: str
    n: int
    mean: float | None
    low: float | None
    high: float | None
    sd: float | None
    passed: int
    failed: int
    errors: int
    """Answers without a grade of it."""
    bins: tuple[int, ...]
    """Scores in each tenth of the scale."""

    @property
    def component(self) -> ComponentName:
        """Which component it is."""
        return ComponentName(self.kind, self.name)

    @property
    def binary(self) -> bool:
        """Whether every score is 0 or 1.

        Known from the moments: x² = x for 0 and 1 alone, and x² < x for every score between.
        """
        if self.mean is None:
            return True
        squares = (self.sd or 0.0) ** 2 * (self.n - 1) + self.n * self.mean**2
        return math.isclose(squares, self.n * self.mean, rel_tol=1e-9)


@dataclass(frozen=True, slots=True)
class ScoreSpread:
    """How the scores of a component are spread, over all prompts and models."""

    kind: str
    name: str
    counts: tuple[int, ...]
    """Of scores in each tenth of the scale."""
    mean: float | None
    """None without a score."""


def component_spreads(connection: sqlite3.Connection, run_id: str) -> tuple[ComponentSpread, ...]:
    """Return the spreads of head as they were written when the run ended."""
    rows = connection.execute(
        "select prompt, model, name, kind, n, mean, min, max, sd, passed, failed, errors, bins "
        "from rollup_component where run_id = ? and side = 'head' order by prompt, model, kind, "
        "name",
        (run_id,),
    )
    return tuple(ComponentSpread(*(*row[:-1], tuple(json.loads(row[-1])))) for row in rows)


def by_component(
    spreads: Iterable[ComponentSpread],
) -> dict[ComponentName, tuple[ComponentSpread, ...]]:
    """Return spreads by component, each in its order."""
    found: dict[ComponentName, list[ComponentSpread]] = {}
    for spread in spreads:
        found.setdefault(spread.component, []).append(spread)
    return {component: tuple(same) for component, same in found.items()}


def combined_spread(component: ComponentName, spreads: Sequence[ComponentSpread]) -> ScoreSpread:
    """Return the spread of a component over prompts and models."""
    counts = tuple(map(sum, zip(*(spread.bins for spread in spreads), strict=True)))
    scored = [(spread.mean, spread.n) for spread in spreads if spread.mean is not None]
    n = sum(each for _, each in scored)
    mean = math.fsum(mean * each for mean, each in scored) / n if n else None
    return ScoreSpread(*component, counts, mean)


def graded_spreads(spreads: Iterable[ComponentSpread]) -> Iterator[ScoreSpread]:
    """Yield the spreads to draw; a check that only passes or fails has none."""
    found = by_component(spread for spread in spreads if spread.kind in GRADING and spread.n)
    for component in sorted(found, key=lambda component: (component.kind == "check", component)):
        if component.kind != "check" or not all(spread.binary for spread in found[component]):
            yield combined_spread(component, found[component])


def live_spreads(connection: sqlite3.Connection, run_id: str) -> Iterator[ScoreSpread]:
    """Yield the same of a run that goes on, from its cells."""
    rows = connection.execute(
        "select p.kind, p.name, min(cast(p.score * 10 + 1e-9 as integer), 9), count(*), "
        "sum(p.score), sum(p.score not in (0, 1)) from cell c "
        "join component p on p.cell_id = c.id where c.run_id = ?1 and c.side = 'head' "
        "and p.score is not null and p.kind in ('criterion', 'grader', 'check', 'rubric') "
        "group by 1, 2, 3 order by p.kind = 'check', p.kind, p.name",
        (run_id,),
    )
    for (kind, name), group in groupby(rows, key=lambda row: row[:2]):
        bins = [row[2:] for row in group]
        if kind == "check" and not any(between for *_, between in bins):
            continue
        counts = {at: count for at, count, *_ in bins}
        mean = math.fsum(total for _, _, total, _ in bins) / sum(counts.values())
        yield ScoreSpread(kind, name, tuple(counts.get(i, 0) for i in range(10)), mean)


class ComponentExample(NamedTuple):
    """An answer that is good or bad in a component."""

    id: str
    """Of its cell."""
    case: str
    model: str
    repeat: int
    score: float
    reason: str


def examples_of(
    connection: sqlite3.Connection,
    run_id: str,
    component: ComponentName,
    *,
    worst: bool,
    limit: int,
) -> list[ComponentExample]:
    """Return answers with the lowest or highest score in a component, of a run that has ended.

    Only the weakest, or strongest, cases are searched: a run may have a million cells.
    """
    order = "worst" if worst else "best"
    by = "lowest nulls last, composite, case_id" if worst else "composite desc, case_id desc"
    rows = connection.execute(
        "select c.id, c.case_id, c.model, c.repeat, p.score, p.reason "
        f"from (select case_id from rollup_case indexed by rollup_case_{order} "
        f"where run_id = ? and side = 'head' order by {by} limit ?) k "
        "cross join cell c on c.run_id = ? and c.case_id = k.case_id and c.side = 'head' "
        "cross join component p on p.cell_id = c.id and p.kind = ? and p.name = ? "
        f"where p.score is not null order by p.score {'' if worst else 'desc'}, c.case_id, c.model "
        "limit ?",
        (run_id, MOST_SEARCHED, run_id, component.kind, component.name, limit),
    )
    return [ComponentExample(*row) for row in rows]


_BATCH = 1000
_GRADED = "c.side = 'head' and c.status in ('ok', 'malformed', 'blocked')"
_YES_OR_NO = frozenset((0.0, 1.0))

CaseScore = tuple[
    str, str, str, float | None, float | None, str | None, str | None, int | None, str | None, int
]
"""Prompt and model, both empty over all of them; case, mean composite, share that passed, cluster;
then facts about the case: tags as JSON, difficulty, kind, words. The kind is None without facts."""


@dataclass(frozen=True, slots=True)
class VariantScore:
    """Scores, cost and latency of a prompt with a model, or of the whole run."""

    prompt: str
    model: str
    composite: scores.Interval | None
    pass_rate: scores.Interval | None
    cost_microusd: int = 0
    p50_ms: int | None = None
    p95_ms: int | None = None


class CaseReader(Protocol):
    """A reader of the scores of cases."""

    def take(self, cases: Sequence[CaseScore]) -> None:
        """Read a batch of cases, in order."""
        ...


class Spread(NamedTuple):
    """Over what the cells of a run are spread."""

    clustered: bool
    """Whether some cases belong together."""
    several: bool
    """Whether there is more than one prompt with a model."""


def spread_of(connection: sqlite3.Connection, run_id: str) -> Spread:
    """Return over what the cells of a run are spread."""
    most = f"{{0}}({{1}}) filter (where {_GRADED})"
    differ = (
        f"{most.format('min', 'c.' + name)} <> {most.format('max', 'c.' + name)}"
        for name in ("prompt", "model")
    )
    row = connection.execute(
        f"select max(c.cluster) is not null, {' or '.join(differ)} from cell c where c.run_id = ?",
        (run_id,),
    ).fetchone()
    return Spread(*map(bool, row))


def read_cases(
    connection: sqlite3.Connection, run_id: str, spread: Spread, *takers: CaseReader
) -> None:
    """Tell what each case scored with each prompt and model, then over all if there are several.

    A case's score is the mean of its repeats: with one model, or over all of them.
    """
    who = "c.prompt, c.model"
    groups = [(who, f"{who}, c.case_id"), ("'', ''", "c.case_id")]
    for name, by in groups if spread.several else [(who, "c.case_id")]:
        rows = connection.execute(
            f"select {name}, c.case_id, avg(c.composite), avg(c.passed), max(c.cluster), f.tags, "
            "f.difficulty, f.kind, f.words from cell c "
            "left join run_case f on f.run_id = c.run_id and f.case_id = c.case_id "
            f"where c.run_id = ? and {_GRADED} group by {by}",
            (run_id,),
        )
        while cases := rows.fetchmany(_BATCH):
            for taker in takers:
                taker.take(cases)


def group_of(case: CaseScore) -> str:
    """Return the unit of a case: its cluster, or the case alone."""
    return f"cluster {case[5]}" if case[5] is not None else f"case {case[2]}"


@dataclass(slots=True)
class _Sample:
    """Scores and pass shares, case by case; the unit is the case, or a cluster of them."""

    composites: array[float] = field(default_factory=lambda: array("d"))
    passes: array[float] = field(default_factory=lambda: array("d"))
    clusters: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    """Of the composites and of the passes; empty unless some case has one."""

    def add(self, cases: Sequence[CaseScore], *, clustered: bool) -> None:
        self.composites.extend([case[3] for case in cases if case[3] is not None])
        self.passes.extend([case[4] for case in cases if case[4] is not None])
        if clustered:
            for at, groups in zip((3, 4), self.clusters, strict=True):
                groups += [group_of(case) for case in cases if case[at] is not None]

    def composite(self) -> scores.Interval | None:
        """Return the mean score with its interval."""
        if self.clusters[0]:
            return intervals.clustered_interval(self.composites, self.clusters[0])
        return scores.mean_interval(self.composites)

    def pass_rate(self) -> scores.Interval | None:
        """Return the pass rate with its interval."""
        if self.clusters[1]:
            return intervals.clustered_interval(self.passes, self.clusters[1])
        if _YES_OR_NO.issuperset(self.passes):
            return scores.pass_interval(int(sum(self.passes)), len(self.passes))
        return scores.mean_interval(self.passes)


class Samples:
    """The scores of a run."""

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self._found: defaultdict[tuple[str, str], _Sample] = defaultdict(_Sample)

    def take(self, cases: Sequence[CaseScore]) -> None:
        """Take some cases."""
        for who, same in by_model(cases, several=self._spread.several).items():
            self._found[who].add(same, clustered=self._spread.clustered)

    def scored(self) -> list[VariantScore]:
        """Return the scores of the whole run, then those of each prompt with each model."""
        rows = [
            VariantScore(*who, sample.composite(), sample.pass_rate())
            for who, sample in sorted(self._found.items(), key=itemgetter(0))
        ]
        if not rows:
            return [VariantScore("", "", None, None)]
        if self._spread.several:
            return rows
        return [VariantScore("", "", rows[0].composite, rows[0].pass_rate), *rows]


def by_model(
    cases: Sequence[CaseScore], *, several: bool
) -> dict[tuple[str, str], Sequence[CaseScore]]:
    """Return cases by their prompt and model."""
    if not several:
        return {cases[0][:2]: cases}
    found: defaultdict[tuple[str, str], list[CaseScore]] = defaultdict(list)
    for case in cases:
        found[case[:2]].append(case)
    return dict(found)


def scores_of(connection: sqlite3.Connection, run_id: str) -> list[VariantScore]:
    """Return the scores of a whole run, then those of each prompt with each model."""
    spread = spread_of(connection, run_id)
    samples = Samples(spread)
    read_cases(connection, run_id, spread, samples)
    return samples.scored()


def interval_json(found: scores.Interval | None) -> dict[str, Any] | None:
    """Return an estimate with its interval as it appears in `--json`."""
    if found is None:
        return None
    return {
        "estimate": found.estimate,
        "low": found.low,
        "high": found.high,
        "n": found.n,
        "method": found.method,
    }


def why_nothing_is_graded(connection: sqlite3.Connection, run_id: str) -> str:
    """Return the first error of a run in which every answer has one; empty if one was graded.

    One component in error leaves an answer without a grade.
    """
    graded = connection.execute(
        "select 1 from cell where run_id = ? and status = 'ok' "
        "and (composite is not null or passed is not null) limit 1",
        (run_id,),
    ).fetchone()
    if graded is not None:
        return ""
    found = connection.execute(
        "select p.kind, p.name, p.reason from cell c join component p on p.cell_id = c.id "
        "where c.run_id = ? and c.status = 'ok' and p.status = 'error' "
        "and p.kind in ('check', 'rubric', 'grader') order by c.rowid limit 1",
        (run_id,),
    ).fetchone()
    return f"{found[0]} {found[1]}: {found[2]}" if found else ""
