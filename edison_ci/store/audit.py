"""The audit: who changed what, in a chain that shows tampering.

Rows are only ever added. Each is sealed with a hash over the hash of the row before it and its own
content, so a row that was changed, taken out or put in between breaks the chain where it happened.
Numbers follow each other without a gap and SQLite remembers the last one, so rows cut off at the
end are noticed as well. A person who can write the file can also rewrite the chain: an anchor,
which is a number and a hash kept elsewhere, shows that.

What was before and after may hold texts of people. The chain has only a hash of them, with a random
nonce, so that they can be forgotten: the chain stays whole, and a later row says that it was done.

The order of rows is that of their numbers. A clock that goes back breaks nothing, and is reported.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import secrets
import socket
import sqlite3
from contextlib import closing
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import redacted
from edison_ci.errors import EdisonError
from edison_ci.records import canonical_json
from edison_ci.store.database import open_for_change, open_reader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

START = "0" * 64
"""The hash before the first row."""

FORM = 1
"""Version of what is hashed, part of every hash."""
EXPORT = "export"
"""Action of the rows about texts and results that left the results file."""
FORGET = "forget"
"""Action of the rows that name, as `audit_rows`, the rows whose details they removed."""

_PATIENCE_S = 5.0
_COLUMNS = "time, actor, known_by, action, entity, before, after, run_id, host, nonce, detail"
_CLOCK_SLACK_S = 60
"""Rows of several processes may be out of order by so much without a clock that went back."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something a person did, or was refused."""

    time: str
    """ISO-8601 UTC."""
    actor: str
    known_by: str
    """Source of the actor's name: web, token, proxy, github, git, settings, nobody."""
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
    nonce: str | None = None
    """Null if before and after were forgotten."""
    detail: str = ""
    """Hash of nonce, before and after."""


class AuditHead(NamedTuple):
    """The newest row of the log."""

    rows: int
    sha256: str


