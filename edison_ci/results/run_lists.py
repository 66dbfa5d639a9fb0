"""Lists of stored experiments and runs, with their sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.results.snapshot import MOST_RUNS, has_pairwise_judge, measured_experiments
from edison_ci.store.runs import NO_OUTPUTS, NO_TRIAL

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.store.runs import Run


def experiments(connection: sqlite3.Connection) -> list[str]:
    """Return every experiment that was ever run, by name."""
    rows = connection.execute("select distinct experiment from run order by 1")
    return [name for (name,) in rows]


def last_of(connection: sqlite3.Connection, experiment: str) -> str:
    """Return the newest run of an experiment; a trial of a suggestion only if there is no other."""
    row = connection.execute(
        f"select id from run where experiment = ? order by {NO_TRIAL} desc, created_at desc, "
        "rowid desc limit 1",
        (experiment,),
    ).fetchone()
    return str(row[0])


def ids_of(
    connection: sqlite3.Connection, experiment: str, *, most: int, offset: int = 0
) -> list[str]:
    """Return runs of an experiment, newest first, trials of suggestions too."""
    rows = connection.execute(
        "select id from run where experiment = ? order by created_at desc, rowid desc "
        "limit ? offset ?",
        (experiment, most, offset),
    )
    return [run_id for (run_id,) in rows]


def cells_of(connection: sqlite3.Connection, experiment: str) -> int:
    """Return how many cells the complete runs of an experiment have that are set side by side."""
    row = connection.execute(
        "select coalesce(sum(cells_planned), 0) from (select cells_planned from run where "
        f"experiment = ? and complete = 1 and {NO_TRIAL} and {NO_OUTPUTS} "
        "order by created_at desc limit ?)",
        (experiment, MOST_RUNS),
    )
    return int(row.fetchone()[0])


def ranked_cells(connection: sqlite3.Connection, experiment: str, newest: Run) -> int:
    """Return the number of cells that a leaderboard reads: of each variant, those of one run.

    With a pairwise judge, the cells of every run are read.
    """
    if has_pairwise_judge(newest):
        return cells_of(connection, experiment)
    row = connection.execute(
        "select coalesce(sum(most), 0) from (select max(m.cells) as most from rollup_model m "
        "where m.run_id in (select id from run where experiment = ? and complete = 1 "
        f"and {NO_TRIAL} and {NO_OUTPUTS} order by created_at desc limit ?) "
        "group by m.prompt, m.version, m.model)",
        (experiment, MOST_RUNS),
    )
    return int(row.fetchone()[0])


def count_of(connection: sqlite3.Connection, experiment: str) -> int:
    """Return how many runs an experiment has."""
    row = connection.execute("select count(*) from run where experiment = ?", (experiment,))
    return int(row.fetchone()[0])


def cases_of(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many cases a run has; of a running one, those with a cell so far."""
    row = connection.execute(
        "select cases from rollup_marked where run_id = ? and side = 'head' and kind = 'all'",
        (run_id,),
    ).fetchone()
    if row is None:
        row = connection.execute("select count(*) from run_case where run_id = ?", (run_id,))
        row = row.fetchone()
    return int(row[0])


def tags_of(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, int]]:
    """Return the tags of the cases of a run with their numbers, the most frequent first."""
    rows = connection.execute(
        "select value, cases from rollup_marked where run_id = ? and side = 'head' "
        "and kind = 'tag' order by cases desc, value",
        (run_id,),
    )
    return rows.fetchall()


def runs_by_status(connection: sqlite3.Connection) -> list[tuple[str, str, int]]:
    """Return experiment, status and number of the runs that are stored."""
    rows = connection.execute("select experiment, status, count(*) from run group by 1, 2")
    return rows.fetchall()


def last_run_at(connection: sqlite3.Connection) -> str | None:
    """Return when the newest run of all was started."""
    row = connection.execute("select max(created_at) from run").fetchone()
    return None if row[0] is None else str(row[0])


def newest_measured(connection: sqlite3.Connection) -> str | None:
    """Return the experiment of the newest complete run, trials of suggestions aside."""
    row = connection.execute(
        f"select experiment from run where complete = 1 and status = 'COMPLETED' and {NO_TRIAL} "
        f"and {NO_OUTPUTS} order by created_at desc, rowid desc limit 1"
    ).fetchone()
    return None if row is None else str(row[0])


def last_whole(connection: sqlite3.Connection, experiment: str) -> str:
    """Return the newest whole run of an experiment that is complete, else its newest run."""
    row = None
    if experiment in measured_experiments(connection):
        row = connection.execute(
            "select id from run where experiment = ? and complete = 1 "
            f"order by {NO_TRIAL} desc, partial, created_at desc, rowid desc limit 1",
            (experiment,),
        ).fetchone()
    return last_of(connection, experiment) if row is None else str(row[0])


def recent_ids(connection: sqlite3.Connection, most: int) -> list[str]:
    """Return the newest runs of all experiments, trials of suggestions too."""
    rows = connection.execute(
        "select id from run order by created_at desc, rowid desc limit ?", (most,)
    )
    return [run_id for (run_id,) in rows]


def last_complete(connection: sqlite3.Connection, experiment: str) -> str | None:
    """Return the newest complete run of an experiment, trials of suggestions aside."""
    row = connection.execute(
        f"select id from run where experiment = ? and complete = 1 and {NO_TRIAL} "
        "order by created_at desc, rowid desc limit 1",
        (experiment,),
    ).fetchone()
    return None if row is None else str(row[0])


def recent_scores(connection: sqlite3.Connection, experiment: str, most: int) -> list[float | None]:
    """Return the scores of the last whole, complete runs, oldest first."""
    rows = connection.execute(
        "select s.composite from run r join rollup_run s on s.run_id = r.id and s.side = 'head' "
        f"where r.experiment = ? and r.complete = 1 and r.partial = 0 and {NO_TRIAL} "
        f"and {NO_OUTPUTS} order by r.created_at desc, r.rowid desc limit ?",
        (experiment, most),
    )
    return [score for (score,) in rows.fetchall()[::-1]]
