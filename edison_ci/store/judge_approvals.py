"""What the judges of a run were allowed to decide, kept with the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable


class ApprovalRow(NamedTuple):
    """Whether the judges of a run may decide its gates, and how far they agreed with people."""

    judges: str
    """Their names, as JSON."""
    licensed: bool
    reason: str
    kappa: float | None
    n: int
    floor: float
    passes: int
    true_passes: int
    fails: int
    true_fails: int


def write_approval(run_id: str, row: ApprovalRow | None) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes what the judges of a run are allowed, in place of before."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute("delete from licence where run_id = ?", (run_id,))
        if row is not None:
            connection.execute(
                f"insert into licence (run_id, {', '.join(row._fields)}) "
                f"values ({', '.join('?' * (1 + len(row)))})",
                (run_id, *row),
            )

    return operation
