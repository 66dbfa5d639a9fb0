"""Rollups: sums of a run that are written when it ends, so that no page has to sum up cells.

They are written again whenever a run ends again. The unit is the case: repeats of a case are
averaged before cases are. Intervals are computed by `stats`.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.numeric import TOLERANCE, snap
from edison_ci.results.scores import Samples, read_cases, spread_of
from edison_ci.results.slices import (
    EstimateWithInterval,
    Slices,
    reliability_of,
    write_bounds,
    write_reliability,
    write_slices,
)
from edison_ci.results.spending import write_calls
from edison_ci.stats import scores as stat_scores
from edison_ci.store.answers import TIMED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from edison_ci.results.scores import VariantScore
    from edison_ci.results.slices import Reliability, Slice
    from edison_ci.stats.intervals import Interval


_TOTALS_COLUMNS = (
    "cells, ok, malformed, error, blocked, skipped, composite, composite_low, composite_high, "
    "composite_n, composite_method, pass_rate, pass_low, pass_high, pass_n, pass_method, answers, "
    "bought, cost_microusd, saved_microusd, tokens_in, tokens_out, latency_p50_ms, latency_p95_ms, "
    "missing, composite_worst, composite_best, cost_low, cost_high, latency_p50_low, "
    "latency_p50_high, cut_off"
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
    worst: float | None
    best: float | None
    cost_low: float | None = None
    """Interval of the mean cost of an answer, like that of the median latency by cases."""
    cost_high: float | None = None
    p50_low: int | None = None
    p50_high: int | None = None
    cut_off: int = 0
    """Of the answers, those that ended at max_tokens."""

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
        return stat_scores.pass_interval(self.error, self.cells)

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


def rollups_of(reader: sqlite3.Connection, run_id: str) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes the sums of a run, with their intervals."""
    spread = spread_of(reader, run_id)
    samples, slices = Samples(spread), Slices(reader, run_id, spread)
    read_cases(reader, run_id, spread, samples, slices)
    return write_rollups(
        run_id,
        intervals=[measured for one in samples.scored() for measured in _estimates(one)],
        slices=slices.slices(),
        reliability=reliability_of(reader, run_id),
    )


def _estimates(scored: VariantScore) -> Iterator[StoredEstimate]:
    kinds: tuple[tuple[Literal["composite", "pass_rate"], Interval | None], ...] = (
        ("composite", scored.composite),
        ("pass_rate", scored.pass_rate),
    )
    for metric, found in kinds:
        if found is not None and found.low is not None and found.high is not None:
            yield StoredEstimate(
                "head",
                scored.prompt,
                scored.model,
                metric,
                found.estimate,
                found.low,
                found.high,
                found.n,
                found.method,
            )


# There are several components to each cell, so this is most of what is read when a run ends: once,
# in the order of an index, and added up here, as SQLite would sort all of it to group it.
FAILED = "failed"
"""The kind of mark that a failing case has."""
_BATCH = 1000
_BINS = 10
_FAILS_BELOW = 0.5 - TOLERANCE
"""A score fails below this where the component itself neither passes nor fails."""

# What most rows do not have is null: to make a text of it takes longer than to find it.
_PARTS = f"""
select p.kind, p.name, p.score, p.passed, nullif(p.status, 'ok'), c.rowid,
  case when p.kind = 'safety' then substr(p.reason, 1, instr(p.reason, ':') - 1) end,
  case when p.passed = 0 or (p.passed is null and p.score < {_FAILS_BELOW}) then c.case_id end
  {{who}}
from cell c join component p on p.cell_id = c.id where c.run_id = ? and c.side = ? order by
  c.case_id
"""
_SCORE, _PASSED, _STATUS, _CELL, _ACTION, _FAILING, _WHO = range(2, 9)
_Rows = list[tuple[Any, ...]]
_Component = tuple[str, str]
"""Kind and name."""


