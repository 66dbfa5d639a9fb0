"""Events of a run: what happened to it, for those who follow it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import hidden_in

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run."""

    seq: int
    time: str
    run_id: str
    type: str
    data: dict[str, Any]


def events(connection: sqlite3.Connection, run_id: str, *, after: int = 0) -> list[Event]:
    """Return the events of a run that came after another, oldest first."""
    rows = connection.execute(
        "select seq, time, run_id, type, data from event where run_id = ? and seq > ? order by seq",
        (run_id, after),
    )
    return [_event(row) for row in rows]


def newest_events(
    connection: sqlite3.Connection, run_id: str, *, limit: int, offset: int = 0
) -> list[Event]:
    """Return events of a run, newest first."""
    rows = connection.execute(
        "select seq, time, run_id, type, data from event where run_id = ? order by seq desc "
        "limit ? offset ?",
        (run_id, limit, offset),
    )
    return [_event(row) for row in rows]


def last_event(connection: sqlite3.Connection, run_id: str, *types: str) -> Event | None:
    """Return the newest event of a run that has one of some types."""
    row = connection.execute(
        "select seq, time, run_id, type, data from event where run_id = ? "
        f"and type in ({', '.join('?' * len(types))}) order by seq desc limit 1",
        (run_id, *types),
    ).fetchone()
    return None if row is None else _event(row)


def count_events(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many events a run has."""
    row = connection.execute("select count(*) from event where run_id = ?", (run_id,)).fetchone()
    return int(row[0])


def _event(row: tuple[Any, ...]) -> Event:
    seq, time, run_id, kind, data = row
    return Event(seq, time, run_id, kind, json.loads(data))


def note_event(
    run_id: str, kind: str, data: dict[str, Any], now: str
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes an event."""
    return lambda connection: add_event(connection, run_id, kind, data, now)


def add_event(
    connection: sqlite3.Connection, run_id: str, kind: str, data: dict[str, Any], now: str
) -> None:
    """Write an event that watchers follow."""
    connection.execute(
        "insert into event (time, run_id, type, data) values (?, ?, ?, ?)",
        (now, run_id, kind, json.dumps(hidden_in(data), sort_keys=True)),
    )
