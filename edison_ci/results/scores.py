"""Scores of a run and of prompts with models: computed from cases, and the totals that are stored.

The cases are read once for all readers, in the order of an index: sorting the cells would take
longer than everything that is computed from them.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import field, replace
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.documents import record_json
from edison_ci.numeric import snap
from edison_ci.stats import arrays, intervals, paired, permutation, scores
from edison_ci.stats.scores import Interval, units_of
from edison_ci.store import answers as store_answers

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence


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
    """Return what each case scored with each prompt and model, then over all if there are several.

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
    return scores.unit_of(case[2], case[5])


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
    cases_by_variant: defaultdict[tuple[str, str], list[CaseScore]] = defaultdict(list)
    for case in cases:
        cases_by_variant[case[:2]].append(case)
    return dict(cases_by_variant)


def scores_of(connection: sqlite3.Connection, run_id: str) -> list[VariantScore]:
    """Return the scores of a whole run, then those of each prompt with each model."""
    spread = spread_of(connection, run_id)
    samples = Samples(spread)
    read_cases(connection, run_id, spread, samples)
    return samples.scored()


def interval_json(interval: scores.Interval | None) -> dict[str, Any] | None:
    """Return an estimate with its interval as it appears in `--json`."""
    if interval is None:
        return None
    return estimate_json(interval.estimate, interval.interval, n=interval.n, method=interval.method)


def estimate_json(
    estimate: float | None, interval: scores.Range | None, **more: object
) -> dict[str, Any]:
    """Return an estimate with both ends of its interval, and more about it, for `--json`."""
    low, high = interval or (None, None)
    return {"estimate": estimate, "low": low, "high": high, **more}


class ErrorCount(NamedTuple):
    """Cells in error of a prompt with a model on one side, of those that were asked."""

    side: str
    prompt: str
    model: str
    errors: int
    asked: int


def error_counts(connection: sqlite3.Connection, run_id: str) -> list[ErrorCount]:
    """Return the cells in error by side, prompt and model."""
    rows = connection.execute(
        "select side, prompt, model, sum(status = 'error'), count(*) from cell "
        "where run_id = ? and status <> 'skipped' group by side, prompt, model "
        "order by sum(status = 'error') desc, side, prompt, model",
        (run_id,),
    )
    return [ErrorCount(*row) for row in rows]


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
    row = connection.execute(
        "select p.kind, p.name, p.reason from cell c join component p on p.cell_id = c.id "
        "where c.run_id = ? and c.status = 'ok' and p.status = 'error' "
        "and p.kind in ('check', 'rubric', 'grader') order by c.rowid limit 1",
        (run_id,),
    ).fetchone()
    return f"{row[0]} {row[1]}: {row[2]}" if row else ""


