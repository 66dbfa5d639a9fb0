"""The results file: opened, checked and migrated.

A file is a results file only by its `application_id`. A newer one is refused, an older one is
migrated in one transaction after a copy of it was made; a file that is refused is not touched. A
new file is made aside and put in place whole, so that no process ever opens half of one. WAL is
tried first on a probe, because some file systems accept the setting and fail on the first write.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import tempfile
import threading
import uuid
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.files import make_folder
from edison_ci.errors import StoreError, UsageError
from edison_ci.store import slow_queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized


APPLICATION_ID = 0x45444953  # "EDIS"

_MAGIC = b"SQLite format 3\0"
_SIZE = 100
_MOST_OPEN = 32
"""Number of files that stay open, see `_read`. A process has one or two, a test run hundreds."""

_open: dict[tuple[int, int], int] = {}
_guard = threading.Lock()


class Header(NamedTuple):
    """The header of a database file, and the length of the file."""

    raw: bytes
    size: int

    @property
    def application_id(self) -> int:
        """The program that the file belongs to."""
        return int.from_bytes(self.raw[68:72], "big")

    @property
    def in_wal_mode(self) -> bool:
        """Whether the file has a write-ahead log."""
        return self.raw[18] != 1

    @property
    def least_size(self) -> int:
        """Least length of the file by its header; 0 if the header does not have it."""
        pages, valid = int.from_bytes(self.raw[28:32], "big"), self.raw[24:28] == self.raw[92:96]
        page_size = int.from_bytes(self.raw[16:18], "big")
        return pages * (65_536 if page_size == 1 else page_size) if valid else 0


def marks(values: Sized) -> str:
    """Return a question mark for each value of a statement."""
    return ", ".join("?" * len(values))


def refuse_what_is_not_ours(path: Path) -> None:
    """Raise if a file is not a results file, or only a part of one; the file is not touched."""
    try:
        header = _read(path)
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror}", hint="check its permissions"
        ) from None
    if not header.raw:
        raise UsageError(f"{path} is empty", hint="remove it: the next run makes a new one")
    if len(header.raw) < _SIZE or not header.raw.startswith(_MAGIC):
        raise UsageError(f"{path} is not a database", hint="set results: to another file")
    if header.application_id != APPLICATION_ID:
        raise UsageError(
            f"{path} is another program's database", hint="set results: to another file"
        )
    if _has_content(path, "-wal"):
        _refuse_foreign_log(path, header)
    elif not _has_content(path, "-journal"):
        _refuse_truncated(path, header)


def _refuse_foreign_log(path: Path, header: Header) -> None:
    """Refuse a log beside a file that never wrote one: SQLite would apply it.

    Copies made by `db backup` are not in WAL mode, and a file changes to it before its log exists.
    So this log was left behind by the file in whose place the copy was put.
    """
    if not header.in_wal_mode:
        log, others = f"{path.name}-wal", f"{path.name}-wal and {path.name}-shm"
        raise StoreError(
            f"{log} belongs to another file than the {path.name} beside it",
            hint=f"if you restored {path.name} from a backup, remove {others}",
        )


def _refuse_truncated(path: Path, header: Header) -> None:
    """Refuse a file that is shorter than its header says, without a log that has the rest."""
    if header.size < header.least_size:
        raise StoreError(
            f"{path} is cut off: {header.size:,} of {header.least_size:,} bytes are there",
            hint="restore a backup",
        )


def _has_content(path: Path, suffix: str) -> bool:
    try:
        return path.with_name(path.name + suffix).stat().st_size > 0
    except OSError:
        return False


# POSIX takes every lock of a process off a file when the process closes that file anywhere, and
# SQLite would not notice: another process would then take itself for the last one and remove the
# log that this one still writes to. So a file whose header was read stays open, and is read again
# through the same descriptor. As long as it is open, its inode is not given to another file.
def _read(path: Path) -> Header:
    with _guard:
        status = path.stat()
        descriptor = _open.get((status.st_dev, status.st_ino))
        if descriptor is None:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            status = os.fstat(descriptor)
            _open[status.st_dev, status.st_ino] = descriptor
            if len(_open) > _MOST_OPEN:
                os.close(_open.pop(next(iter(_open))))
        return Header(os.pread(descriptor, _SIZE, 0), os.fstat(descriptor).st_size)


logger = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 30.0


@cache
def migrations() -> tuple[str, ...]:
    """Return the SQL of every migration, oldest first."""
    folder = files("edison_ci.store").joinpath("migrations")
    numbered = sorted(p.name for p in folder.iterdir() if p.name.endswith(".sql"))
    return tuple(folder.joinpath(name).read_text(encoding="utf-8") for name in numbered)


def open_database(path: Path, *, timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Open the results file for writing, making or migrating it first."""
    if not path.exists():
        _create(path)
    refuse_what_is_not_ours(path)
    _refuse_unwritable(path, path.parent)
    connection = _connect(path, timeout_s)
    try:
        version = version_of(connection)
        if version > len(migrations()):
            raise _newer(path)
        if version and not has_current_tables(connection):
            raise _unreleased(path)
        _prepare(connection, path)
        _migrate(connection, path)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise store_error(error, path) from None
        if isinstance(error, OSError):
            raise _unmade(path, error) from None
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open the results file for reading only."""
    _refuse_what_cannot_be_read(path)
    with contextlib.ExitStack() as unless_current:
        try:
            connection = _read_only(path)
            unless_current.callback(connection.close)
            version = version_of(connection)
            if version != len(migrations()):
                raise _newer(path) if version > len(migrations()) else _older(path)
            connection.execute("pragma query_only = 1")
            if not has_current_tables(connection):
                raise _unreleased(path)
        except sqlite3.Error as error:
            raise store_error(error, path) from None
        unless_current.pop_all()
    return connection


@contextlib.contextmanager
def open_for_reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the results for reading in one transaction, so that concurrent writes are not seen."""
    with contextlib.closing(open_reader(path)) as connection:
        connection.execute("begin")
        yield connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the writes of the block, or roll all of them back."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


