"""Numbers for operators: calls by model, runs that are under way, and suggestions.

Everything is read from sums that were written when runs ended, and so costs the same with any
number of answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.results.live_progress import progress_of
from edison_ci.results.spending import WITHIN_MS
from edison_ci.store.runs import MADE_HERE, RESTING, find_run

if TYPE_CHECKING:
    import sqlite3

_MOST_RUNS = 50


class ModelCalls(NamedTuple):
    """The calls of a model in a phase, in runs that have ended."""

    model: str
    phase: str
    calls: int
    """Answered."""
    failed: int
    """Not charged."""
    unknown: int
    """Perhaps charged."""
    tokens_in: int
    tokens_out: int
    cost_microusd: int
    latency_ms: int
    """Of all answers together."""
    within: tuple[int, ...]
    """Answers that took at most each of `WITHIN_MS`."""


def calls_by_model(connection: sqlite3.Connection) -> list[ModelCalls]:
    """Return the calls of all ended runs, the model with most calls first; no recordings."""
    within = ", ".join(f"sum(within_{ms}_ms)" for ms in WITHIN_MS)
    rows = connection.execute(
        "select model, phase, sum(calls), sum(released), sum(unknown), sum(tokens_in), "
        f"sum(tokens_out), sum(cost_microusd), sum(latency_ms), {within} "
        f"from rollup_spending where phase <> 'replay' and {MADE_HERE} group by 1, 2 "
        "order by 3 desc, 1, 2"
    )
    return [ModelCalls._make((*row[:9], tuple(row[9:]))) for row in rows]


def reused_total(connection: sqlite3.Connection) -> int:
    """Return how many answers ended runs used that they did not buy."""
    row = connection.execute(
        f"select coalesce(sum(reused), 0) from rollup_calls where {MADE_HERE}"
    ).fetchone()
    return int(row[0])


class UnfinishedRun(NamedTuple):
    """A run that has not ended, whether or not its process is alive."""

    run_id: str
    experiment: str
    status: str
    created_at: str
    waiting: int
    """Cells that are not done."""


def unfinished_runs(connection: sqlite3.Connection) -> list[UnfinishedRun]:
    """Return the runs that are under way, oldest first, at most 50."""
    rows = connection.execute(
        f"select id from run where status not in ({', '.join('?' * len(RESTING))}) "
        "order by created_at, id limit ?",
        (*sorted(RESTING), _MOST_RUNS),
    )
    unfinished = []
    for (run_id,) in rows.fetchall():
        run = find_run(connection, run_id)
        progress = progress_of(connection, run)
        waiting = max(0, progress.total - progress.done)
        unfinished.append(
            UnfinishedRun(run.id, run.experiment, run.status, run.created_at, waiting)
        )
    return unfinished


def suggestions_by_status(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many suggestions have each status."""
    rows = connection.execute("select status, count(*) from suggestion group by 1 order by 1")
    return dict(rows.fetchall())
