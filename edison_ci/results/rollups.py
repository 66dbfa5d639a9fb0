"""What do the cells of a run add up to?

Pages show these sums, so that none of them has to add up cells. They are written when a run ends,
and again whenever it ends again. The unit is the case: draws of a case are averaged before cases
are. Intervals come from whoever knows statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edison_ci.frozen import dataclass
from edison_ci.results.call_sums import write_calls
from edison_ci.results.part_sums import write_parts
from edison_ci.results.side_sums import write_sides
from edison_ci.results.slices import write_bounds, write_facets, write_reliability

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence

    from edison_ci.results.slices import Facet, Reliability

_CACHE_KIB = 4_096
_TABLES = (
    "run", "model", "case", "mark", "marked", "part", "part_total", "spending", "calls", "paid",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
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
    intervals: Iterable[Measured] = (),
    facets: Sequence[Facet] = (),
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
            write_facets(connection, run_id, facets)
            write_reliability(connection, run_id, reliability)
        finally:
            connection.execute(f"pragma cache_size = {usual}")

    return operation


def _write(connection: sqlite3.Connection, run_id: str, measured: tuple[Measured, ...]) -> None:
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
    write_parts(connection, run_id)
    connection.execute(_MARKED, {"run": run_id})
    for one in measured:
        _set_interval(connection, run_id, one)


def _set_interval(connection: sqlite3.Connection, run_id: str, one: Measured) -> None:
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
  side text, prompt text, model text, attempt integer, take integer, latency_ms integer,
  cost_microusd integer, tokens_in integer, tokens_out integer, bought integer, own integer,
  paid integer, primary key (side, prompt, model, attempt)
) without rowid
"""
_USE = """
insert or ignore into temp.used
select c.side, c.prompt, c.model, a.attempt, a.take, a.latency_ms, a.cost_microusd,
  coalesce(a.tokens_in, 0), coalesce(a.tokens_out, 0), t.run_id = :run,
  t.run_id = :run and t.state = 'settled' and t.phase <> 'replay',
  case when t.run_id = :run and t.state <> 'released' and t.phase in ('generate', 'replay')
    then coalesce(t.cost_microusd, t.est_microusd) end
from cell c join answer a on a.address = c.address and a.take = c.take
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
from cell c left join answer a on a.address = c.address and a.take = c.take
where c.run_id = :run group by c.side, c.case_id
"""

# What a page may ask for is looked up here, and not in every cell of the run.
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
