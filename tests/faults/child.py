"""Runs commands in processes of their own that die, wait or lack something where a test says so.

Started once as `python -m tests.faults.child`, it imports everything and forks for each job, which
takes 20 ms instead of a second. A job is a line of JSON on stdin: `number, argv, folder, env, out,
err, plan` (`Plan` below); answers are lines of JSON on stdout: `{number, pid}` when a process was
started, `{pid, status}` when it ended. `{pid, signal}` sends a signal to one that has not ended.

The process runs the real command. What a plan asks for is done by wrapping the objects that the
command is made of: the product has no flag for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import faulthandler
import importlib.readers  # noqa: F401  # after giving up its rights a process cannot load it
import json
import os
import random
import resource
import selectors
import signal
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import edison_ci.api.sessions
import edison_ci.checks.evaluation
import edison_ci.cli.status
import edison_ci.execute.session
import edison_ci.execute.steering
import edison_ci.features.upkeep.commands
import edison_ci.providers.transport
import edison_ci.store.writer
from edison_ci import utc
from edison_ci.api.sessions import run_context
from edison_ci.cli.app import run as run_command
from edison_ci.execute.steering import RunControl
from edison_ci.providers.resilience import Clock
from edison_ci.store.database import open_database
from edison_ci.store.ledger import OnTotals
from edison_ci.store.writer import Writer
from tests import forked

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.grading import CellGrade
    from edison_ci.execute.run_options import RunContext
    from edison_ci.execute.runner import Grading
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Case, Completion, Request
    from edison_ci.store.ledger import Totals
    from edison_ci.store.writer import Done, Operation


NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to a process."""

    point: str = ""
    """Where it dies, by SIGKILL. In the order in which a call passes them: `reserve:queued`,
    `reserve:done` (not committed yet), `sending`, `answered`, `settle:statement`, `settle:done`,
    `grading`, `graded`, `finish_cells:queued`, `finish_cells:done`; the same of every other
    operation of the store; `totals:statement`, `commit:before`, `commit:after`; `fsync`,
    `replace:before`, `replace:after`."""
    nth: int = 1
    """At which passing."""
    model: str = ""
    """`sending` and `answered` of this model only."""
    says: tuple[str, ...] = ()
    """Points that it names on standard error whenever it passes them; `signalled` is one too."""
    faster: float = 1.0
    """How much faster than real the clock of waits goes."""
    grace_s: float | None = None
    busy_s: float | None = None
    """How long a lock of another program is waited for."""
    jump_s: float = 0.0
    """How far the wall clock jumps after its first 20 readings."""
    file_bytes: int | None = None
    """Largest file that it may write; a write beyond fails like on a full disk."""
    memory_bytes: int | None = None
    """Address space that it may have."""
    cap_bytes: int | None = None
    """Largest reply that is read."""
    closed_stdout: bool = False
    without_rights: bool = False
    """Whether it gives up the rights of root, who may write anything."""


