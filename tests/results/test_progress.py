"""How far a run is, from what its runner said last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.results.progress import progress_of
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3

    from tests.web.conftest import Stored


def test_the_newest_event_and_the_last_numbers_are_told(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    run = find_run(connection, stored.against)
    found = progress_of(connection, run)
    assert found.seq == stored.one("select max(seq) from event where run_id = ?", run.id)
    assert found.done == found.total == run.cells_planned
    assert found.share == 1.0
    assert found.as_json()["cells"] == dict(found.cells)


def test_a_run_that_said_nothing_is_at_its_start(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    run = find_run(connection, stored.against)
    connection.execute("delete from event where run_id = ?", (run.id,))  # is never committed
    found = progress_of(connection, run)
    assert (found.seq, found.time, found.done) == (0, run.created_at, 0)
    assert found.total == run.cells_planned
