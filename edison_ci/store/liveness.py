"""Liveness of processes, requests between them, and exclusive access to the results file.

A process that spends money holds an operating-system lock on its own file. The lock ends with
the process, however it dies: a process that can take it knows that its owner is gone. So there are
no clocks and no heartbeats, and a reused process number does no harm.

Housekeeping that removes data is refused while a run is alive. It holds another lock against
other housekeeping, and checks for living runs once more inside its transaction: a run that starts
then cannot write before that transaction has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
import time
import uuid
from typing import TYPE_CHECKING

from edison_ci.documents.files import make_folder
from edison_ci.errors import BusyError, StoreError
from edison_ci.store.database import open_database, store_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


_YOUNG_S = 2.0


@contextlib.contextmanager
def exclusive_access(results: Path, locks: Path, what: str) -> Iterator[sqlite3.Connection]:
    """Open the results file exclusively; the writes of the block are committed at its end."""
    with housekeeping_lock(locks, what):
        refuse_while_run(locks)
        connection = open_database(results)
        try:
            connection.execute("begin immediate")
            refuse_while_run(locks)
            yield connection
            connection.execute("commit")
        except sqlite3.Error as error:
            raise store_error(error, results) from None
        finally:
            if connection.in_transaction:
                connection.execute("rollback")
            connection.close()


def shrink(results: Path, locks: Path) -> None:
    """Give the space of removed rows back to the disk."""
    with housekeeping_lock(locks, "gc"):
        refuse_while_run(locks)
        connection = open_database(results)
        try:
            connection.execute("vacuum")
            connection.execute("pragma wal_checkpoint(truncate)")
        except sqlite3.Error as error:
            raise store_error(error, results) from None
        finally:
            connection.close()


def refuse_while_run(locks: Path) -> None:
    """Raise BusyError if a process that runs an experiment is alive."""
    alive = living_owners(locks)
    if alive:
        processes = ", ".join(sorted({owner.partition("-")[0] for owner in alive})[:5])
        raise BusyError(
            f"an experiment is running here, by process {processes}",
            hint="wait until it is done, or pause it with: edison runs pause",
        )


def living_owners(locks: Path) -> list[str]:
    """Return the owners whose locks are held, or so new that they may be about to be."""
    owners = []
    for path in sorted(locks.glob("owner-*.lock")):
        owner = path.name.removeprefix("owner-").removesuffix(".lock")
        try:
            # To try the lock of a file that is a moment old could take it from its owner.
            young = abs(time.time() - path.stat().st_mtime) < _YOUNG_S
        except FileNotFoundError:
            continue
        if young or is_alive(locks, owner):
            owners.append(owner)
    return owners


@contextlib.contextmanager
def housekeeping_lock(locks: Path, what: str) -> Iterator[None]:
    """Hold the lock of `edison admin` commands that need the results file for themselves."""
    place = locks / "housekeeping.lock"
    try:
        make_folder(locks)
        descriptor = os.open(place, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(
            f"cannot make {place}: {error.strerror}", hint="see who may write there"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            raise BusyError(
                f"edison admin {other or 'gc'} is running on the results",
                hint="try again when it is done",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, what.encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def try_lock(locks: Path, name: str) -> Iterator[bool]:
    """Hold a lock of this machine, if it is free; it ends with the process at the latest."""
    path = locks / f"{_SAFE.sub('_', name)}.lock"
    with explain_write_errors(path):
        make_folder(locks)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def request_control(run_id: str, what: str | None) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that requests a run to `pause` or `cancel`; None withdraws it."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute("update run set wanted = ? where id = ?", (what, run_id))

    return operation


def requested_control(connection: sqlite3.Connection, run_id: str) -> str | None:
    """Return the request for a run: `pause`, `cancel` or None."""
    row = connection.execute("select wanted from run where id = ?", (run_id,)).fetchone()
    return None if row is None else row[0]


_SAFE = re.compile(r"[^A-Za-z0-9._-]")


@contextlib.contextmanager
def explain_write_errors(what: Path) -> Iterator[None]:
    """Translate errors of the disk in a block that comes before the first call."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write {what}: {error.strerror}",
            hint="no model was called; check the free space and the permissions there",
        ) from None


class ProcessLock:
    """The lock by which other processes see that this one is alive."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.id = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        with explain_write_errors(folder):
            make_folder(folder)
            self._descriptor = os.open(
                self._path(self.id), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644
            )
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Release the lock and remove its file."""
        self._path(self.id).unlink(missing_ok=True)
        os.close(self._descriptor)

    def is_alive(self, owner: str) -> bool:
        """Whether the process that called itself `owner` still runs."""
        return owner == self.id or is_alive(self._folder, owner)

    def _path(self, owner: str) -> Path:
        return self._folder / f"owner-{_SAFE.sub('', owner)}.lock"


def is_alive(folder: Path, owner: str) -> bool:
    """Whether an owner's lock is held."""
    path = folder / f"owner-{_SAFE.sub('', owner)}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def experiment_lock(
    folder: Path, experiment: str, run_id: str, *, wait: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Lock the experiment, so that no second run of it starts on this database.

    `wait` is called with the run that holds the lock before it is waited for; without `wait` a
    second run raises BusyError.
    """
    path = folder / f"experiment-{_SAFE.sub('_', experiment)}.lock"
    with explain_write_errors(folder):
        make_folder(folder)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another run"
            if wait is None:
                raise BusyError(
                    f"{experiment} is already running, as {other}",
                    hint="wait for it with --wait, or stop it with: edison runs cancel",
                ) from None
            wait(other)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with explain_write_errors(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, run_id.encode(), 0)
        yield
    finally:
        os.close(descriptor)