class Trap:
    """Ends the process at the n-th passing of a point."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._passed = plan, 0
        self._lock = threading.Lock()

    def reach(self, point: str, model: str = "") -> None:
        plan = self._plan
        if point in plan.says:
            os.write(2, f"{point}\n".encode())
        if point != plan.point or (plan.model and model and model != plan.model):
            return
        with self._lock:
            self._passed += 1
            if self._passed == plan.nth:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)  # until it arrives


# --- the objects that are wrapped -----------------------------------------------------------------


class TrappedProvider:
    """A provider with a trap before and behind it."""

    def __init__(self, inner: Provider, trap: Trap, name: str) -> None:
        self._inner, self._trap, self._name = inner, trap, name
        self.batches = getattr(inner, "batches", None)

    async def complete(self, request: Request) -> Completion:
        self._trap.reach("sending", self._name)
        completion = await self._inner.complete(request)
        self._trap.reach("answered", self._name)
        return completion

    async def aclose(self) -> None:
        close = getattr(self._inner, "aclose", None)
        if close is not None:
            await close()


class TrappedGrading:
    """A grader with a trap before and behind it."""

    def __init__(self, inner: Grading, trap: Trap) -> None:
        self._inner, self._trap = inner, trap

    async def grade(self, case: Case, output: Output, paid: StoredAnswer) -> CellGrade:
        self._trap.reach("grading")
        grade = await self._inner.grade(case, output, paid)
        self._trap.reach("graded")
        return grade


class TrappedConnection:
    """A connection with a trap at each statement."""

    def __init__(self, inner: sqlite3.Connection, trap: Trap, kind: str = "") -> None:
        self._inner, self._trap, self._kind = inner, trap, kind

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "commit":
            self._trap.reach("commit:before")
        self._trap.reach(f"{self._kind}:statement")
        cursor = self._inner.execute(sql, *values)
        if sql == "commit":
            self._trap.reach("commit:after")
        return cursor

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        # Whatever they were booked by, the totals are written for all of them at the end.
        kind = "totals" if sql.startswith("insert into booked") else self._kind
        self._trap.reach(f"{kind}:statement")
        return self._inner.executemany(sql, rows)

    def of(self, kind: str) -> TrappedConnection:
        return TrappedConnection(self._inner, self._trap, kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class TrappedWriter(Writer):
    """A writer with a trap before, in and behind each operation."""

    trap: Trap

    def enqueue(self, operation: Operation[Any], done: Done, *, within_s: float = 0.0) -> None:
        act = operation.act if isinstance(operation, OnTotals) else operation
        # A change of status is written with what people are told of it.
        moves = isinstance(act, partial)
        kind = "move_run" if moves else act.__qualname__.partition(".")[0]

        def trapped(connection: sqlite3.Connection, *totals: Totals) -> Any:
            inner = cast("TrappedConnection", connection).of(kind)
            result = act(cast("sqlite3.Connection", inner), *totals)
            self.trap.reach(f"{kind}:done")
            return result

        self.trap.reach(f"{kind}:queued")
        shared = OnTotals(trapped) if isinstance(operation, OnTotals) else trapped
        super().enqueue(shared, done, within_s=within_s)


def faster_clock(factor: float) -> Clock:
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / factor)

    return Clock(lambda: time.monotonic() * factor, sleep, random.Random(0))


def jumping_now(jump_s: float) -> Callable[[], dt.datetime]:
    readings = 0

    def now() -> dt.datetime:
        nonlocal readings
        readings += 1
        return utc.now() + dt.timedelta(seconds=jump_s if readings > 20 else 0)

    return now


def trapped_tools(plan: Plan, trap: Trap, project: Project, *, offline: bool = False) -> RunContext:
    real = run_context(project, offline=offline)

    def provider_for(model: Model) -> Provider:
        return TrappedProvider(real.provider_for(model), trap, model.name)

    def grading(project: Project, experiment: Experiment, clients: ClientPool) -> Grading:
        return TrappedGrading(real.grading(project, experiment, clients), trap)

    changes: dict[str, Any] = {"provider_for": provider_for, "grading": grading}
    if plan.faster != 1.0:
        changes["clock"] = faster_clock(plan.faster)
    if plan.jump_s:
        changes["now"] = jumping_now(plan.jump_s)
    return dataclasses.replace(real, **changes)


def patch(place: object, name: str, value: object) -> None:
    """Replace something that is there: a trap on a name that has moved would never spring."""
    getattr(place, name)
    setattr(place, name, value)


def prepare(plan: Plan) -> None:
    """Wrap everything that the plan concerns."""
    trap = Trap(plan)
    TrappedWriter.trap = trap
    patch(edison_ci.api.sessions, "run_context", partial(trapped_tools, plan, trap))
    if plan.point or plan.busy_s is not None:
        patience = {} if plan.busy_s is None else {"timeout_s": plan.busy_s}

        def trapped_open(path: Path) -> TrappedConnection:
            return TrappedConnection(open_database(path, **patience), trap)

        patch(edison_ci.store.writer, "open_database", trapped_open)
        patch(edison_ci.execute.session, "Writer", TrappedWriter)
    if plan.point in ("fsync", "replace:before", "replace:after"):
        _trap_files(trap)
    if "signalled" in plan.says:
        _tell_signals(trap)
    if plan.grace_s is not None:
        edison_ci.execute.steering.GRACE_S = plan.grace_s
    if plan.cap_bytes is not None:
        edison_ci.providers.transport.MAX_REPLY_BYTES = plan.cap_bytes
    _limit(plan)


def _trap_files(trap: Trap) -> None:
    fsync, replace = os.fsync, os.replace

    def trapped_fsync(descriptor: Any) -> None:
        trap.reach("fsync")
        fsync(descriptor)

    def trapped_replace(source: Any, target: Any, **others: Any) -> None:
        trap.reach("replace:before")
        replace(source, target, **others)
        trap.reach("replace:after")

    def path_replace(self: Path, target: Any) -> Path:
        trapped_replace(self, target)
        return Path(target)

    setattr(os, "fsync", trapped_fsync)  # noqa: B010
    setattr(os, "replace", trapped_replace)  # noqa: B010
    setattr(Path, "replace", path_replace)  # noqa: B010


def _tell_signals(trap: Trap) -> None:
    signalled = RunControl._signalled

    def telling(self: RunControl, name: str) -> None:
        signalled(self, name)
        trap.reach("signalled")

    patch(RunControl, "_signalled", telling)


def _limit(plan: Plan) -> None:
    if plan.file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails with EFBIG instead
        resource.setrlimit(resource.RLIMIT_FSIZE, (plan.file_bytes, plan.file_bytes))
    if plan.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (plan.memory_bytes, plan.memory_bytes))


# --- processes ------------------------------------------------------------------------------------


def work(job: dict[str, Any]) -> NoReturn:
    """Become the process of a job, in a fork."""
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["folder"])
    plan = Plan(**job["plan"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, name in ((1, job["out"]), (2, job["err"])):
        opened = os.open(name, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if plan.closed_stdout:
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, 1)
        os.close(writing)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.enable(2)
    prepare(plan)
    if plan.without_rights and os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    run_command(job["argv"])


def started(job: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work(job)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with contextlib.suppress(OSError):
            Path(f"{job['out']}.peak").write_text(str(peak))
        os._exit(code)


def tell(**values: Any) -> None:
    os.write(1, (json.dumps(values) + "\n").encode())


def send(pids: dict[int, int], wanted: int, number: int) -> None:
    """Send a signal to one of our own; its number may be somebody else's by now."""
    for descriptor, pid in pids.items():
        if pid == wanted:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)


def main() -> None:
    """Fork a process for each line until there are no more."""
    forked.warm_up()
    waiting = selectors.DefaultSelector()
    waiting.register(0, selectors.EVENT_READ)
    pids: dict[int, int] = {}
    unread = b""
    while True:
        for key, _ in waiting.select():
            if key.fd != 0:
                pid = pids.pop(key.fd)
                _, status = os.waitpid(pid, 0)
                waiting.unregister(key.fd)
                os.close(key.fd)
                tell(pid=pid, status=os.waitstatus_to_exitcode(status))
                continue
            data = os.read(0, 1 << 20)
            if not data:
                for pid in pids.values():
                    os.kill(pid, signal.SIGKILL)
                return
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                job = json.loads(line)
                if "signal" in job:
                    send(pids, job["pid"], job["signal"])
                    continue
                pid = started(job)
                descriptor = os.pidfd_open(pid)
                pids[descriptor] = pid
                waiting.register(descriptor, selectors.EVENT_READ)
                tell(number=job["number"], pid=pid)


if __name__ == "__main__":
    main()
