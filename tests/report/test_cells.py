"""Exports have every cell in its order, without sorting a run in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from docs.sample import Sample, build
from edison_ci.records import CellStatus, Side
from edison_ci.results.cells import Cells
from edison_ci.store.cells import CellRow
from edison_ci.store.database import open_database
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily

FIRST = "20261114T090000-aaaaaa"


def test_cells_come_in_order_as_an_index_has_them(tmp_path: Path) -> None:
    build(tmp_path / "results.db")
    with closing(open_database(tmp_path / "results.db")) as connection:
        sample = Sample(connection)
        for number, (side, model, case, repeat) in enumerate(
            (side, model, case, repeat)
            for side in ("base", "head")
            for model in ("small", "large")
            for case in ("b", "a")
            for repeat in (1, 0)
        ):
            sample.finish(
                CellRow(
                    f"{number:024x}",
                    FIRST,
                    Side(side),
                    "p",
                    "v",
                    model,
                    case,
                    repeat,
                    "f" * 64,
                    None,
                    CellStatus.OK,
                    0.5,
                    True,
                )
            )
        asked: list[str] = []
        connection.set_trace_callback(asked.append)
        view = SimpleNamespace(run=find_run(connection, FIRST))
        asked.clear()
        found = list(Cells(connection).of(view))  # type: ignore[arg-type]  # its run is enough
        connection.set_trace_callback(None)
        keys = [(cell.side, cell.prompt, cell.model, cell.case, cell.repeat) for cell in found]
        assert keys == sorted(
            sorted(keys, key=lambda key: key[1:]), key=lambda key: key[0] != "head"
        )
        (count,) = connection.execute(
            "select count(*) from cell where run_id = ?", (FIRST,)
        ).fetchone()
        assert len(found) == count > 16
        texts = [sql for sql in asked if "answer_text" in sql]
        assert texts
        for sql in texts:
            steps = [row[3] for row in connection.execute(f"explain query plan {sql}")]
            assert not [s for s in steps if "ORDER BY" in s and "PART" not in s and "TERM" not in s]


def test_the_plan_of_a_sorted_run_would_be_noticed(tmp_path: Path) -> None:
    build(tmp_path / "results.db")
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        sql = "select * from cell where run_id = 'x' order by prompt"
        steps = [row[3] for row in connection.execute(f"explain query plan {sql}")]
        assert "USE TEMP B-TREE FOR ORDER BY" in steps
