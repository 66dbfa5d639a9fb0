"""Limits of processor time for work on an answer: a signal here, and worker processes.

An answer is parsed, screened and checked in the event loop, where a slow parser would block the
whole run. The guarantees are, in this order:

1. The parsers of this package take linear time by construction; tests measure them all.
2. Patterns, schemas, SQL and code of users run in a process that the kernel kills (`run_job`,
   `child`), unless an upper bound of their steps is known and low.
3. Anything else that takes long, such as a check of a plugin, is interrupted by a signal after
   `LIMIT_S` of processor time, and becomes the error of its cell. The interpreter handles signals
   between two bytecodes and, during a search of `re`, every few thousand steps. Libraries in C
   that do neither get texts of bounded length.

Signals reach the main thread only, which runs the event loop. In another thread the third point
does not hold.

A thread cannot be stopped, a process can: workers are started when first needed, kept for the next
job, and killed after a second of processor time (`worker_jobs`). It is processor time because a
busy machine must not turn a harmless pattern into an error.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from edison_ci.checks.evaluation import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from edison_ci.records import Json

LIMIT_S = 5.0
_TICK_S = 0.5
_MAIN = threading.main_thread().ident

Value = TypeVar("Value")


class _TooSlow(BaseException):
    """The time is up; not an Exception, because the work may catch all of those."""


class _Clock:
    """Counts ticks of processor time, which is cheaper than a timer for each piece of work."""

    def __init__(self) -> None:
        self.ticks: int | None = None
        """Ticks since the current work began; None without work."""
        self.runs: bool | None = None
        """False if other code uses the signal; None before the first use."""

    def start(self) -> bool:
        """Start the clock, unless other code uses the signal; return whether it runs."""
        self.runs = signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL
        if self.runs:
            signal.signal(signal.SIGVTALRM, self._tick)
            signal.siginterrupt(signal.SIGVTALRM, False)
            signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_S, _TICK_S)
            # Python removes handlers at exit, and a tick without one would kill the process.
            atexit.register(stop_clock)
        return self.runs

    def _tick(self, number: int, frame: FrameType | None) -> None:
        if self.ticks is not None:
            self.ticks += 1
            if self.ticks * _TICK_S > LIMIT_S:
                raise _TooSlow  # raised again at the next tick if the work continues


_clock = _Clock()


def stop_clock() -> None:
    """Stop the clock; the next work starts it again."""
    if _clock.runs:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        atexit.unregister(stop_clock)
    _clock.runs = None


def run_limited(what: str, work: Callable[[], Value]) -> Value:
    """Return the result of some work; raises EvaluationError if it takes too long."""
    if _clock.ticks is not None or threading.get_ident() != _MAIN:
        return work()
    if not _clock.runs and (_clock.runs is False or not _clock.start()):
        return work()
    try:
        try:
            _clock.ticks = 0
            return work()
        finally:
            _clock.ticks = None
    except _TooSlow:
        _clock.ticks = None  # the tick may have come before the line above did this
        raise EvaluationError(f"{what} takes longer than {LIMIT_S:g} s") from None


_PATIENCE_S = 30.0
"""Wall clock time, for a machine that gives the worker no processor time."""
_SCRIPT = Path(__file__).with_name("worker_jobs.py")


class _WorkerEnded(Exception):
    """The worker has ended."""


class _Worker:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
        )

    def ask(self, request: bytes) -> bytes:
        """Return the reply to a request; raises _WorkerEnded."""
        process = self._process
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        try:
            process.stdin.write(b"%d\n" % len(request))
            process.stdin.write(request)
            process.stdin.flush()
        except OSError:
            raise _WorkerEnded from None
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            reply = process.stdout.readline() if waiting.select(_PATIENCE_S) else b""
        if not reply.endswith(b"\n"):
            raise _WorkerEnded
        return reply

    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self._process.kill()
        self._process.communicate()


class _Workers:
    """The pool of idle workers."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def acquire(self) -> _Worker:
        """Return an idle worker, or a new one."""
        with self._lock:
            if self._owner != os.getpid():  # a fork must not share pipes of workers with its parent
                self._idle, self._owner = [], os.getpid()
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive():
                    return worker
                worker.end()
        return _Worker()

    def release(self, worker: _Worker) -> None:
        """Return a worker to the pool."""
        with self._lock:
            self._idle.append(worker)

    def end(self) -> None:
        """Kill the idle workers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()


_workers = _Workers()
atexit.register(_workers.end)


def run_job(job: str, *arguments: Json, what: str, limit_s: float = 1.0) -> Json:
    """Return the result of a job of `worker_jobs`; raises EvaluationError that names `what`."""
    request = json.dumps({"job": job, "arguments": arguments, "limit_s": limit_s}).encode()
    worker = _workers.acquire()
    try:
        reply = json.loads(worker.ask(request))
    except _WorkerEnded:
        worker.end()
        raise EvaluationError(f"{what} takes longer than {limit_s:g} s") from None
    except BaseException:
        worker.end()
        raise
    _workers.release(worker)
    if "failed" in reply:
        raise EvaluationError(f"{what} failed: {reply['failed']}")
    result: Json = reply["found"]
    return result
