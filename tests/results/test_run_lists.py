"""Lists of runs by experiment and status, and the progress of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.results.live_progress import progress_of
from edison_ci.results.run_lists import (
    experiments,
    last_of,
    last_run_at,
    last_whole,
    newest_measured,
    runs_by_status,
)
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3

    from tests.web.conftest import Stored


def test_every_run_is_counted_once_by_status(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    counted = runs_by_status(connection)
    assert sum(count for *_, count in counted) == stored.one("select count(*) from run")
    assert {experiment for experiment, *_ in counted} == set(experiments(connection))
    assert last_run_at(connection) == stored.one("select max(created_at) from run")


def test_the_last_whole_run_is_complete_where_there_is_one(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    for name in experiments(connection):
        found = last_whole(connection, name)
        if stored.one("select max(complete) from run where experiment = ?", name):
            assert stored.one("select complete from run where id = ?", found) == 1
        else:
            assert found == last_of(connection, name)


def test_the_newest_measured_experiment_has_a_complete_run(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    found = newest_measured(connection)
    assert stored.one("select max(complete) from run where experiment = ?", found) == 1
    connection.execute("pragma foreign_keys = 0")
    connection.execute("update run set complete = 0")  # is never committed
    assert newest_measured(connection) is None


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