class ComponentTotal(NamedTuple):
    """Totals of a check, criterion or grader over all prompts and models."""

    name: str
    kind: str
    answers: int
    """Answers that it scored."""
    passed: int | None
    """Answers that it passed; None if it has no threshold."""
    mean: float | None
    errors: int
    blocked: int
    """Answers that a screen withheld."""
    redacted: int
    """Answers of which a screen removed a part."""

    @property
    def flagged(self) -> int:
        """Answers that a screen or a judge only flagged."""
        return self.answers - self.blocked - self.redacted

    @property
    def failed(self) -> int | None:
        """Answers that fail it; None without a threshold."""
        return None if self.passed is None else self.answers - self.passed


@dataclass(slots=True)
class _Total:
    """The sums of a component over a side."""

    first: int
    """The first cell that has it."""
    n: int = 0
    total: float = 0.0
    passed: int | None = None
    errors: int = 0
    blocked: int = 0
    redacted: int = 0

    def add(self, rows: _Rows) -> None:
        """Count some more, in their order."""
        self.first = min(self.first, min([row[_CELL] for row in rows]))
        scores = [row[_SCORE] for row in rows if row[_SCORE] is not None]
        self.n += len(scores)
        self.total += math.fsum(scores)
        if passes := [row[_PASSED] for row in rows if row[_PASSED] is not None]:
            self.passed = (self.passed or 0) + sum(passes)
        self.errors += sum([row[_STATUS] == "error" for row in rows])
        self.blocked += sum([row[_ACTION] == "block" for row in rows])
        self.redacted += sum([row[_ACTION] == "redact" for row in rows])

    def of(self, component: _Component) -> ComponentTotal:
        mean = snap(self.total / self.n) if self.n else None
        kind, name = component
        done = (self.errors, self.blocked, self.redacted)
        return ComponentTotal(name, kind, self.n, self.passed, mean, *done)


