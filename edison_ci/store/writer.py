"""The writer: many calls that share one durable connection.

One thread owns the writing connection. It commits whenever it is free: while a commit waits for
the disk, the next batch gathers, so a slow disk makes batches larger instead of calls slower.
Operations that can wait a little are written together with those that come meanwhile: waking the
thread and the disk for one row costs more than the row. An operation is a function of the
connection; its result is delivered only after the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar, Union

from edison_ci.errors import StoreError
from edison_ci.store.database import open_database, store_error
from edison_ci.store.ledger import together

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]

Done = Union["Future[Any]", "asyncio.Future[Any]"]
_Job = tuple[Operation[Any], Done]

MAX_BATCH = 200
PATIENCE = 3
"""Number of busy time-outs to wait for a file that another program has locked."""

LOG_PAGES = (500, 4_000)
"""How long the log grows before it goes into the file. A page that many calls change goes there
once; to remove a long log at the end takes longer than to copy pages meanwhile."""
CACHE_KIB = (500, 8_000)
"""Calls lie by their hashes all over the file; pages that stay in memory are not read again."""
_LOG_SHARE, _CACHE_SHARE = 8, 4
"""A large file has a longer log and a larger cache: a page for each 8 KiB, and a KiB for each 4."""

logger = logging.getLogger(__name__)


def _within(number: int, bounds: tuple[int, int]) -> int:
    return min(max(number, bounds[0]), bounds[1])


def _attempted(operation: Operation[T], connection: sqlite3.Connection) -> T | Exception:
    """Return an operation's result, or why it alone failed; its own changes are then undone."""
    connection.execute("savepoint one")
    try:
        result: T | Exception = operation(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # delivered to its submitter
        connection.execute("rollback to one")
        result = error
    connection.execute("release one")
    return result


def _outcomes(batch: list[_Job], connection: sqlite3.Connection) -> list[Any]:
    """Return the result of each operation, or why it alone failed.

    Nearly always none fails, and guarding each would cost as much as most of them do. So they are
    tried together; if one fails they are undone and tried again, each guarded. An operation
    therefore may do nothing but work on the connection.
    """
    try:
        return together((operation for operation, _ in batch), connection)
    except sqlite3.Error:
        raise
    except Exception:  # _attempted delivers it to the submitter
        connection.execute("rollback")
        _begin(connection)
        return [_attempted(operation, connection) for operation, _ in batch]


def _begin(connection: sqlite3.Connection) -> None:
    """Begin a transaction; waits long for the lock, because answers in flight cost money."""
    for left in reversed(range(PATIENCE)):
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if not left or "locked" not in str(error):
                raise
            logger.warning("another program has locked the results file; still waiting for it")
        else:
            return


def _deliver(batch: list[_Job], outcomes: list[Any]) -> None:
    """Hand out results; a loop is woken once for a whole batch, which costs more than most jobs."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for (_, done), outcome in zip(batch, outcomes, strict=True):
        if isinstance(done, asyncio.Future):
            by_loop.setdefault(done.get_loop(), []).append((done, outcome))
        else:
            _resolve(done, outcome)
    for loop, pairs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # a closed loop has no waiter left
            loop.call_soon_threadsafe(_resolve_all, pairs)


def _resolve_all(pairs: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, outcome in pairs:
        if not done.done():
            _resolve(done, outcome)


def _resolve(done: Done, outcome: Any) -> None:
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)


class Writer:
    """Runs operations in order, several to a transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._waiting: list[_Job] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = 0.0
        self._opened: Future[None] = Future()
        self._broken: StoreError | None = None
        self._thread = threading.Thread(target=self._work, name="edison-writer", daemon=True)
        self._process = os.getpid()
        self.commits = 0

    def open(self) -> None:
        """Begin to open the file, which waits for the disk when it is new."""
        self._thread.start()

    def start(self) -> Writer:
        """Wait until the file is open; raises if it cannot be written."""
        if self._thread.ident is None:
            self.open()
        self._opened.result()
        return self

    def close(self) -> None:
        """Finish what was submitted and close the file."""
        self._pass_on()
        self._queue.put(None)
        self._thread.join()

    def __enter__(self) -> Writer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, operation: Operation[T]) -> Future[T]:
        """Queue an operation; its result comes once it is durable."""
        done: Future[T] = Future()
        # The waiter may be cancelled; a submitted operation is written nevertheless.
        done.set_running_or_notify_cancel()
        self.enqueue(operation, done)
        return done

    def begin(self, operation: Operation[T], *, within_s: float = 0.0) -> asyncio.Future[T]:
        """Queue an operation from within an event loop; its result comes once it is durable.

        It may wait `within_s` for others to share its commit.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.enqueue(operation, done, within_s=within_s)
        return done

    async def write(self, operation: Operation[T], *, within_s: float = 0.0) -> T:
        """Wait until an operation is durable and return its result."""
        return await self.begin(operation, within_s=within_s)

    def enqueue(self, operation: Operation[Any], done: Done, *, within_s: float = 0.0) -> None:
        """Queue an operation; `done` gets its result, or why it failed."""
        if os.getpid() != self._process:
            raise StoreError("a forked process may not write", hint="open the results file again")
        if not isinstance(done, asyncio.Future):
            self._queue.put([(operation, done)])
            return
        self._waiting.append((operation, done))
        loop = done.get_loop()
        if within_s <= 0:
            self._pass_on()
        elif loop is not self._loop or loop.time() + within_s < self._due:
            self._stop_timer()
            self._loop, self._due = loop, loop.time() + within_s
            self._timer = loop.call_at(self._due, self._pass_on)

    def _pass_on(self) -> None:
        """Hand what waits to the thread; called by the event loop, or when it is gone."""
        self._stop_timer()
        if self._waiting:
            jobs, self._waiting = self._waiting, []
            self._queue.put(jobs)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop = None

    def _work(self) -> None:
        try:
            connection = open_database(self._path)
            size_kib = self._path.stat().st_size // 1024
            log_pages = _within(size_kib // _LOG_SHARE, LOG_PAGES)
            connection.execute(f"pragma wal_autocheckpoint = {log_pages}")
            cache_kib = _within(size_kib // _CACHE_SHARE, CACHE_KIB)
            connection.execute(f"pragma cache_size = -{cache_kib}")
        except BaseException as error:
            self._opened.set_exception(error)
            return
        identity = self._identity()
        self._opened.set_result(None)
        try:
            while batch := self._gather():
                self._commit(connection, batch, identity)
        finally:
            connection.close()

    def _gather(self) -> list[_Job]:
        first = self._queue.get()
        if first is None:
            return []
        batch = list(first)
        while len(batch) < MAX_BATCH:
            try:
                following = self._queue.get_nowait()
            except queue.Empty:
                break
            if following is None:
                self._queue.put(None)
                break
            batch += following
        return batch

    def _commit(
        self,
        connection: sqlite3.Connection,
        batch: list[_Job],
        identity: tuple[int, int],
    ) -> None:
        if self._broken is None and self._identity() != identity:
            self._broken = StoreError(
                f"{self._path.name} was deleted or replaced while it was in use",
                hint="nothing more was written; put the file back and resume",
            )
        if self._broken is not None:
            _deliver(batch, [self._broken] * len(batch))
            return
        outcomes: list[Any] = []
        try:
            _begin(connection)
            outcomes = _outcomes(batch, connection)
            connection.execute("commit")
            self.commits += 1
        except sqlite3.Error as error:
            self._roll_back(connection)
            # A failed write or fsync is final: the file's state is no longer known to us.
            self._broken = store_error(error, self._path)
            outcomes = [self._broken] * len(batch)
        except BaseException as error:  # no waiter may wait for ever for a dead thread
            self._roll_back(connection)
            self._broken = StoreError(f"the writer failed: {type(error).__name__}: {error}")
            outcomes = [self._broken] * len(batch)
        _deliver(batch, outcomes)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            pass  # the first error is the one to report

    def _identity(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return (0, 0)
        return (status.st_dev, status.st_ino)
