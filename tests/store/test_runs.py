"""Events of a run are read from either end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.store.database import open_database
from edison_ci.store.runs import add_event, count_events, events, last_event, newest_events

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_database(tmp_path / "results.db")
    for number in range(5):
        kind = "run:progress" if number % 2 == 0 else "cost:alert"
        add_event(connection, "r1", kind, {"done": number}, f"2026-11-15T12:00:0{number}Z")
    add_event(connection, "r2", "run:completed", {}, "2026-11-15T12:00:09Z")
    yield connection
    connection.close()


def test_events_come_a_page_at_a_time_newest_first(db: sqlite3.Connection) -> None:
    assert count_events(db, "r1") == 5
    assert [each.data["done"] for each in newest_events(db, "r1", limit=2)] == [4, 3]
    assert [each.data["done"] for each in newest_events(db, "r1", limit=2, offset=4)] == [0]
    assert newest_events(db, "r1", limit=9) == events(db, "r1")[::-1]


def test_the_last_event_of_a_type_is_found(db: sqlite3.Connection) -> None:
    found = last_event(db, "r1", "cost:alert", "run:completed")
    assert found is not None
    assert (found.type, found.data) == ("cost:alert", {"done": 3})
    assert last_event(db, "r1", "run:completed") is None
