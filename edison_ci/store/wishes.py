"""What does another process ask of the one at work on a run?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable


def want(run_id: str, what: str | None) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that asks the process at work on a run to pause or cancel it."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute("update run set wanted = ? where id = ?", (what, run_id))

    return operation


def wanted(connection: sqlite3.Connection, run_id: str) -> str | None:
    """Return what was asked of a run meanwhile."""
    row = connection.execute("select wanted from run where id = ?", (run_id,)).fetchone()
    return None if row is None else row[0]
