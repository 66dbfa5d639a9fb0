"""The audit: who changed what, in a chain that shows tampering.

Rows are only ever added. Each is sealed with a hash over the hash of the row before it and its own
content, so a row that was changed, taken out or put in between breaks the chain where it happened.
Numbers follow each other without a gap and SQLite remembers the last one, so rows cut off at the
end are noticed as well. Whoever can write the file can also write the whole chain anew: keep the
newest hash elsewhere if that matters.
"""

from __future__ import annotations

import hashlib
import json
import socket
from dataclasses import field
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import redacted
from edison_ci.records import canonical_json
from edison_ci.store.database import open_for_change

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

START = "0" * 64
"""The hash before the first row."""

_PATIENCE_S = 5.0
_COLUMNS = "time, actor, known_by, action, entity, before, after, run_id, host"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something a person did, or was refused."""

    time: str
    """ISO-8601 UTC."""
    actor: str
    known_by: str
    """Source of the actor's name: web, github, git, settings, nobody."""
    action: str
    entity: str = ""
    before: Any = None
    """What it was, as JSON; secrets are cut out."""
    after: Any = None
    run_id: str | None = None
    host: str = field(default_factory=socket.gethostname)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry as it is stored."""

    seq: int
    entry: AuditEntry
    sha256: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Whether the record is whole."""

    rows: int
    newest: str
    """Hash of the newest row; all zeros without one."""
    broken: int | None = None
    """Number of the first row that is not what it was."""
    problem: str = ""


def add_audit(connection: sqlite3.Connection, entry: AuditEntry) -> int:
    """Add a row in the current transaction; return its number."""
    last = connection.execute("select seq, sha256 from audit order by seq desc limit 1").fetchone()
    seq, previous = (1, START) if last is None else (last[0] + 1, last[1])
    values = _values(entry)
    connection.execute(
        f"insert into audit (seq, {_COLUMNS}, sha256) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (seq, *values, _seal(previous, seq, values)),
    )
    return int(seq)


def write_audit(path: Path, entry: AuditEntry) -> int:
    """Open a results file and add a row to it; return its number."""
    with open_for_change(path, timeout_s=_PATIENCE_S) as connection:
        return add_audit(connection, entry)


def verify_audit(connection: sqlite3.Connection) -> Chain:
    """Return whether every row is what it was when it was written."""
    previous, expected = START, 1
    for seq, sha256, *values in connection.execute(
        f"select seq, sha256, {_COLUMNS} from audit order by seq"
    ):
        if seq != expected:
            problem = f"row {expected} is missing"
        elif sha256 != _seal(previous, seq, tuple(values)):
            problem = f"row {seq} was changed"
        else:
            previous, expected = sha256, seq + 1
            continue
        return Chain(expected - 1, previous, expected, problem)
    last = connection.execute("select seq from sqlite_sequence where name = 'audit'").fetchone()
    if last is not None and last[0] >= expected:
        return Chain(expected - 1, previous, expected, f"row {expected} is missing")
    return Chain(expected - 1, previous)


def read_audit(
    connection: sqlite3.Connection, *, limit: int | None = None, offset: int = 0
) -> list[AuditRow]:
    """Return rows, newest first."""
    rows = connection.execute(
        f"select seq, sha256, {_COLUMNS} from audit order by seq desc limit ? offset ?",
        (-1 if limit is None else limit, offset),
    )
    return [_row(seq, sha256, values) for seq, sha256, *values in rows]


def count_audit(connection: sqlite3.Connection) -> int:
    """Return how many rows there are."""
    return int(connection.execute("select count(*) from audit").fetchone()[0])


def _row(seq: int, sha256: str, values: list[Any]) -> AuditRow:
    time, actor, known_by, action, entity, before, after, run_id, host = values
    told = (time, actor, known_by, action, entity, _parsed(before), _parsed(after), run_id, host)
    return AuditRow(seq, AuditEntry(*told), sha256)


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text  # the row was tampered with; show it as it is


def _values(entry: AuditEntry) -> tuple[Any, ...]:
    return (
        entry.time,
        _plain(entry.actor),
        entry.known_by,
        _plain(entry.action),
        _plain(entry.entity),
        _text(entry.before),
        _text(entry.after),
        entry.run_id,
        entry.host,
    )


def _text(value: Any) -> str | None:
    return None if value is None else _plain(canonical_json(value))


def _plain(text: str) -> str:
    """Return a text that can be stored (Git knows names that are no UTF-8), without secrets."""
    return redacted(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _seal(previous: str, seq: int, values: tuple[Any, ...]) -> str:
    return hashlib.sha256(f"{previous}{canonical_json([seq, *values])}".encode()).hexdigest()
