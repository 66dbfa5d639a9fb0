"""What happened to a run, for those who watch it?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci.documents.known_secrets import hidden_in
from edison_ci.frozen import dataclass

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
    return [Event(seq, time, run, kind, json.loads(data)) for seq, time, run, kind, data in rows]


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
