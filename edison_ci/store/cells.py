"""Cells by the beginning of their id, and what is kept of each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edison_ci.store.naming import no_cell, which_cell
from edison_ci.store.runs import CellRow, Part

if TYPE_CHECKING:
    import sqlite3


def find_cell(connection: sqlite3.Connection, run_id: str, wanted: str) -> CellRow:
    """Return a cell of a run by id or as CASE@MODEL#DRAW (draw 0 when left out).

    The head's, if it has one; refuses to guess which prompt is meant.
    """
    # Without the plus, SQLite would go through every cell of the run to find one by its id.
    where, values = "+run_id = ? and id >= ? and id < ?", _starting_with(wanted)
    if "@" in wanted:
        case_id, _, rest = wanted.rpartition("@")
        model, _, draw = rest.partition("#")
        where = "run_id = ? and case_id = ? and model = ? and draw = ?"
        values = (case_id, model, draw or "0")
    rows = connection.execute(
        "select id, run_id, side, prompt, version, model, case_id, draw, address, take, status, "
        "composite, passed, error, reason, case_hash, cluster from cell "
        f"where {where} order by side = 'head' desc, prompt",
        (run_id, *values),
    ).fetchall()
    if not rows:
        raise no_cell(connection, run_id, wanted)
    row = rows[0]
    alike = [(other[3], other[0]) for other in rows if other[2] == row[2]]
    if len(alike) > 1:
        raise which_cell(wanted, alike)
    parts = connection.execute(
        "select name, kind, score, passed, weight, status, reason from part where cell_id = ?",
        (row[0],),
    )
    cell = list(row)
    cell[12] = _flag(cell[12])
    return replace(CellRow(*cell), parts=tuple(_part(list(part)) for part in parts))


def run_of_cell(connection: sqlite3.Connection, cell_id: str) -> str | None:
    """Return the run that a cell belongs to, by the beginning of its id."""
    row = connection.execute(
        "select run_id from cell where id >= ? and id < ? limit 1", _starting_with(cell_id)
    ).fetchone()
    return None if row is None else str(row[0])


def _starting_with(prefix: str) -> tuple[str, ...]:
    """Return the bounds of ids that start so; what is shown of an id is its first 12 digits."""
    return (prefix, f"{prefix}g")


def _part(values: list[Any]) -> Part:
    values[3] = _flag(values[3])
    return Part(*values)


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)