@contextlib.contextmanager
def open_for_change(
    path: Path, *, timeout_s: float = BUSY_TIMEOUT_S
) -> Iterator[sqlite3.Connection]:
    """Open the results for writing; the writes of the block are committed at its end."""
    with contextlib.closing(open_database(path, timeout_s=timeout_s)) as connection:
        try:
            with transaction(connection):
                yield connection
        except sqlite3.Error as error:
            raise store_error(error, path) from None


def stored_version(path: Path) -> int:
    """Return how many migrations a file of any version has."""
    _refuse_what_cannot_be_read(path)
    try:
        with contextlib.closing(_read_only(path)) as connection:
            return version_of(connection)
    except sqlite3.Error as error:
        raise store_error(error, path) from None


def _refuse_what_cannot_be_read(path: Path) -> None:
    if not path.exists():
        raise _nothing_yet(path)
    refuse_what_is_not_ours(path)


def version_of(connection: sqlite3.Connection) -> int:
    """Return how many migrations the file has."""
    return int(connection.execute("pragma user_version").fetchone()[0])


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether a results file has the tables of this version."""
    return version_of(connection) == len(migrations()) and has_current_tables(connection)


def has_current_tables(connection: sqlite3.Connection) -> bool:
    """Whether the tables have the columns of the first release.

    Files of development versions before it have other columns under the same version number.
    """
    columns = "select 1 from pragma_table_info('manual_grade') where name = 'origin'"
    return connection.execute(columns).fetchone() is not None


def is_results_file(connection: sqlite3.Connection) -> bool:
    """Whether an open database is a results file."""
    return bool(connection.execute("pragma application_id").fetchone()[0] == APPLICATION_ID)


@contextlib.contextmanager
def one_state(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Read in one transaction, so that concurrent writes are not seen, and in plain tuples.

    The connection may belong to Datasette: it gets its row factory back, but is read-only from then
    on.
    """
    factory = connection.row_factory
    connection.row_factory = None
    connection.execute("pragma query_only = 1")
    connection.execute("begin")
    try:
        yield connection
    finally:
        connection.rollback()
        connection.row_factory = factory


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the error for a failure of SQLite, with advice."""
    return StoreError.of(error, path.name)


def _refuse_unwritable(*places: Path) -> None:
    for place in places:
        if not os.access(place, os.W_OK):
            raise StoreError(
                f"{place} cannot be written",
                hint="no model was called; check its permissions",
            )


def _unmade(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot make {path}: {error.strerror}", hint="check the permissions of the folder"
    )


def _nothing_yet(path: Path) -> UsageError:
    return UsageError(f"there are no results yet at {path}", hint="run something first: edison run")


def _newer(path: Path) -> UsageError:
    return UsageError(
        f"{path} was made by a newer edison", hint="upgrade edison, or use another file"
    )


def _older(path: Path) -> UsageError:
    return UsageError(f"{path} was made by an older edison", hint="run: edison admin db upgrade")


def _unreleased(path: Path) -> StoreError:
    return StoreError(
        f"{path} was made by a development version of edison, before its first release: "
        "its tables have changed since",
        hint="move it away: the next run makes a new file, and the old one stays readable with "
        "the version that made it",
    )


def _create(path: Path) -> None:
    """Make a new file aside and put it in place, unless another process did so first."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.new")
    try:
        make_folder(path.parent)
        _refuse_unwritable(path.parent)
        connection = _connect(aside, BUSY_TIMEOUT_S)
        try:
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
            _prepare(connection, aside)
            _migrate(connection, aside)
            # Closing would leave the log behind in silence if the disk had no room for it.
            connection.execute("pragma wal_checkpoint(truncate)")
        finally:
            connection.close()
        _put_in_place(aside, path)
    except OSError as error:
        raise _unmade(path, error) from None
    except sqlite3.Error as error:
        raise store_error(error, path) from None
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                aside.with_name(aside.name + suffix).unlink(missing_ok=True)


