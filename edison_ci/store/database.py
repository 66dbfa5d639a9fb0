"""How is the results file opened, checked and brought up to date?

The file is ours only if it says so (`application_id`); a newer one is refused, an older one is
migrated in one transaction after a copy of it was made. WAL is tried out first, because some file
systems accept the setting and then fail on the first write.
"""

from __future__ import annotations

import logging
import sqlite3
import tempfile
from importlib.resources import files
from pathlib import Path

from edison_ci.errors import StoreError, UsageError

logger = logging.getLogger(__name__)

APPLICATION_ID = 0x45444953  # "EDIS"
BUSY_TIMEOUT_S = 30.0


def migrations() -> list[str]:
    """Return the SQL of every migration, oldest first."""
    found = sorted(p.name for p in files("edison_ci.store").joinpath("migrations").iterdir())
    numbered = [name for name in found if name.endswith(".sql")]
    folder = files("edison_ci.store").joinpath("migrations")
    return [folder.joinpath(name).read_text(encoding="utf-8") for name in numbered]


def open_database(path: Path, *, timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Open the results file for writing, making or migrating it first."""
    fresh = not path.exists()
    if not fresh:
        _refuse_foreign(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise UsageError(f"cannot open {path}: {error}", hint="is the folder writable?") from None
    try:
        if fresh:
            # Before WAL, so that the mark is in the file itself and not only in its log.
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
        _prepare(connection, path)
        _migrate(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, path) from None
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open the results file for reading only."""
    if not path.exists():
        raise UsageError(
            f"there are no results yet at {path}", hint="run something first: edison run"
        )
    _refuse_foreign(path)
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
        connection.execute("pragma query_only = 1")
        if connection.execute("pragma user_version").fetchone()[0] > len(migrations()):
            raise _newer(path)
    except sqlite3.Error as error:
        raise translated(error, path) from None
    return connection


def translated(error: sqlite3.Error, path: Path) -> StoreError:
    """Return what went wrong with the file in words."""
    text = str(error)
    hint = "look at the disk and at `edison doctor`; nothing that was stored is lost"
    if "locked" in text or "busy" in text:
        hint = "another program holds the file; try again when it is done"
    elif "full" in text:
        hint = "the disk is full: make room, then resume"
    elif "readonly" in text or "read-only" in text:
        hint = "the file or its folder cannot be written"
    elif "malformed" in text or "not a database" in text:
        hint = "the file is damaged; restore a backup"
    return StoreError(f"{path.name}: {text}", hint=hint)


def _refuse_foreign(path: Path) -> None:
    """Refuse what is no results file of ours, without touching it."""
    try:
        with path.open("rb") as stream:
            head = stream.read(100)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if not head:
        raise UsageError(f"{path} is empty", hint="remove it, and it will be made anew")
    if len(head) < 100 or not head.startswith(b"SQLite format 3\0"):
        raise UsageError(f"{path} is not a database", hint="set results: to another file")
    if int.from_bytes(head[68:72], "big") != APPLICATION_ID:
        raise UsageError(
            f"{path} is another program's database", hint="set results: to another file"
        )


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    mode = "wal" if _wal_works(path.parent) else "delete"
    if mode == "delete":
        logger.warning(
            "no write-ahead log here, writing is slower", extra={"folder": str(path.parent)}
        )
    connection.execute(f"pragma journal_mode = {mode}")
    connection.execute("pragma synchronous = full")
    connection.execute("pragma foreign_keys = 1")
    connection.execute("pragma trusted_schema = 0")


def _wal_works(folder: Path) -> bool:
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".probe") as name:
            probe = sqlite3.connect(Path(name) / "probe.db")
            try:
                mode = probe.execute("pragma journal_mode = wal").fetchone()[0]
                probe.execute("create table probe (x int)")
                probe.execute("insert into probe values (1)")
                probe.commit()
            finally:
                probe.close()
    except (OSError, sqlite3.Error):
        return False
    return bool(mode == "wal")


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    steps = migrations()
    version = int(connection.execute("pragma user_version").fetchone()[0])
    if version > len(steps):
        raise _newer(path)
    if version == len(steps):
        return
    if version > 0:
        backup = path.with_name(f"{path.stem}.before-v{len(steps)}{path.suffix}")
        backup.unlink(missing_ok=True)
        connection.execute("vacuum into ?", (str(backup),))
    connection.execute("begin immediate")
    try:
        # Another process may have migrated while we waited for the lock.
        version = int(connection.execute("pragma user_version").fetchone()[0])
        for step in steps[version:]:
            for statement in _statements(step):
                connection.execute(statement)
        connection.execute(f"pragma user_version = {len(steps)}")
        connection.execute("commit")
    except BaseException:
        connection.execute("rollback")
        raise


def _statements(script: str) -> list[str]:
    """Split a script; `executescript` would commit the transaction we are in."""
    found: list[str] = []
    current = ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found


def _newer(path: Path) -> UsageError:
    return UsageError(
        f"{path} was made by a newer edison", hint="upgrade edison, or use another file"
    )
