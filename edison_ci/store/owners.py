"""Liveness of processes, and what one asks of another.

A process that spends money holds an operating-system lock on a file of its own. The lock goes with
the process, however it dies, so whoever can take it knows that its owner is gone: no clocks, no
heartbeats, and a reused process number does no harm.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import uuid
from typing import TYPE_CHECKING

from edison_ci.errors import BusyError, StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from pathlib import Path


def want(run_id: str, what: str | None) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that asks the process at work on a run to pause or cancel it."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute("update run set wanted = ? where id = ?", (what, run_id))

    return operation


def wanted(connection: sqlite3.Connection, run_id: str) -> str | None:
    """Return what was asked of a run meanwhile."""
    row = connection.execute("select wanted from run where id = ?", (run_id,)).fetchone()
    return None if row is None else row[0]


_SAFE = re.compile(r"[^A-Za-z0-9._-]")


@contextlib.contextmanager
def before_any_call(what: Path) -> Iterator[None]:
    """Turn a refusal of the disk into words; what is done here comes before the first call."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write {what}: {error.strerror}",
            hint="nothing was asked of any model; is there room, and who may write there?",
        ) from None


class Owner:
    """This process, while it holds its lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.id = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        with before_any_call(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(
                self._path(self.id), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644
            )
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Give up the lock and its file."""
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
def only_one(
    folder: Path, experiment: str, run_id: str, *, wait: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the experiment, so that no second run of it starts on this database.

    `wait` is told which run is in the way before it is waited for; without it that is refused.
    """
    path = folder / f"experiment-{_SAFE.sub('_', experiment)}.lock"
    with before_any_call(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another run"
            if wait is None:
                raise BusyError(
                    f"{experiment} is being run already, as {other}",
                    hint="wait for it with --wait, or stop it with: edison cancel",
                ) from None
            wait(other)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with before_any_call(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, run_id.encode(), 0)
        yield
    finally:
        os.close(descriptor)
