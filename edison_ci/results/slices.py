"""Into which parts does the result of a run fall: kinds of cases, draws, what is missing?

Written with the other sums when a run ends, read by whatever shows it.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

HEAD = "head"


class Shown(NamedTuple):
    """An estimate with its interval, as a table has it."""

    estimate: float | None
    low: float | None
    high: float | None
    n: int
    method: str | None


NOTHING = Shown(None, None, None, 0, None)


@dataclass(frozen=True, slots=True)
class Facet:
    """A part of the cases, with a prompt and model or over all of them."""

    prompt: str
    """Empty, like `model`, over all of them."""
    model: str
    facet: str
    value: str
    cases: int
    composite: Shown
    pass_rate: Shown
    difference: float | None = None
    """Its mean score minus that of the other cases."""
    p: float | None = None
    p_adjusted: float | None = None
    family: int = 0
    stands_out: bool = False


@dataclass(frozen=True, slots=True)
class Reliability:
    """How often k draws of a case all pass, and how often at least one of them does."""

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
class Bounds:
    """Where the score of a prompt with a model lies, whatever the missing answers are worth."""

    prompt: str
    model: str
    missing: int
    composite_worst: float | None
    composite_best: float | None
    pass_worst: float | None
    pass_best: float | None


@dataclass(frozen=True, slots=True)
class PartSpread:
    """How the scores of a check, criterion or grader are spread, cell by cell."""

    prompt: str
    model: str
    name: str
    kind: str
    n: int
    mean: float | None
    low: float | None
    high: float | None
    sd: float | None


class CellCounts(NamedTuple):
    """How the cells of a prompt with a model ended."""

    prompt: str
    model: str
    cells: int
    ok: int
    malformed: int
    error: int
    blocked: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Breakdown:
    """All of it."""

    facets: tuple[Facet, ...] = ()
    reliability: tuple[Reliability, ...] = ()
    bounds: tuple[Bounds, ...] = ()
    """Only of those that miss something."""
    parts: tuple[PartSpread, ...] = ()
    counts: tuple[CellCounts, ...] = ()


def write_facets(connection: sqlite3.Connection, run_id: str, facets: Iterable[Facet]) -> None:
    """Write the parts of the cases in the place of what was there."""
    connection.execute("delete from rollup_facet where run_id = ?", (run_id,))
    connection.executemany(
        f"insert into rollup_facet values ({', '.join('?' * 22)})",
        [
            (
                run_id,
                HEAD,
                *(each.prompt, each.model, each.facet, each.value, each.cases),
                *each.composite,
                *each.pass_rate,
                *(each.difference, each.p, each.p_adjusted, each.family, each.stands_out),
            )
            for each in facets
        ],
    )


def write_reliability(
    connection: sqlite3.Connection, run_id: str, rows: Iterable[Reliability]
) -> None:
    """Write how draws passed together in the place of what was there."""
    connection.execute("delete from rollup_reliability where run_id = ?", (run_id,))
    connection.executemany(
        f"insert into rollup_reliability values ({', '.join('?' * 13)})",
        [(run_id, HEAD, *astuple(each)) for each in rows],
    )


def write_bounds(connection: sqlite3.Connection, run_id: str) -> None:
    """Add what the scores could be at worst and at best, where answers are missing."""
    broken = connection.execute(
        "select exists (select 1 from rollup_run where run_id = ?1 and error > 0) or "
        "exists (select 1 from rollup_part where run_id = ?1 and errors > 0)",
        (run_id,),
    ).fetchone()[0]
    if broken:
        connection.execute(_bounds("rollup_run", ("side",)), {"run": run_id})
        connection.execute(_bounds("rollup_model", ("side", "prompt", "model")), {"run": run_id})


def _bounds(table: str, keys: Sequence[str]) -> str:
    """Return the statement that fills the bounds of a table.

    A case's score is the mean of its draws, with each missing one at 0 or at 1.
    """
    by = ", ".join(keys)
    same = " and ".join(f"{table}.{key} = b.{key}" for key in keys)
    broken = (
        "(c.status = 'error' or (c.status = 'ok' and c.{0} is null and exists "
        "(select 1 from part p where p.cell_id = c.id and p.status = 'error')))"
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


# --- reading it back ------------------------------------------------------------------------------


def breakdown_of(connection: sqlite3.Connection, run_id: str) -> Breakdown:
    """Return what was written when the run ended; nothing of a run that has not."""
    return Breakdown(
        _facets(connection, run_id),
        tuple(
            Reliability(*row)
            for row in connection.execute(
                "select prompt, model, k, pass_all, pass_all_low, pass_all_high, pass_any, "
                "pass_any_low, pass_any_high, n, method from rollup_reliability "
                "where run_id = ? and side = 'head' order by prompt, model, k",
                (run_id,),
            )
        ),
        tuple(
            Bounds(*row)
            for row in connection.execute(
                _both("missing, composite_worst, composite_best, pass_worst, pass_best")
                + " where missing > 0 order by prompt, model",
                {"run": run_id},
            )
        ),
        tuple(
            PartSpread(*row)
            for row in connection.execute(
                "select prompt, model, name, kind, n, mean, min, max, sd from rollup_part "
                "where run_id = ? and side = 'head' order by prompt, model, kind, name",
                (run_id,),
            )
        ),
        tuple(
            CellCounts(*row)
            for row in connection.execute(
                _both("cells, ok, malformed, error, blocked, skipped") + " order by prompt, model",
                {"run": run_id},
            )
        ),
    )


def _both(columns: str) -> str:
    """Return the query of columns that a run and each of its models have."""
    return (
        f"select * from (select '' as prompt, '' as model, {columns} from rollup_run "
        f"where run_id = :run and side = 'head' union all select prompt, model, {columns} "
        "from rollup_model where run_id = :run and side = 'head')"
    )


def _facets(connection: sqlite3.Connection, run_id: str) -> tuple[Facet, ...]:
    rows = connection.execute(
        "select prompt, model, facet, value, cases, composite, composite_low, composite_high, "
        "composite_n, composite_method, pass_rate, pass_low, pass_high, pass_n, pass_method, "
        "difference, p, p_adjusted, family, stands_out from rollup_facet "
        "where run_id = ? and side = 'head' order by prompt, model, facet, cases desc, value",
        (run_id,),
    )
    found = []
    for prompt, model, facet, value, cases, *numbers in rows:
        composite, rate = Shown(*numbers[:5]), Shown(*numbers[5:10])
        difference, p, p_adjusted, family, stands_out = numbers[10:]
        one = Facet(prompt, model, facet, value, cases, composite, rate, difference, p)
        found.append(
            replace(one, p_adjusted=p_adjusted, family=family, stands_out=bool(stands_out))
        )
    return tuple(found)
