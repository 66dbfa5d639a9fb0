"""The worker process, for work that could take for ever.

A pattern, a schema or a statement can keep a parser busy for years, and a thread cannot be stopped.
A process can: workers are started when first needed, kept for the next job, and end themselves
after a second of processor time (`worker_jobs`). Processor time, because a busy machine must not
turn a harmless pattern into an error.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.checks.evaluation import EvaluationError

if TYPE_CHECKING:
    from edison_ci.records import Json

_PATIENCE_S = 30.0
"""Wall clock: for a machine that gives the worker no processor time at all."""
_SCRIPT = Path(__file__).with_name("worker_jobs.py")


class _Ended(Exception):
    """The worker is gone."""


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
        """Return the reply to a request, or raise _Ended."""
        process = self._process
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        try:
            process.stdin.write(b"%d\n" % len(request))
            process.stdin.write(request)
            process.stdin.flush()
        except OSError:
            raise _Ended from None
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            reply = process.stdout.readline() if waiting.select(_PATIENCE_S) else b""
        if not reply.endswith(b"\n"):
            raise _Ended
        return reply

    def is_alive(self) -> bool:
        """Whether the process still waits for requests."""
        return self._process.poll() is None

    def end(self) -> None:
        """End the process and forget it."""
        self._process.kill()
        self._process.communicate()


class _Workers:
    """The workers of this process that have nothing to do."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def take(self) -> _Worker:
        """Return a worker that nobody else uses."""
        with self._lock:
            if self._owner != os.getpid():  # a fork shares pipes with its parent, not workers
                self._idle, self._owner = [], os.getpid()
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive():
                    return worker
                worker.end()
        return _Worker()

    def give_back(self, worker: _Worker) -> None:
        """Keep a worker for the next job."""
        with self._lock:
            self._idle.append(worker)

    def end(self) -> None:
        """End those that have nothing to do."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()


_workers = _Workers()
atexit.register(_workers.end)


def bounded(job: str, *arguments: Json, what: str, limit_s: float = 1.0) -> Json:
    """Return what a job of `worker_jobs` finds; `what` names it if it fails or takes too long."""
    request = json.dumps({"job": job, "arguments": arguments, "limit_s": limit_s}).encode()
    worker = _workers.take()
    try:
        reply = json.loads(worker.ask(request))
    except _Ended:
        worker.end()
        raise EvaluationError(f"{what} takes longer than {limit_s:g} s") from None
    except BaseException:
        worker.end()
        raise
    _workers.give_back(worker)
    if "failed" in reply:
        raise EvaluationError(f"{what} failed: {reply['failed']}")
    found: Json = reply["found"]
    return found
