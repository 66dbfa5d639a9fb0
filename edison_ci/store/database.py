"""The results file: opened, checked and brought up to date.

The file is ours only if it says so (`application_id`); a newer one is refused, an older one is
migrated in one transaction after a copy of it was made. What is refused is not touched. A new file
is made aside and put in place whole, so that nobody ever meets half of one. WAL is tried out first,
because some file systems accept the setting and then fail on the first write.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import tempfile
import uuid
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.errors import StoreError, UsageError
from edison_ci.store.header import APPLICATION_ID, refuse_what_is_not_ours

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 30.0


def migrations() -> list[str]:
    """Return the SQL of every migration, oldest first."""
    folder = files("edison_ci.store").joinpath("migrations")
    numbered = sorted(p.name for p in folder.iterdir() if p.name.endswith(".sql"))
    return [folder.joinpath(name).read_text(encoding="utf-8") for name in numbered]


def open_database(path: Path, *, timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Open the results file for writing, making or migrating it first."""
    if not path.exists():
        _create(path)
    refuse_what_is_not_ours(path)
    _refuse_unwritable(path, path.parent)
    connection = _connect(path, timeout_s)
    try:
        if version_of(connection) > len(migrations()):
            raise _newer(path)
        _prepare(connection, path)
        _migrate(connection, path)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise translated(error, path) from None
        if isinstance(error, OSError):
            raise _unmade(path, error) from None
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open the results file for reading only."""
    version = stored_version(path)
    if version != len(migrations()):
        raise _newer(path) if version > len(migrations()) else _older(path)
    try:
        connection = _read_only(path)
        connection.execute("pragma query_only = 1")
    except sqlite3.Error as error:
        raise translated(error, path) from None
    return connection


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the results for reading, in one state of the file whatever a run writes meanwhile."""
    with contextlib.closing(open_reader(path)) as connection:
        connection.execute("begin")
        yield connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all of what is in the block, or nothing of it."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


@contextlib.contextmanager
def changing(path: Path, *, timeout_s: float = BUSY_TIMEOUT_S) -> Iterator[sqlite3.Connection]:
    """Open the results; what the block writes is committed together at its end."""
    with contextlib.closing(open_database(path, timeout_s=timeout_s)) as connection:
        try:
            with transaction(connection):
                yield connection
        except sqlite3.Error as error:
            raise translated(error, path) from None


def stored_version(path: Path) -> int:
    """Return how many migrations a file has seen, of whatever age it is."""
    if not path.exists():
        raise _nothing_yet(path)
    refuse_what_is_not_ours(path)
    try:
        with contextlib.closing(_read_only(path)) as connection:
            return version_of(connection)
    except sqlite3.Error as error:
        raise translated(error, path) from None


def version_of(connection: sqlite3.Connection) -> int:
    """Return how many migrations the file has seen."""
    return int(connection.execute("pragma user_version").fetchone()[0])


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether a results file has the tables that this version knows."""
    return version_of(connection) == len(migrations())


def is_results_file(connection: sqlite3.Connection) -> bool:
    """Whether a database that somebody else opened says that it is a results file."""
    return bool(connection.execute("pragma application_id").fetchone()[0] == APPLICATION_ID)


@contextlib.contextmanager
def one_state(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Read one state of the file, whatever a run writes meanwhile, in plain tuples.

    The connection may belong to somebody else: it gets its row factory back, but can write nothing
    from then on.
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
        hint = "the file is damaged; look at it with `edison db check`, or restore a backup"
    elif "unable to open" in text:
        hint = "who may read and write the file and its folder?"
    return StoreError(f"{path.name}: {text}", hint=hint)


def unreadable(error: BaseException) -> StoreError:
    """Return the error for a failure of SQLite that nobody has put into words."""
    assert isinstance(error, sqlite3.Error)
    return translated(error, Path("the results file"))


# --- refusing -------------------------------------------------------------------------------------


def _refuse_unwritable(*places: Path) -> None:
    for place in places:
        if not os.access(place, os.W_OK):
            raise StoreError(
                f"{place} cannot be written",
                hint="nothing was asked of any model; see who may write there",
            )


def _unmade(path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot make {path}: {error.strerror}", hint="is the folder writable?")


def _nothing_yet(path: Path) -> UsageError:
    return UsageError(f"there are no results yet at {path}", hint="run something first: edison run")


def _newer(path: Path) -> UsageError:
    return UsageError(
        f"{path} was made by a newer edison", hint="upgrade edison, or use another file"
    )


def _older(path: Path) -> UsageError:
    return UsageError(
        f"{path} was made by an older edison", hint="bring it up to date: edison db upgrade"
    )


# --- making and migrating -------------------------------------------------------------------------


def _create(path: Path) -> None:
    """Make a new file aside and put it in place, unless another process was faster."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
        raise translated(error, path) from None
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                aside.with_name(aside.name + suffix).unlink(missing_ok=True)


def _put_in_place(aside: Path, path: Path) -> None:
    try:
        os.link(aside, path)
    except FileExistsError:
        return  # the other one is as good
    except OSError:  # a file system without links
        if not path.exists():
            aside.replace(path)
    synced(path.parent)


def copy_before_upgrade(path: Path) -> Path:
    """Return where the copy lies that is made before a file is migrated."""
    return path.with_name(f"{path.stem}.before-v{len(migrations())}{path.suffix}")


def copy_to(connection: sqlite3.Connection, target: Path) -> None:
    """Write a copy of the open file; it appears under its name when it is whole and on the disk."""
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        connection.execute("vacuum into ?", (str(aside),))
        synced(aside)
        aside.replace(target)
        synced(target.parent)
    finally:
        aside.unlink(missing_ok=True)


def synced(path: Path) -> None:
    """Wait until a file, or what a folder lists, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_only(path: Path) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)


def _connect(path: Path, timeout_s: float) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
    except sqlite3.Error as error:
        raise translated(error, path) from None


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    # A file that is in WAL mode proves that it works here; to leave it would disturb its users.
    if connection.execute("pragma journal_mode").fetchone()[0] != "wal":
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
    connection.execute("begin immediate")
    try:
        # Another process may have migrated while we waited for the lock.
        version = version_of(connection)
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
