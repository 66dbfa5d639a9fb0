"""What do the cells and answers of each side of a run, and of each prompt with a model, come to?

Sorting cells by prompt and model takes most of the time, so it is left out where a side has but one
of them: an index has its cells by case already.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from edison_ci.rounding import snap

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

P95_FROM = 60
"""Answers below which a 95th percentile says nothing."""
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
    "sum(tokens_in), sum(tokens_out)"
)
_COLUMNS = (
    "cells, ok, malformed, error, blocked, skipped, composite, composite_n, pass_rate, pass_n, "
    "answers, bought, cost_microusd, saved_microusd, tokens_in, tokens_out, latency_p50_ms, "
    "latency_p95_ms"
)


_NO_SCORES = (None, 0, None, 0)
_NO_ANSWERS = (0, 0, 0, 0, 0, 0, None, None)


def write_sides(connection: sqlite3.Connection, run_id: str) -> None:
    """Write the sums of each side, and of each prompt with a model, from the answers at hand."""
    sides: defaultdict[str, dict[_Key, tuple[Any, ...]]] = defaultdict(dict)
    for side, prompt, model, *counts in connection.execute(_COUNTED, (run_id,)):
        sides[side][side, prompt, model] = tuple(counts)
    for side, counted in sides.items():
        scored = _scores(connection, run_id, side, list(counted))
        answered = _answers(connection, side, list(counted))
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


def _answers(connection: sqlite3.Connection, side: str, keys: Sequence[_Key]) -> _Sums:
    """Return the sums of the answers of a side, each once, and of each of its keys."""
    one = "temp.used where side = ? and prompt = ? and model = ?"
    found = {key: _summed(connection, one, key) for key in keys}
    if len(keys) == 1:
        return {**found, (side,): found[keys[0]]}
    once = (
        "(select distinct attempt, latency_ms, cost_microusd, tokens_in, tokens_out, bought "
        "from temp.used where side = ?)"
    )
    return {**found, (side,): _summed(connection, once, (side,))}


def _summed(connection: sqlite3.Connection, answers: str, values: _Key) -> tuple[Any, ...]:
    """Add up answers; they are counted by millisecond, as sorting them takes room."""
    sums = connection.execute(f"select {_ANSWERS} from {answers}", values).fetchone()
    if not sums[0]:
        return _NO_ANSWERS
    latencies = f"select latency_ms, count(*) from {answers} group by 1 order by 1"
    return (*sums, *typical(connection.execute(latencies, values).fetchall()))


def typical(counted: Sequence[tuple[int, int]]) -> tuple[int | None, int | None]:
    """Return the median and the 95th percentile of values, given in order with their counts."""
    count = sum(times for _, times in counted)
    p95 = _ranked(counted, 95, count) if count >= P95_FROM else None
    return _ranked(counted, 50, count), p95


def _ranked(counted: Sequence[tuple[int, int]], percent: int, count: int) -> int | None:
    """Return the smallest value that so many percent do not exceed."""
    below = 0
    for value, times in counted:
        below += times
        if below * 100 >= count * percent:
            return value
    return None