@dataclass(slots=True)
class _Spread:
    """The scores of a component with a prompt and model."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float | None = None
    high: float | None = None
    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    bins: list[int] = field(default_factory=lambda: [0] * _BINS)

    def add(self, rows: _Rows) -> None:
        """Count some more, in their order."""
        passes = [row[_PASSED] for row in rows if row[_PASSED] is not None]
        passed = sum(passes)
        self.passed += passed
        self.failed += len(passes) - passed
        states = [row[_STATUS] for row in rows if row[_STATUS] is not None]
        self.errors += states.count("error")
        self.skipped += states.count("skipped")
        scores = [row[_SCORE] for row in rows if row[_SCORE] is not None]
        if scores:
            self._score(scores)

    def _score(self, scores: list[float]) -> None:
        """Take scores.

        The sum of squares is kept around the running mean (Welford 1962): the plain one loses
        digits.
        """
        n, mean, squares = self.n, self.mean, self.squares
        for score in scores:
            n += 1
            away = score - mean
            mean += away / n
            squares += away * (score - mean)
        self.n, self.mean, self.squares = n, mean, squares
        low, high = min(scores), max(scores)
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        for score, times in Counter(scores).items():
            self.bins[min(_BINS - 1, max(0, int(score * _BINS + TOLERANCE)))] += times

    def row(self) -> tuple[Any, ...]:
        """Return it as a table has it; digits that depend on the order are rounded away."""
        mean = snap(self.mean) if self.n else None
        sd = snap(math.sqrt(self.squares / (self.n - 1))) if self.n > 1 else None
        counts = (self.passed, self.failed, self.errors, self.skipped)
        return (
            self.n,
            mean,
            self.low,
            self.high,
            sd,
            *counts,
            json.dumps(self.bins, separators=(",", ":")),
        )


def write_components(connection: sqlite3.Connection, run_id: str) -> None:
    """Write the sums of each component, and a mark on every case that fails in one.

    They are kept apart by prompt and model, as in `rollup_model`.
    """
    who: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    query = "select side, prompt, model from rollup_model where run_id = ?"
    for side, *one in connection.execute(query, (run_id,)):
        who[side].append(tuple(one))
    for side, keys in who.items():
        _write_side(connection, run_id, side, keys)


def _write_side(
    connection: sqlite3.Connection, run_id: str, side: str, who: list[tuple[str, str]]
) -> None:
    spreads: defaultdict[tuple[str, ...], _Spread] = defaultdict(_Spread)
    totals: dict[_Component, _Total] = {}
    for component, rows in _read(connection, run_id, side, totals, several=len(who) > 1):
        for one, same in _by_model(rows, who).items():
            spreads[*one, *component].add(same)
        failing = {row[_FAILING] for row in rows if row[_FAILING] is not None}
        connection.executemany(
            "insert or ignore into rollup_mark (run_id, side, kind, value, case_id) "
            "values (?, ?, ?, ?, ?)",
            [(run_id, side, FAILED, ":".join(component), case) for case in failing],
        )
    connection.executemany(
        "insert into rollup_component (run_id, side, prompt, model, kind, name, n, mean, min, "
        "max, sd, "
        f"passed, failed, errors, skipped, bins) values ({', '.join('?' * 16)})",
        [(run_id, side, *key, *spread.row()) for key, spread in sorted(spreads.items())],
    )
    connection.executemany(
        "insert into rollup_component_total (run_id, side, place, name, kind, n, passed, mean, "
        "errors, "
        f"blocked, redacted) values ({', '.join('?' * 11)})",
        [(run_id, side, place, *total) for place, total in enumerate(_ordered(totals))],
    )


def component_totals(
    connection: sqlite3.Connection, run_id: str, side: str
) -> list[ComponentTotal]:
    """Return the totals of each component of a side, in the order of its cells."""
    totals: dict[_Component, _Total] = {}
    for _ in _read(connection, run_id, side, totals, several=False):
        pass
    return _ordered(totals)


def stored_component_totals(
    connection: sqlite3.Connection, run_id: str, side: str
) -> list[ComponentTotal]:
    """Return the same as it was written when the run ended."""
    rows = connection.execute(
        "select name, kind, n, passed, mean, errors, blocked, redacted from rollup_component_total "
        "where run_id = ? and side = ? order by place",
        (run_id, side),
    )
    return [ComponentTotal(*row) for row in rows]


def _read(
    connection: sqlite3.Connection,
    run_id: str,
    side: str,
    totals: dict[_Component, _Total],
    *,
    several: bool,
) -> Iterator[tuple[_Component, _Rows]]:
    """Add up the parts of a side, and hand on the rows of each."""
    query = _PARTS.format(who=", c.prompt, c.model" if several else "")
    cursor = connection.execute(query, (run_id, side))
    while rows := cursor.fetchmany(_BATCH):
        found: defaultdict[_Component, _Rows] = defaultdict(list)
        for row in rows:
            found[row[0], row[1]].append(row)
        for component, same in found.items():
            totals.setdefault(component, _Total(same[0][_CELL])).add(same)
            yield component, same


def _ordered(totals: dict[_Component, _Total]) -> list[ComponentTotal]:
    ranked = sorted((total.first, name, kind) for (kind, name), total in totals.items())
    return [totals[kind, name].of((kind, name)) for _, name, kind in ranked]


def _by_model(rows: _Rows, who: list[tuple[str, str]]) -> dict[tuple[str, str], _Rows]:
    if len(who) == 1:
        return {who[0]: rows}
    found: defaultdict[tuple[str, str], _Rows] = defaultdict(list)
    for row in rows:
        found[row[_WHO], row[_WHO + 1]].append(row)
    return found


# Sorting cells by prompt and model takes most of the time, so it is left out where a side has but
# one of them: an index has its cells by case already.
P95_FROM = 60
"""Answers below which there is no 95th percentile."""
_FEWEST_FOR_MEDIAN = 6
_UPPER = 0.975
_Key = tuple[str, ...]
"""Side, prompt and model, or a side alone."""
_Sums = dict[_Key, tuple[Any, ...]]

_COUNTED = """
select side, prompt, model, max(version), count(*), sum(status = 'ok'), sum(status = 'malformed'),
  sum(status = 'error'), sum(status = 'blocked'), sum(status = 'skipped')
