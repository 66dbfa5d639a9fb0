"""Which runs belong together in one report?

A comparison on changed material takes two runs, and a pull request may touch several experiments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.results.snapshot import material_of
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.store.runs import Run

_LOOKED_THROUGH = 500
"""Runs among which others of the same change are looked for."""


def companion_of(connection: sqlite3.Connection, run: Run) -> Run | None:
    """Return the run on the base's material that was made for the same comparison, if any."""
    if run.base_commit is None or material_of(run) == "base":
        return None
    for other in _before(connection, run):
        if other.experiment != run.experiment:
            continue
        same = other.base_commit == run.base_commit and material_of(other) == "base"
        return other if same else None
    return None


def runs_of_change(connection: sqlite3.Connection, run: Run) -> list[Run]:
    """Return the newest run of each experiment on the same commit and base, by name.

    What was run on files that no commit has stands alone: nobody knows what belongs to it.
    """
    found = {run.experiment: run}
    if run.commit_id is not None:
        for other in _before(connection, run):
            alike = (other.commit_id, other.base_commit) == (run.commit_id, run.base_commit)
            if alike and material_of(other) == "head":
                found.setdefault(other.experiment, other)
    return [found[name] for name in sorted(found)]


def _before(connection: sqlite3.Connection, run: Run) -> list[Run]:
    """Return the runs that were started before this one, newest first."""
    rows = connection.execute(
        "select id from run where (created_at, rowid) < (select created_at, rowid from run "
        "where id = ?) order by created_at desc, rowid desc limit ?",
        (run.id, _LOOKED_THROUGH),
    )
    return [find_run(connection, run_id) for (run_id,) in rows.fetchall()]
