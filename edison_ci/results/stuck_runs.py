"""Runs that make no progress: their process died, or nothing came of it for long."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.records import RunStatus
from edison_ci.store.runs import NO_TRIAL, RESTING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

DEAD_S = 10 * 60
"""Time after which a run whose process died is stuck: somebody may be about to resume it."""
SILENT_S = 60 * 60
"""Time without an event after which a run is stuck though its process is alive."""


@dataclass(frozen=True, slots=True)
class StuckRun:
    """A run that makes no progress."""

    run_id: str
    experiment: str
    alive: bool
    """Whether its process still runs."""
    silent_s: float
    """Time since its last event."""


def stuck_runs(
    connection: sqlite3.Connection, now: str, is_alive: Callable[[str], bool]
) -> list[StuckRun]:
    """Return the stuck runs, at most one of an experiment: the one that is silent for longest.

    A run that a newer complete run of the experiment has replaced is left out, and so is one that
    waits for a person.
    """
    resting = (*RESTING, RunStatus.REVIEWING)
    rows = connection.execute(
        "select id, experiment, owner, coalesce((select time from event where run_id = r.id "
        f"order by seq desc limit 1), created_at) from run r where {NO_TRIAL} "
        f"and status not in ({', '.join('?' * len(resting))}) and not exists (select 1 from run n "
        "where n.experiment = r.experiment and n.created_at > r.created_at and n.complete = 1)",
        resting,
    )
    found: dict[str, StuckRun] = {}
    for run_id, experiment, owner, last in rows.fetchall():
        silent_s = _seconds(last, now)
        alive = owner is not None and is_alive(owner)
        if silent_s < (SILENT_S if alive else DEAD_S):
            continue
        known = found.get(experiment)
        if known is None or silent_s > known.silent_s:
            found[experiment] = StuckRun(run_id, experiment, alive, silent_s)
    return [found[name] for name in sorted(found)]


def _seconds(begin: str, end: str) -> float:
    first, last = (dt.datetime.fromisoformat(time) for time in (begin, end))
    return (last - first).total_seconds()