class ClockJump(NamedTuple):
    """A row that is older than the one before it."""

    seq: int
    before: str
    """Time of the row before it."""
    time: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Whether the record is whole."""

    rows: int
    newest: str
    """Hash of the newest row; all zeros without one."""
    broken: int | None = None
    """Number of the first row that is not what it was."""
    problem: str = ""
    first: str = START
    """Hash of the first row, which names the chain."""
    forgotten: int = 0
    """Rows without their details, as a later row says."""
    jumps: tuple[ClockJump, ...] = ()
    """Rows at which the clock had gone back."""
    hashes: Mapping[int, str] = field(default_factory=dict)
    """Hashes of the rows that were asked for."""


def add_audit(connection: sqlite3.Connection, entry: AuditEntry) -> int:
    """Add a row in the current transaction; return its number."""
    last = audit_head(connection) or AuditHead(0, START)
    seq, previous = last.rows + 1, last.sha256
    values = _values(entry)
    connection.execute(
        f"insert into audit (seq, {_COLUMNS}, sha256) values ({', '.join('?' * 13)})",
        (seq, *values, _seal(previous, seq, values)),
    )
    return seq


def write_audit(path: Path, entry: AuditEntry) -> int:
    """Open a results file and add a row to it; return its number."""
    with open_for_change(path, timeout_s=_PATIENCE_S) as connection:
        return add_audit(connection, entry)


def verify_audit(connection: sqlite3.Connection, numbers: Collection[int] = ()) -> Chain:
    """Return whether every row is what it was when written, with the hashes of some rows."""
    check = _ChainCheck(frozenset(numbers))
    for seq, sha256, *values in connection.execute(
        f"select seq, sha256, {_COLUMNS} from audit order by seq"
    ):
        problem = check.problem_of(seq, sha256, tuple(values))
        if problem:
            return check.chain(problem)
    last = connection.execute("select seq from sqlite_sequence where name = 'audit'").fetchone()
    if last is not None and last[0] > check.rows:
        return check.chain(f"row {check.rows + 1} is missing")
    if check.unexplained:
        seq = min(check.unexplained)
        return replace(check.chain(f"the details of row {seq} are missing"), broken=seq)
    return check.chain()


def verify_copy(path: Path, numbers: Collection[int]) -> Chain | None:
    """Return whether the log of another file is whole; None if the file cannot be read."""
    try:
        with closing(open_reader(path)) as connection:
            return verify_audit(connection, numbers)
    except (EdisonError, sqlite3.Error):
        return None


class _ChainCheck:
    """The rows of a chain, checked one after the other."""

    def __init__(self, numbers: frozenset[int]) -> None:
        self._numbers = numbers
        self._previous, self._first, self._time = START, START, ""
        self._hashes: dict[int, str] = {}
        self._jumps: list[ClockJump] = []
        self._forgotten = 0
        self.rows = 0
        self.unexplained: set[int] = set()
        """Rows without details that no later row explains."""

    def problem_of(self, seq: int, sha256: str, values: tuple[Any, ...]) -> str:
        """Return what is wrong with the next row, in words; empty if nothing is."""
        time, _, _, action, _, before, after, _, _, nonce, detail = values
        if seq != self.rows + 1:
            return f"row {self.rows + 1} is missing"
        if sha256 != _seal(self._previous, seq, values):
            return f"row {seq} was changed"
        if nonce is None and before is None and after is None:
            self.unexplained.add(seq)
        elif detail != _detail(nonce, before, after):
            return f"row {seq} was changed"
        if action == FORGET:
            explained = self.unexplained & _named_rows(after)
            self._forgotten += len(explained)
            self.unexplained -= explained
        if _went_back(self._time, time):
            self._jumps.append(ClockJump(seq, self._time, time))
        self._first = sha256 if seq == 1 else self._first
        self._previous, self._time, self.rows = sha256, time, seq
        if seq in self._numbers:
            self._hashes[seq] = sha256
        return ""

    def chain(self, problem: str = "") -> Chain:
        """Return what was found."""
        return Chain(
            self.rows,
            self._previous,
            self.rows + 1 if problem else None,
            problem,
            self._first,
            self._forgotten,
            tuple(self._jumps),
            self._hashes,
        )


def _named_rows(after: str | None) -> set[int]:
    details = _parsed(after)
    named = details.get("audit_rows") if isinstance(details, dict) else None
    return {row for row in named if isinstance(row, int)} if isinstance(named, list) else set()


def _went_back(before: str, now: str) -> bool:
    if now >= before:
        return False
    try:
        lag = dt.datetime.fromisoformat(before) - dt.datetime.fromisoformat(now)
    except ValueError:
        return False
    return lag.total_seconds() > _CLOCK_SLACK_S


def read_audit(
    connection: sqlite3.Connection, *, limit: int | None = None, offset: int = 0
) -> list[AuditRow]:
    """Return rows, newest first."""
    rows = connection.execute(
        f"select seq, sha256, {_COLUMNS} from audit order by seq desc limit ? offset ?",
        (-1 if limit is None else limit, offset),
    )
    return [_row(seq, sha256, values) for seq, sha256, *values in rows]


def all_audit(connection: sqlite3.Connection) -> Iterator[AuditRow]:
    """Yield every row, oldest first."""
    rows = connection.execute(f"select seq, sha256, {_COLUMNS} from audit order by seq")
    return (_row(seq, sha256, values) for seq, sha256, *values in rows)


def audit_head(connection: sqlite3.Connection, *, without: str = "") -> AuditHead | None:
    """Return the newest row, `without` those whose action begins so; None without one."""
    row = connection.execute(
        "select seq, sha256 from audit where ?1 = '' or instr(action, ?1) <> 1 "
        "order by seq desc limit 1",
        (without,),
    ).fetchone()
    return None if row is None else AuditHead(*row)


def exports(connection: sqlite3.Connection, *, most: int = 20) -> list[str]:
    """Return what was exported last, in words, newest first."""
    rows = connection.execute(
        "select entity, substr(time, 1, 10), actor from audit where action = ? "
        "order by seq desc limit ?",
        (EXPORT, most),
    )
    return [f"{entity} on {day} by {actor}" for entity, day, actor in rows]


def count_audit(connection: sqlite3.Connection) -> int:
    """Return how many rows there are."""
    return int(connection.execute("select count(*) from audit").fetchone()[0])


def _row(seq: int, sha256: str, values: list[Any]) -> AuditRow:
    time, actor, known_by, action, entity, before, after, run_id, host, nonce, detail = values
    entry = (time, actor, known_by, action, entity, _parsed(before), _parsed(after), run_id, host)
    return AuditRow(seq, AuditEntry(*entry), sha256, nonce, detail)


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text  # the row was tampered with; show it as it is


def _values(entry: AuditEntry) -> tuple[Any, ...]:
    before, after, nonce = _text(entry.before), _text(entry.after), secrets.token_hex(16)
    return (
        entry.time,
        _plain(entry.actor),
        entry.known_by,
        _plain(entry.action),
        _plain(entry.entity),
        before,
        after,
        entry.run_id,
        entry.host,
        nonce,
        _detail(nonce, before, after),
    )


def _text(value: Any) -> str | None:
    return None if value is None else canonical_json(_storable(value))


def _storable(value: Any) -> Any:
    """Return a JSON value without secrets, that can be stored."""
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, dict):
        return {_plain(str(name)): _storable(item) for name, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(text: str) -> str:
    """Return a text that can be stored (Git knows names that are no UTF-8), without secrets."""
    return redacted(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _detail(nonce: str | None, before: str | None, after: str | None) -> str:
    return _sha256([nonce, before, after])


def _seal(previous: str, seq: int, values: tuple[Any, ...]) -> str:
    time, actor, known_by, action, entity, _, _, run_id, host, _, detail = values
    content = (seq, time, actor, known_by, action, entity, run_id, host, detail)
    return _sha256([FORM, previous, *content])


def _sha256(values: list[Any]) -> str:
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()
