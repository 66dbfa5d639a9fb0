"""Which runs are finished and whole, so that their numbers count?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.store.runs import NO_TRIAL, find_run

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.store.runs import Run

MOST_RUNS = 200
"""Of the newest complete runs, so many are looked through for further versions and models."""


def complete_runs(
    connection: sqlite3.Connection, experiment: str, most: int, *, trials: bool = False
) -> list[Run]:
    """Return the newest complete runs of an experiment, newest first; trials where asked for."""
    rows = connection.execute(
        "select id from run where experiment = ? and complete = 1 and status = 'COMPLETED' "
        f"{'' if trials else f'and {NO_TRIAL} '}order by created_at desc, rowid desc limit ?",
        (experiment, most),
    )
    return [find_run(connection, run_id) for (run_id,) in rows.fetchall()]


def measured_experiments(connection: sqlite3.Connection) -> list[str]:
    """Return the experiments that have a complete run, by name."""
    rows = connection.execute(
        "select distinct experiment from run where complete = 1 and status = 'COMPLETED' order by 1"
    )
    return [name for (name,) in rows]