from cell where run_id = ? group by side, prompt, model
"""
_SCORES = "avg(composite), count(composite), avg(passed), count(passed)"
_ANSWERS = (
    "count(*), sum(bought), sum(bought * cost_microusd), sum((1 - bought) * cost_microusd), "
    "sum(tokens_in), sum(tokens_out), sum(cut_off)"
)
_SQUARES = "sum(1.0 * cost_microusd * cost_microusd)"
_COLUMNS = (
    "cells, ok, malformed, error, blocked, skipped, composite, composite_n, pass_rate, pass_n, "
    "answers, bought, cost_microusd, saved_microusd, tokens_in, tokens_out, cut_off, "
    "latency_p50_ms, latency_p95_ms, cost_low, cost_high, latency_p50_low, latency_p50_high"
)


_NO_SCORES = (None, 0, None, 0)
_NO_ANSWERS = (0, 0, 0, 0, 0, 0, 0, *(None,) * 6)


def write_sides(connection: sqlite3.Connection, run_id: str) -> None:
    """Write the sums of each side, and of each prompt with a model."""
    sides: defaultdict[str, dict[_Key, tuple[Any, ...]]] = defaultdict(dict)
    for side, prompt, model, *counts in connection.execute(_COUNTED, (run_id,)):
        sides[side][side, prompt, model] = tuple(counts)
    for side, counted in sides.items():
        scored = _scores(connection, run_id, side, list(counted))
        cases = {key: sums[1] for key, sums in scored.items()}
        answered = _answers(connection, side, list(counted), cases)
        for key, counts in counted.items():
            sums = (*scored.get(key, _NO_SCORES), *answered[key])
            row = (run_id, *key, *counts, *sums)
            _insert(connection, "rollup_model", "side, prompt, model, version", row)
        cells = [sum(column) for column in list(zip(*counted.values(), strict=True))[1:]]
        row = (run_id, side, *cells, *scored[side,], *answered[side,])
        _insert(connection, "rollup_run", "side", row)


def _insert(connection: sqlite3.Connection, table: str, key: str, row: Sequence[Any]) -> None:
    connection.execute(
        f"insert into {table} (run_id, {key}, {_COLUMNS}) values ({', '.join('?' * len(row))})", row
    )


def _scores(connection: sqlite3.Connection, run_id: str, side: str, keys: Sequence[_Key]) -> _Sums:
    """Return mean and number of the cases' scores, of a side and of each of its keys."""
    cases = (
        "select prompt, model, avg(composite) as composite, avg(passed) as passed from cell "
        "where run_id = :run and side = :side and status in ('ok', 'malformed', 'blocked') group by"
    )
    values = {"run": run_id, "side": side}
    if len(keys) == 1:
        row = connection.execute(f"select {_SCORES} from ({cases} case_id)", values).fetchone()
        return {(side,): _snapped(row), keys[0]: _snapped(row)}
    connection.execute("drop table if exists temp.graded")
    connection.execute(f"create temp table graded as {cases} prompt, model, case_id", values)
    row = connection.execute(f"select {_SCORES} from temp.graded").fetchone()
    found: _Sums = {(side,): _snapped(row)}
    query = f"select prompt, model, {_SCORES} from temp.graded group by prompt, model"
    for prompt, model, *scores in connection.execute(query):
        found[side, prompt, model] = _snapped(scores)
    connection.execute("drop table temp.graded")
    return found


def _snapped(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return means without the digits that depend on the order of rows and on SQLite's version."""
    return tuple(snap(value) if isinstance(value, float) else value for value in row)


def _answers(
    connection: sqlite3.Connection, side: str, keys: Sequence[_Key], cases: Mapping[_Key, int]
) -> _Sums:
    """Return the sums of the answers of a side, each once, and of each of its keys."""
    one = "temp.used where side = ? and prompt = ? and model = ?"
    found = {key: _summed(connection, one, key, cases.get(key, 0)) for key in keys}
    if len(keys) == 1:
        return {**found, (side,): found[keys[0]]}
    once = (
        "(select distinct attempt, latency_ms, cost_microusd, tokens_in, tokens_out, bought, "
        "cut_off from temp.used where side = ?)"
    )
    return {**found, (side,): _summed(connection, once, (side,), cases.get((side,), 0))}


def _summed(
    connection: sqlite3.Connection, answers: str, values: _Key, cases: int
) -> tuple[Any, ...]:
    """Add up answers; they are counted by millisecond, as sorting them takes room.

    The unit of the intervals is the case: answers of one case may be alike.
    """
    query = f"select {_ANSWERS}, {_SQUARES} from {answers}"
    *sums, squares = connection.execute(query, values).fetchone()
    if not sums[0]:
        return _NO_ANSWERS
    units = cases or sums[0]
    latencies = (
        f"select latency_ms, count(*) from {answers} group by 1 having latency_ms is not null "
        "order by 1"
    )
    counted = connection.execute(latencies, values).fetchall()
    cost = cost_interval(sums[2] + sums[3], squares, sums[0], units)
    return (*sums, *typical(counted), *cost, *median_interval(counted, units))


def cost_interval(
    total: float, squares: float, n: int, units: int
) -> tuple[float | None, float | None]:
    """Return the 95% t interval of a mean, from sums; none if all are equal or there is one."""
    mean = total / n
    variance = (squares - n * mean * mean) / max(n - 1, 1)
    if units < 2 or variance <= TOLERANCE * mean * mean:
        return None, None
    reach = stat_scores.t_quantile(_UPPER, units - 1) * math.sqrt(variance / units)
    return snap(max(0.0, mean - reach)), snap(mean + reach)


def median_interval(
    counted: Sequence[tuple[int, int]], units: int
) -> tuple[int | None, int | None]:
    """Return the 95% interval of a median by ranks (normal approximation of the binomial).

    Below 6 units the two ends of all values do not cover it in 95%.
    """
    n = sum(times for _, times in counted)
    units = min(units, n)
    if units < _FEWEST_FOR_MEDIAN:
        return None, None
    away = stat_scores.normal_quantile(_UPPER) / (2 * math.sqrt(units))
    first = max(1, math.floor(n * (0.5 - away)))
    last = min(n, math.ceil(n * (0.5 + away)) + 1)
    return _at_rank(counted, first), _at_rank(counted, last)


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


_CACHE_KIB = 500
_TABLES = (
    "run", "model", "case", "mark", "marked", "component", "component_total", "spending", "calls",
    "paid",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredEstimate:
    """An estimate with its interval, for a prompt with a model, or for a whole side of a run."""

    side: str
    prompt: str
    """Empty, like `model`, for the whole side."""
    model: str
    metric: Literal["composite", "pass_rate"]
    estimate: float
    low: float
    high: float
    n: int
    method: str


def write_rollups(
    run_id: str,
    *,
    intervals: Iterable[StoredEstimate] = (),
    slices: Sequence[Slice] = (),
    reliability: Sequence[Reliability] = (),
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that adds up the cells and attempts of a run."""
    measured = tuple(intervals)

    def operation(connection: sqlite3.Connection) -> None:
        usual = connection.execute("pragma cache_size").fetchone()[0]
        connection.execute(f"pragma cache_size = -{_CACHE_KIB}")
        try:
            _write(connection, run_id, measured)
            write_bounds(connection, run_id)
            write_slices(connection, run_id, slices)
            write_reliability(connection, run_id, reliability)
        finally:
            connection.execute(f"pragma cache_size = {usual}")
            connection.execute("pragma shrink_memory")

    return operation


def _write(
    connection: sqlite3.Connection, run_id: str, measured: tuple[StoredEstimate, ...]
) -> None:
    for table in _TABLES:
        connection.execute(f"delete from rollup_{table} where run_id = ?", (run_id,))
    connection.execute("drop table if exists temp.used")
    connection.execute(_USED)
    connection.execute(_USE, {"run": run_id})
    write_sides(connection, run_id)
    write_calls(connection, run_id)
    connection.execute("drop table temp.used")
    for statement in (_CASE, _MARKS):
        connection.execute(statement, {"run": run_id})
    write_components(connection, run_id)
    connection.execute(_MARKED, {"run": run_id})
    for one in measured:
        _set_interval(connection, run_id, one)


def _set_interval(connection: sqlite3.Connection, run_id: str, one: StoredEstimate) -> None:
    column = "composite" if one.metric == "composite" else "pass"
    estimate = "composite" if one.metric == "composite" else "pass_rate"
    whole = not one.prompt and not one.model
    table = "rollup_run" if whole else "rollup_model"
    where = "" if whole else " and prompt = :prompt and model = :model"
    connection.execute(
        f"update {table} set {estimate} = :estimate, {column}_low = :low, {column}_high = :high, "
        f"{column}_n = :n, {column}_method = :method "
        f"where run_id = :run and side = :side{where}",
        {
            "estimate": one.estimate,
            "low": one.low,
            "high": one.high,
            "n": one.n,
            "method": one.method,
            "run": run_id,
            "side": one.side,
            "prompt": one.prompt,
            "model": one.model,
        },
    )


# The answers that the cells of a run rest on: each once for every prompt and model that used it.
# `own` are those that it bought, `paid` is what that cost.
_USED = """
create temp table used (
  side text, prompt text, model text, attempt integer, answer_no integer, latency_ms integer,
  cost_microusd integer, tokens_in integer, tokens_out integer, bought integer, own integer,
  paid integer, cut_off integer, primary key (side, prompt, model, attempt)
) without rowid
"""
_USE = f"""
insert or ignore into temp.used
select c.side, c.prompt, c.model, a.attempt, a.answer_no, iif({TIMED}, a.latency_ms, null),
  a.cost_microusd,
  coalesce(a.tokens_in, 0), coalesce(a.tokens_out, 0), t.run_id = :run,
  t.run_id = :run and t.state = 'settled' and t.phase <> 'replay',
  case when t.run_id = :run and t.state <> 'released' and t.phase in ('generate', 'replay')
    then coalesce(t.cost_microusd, t.est_microusd) end, a.finish_reason = 'length'
from cell c join answer a on a.request_hash = c.request_hash and a.answer_no = c.answer_no
join attempt t on t.id = a.attempt
where c.run_id = :run
"""

_CASE = """
insert into rollup_case (run_id, side, case_id, cells, ok, malformed, error, blocked, skipped,
  passed, failed, composite, lowest, cost_microusd, tokens, latency_ms)
select :run, c.side, c.case_id, count(*), sum(c.status = 'ok'), sum(c.status = 'malformed'),
  sum(c.status = 'error'), sum(c.status = 'blocked'), sum(c.status = 'skipped'),
  coalesce(sum(c.passed = 1), 0), coalesce(sum(c.passed = 0), 0), round(avg(c.composite), 12),
  min(c.composite), coalesce(sum(a.cost_microusd), 0),
  coalesce(sum(coalesce(a.tokens_in, 0) + coalesce(a.tokens_out, 0)), 0), max(a.latency_ms)
from cell c left join answer a on a.request_hash = c.request_hash and a.answer_no = c.answer_no
where c.run_id = :run group by c.side, c.case_id
"""

# Filters of pages read these marks instead of every cell of the run.
_MARKS = """
insert or ignore into rollup_mark (run_id, side, kind, value, case_id)
select k.run_id, k.side, 'tag', t.value, k.case_id
from rollup_case k join run_case f on f.run_id = k.run_id and f.case_id = k.case_id,
  json_each(f.tags) t
where k.run_id = :run
union all
select run_id, side, 'failed', '', case_id from rollup_case where run_id = :run and failed > 0
union all
select distinct run_id, side, 'status', status, case_id from cell
where run_id = :run and status <> 'ok'
"""

_MARKED = """
insert into rollup_marked (run_id, side, kind, value, cases)
select run_id, side, kind, value, count(*) from rollup_mark where run_id = :run group by 2, 3, 4
union all
select run_id, side, 'all', '', count(*) from rollup_case where run_id = :run group by 2
"""
