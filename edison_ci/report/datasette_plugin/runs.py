"""Which runs are there, and what is each of them in a line?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.report.datasette_plugin.sums import Sums, run_cost, sums_of_run
from edison_ci.results.comparable import MOST_RUNS, may_compare
from edison_ci.results.snapshot import is_redacted
from edison_ci.store.owners import is_alive
from edison_ci.store.runs import NO_TRIAL, Run, find_run

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.report.datasette_plugin.looking import Look

MOST_CELLS = 20_000
"""What takes a look at every answer is not worked out for more than this."""
AT_ONCE = 1_000
"""Cells for which it is worked out at once; for more, aside."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run as lists show it."""

    run: Run
    sums: Sums | None
    """None before it ended."""
    cost_microusd: int

    @property
    def marks(self) -> tuple[str, ...]:
        """What keeps its numbers from being evidence."""
        return marks_of(self.run)


def marks_of(run: Run) -> tuple[str, ...]:
    """Return what keeps the numbers of a run from being evidence."""
    marks = (
        ("simulated", run.simulated),
        ("personal data redacted", is_redacted(run)),
        ("replayed", run.trigger == "replay"),
        ("imported", run.trigger == "import"),
        ("part of the cases", run.partial),
        ("trial", run.trigger == "refine"),
    )
    return tuple(word for word, on in marks if on)


def run_named(look: Look, wanted: str) -> Run:
    """Return a run by id, `latest` or experiment; one whose process died is paused."""
    return seen(look, find_run(look.connection, wanted))


def seen(look: Look, run: Run) -> Run:
    """Return a run as it really is, as far as the locks of its project are at hand."""
    if look.root is None:
        return run
    locks = look.root / ".edison" / "locks"
    return run.as_seen(alive=run.owner is not None and is_alive(locks, run.owner))


def run_lines(look: Look, ids: list[str]) -> list[RunLine]:
    """Return runs as lists show them."""
    found = []
    for run_id in ids:
        run = seen(look, find_run(look.connection, run_id))
        sums = sums_of_run(look.connection, run.id)
        found.append(RunLine(run, sums, run_cost(look.connection, run.id)))
    return found


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
        f"experiment = ? and complete = 1 and {NO_TRIAL} order by created_at desc limit ?)",
        (experiment, MOST_RUNS),
    )
    return int(row.fetchone()[0])


def ranked_cells(connection: sqlite3.Connection, experiment: str, newest: Run) -> int:
    """Return how many cells a board is made of at most: of each subject, those of one run.

    Where a judge set answers side by side, those of every run are looked through.
    """
    if may_compare(newest):
        return cells_of(connection, experiment)
    row = connection.execute(
        "select coalesce(sum(most), 0) from (select max(m.cells) as most from rollup_model m "
        "where m.run_id in (select id from run where experiment = ? and complete = 1 "
        f"and {NO_TRIAL} order by created_at desc limit ?) "
        "group by m.prompt, m.version, m.model)",
        (experiment, MOST_RUNS),
    )
    return int(row.fetchone()[0])


def count_of(connection: sqlite3.Connection, experiment: str) -> int:
    """Return how many runs an experiment has."""
    row = connection.execute("select count(*) from run where experiment = ?", (experiment,))
    return int(row.fetchone()[0])


def cases_of(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many cases a run has; those that were asked so far while it goes on."""
    row = connection.execute(
        "select cases from rollup_marked where run_id = ? and side = 'head' and kind = 'all'",
        (run_id,),
    ).fetchone()
    if row is None:
        row = connection.execute("select count(*) from run_case where run_id = ?", (run_id,))
        row = row.fetchone()
    return int(row[0])
