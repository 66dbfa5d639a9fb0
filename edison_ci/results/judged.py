"""Whether the answers of a run were graded at all, and what kept them from it if none was."""

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


def why_nothing_is_graded(connection: sqlite3.Connection, run_id: str) -> str:
    """Return the first error of a run in which every answer has one; empty if one was graded.

    A component in error leaves an answer without a grade, whatever the others say of it.
    """
    graded = connection.execute(
        "select 1 from cell where run_id = ? and status = 'ok' "
        "and (composite is not null or passed is not null) limit 1",
        (run_id,),
    ).fetchone()
    if graded is not None:
        return ""
    found = connection.execute(
        "select p.kind, p.name, p.reason from cell c join part p on p.cell_id = c.id "
        "where c.run_id = ? and c.status = 'ok' and p.status = 'error' "
        "and p.kind in ('check', 'rubric', 'grader') order by c.rowid limit 1",
        (run_id,),
    ).fetchone()
    return f"{found[0]} {found[1]}: {found[2]}" if found else ""
