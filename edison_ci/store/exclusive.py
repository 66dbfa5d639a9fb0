"""Exclusive work on the results file.

Housekeeping that takes things away waits for nobody and disturbs nobody: it is refused while a run
lives. It holds a lock of its own, against other housekeeping, and looks for living runs once more
inside its transaction: a run that starts then cannot write before that transaction has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from typing import TYPE_CHECKING

from edison_ci.errors import BusyError, StoreError
from edison_ci.store.database import open_database, translated
from edison_ci.store.owners import is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_YOUNG_S = 2.0


@contextlib.contextmanager
def exclusively(results: Path, locks: Path, what: str) -> Iterator[sqlite3.Connection]:
    """Hold the results file; what the block writes is committed together at its end."""
    with _alone(locks, what):
        refuse_while_run(locks)
        connection = open_database(results)
        try:
            connection.execute("begin immediate")
            refuse_while_run(locks)
            yield connection
            connection.execute("commit")
        except sqlite3.Error as error:
            raise translated(error, results) from None
        finally:
            if connection.in_transaction:
                connection.execute("rollback")
            connection.close()


def shrink(results: Path, locks: Path) -> None:
    """Give the room of what was taken away back to the disk."""
    with _alone(locks, "gc"):
        refuse_while_run(locks)
        connection = open_database(results)
        try:
            connection.execute("vacuum")
            connection.execute("pragma wal_checkpoint(truncate)")
        except sqlite3.Error as error:
            raise translated(error, results) from None
        finally:
            connection.close()


def refuse_while_run(locks: Path) -> None:
    """Raise if a process that runs an experiment lives."""
    alive = living(locks)
    if alive:
        processes = ", ".join(sorted({owner.partition("-")[0] for owner in alive})[:5])
        raise BusyError(
            f"an experiment is being run here, by process {processes}",
            hint="wait until it is done, or pause it with: edison pause",
        )


def living(locks: Path) -> list[str]:
    """Return the owners whose locks are held, or were made just now and may be about to be."""
    found = []
    for path in sorted(locks.glob("owner-*.lock")):
        owner = path.name.removeprefix("owner-").removesuffix(".lock")
        try:
            # To try the lock of a file that is a moment old could take it from its owner.
            young = abs(time.time() - path.stat().st_mtime) < _YOUNG_S
        except FileNotFoundError:
            continue
        if young or is_alive(locks, owner):
            found.append(owner)
    return found


@contextlib.contextmanager
def _alone(locks: Path, what: str) -> Iterator[None]:
    place = locks / "housekeeping.lock"
    try:
        locks.mkdir(parents=True, exist_ok=True)
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
                f"edison {other or 'gc'} is at work on the results",
                hint="try again when it is done",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, what.encode(), 0)
        yield
    finally:
        os.close(descriptor)
