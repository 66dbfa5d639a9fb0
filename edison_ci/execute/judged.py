"""Did any judge or grader answer in a run, and if none did, why?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.store.comparisons import none_compared

if TYPE_CHECKING:
    import sqlite3


def no_judge_answered(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether answers were to be judged, and nobody judged a single one."""
    query = (
        "select exists (select 1 from cell c join part p on p.cell_id = c.id "
        "where c.run_id = ? and c.status = 'ok' and +p.kind in ('rubric', 'grader') "
        "and p.status in ({}))"
    )

    def is_there(statuses: str) -> bool:
        return bool(connection.execute(query.format(statuses), (run_id,)).fetchone()[0])

    # Most runs have no judge, or one that answered at once: neither takes a second look.
    if is_there("'ok', 'error'") and not is_there("'ok'"):
        return True
    return none_compared(connection, run_id)


def last_error_of_judges(connection: sqlite3.Connection, run_id: str) -> str:
    """Return what kept the judges of a run from its last cell; empty if that is not known."""
    found = connection.execute(
        "select p.reason from cell c join part p on p.cell_id = c.id where c.run_id = ? "
        "and p.kind in ('rubric', 'grader') and p.status = 'error' and p.reason <> '' "
        "order by c.rowid desc limit 1",
        (run_id,),
    ).fetchone()
    return str(found[0]) if found else ""