def malformed_answers(
    connection: sqlite3.Connection, run_id: str
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return how many answers are malformed, and of how many, by side and prompt."""
    rows = connection.execute(
        "select side, prompt, sum(status = 'malformed'), count(*) from cell "
        "where run_id = ? and status in ('ok', 'malformed', 'blocked') group by side, prompt",
        (run_id,),
    )
    return {(side, prompt): (malformed, answers) for side, prompt, malformed, answers in rows}


class EstimateWithInterval(NamedTuple):
    """An estimate with its interval, as a table has it."""

    estimate: float | None
    low: float | None
    high: float | None
    n: int
    method: str | None

    @classmethod
    def of(cls, interval: Interval | None) -> EstimateWithInterval:
        """Return an interval as a table has it; without one, all of it is missing."""
        if interval is None:
            return NOTHING
        return cls(interval.estimate, interval.low, interval.high, interval.n, interval.method)

    def as_interval(self) -> Interval | None:
        """Return the same as an interval; None without a case."""
        if self.estimate is None or not self.n:
            return None
        method = self.method or "no interval was made"
        return Interval(self.estimate, self.low, self.high, self.n, method)


NOTHING = EstimateWithInterval(None, None, None, 0, None)

_TOTALS_COLUMNS = (
    "cells, ok, malformed, error, blocked, skipped, composite, composite_low, composite_high, "
    "composite_n, composite_method, pass_rate, pass_low, pass_high, pass_n, pass_method, answers, "
    "bought, cost_microusd, saved_microusd, tokens_in, tokens_out, latency_p50_ms, latency_p95_ms, "
    "missing, composite_worst, composite_best, pass_worst, pass_best, cost_low, cost_high, "
    "latency_p50_low, latency_p50_high, cut_off"
)


@dataclass(frozen=True, slots=True)
class Totals:
    """Scores and costs of a side of a run, or of a prompt with a model in it."""

    prompt: str
    """Empty, like `model`, for a whole side."""
    model: str
    version: str
    cells: int
    ok: int
    malformed: int
    error: int
    blocked: int
    skipped: int
    composite: EstimateWithInterval
    pass_rate: EstimateWithInterval
    answers: int
    bought: int
    cost_microusd: int
    """Of the answers that were bought; judges are apart."""
    saved_microusd: int
    tokens_in: int
    tokens_out: int
    p50_ms: int | None
    p95_ms: int | None
    missing: int
    composite_worst: float | None
    """Bounds for any value of the missing answers; None if none is missing."""
    composite_best: float | None
    pass_worst: float | None
    pass_best: float | None
    cost_low: float | None = None
    """Interval of the mean cost of an answer, like that of the median latency by cases."""
    cost_high: float | None = None
    p50_low: int | None = None
    p50_high: int | None = None
    cut_off: int = 0
    """Of the answers, those that ended at max_tokens."""

    @property
    def answered(self) -> int:
        """Cells with an answer, graded or not."""
        return self.ok + self.malformed + self.blocked

    @property
    def answer_cost(self) -> EstimateWithInterval:
        """Mean cost of an answer in micro-dollars."""
        return EstimateWithInterval(
            self.answer_cost_microusd, self.cost_low, self.cost_high, self.answers, None
        )

    @property
    def median_latency(self) -> EstimateWithInterval:
        """Median latency in milliseconds."""
        return EstimateWithInterval(self.p50_ms, self.p50_low, self.p50_high, self.answers, None)

    @property
    def error_rate(self) -> Interval | None:
        """Share of the cells that ended in an error; None without cells."""
        return scores.pass_interval(self.error, self.cells)

    @property
    def answer_cost_microusd(self) -> float | None:
        """Mean cost of an answer, reused ones included."""
        total = self.cost_microusd + self.saved_microusd
        return total / self.answers if self.answers else None

    @property
    def answer_tokens(self) -> float | None:
        """Tokens of an answer on average, with what was sent."""
        return (self.tokens_in + self.tokens_out) / self.answers if self.answers else None


def _totals(row: Sequence[Any]) -> Totals:
    counts, composite, pass_rate, rest = row[:9], row[9:14], row[14:19], row[19:]
    return Totals(
        *counts, EstimateWithInterval(*composite), EstimateWithInterval(*pass_rate), *rest
    )  # type: ignore[call-arg]  # as they were selected


def totals_of_run(connection: sqlite3.Connection, run_id: str, side: str = "head") -> Totals | None:
    """Return the totals of a side of a run; None before it ended."""
    row = connection.execute(
        f"select '', '', '', {_TOTALS_COLUMNS} from rollup_run where run_id = ? and side = ?",
        (run_id, side),
    ).fetchone()
    return None if row is None else _totals(row)


def totals_by_model(
    connection: sqlite3.Connection, run_id: str, side: str = "head"
) -> list[Totals]:
    """Return the totals of each prompt with each model of a side of a run."""
    rows = connection.execute(
        f"select prompt, model, version, {_TOTALS_COLUMNS} from rollup_model "
        "where run_id = ? and side = ? order by prompt, model",
        (run_id, side),
    )
    return [_totals(row) for row in rows]


def all_totals(connection: sqlite3.Connection, run_id: str) -> tuple[Totals, ...]:
    """Return the totals of the head, then those of each prompt with each model of it."""
    whole = totals_of_run(connection, run_id)
    return (*(() if whole is None else (whole,)), *totals_by_model(connection, run_id))


def stored_variant_scores(connection: sqlite3.Connection, run_id: str) -> list[VariantScore] | None:
    """Return the scores as they were written when the run ended; None if that is not all there."""
    whole, *models = all_totals(connection, run_id) or (None,)
    if whole is None or whole.model or not models:
        return None  # a table of them is gone
    rows = [whole, *(totals for totals in models if totals.answered)]
    estimates = [estimate for row in rows for estimate in (row.composite, row.pass_rate)]
    if any(estimate.n and estimate.method is None for estimate in estimates):
        return None
    return [
        VariantScore(
            row.prompt,
            row.model,
            row.composite.as_interval(),
            row.pass_rate.as_interval(),
            p50_ms=row.p50_ms,
            p95_ms=row.p95_ms,
        )
        for row in rows
    ]


def with_latencies(
    connection: sqlite3.Connection, run_id: str, score: VariantScore
) -> VariantScore:
    """Return scores with how long the answers took, each once."""
    where = f"c.run_id = ? and c.side = 'head' and {store_answers.TIMED}"
    where += " and c.prompt = ? and c.model = ?" if score.model else ""
    rows = connection.execute(
        "select latency_ms, count(*) from (select distinct a.attempt, a.latency_ms from cell c "
        f"join answer a on a.request_hash = c.request_hash and a.answer_no = c.answer_no where "
        f"{where}) "
        "group by latency_ms order by latency_ms",
        (run_id, score.prompt, score.model) if score.model else (run_id,),
    )
    p50, p95 = typical(rows.fetchall())
    return replace(score, p50_ms=p50, p95_ms=p95)


def with_cost(score: VariantScore, costs: dict[tuple[str, str], int]) -> VariantScore:
    """Return scores with what the answers cost."""
    cost = costs.get((score.prompt, score.model), 0) if score.model else sum(costs.values())
    return replace(score, cost_microusd=cost)


# Sorting cells by prompt and model takes most of the time, so it is left out where a side has but
# one of them: an index has its cells by case already.
P95_FROM = 60
"""Answers below which there is no 95th percentile."""


def _at_rank(counted: Sequence[tuple[int, int]], rank: int) -> int | None:
    below = 0
    for value, times in counted:
        below += times
        if below >= rank:
            return value
    return None


def typical(counted: Sequence[tuple[int, int]]) -> tuple[int | None, int | None]:
    """Return the median and the 95th percentile of values, given in order with their counts."""
    count = sum(times for _, times in counted)
    p95 = _ranked(counted, 95, count) if count >= P95_FROM else None
    return _ranked(counted, 50, count), p95


def _ranked(counted: Sequence[tuple[int, int]], percent: int, count: int) -> int | None:
    """Return the smallest value that a percentage of values does not exceed."""
    return _at_rank(counted, -(-count * percent // 100))


@dataclass(frozen=True, slots=True)
class BaseComparison:
    """The score of the base, and the change from it on the cases that both sides have."""

    composite: Interval | None
    estimate: float | None
    low: float | None
    high: float | None
    n: int
    p: float | None

    def as_json(self) -> dict[str, Any] | None:
        """Return the change; None when there is no pair."""
        if self.estimate is None:
            return None
        return record_json.fields_of(self, "estimate", "low", "high", "n", "p")


def compare_with_base(connection: sqlite3.Connection, run_id: str) -> BaseComparison:
    """Return the change of the composite from base to head; the unit is the case.

    Prompts and models that only one side has say nothing about a change.
    """
    rows = connection.execute(
        "select case_id, avg(case side when 'base' then composite end), "
        "avg(case side when 'head' then composite end), max(cluster) from cell "
        "where run_id = ?1 and status in ('ok', 'malformed') and (prompt, model) in ("
        "select prompt, model from cell where run_id = ?1 and side = 'base' intersect "
        "select prompt, model from cell where run_id = ?1 and side = 'head') "
        "group by case_id order by case_id",
        (run_id,),
    )
    ids: list[str] = []
    clusters: dict[str, str] = {}
    base_scores, changes, has_pair = array("d"), array("d"), array("b")
    for case_id, before, after, cluster in rows:
        if before is None:
            continue
        base_scores.append(snap(before))
        if cluster is not None:
            clusters[case_id] = cluster
        has_pair.append(after is not None)
        ids.append(case_id)
        if after is not None:
            changes.append(snap(after) - base_scores[-1])
    groups = units_of(ids, clusters)
    score = intervals.interval_of_mean(base_scores, groups)
    ids = [*compress(ids, has_pair)]
    groups = None if groups is None else tuple(compress(groups, has_pair))
    difference = paired.paired_difference(changes, clusters=groups)
    if difference is None:
        return BaseComparison(score, None, None, None, 0, None)
    low, high = difference.interval or (None, None)
    p = None
    if len(changes) > 1:
        p = permutation.sign_flip(changes, rng=arrays.generator_for(ids), clusters=groups).value
    return BaseComparison(score, difference.value, low, high, difference.n, p)
