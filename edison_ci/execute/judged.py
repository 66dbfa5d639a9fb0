"""Did any judge or grader answer in a run?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.store.comparisons import none_compared

if TYPE_CHECKING:
    import sqlite3


def no_judge_answered(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether answers were to be judged, and nobody judged a single one."""
    query = (
        "select exists (select 1 from cell c join part p on p.cell_id = c.id "
        "where c.run_id = ? and c.status = 'ok' and p.kind in ('rubric', 'grader') "
        "and p.status = ?)"
    )
    failed, judged = (
        connection.execute(query, (run_id, status)).fetchone()[0] for status in ("error", "ok")
    )
    return bool(failed and not judged) or none_compared(connection, run_id)