def _put_in_place(aside: Path, path: Path) -> None:
    try:
        os.link(aside, path)
    except FileExistsError:
        return  # the file of the other process serves as well
    except OSError:  # a file system without links
        if not path.exists():
            aside.replace(path)
    sync_to_disk(path.parent)


def copy_before_upgrade(path: Path) -> Path:
    """Return the path of the copy that is made before a file is migrated."""
    return path.with_name(f"{path.stem}.before-v{len(migrations())}{path.suffix}")


def copy_to(connection: sqlite3.Connection, target: Path) -> None:
    """Write a copy of the open file; it appears under its name once it is whole and on the disk."""
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        connection.execute("vacuum into ?", (str(aside),))
        sync_to_disk(aside)
        aside.replace(target)
        sync_to_disk(target.parent)
    finally:
        aside.unlink(missing_ok=True)


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_only(path: Path) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(
        address, uri=True, timeout=BUSY_TIMEOUT_S, factory=slow_queries.ReadingConnection
    )


def _connect(path: Path, timeout_s: float) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
    except sqlite3.Error as error:
        raise store_error(error, path) from None


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    # A file in WAL mode proves that WAL works here; leaving it would disturb its readers.
    if connection.execute("pragma journal_mode").fetchone()[0] != "wal":
        mode = "wal" if _wal_works(path.parent) else "delete"
        if mode == "delete":
            logger.warning(
                "no write-ahead log here, so writing is slower", extra={"folder": str(path.parent)}
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
                probe.execute("pragma synchronous = off")  # it is thrown away
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
    version = version_of(connection)
    if version >= len(steps):
        return
    if version > 0:
        copy_to(connection, copy_before_upgrade(path))
    with transaction(connection):
        # Another process may have migrated while this one waited for the lock.
        version = version_of(connection)
        for step in steps[version:]:
            for statement in _statements(step):
                connection.execute(statement)
        connection.execute(f"pragma user_version = {len(steps)}")


def _statements(script: str) -> list[str]:
    """Split a script; `executescript` would commit the current transaction."""
    statements: list[str] = []
    current = ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements
