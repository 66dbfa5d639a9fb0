"""Rollups: sums of a run that are written when it ends, so that no page has to sum up cells.

They are written again whenever a run ends again. The unit is the case: repeats of a case are
averaged before cases are. Intervals are computed by `stats`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from edison_ci.numeric import TOLERANCE, snap
from edison_ci.results.components import write_components
from edison_ci.results.scores import (
    EstimateWithInterval,
    Samples,
    _at_rank,
    read_cases,
    spread_of,
    typical,
)
from edison_ci.results.slices import (
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
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.results.scores import VariantScore
    from edison_ci.results.slices import Reliability, Slice


def rollups_of(reader: sqlite3.Connection, run_id: str) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes the sums of a run, with their intervals."""
    spread = spread_of(reader, run_id)
    samples, slices = Samples(spread), Slices(reader, run_id, spread)
    read_cases(reader, run_id, spread, samples, slices)
    return write_rollups(
        run_id,
        scores=samples.scored(),
        slices=slices.slices(),
        reliability=reliability_of(reader, run_id),
    )


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
    sums: _Sums = {(side,): _snapped(row)}
    query = f"select prompt, model, {_SCORES} from temp.graded group by prompt, model"
    for prompt, model, *scores in connection.execute(query):
        sums[side, prompt, model] = _snapped(scores)
    connection.execute("drop table temp.graded")
    return sums


def _snapped(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return means without the digits that depend on the order of rows and on SQLite's version."""
    return tuple(snap(value) if isinstance(value, float) else value for value in row)


def _answers(
    connection: sqlite3.Connection, side: str, keys: Sequence[_Key], cases: Mapping[_Key, int]
) -> _Sums:
    """Return the sums of the answers of a side, each once, and of each of its keys."""
    of_variant = "temp.used where side = ? and prompt = ? and model = ?"
    sums = {key: _summed(connection, of_variant, key, cases.get(key, 0)) for key in keys}
    if len(keys) == 1:
        return {**sums, (side,): sums[keys[0]]}
    once = (
        "(select distinct attempt, latency_ms, cost_microusd, tokens_in, tokens_out, bought, "
        "cut_off from temp.used where side = ?)"
    )
    return {**sums, (side,): _summed(connection, once, (side,), cases.get((side,), 0))}


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


_CACHE_KIB = 500
_TABLES = (
    "run", "model", "case", "mark", "marked", "component", "component_total", "spending", "calls",
    "paid",
)  # fmt: skip


def write_rollups(
    run_id: str,
    *,
    scores: Sequence[VariantScore] = (),
    slices: Sequence[Slice] = (),
    reliability: Sequence[Reliability] = (),
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that adds up the cells and attempts of a run."""

    def operation(connection: sqlite3.Connection) -> None:
        usual = connection.execute("pragma cache_size").fetchone()[0]
        connection.execute(f"pragma cache_size = -{_CACHE_KIB}")
        try:
            _write(connection, run_id, scores)
            write_bounds(connection, run_id)
            write_slices(connection, run_id, slices)
            write_reliability(connection, run_id, reliability)
        finally:
            connection.execute(f"pragma cache_size = {usual}")
            connection.execute("pragma shrink_memory")

    return operation


def _write(connection: sqlite3.Connection, run_id: str, scores: Sequence[VariantScore]) -> None:
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
    for scored in scores:
        _set_intervals(connection, run_id, scored)


def _set_intervals(connection: sqlite3.Connection, run_id: str, scored: VariantScore) -> None:
    """Add the intervals of the head, or of a prompt with a model in it, to its sums."""
    whole = not scored.model
    table, where = "rollup_run", "run_id = ? and side = 'head'"
    if not whole:
        table, where = "rollup_model", f"{where} and prompt = ? and model = ?"
    place = (run_id,) if whole else (run_id, scored.prompt, scored.model)
    for estimate, column, interval in (
        ("composite", "composite", scored.composite),
        ("pass_rate", "pass", scored.pass_rate),
    ):
        if interval is not None and interval.interval is not None:
            connection.execute(
                f"update {table} set {estimate} = ?, {column}_low = ?, {column}_high = ?, "
                f"{column}_n = ?, {column}_method = ? where {where}",
                (*EstimateWithInterval.of(interval), *place),
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
