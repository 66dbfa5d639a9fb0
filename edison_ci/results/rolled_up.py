"""What do a run's cells come to: as it was written down when it ended, or added up anew?

Whoever ends a run writes its sums, so a run that has ended is not added up again. A run that goes
on has none, or those of an earlier end. Those that came in with a file from elsewhere are not
believed: they may say anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.results.rollups import PartTotal, part_totals, stored_part_totals, typical
from edison_ci.results.scores import Scored, scores_of
from edison_ci.results.spending import CallSums, call_sums, stored_call_sums
from edison_ci.stats.scores import Interval
from edison_ci.store.runs import IMPORT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.store.runs import Run

HEAD = "head"
STATUSES = ("ok", "malformed", "error", "blocked", "skipped")
_ENDED = frozenset({"COMPLETED", "FAILED", "REFINING", "REVIEWING"})
"""Statuses that a run gets to by way of its sums."""


class Sums(NamedTuple):
    """What the cells of a run's head come to, and all of its calls."""

    scores: Sequence[Scored]
    """Of all of it, then of each prompt with each model; with latencies, without costs."""
    parts: Sequence[PartTotal]
    calls: CallSums


def sums_of(connection: sqlite3.Connection, run: Run, counted: Mapping[str, int]) -> Sums:
    """Return the sums of a run that has so many cells of each status."""
    if not _is_summed(connection, run, counted):
        return sums_from_cells(connection, run.id)
    stored = _stored_scores(connection, run.id)
    scores = scores_of(connection, run.id) if stored is None else stored
    if stored is None or not _are_apart(connection, run.id):
        scores = [_timed(connection, run.id, one) for one in scores]
    return Sums(
        scores,
        stored_part_totals(connection, run.id, HEAD) or part_totals(connection, run.id, HEAD),
        stored_call_sums(connection, run.id) or call_sums(connection, run.id),
    )


def sums_from_cells(connection: sqlite3.Connection, run_id: str) -> Sums:
    """Return the sums of a run, added up anew."""
    scores = [_timed(connection, run_id, one) for one in scores_of(connection, run_id)]
    parts = part_totals(connection, run_id, HEAD)
    return Sums(scores, parts, call_sums(connection, run_id))


def _is_summed(connection: sqlite3.Connection, run: Run, counted: Mapping[str, int]) -> bool:
    """Whether the sums of a run are there, and are those of its cells."""
    if run.status not in _ENDED or run.trigger == IMPORT:
        return False
    sums = ", ".join(f"sum({status})" for status in STATUSES)
    rows = connection.execute(
        f"select {sums} from rollup_run where run_id = ?1 "
        f"union all select {sums} from rollup_model where run_id = ?1",
        (run.id,),
    )
    expected = tuple(counted.get(status, 0) for status in STATUSES)
    return all(tuple(row) == expected for row in rows)


def _stored_scores(connection: sqlite3.Connection, run_id: str) -> list[Scored] | None:
    """Return the scores as they were written; None if somebody left out an interval."""
    numbers = (
        "composite, composite_low, composite_high, composite_n, composite_method, pass_rate, "
        "pass_low, pass_high, pass_n, pass_method, latency_p50_ms, latency_p95_ms"
    )
    rows = connection.execute(
        f"select '', '', {numbers} from rollup_run where run_id = ?1 and side = ?2 "
        f"union all select * from (select prompt, model, {numbers} from rollup_model "
        "where run_id = ?1 and side = ?2 and ok + malformed + blocked > 0 order by prompt, model)",
        (run_id, HEAD),
    )
    found = []
    for prompt, model, *values, p50, p95 in rows:
        both = values[:5], values[5:]
        if any(n and method is None for *_, n, method in both):
            return None
        composite, rate = (Interval(*one) if one[3] else None for one in both)
        found.append(Scored(prompt, model, composite, rate, p50_ms=p50, p95_ms=p95))
    return found or None


def _are_apart(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether no two cells share an answer: latencies are written of answers, and told of cells."""
    (apart,) = connection.execute(
        "select (select count(take) from cell where run_id = ?1 and side = ?2) = "
        "(select answers from rollup_run where run_id = ?1 and side = ?2)",
        (run_id, HEAD),
    ).fetchone()
    return bool(apart)


def _timed(connection: sqlite3.Connection, run_id: str, one: Scored) -> Scored:
    """Return scores with how long the answers took, once for each cell."""
    where = "c.run_id = ? and c.side = ?"
    where += " and c.prompt = ? and c.model = ?" if one.model else ""
    rows = connection.execute(
        "select a.latency_ms, count(*) from cell c join answer a on a.address = c.address "
        f"and a.take = c.take where {where} group by a.latency_ms order by a.latency_ms",
        (run_id, HEAD, one.prompt, one.model) if one.model else (run_id, HEAD),
    )
    p50, p95 = typical(rows.fetchall())
    return replace(one, p50_ms=p50, p95_ms=p95)
