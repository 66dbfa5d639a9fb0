"""A cell is stored once, however often it is finished and whatever it is made of."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from docs.sample import Sample, build
from edison_ci.records import CellStatus, Side
from edison_ci.store.cells import CellRow, Component
from edison_ci.store.database import open_database

if TYPE_CHECKING:
    from pathlib import Path

CHECK = Component("short", "check", 1.0, True, 1.0, CellStatus.OK, "first")
RUN = "20261114T090000-aaaaaa"
CELL = CellRow(
    "f" * 24, RUN, Side.HEAD, "p", "v", "m", "c", 0, "a" * 64, None, CellStatus.OK, 1.0, True
)


def test_a_cell_that_is_finished_again_and_parts_of_one_name_are_replaced(tmp_path: Path) -> None:
    build(tmp_path / "results.db")
    again = replace(CHECK, score=0.0, reason="last")
    cases = {
        "two parts of one name": [replace(CELL, components=(CHECK, again))],
        "the same cell twice": [replace(CELL, components=(part,)) for part in (CHECK, again)],
    }
    with closing(open_database(tmp_path / "results.db")) as connection:
        sample = Sample(connection)
        for what, cells in cases.items():
            for cell in cells:
                sample.finish(cell)
            found = connection.execute(
                "select name, score, reason from component where cell_id = ?", (CELL.id,)
            ).fetchall()
            assert found == [("short", 0.0, "last")], what


def test_a_row_is_written_without_a_table_for_the_values_that_it_may_have(tmp_path: Path) -> None:
    """SQLite makes one for `in` with three values, at each row of each call."""
    with closing(open_database(tmp_path / "results.db")) as connection:
        for table in ("cell", "component", "attempt", "answer", "answer_text", "run_case"):
            columns = connection.execute(f"select * from {table}").description
            sql = f"explain insert into {table} values ({', '.join('?' * len(columns))})"
            steps = [row[1] for row in connection.execute(sql, [None] * len(columns))]
            assert "OpenEphemeral" not in steps, table
            assert "Insert" in steps or "IdxInsert" in steps, table
