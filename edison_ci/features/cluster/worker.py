"""A worker: the calls that coordinators lease to it, checks by its own code, and its life.

A Dask worker gets one more operation, which turns a connection into a stream of messages. All keys
are those of the worker's own process, and all code is that of its own checkout. What a coordinator
that is gone has asked for is given up. A worker waits for a scheduler that is lost, and answers the
calls in flight before it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from distributed import Worker
from distributed.batched import BatchedSend
from distributed.core import Status

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import CallFailed, EdisonError, Interrupted, UsageError
from edison_ci.features.cluster.nodes import carry_plain_data, ignore
from edison_ci.features.cluster.preparation import refuse_clock, refuse_hello, tell_offset
from edison_ci.features.cluster.tls import probe
from edison_ci.features.cluster.wire import (
    HANDLER,
    CheckLease,
    Hello,
    Lease,
    Welcome,
    WireError,
    read_answer,
    read_check,
    read_hello,
    read_lease,
    travels,
    write_answer,
    write_outcome,
    write_welcome,
)
from edison_ci.numeric import counted
from edison_ci.sanitize import line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from distributed.comm.core import Comm
    from distributed.security import Security

    from edison_ci.config.models import Model
    from edison_ci.contracts import CheckOutcome, Provider
    from edison_ci.features.cluster.preparation import CodeChecks
    from edison_ci.features.cluster.tls import Certificates, ClusterAddress
    from edison_ci.records import Completion

BEAT_S = 2.0
"""A worker without answers to send says at this interval that it is alive."""
MOST_LEASES = 20_000
"""Calls and checks at most that one coordinator may have at a worker."""
MOST_RUNS = 100
"""Runs at most that a worker serves at the same time."""
_RETRY_S = 1.0
_LEAST_S = 2.0
"""An attempt to reach the scheduler gets this long, also with a shorter `--wait`."""
T = TypeVar("T")


class WorkerService:
    """Serves the coordinators of runs with the keys and the code of this process."""

    def __init__(
        self,
        provider_for: Callable[[Model], Provider],
        checks: CodeChecks,
        *,
        name: str,
        version: str,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._provider_for, self._checks = provider_for, checks
        self._places = asyncio.Semaphore(checks.places)
        self.name, self._version, self._tell = name, version, tell
        self._sessions: dict[str, _RunSession] = {}
        self.draining = False
        """Whether it takes no more calls, and finishes those it has."""

    async def serve(self, comm: Comm, hello: str) -> Status:
        """Serve one coordinator until it leaves."""
        try:
            asked = read_hello(hello)
            self._refuse(asked)
        except WireError as refused:
            await comm.write({"refused": str(refused)})
            return Status.dont_reply
        session = _RunSession(comm, asked, self._checks, self._places)
        self._sessions[asked.run] = session
        run = f"run {line(asked.run)}"
        self._tell(f"{run}: takes calls")
        try:
            session.prepare(self._provider_for)
            for place, why in session.unready.items():
                self._tell(f"{run}: {line(asked.models[place].name)} is not called: {why}")
            for place, why in session.unable.items():
                self._tell(f"{run}: {line(asked.programs[place][0])} is not run: {why}")
            welcome = Welcome(
                self._version,
                self.name,
                time.time(),
                session.unready,
                session.unable,
                self._checks.places,
            )
            await comm.write({"welcome": write_welcome(welcome)})
            await session.work(lambda: self.draining)
        finally:
            if self._sessions.get(asked.run) is session:  # else its coordinator came again
                del self._sessions[asked.run]
            await session.close()
            checked = f", {counted(session.checked, 'check')} run" if asked.programs else ""
            self._tell(f"{run}: over, {counted(session.answered, 'call')} answered{checked}")
        return Status.dont_reply

    @property
    def runs(self) -> int:
        """How many runs it serves."""
        return len(self._sessions)

    @property
    def in_flight(self) -> int:
        """Calls and checks that it has not answered yet."""
        return sum(session.calls for session in self._sessions.values())

    async def drain(self) -> None:
        """Take no more calls, and return when every coordinator has its answers and has left.

        A coordinator may have leased calls that have not arrived yet: only it knows when it has
        all answers.
        """
        self.draining = True
        for session in self._sessions.values():
            session.wake()
        while self._sessions:
            await asyncio.gather(*(session.over.wait() for session in self._sessions.values()))

    def _refuse(self, asked: Hello) -> None:
        if why := refuse_hello(asked, self._version):
            raise WireError(why)
        if self.draining:
            raise WireError("it is about to end")
        if len(self._sessions) >= MOST_RUNS:
            raise WireError(f"it serves {MOST_RUNS} runs already")
        other = self._sessions.get(asked.run)
        if other is not None and other.coordinator != asked.coordinator:
            raise WireError(f"another coordinator runs {asked.run} already")


class PlainWorker(Worker):
    """A Dask worker that serves runs, and does nothing else that a connection asks for."""

    def __init__(
        self,
        scheduler: ClusterAddress,
        folder: Path,
        service: WorkerService,
        security: Security | None,
        start_s: float = 60.0,
    ) -> None:
        super().__init__(
            str(scheduler),
            death_timeout=start_s,  # else Dask tries for ever to register
            nthreads=1,
            security=security,
            dashboard=False,
            local_directory=str(folder),
            memory_limit=0,
            extensions={},  # their heartbeats would be unknown to our scheduler
            protocol="tls" if security else "tcp",
        )
        with contextlib.suppress(ValueError):  # Dask lets others put modules there
            sys.path.remove(self.local_directory)
        self.handlers = {"identity": self.handlers["identity"], HANDLER: service.serve}
        # A scheduler that ends notifies its workers, which continue with the runs that they serve.
        self.stream_handlers = dict.fromkeys(self.stream_handlers, ignore)
        self.scheduler_left = asyncio.Event()

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Serve no pages."""

    async def plugin_add(self, *_: Any, **__: Any) -> Any:
        """Install no plugin that a scheduler sends."""
        return {"status": "OK"}

    async def handle_scheduler(self, comm: Comm) -> None:
        """Note when the scheduler is gone, instead of closing."""
        try:
            await self.handle_stream(comm)
        finally:
            for name in ("heartbeat", "keep-alive"):
                self.periodic_callbacks[name].stop()
            self.scheduler_left.set()

    async def register_again(self) -> None:
        """Register at a scheduler that is back."""
        self.scheduler_left.clear()
        self.batched_stream = BatchedSend(interval="2ms", loop=self.loop)
        await self._register_with_scheduler()

    async def close(self, *args: Any, **named: Any) -> Any:
        """Close, unless it is because the scheduler does not know this worker any more."""
        if str(named.get("reason", "")).startswith("worker-heartbeat"):
            return None
        return await super().close(*args, **named)


def _unanswered(error: Exception) -> CallError:
    return CallError(ErrorKind.BAD_RESPONSE, f"at the worker: {type(error).__name__}: {error}")


def _checked(lease: Lease, result: Completion | CallError) -> str:
    """Return the text of an answer that the coordinator will accept.

    A model, or a plugin, may say what the rules of messages refuse; that is no fault of this
    worker, which would be dropped for it.
    """
    try:
        text = write_answer(lease.id, result)
        read_answer(text, lambda _: lease.request)
    except (WireError, TypeError, ValueError) as error:
        return write_answer(lease.id, _unanswered(error))
    return text


class _RunSession:
    """The calls and checks of one coordinator for one run."""

    def __init__(
        self, comm: Comm, hello: Hello, checks: CodeChecks, places: asyncio.Semaphore
    ) -> None:
        self._comm, self._hello = comm, hello
        self._checks, self._places = checks, places
        self.coordinator = hello.coordinator
        self._providers: dict[int, Provider] = {}
        self.unready: dict[int, str] = {}
        self.unable: dict[int, str] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._answers: list[str] = []
        self._outcomes: list[str] = []
        self._wake = asyncio.Event()
        self.answered = self.checked = 0
        self.over = asyncio.Event()

    @property
    def calls(self) -> int:
        """Calls and checks that it has not answered yet."""
        return len(self._tasks) + len(self._answers) + len(self._outcomes)

    def wake(self) -> None:
        """Let it send a message now."""
        self._wake.set()

    def prepare(self, provider_for: Callable[[Model], Provider]) -> None:
        """Open the providers of the run, and note what cannot be called or run here."""
        for place, model in enumerate(self._hello.models):
            try:
                if not travels(model):
                    raise WireError(f"{model.provider} needs files of the project")
                self._providers[place] = provider_for(model)
            except EdisonError as error:
                self.unready[place] = error.message
            except WireError as error:
                self.unready[place] = str(error)
        for place, (program, digest) in enumerate(self._hello.programs):
            if why := self._checks.why_not(program, digest):
                self.unable[place] = why

    async def work(self, draining: Callable[[], bool]) -> None:
        """Take leases and send answers until the coordinator leaves."""
        sending = asyncio.create_task(self._send(draining))
        try:
            while True:
                message = await self._comm.read()
                if not isinstance(message, dict):
                    raise WireError("a message is not a mapping")
                for text in message.get("leases", ()):
                    lease = read_lease(text)
                    self._take(lease.id, self._call(lease))
                for text in message.get("checks", ()):
                    check = read_check(text)
                    self._take(check.id, self._check(check))
                for given_up in message.get("given_up", ()):
                    if (task := self._tasks.get(given_up)) is not None:
                        task.cancel()
        except (OSError, WireError):
            return
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending

    def _take(self, lease: int, work: Coroutine[Any, Any, None]) -> None:
        if lease in self._tasks or len(self._tasks) >= MOST_LEASES:
            work.close()
            raise WireError("a call was given twice, or too many at once")
        self._tasks[lease] = asyncio.create_task(work)

    async def _call(self, lease: Lease) -> None:
        provider = self._providers.get(lease.model)
        result: Completion | CallError
        try:
            if provider is None:
                why = self.unready.get(lease.model, "unknown model")
                raise CallError(ErrorKind.INVALID_KEY, why, charged=False)
            result = await provider.complete(lease.request)
        except CallError as error:
            result = error
        except Exception as error:  # without an answer the coordinator would wait, and drop us
            result = _unanswered(error)
        finally:
            del self._tasks[lease.id]
        self._answers.append(_checked(lease, result))
        self._wake.set()

    async def _check(self, lease: CheckLease) -> None:
        outcome: CheckOutcome | str
        try:
            outcome = await self._run_check(lease)
        except (OSError, MemoryError, RuntimeError) as error:
            # This machine cannot start it: that says nothing about the answer.
            outcome = self.unable[lease.program] = f"{type(error).__name__}: {error}"
        finally:
            del self._tasks[lease.id]
        self._outcomes.append(write_outcome(lease.id, outcome))
        self._wake.set()

    async def _run_check(self, lease: CheckLease) -> CheckOutcome | str:
        if lease.program >= len(self._hello.programs):
            return "unknown program"
        if lease.program in self.unable:
            return self.unable[lease.program]
        program = self._hello.programs[lease.program]
        async with self._places:
            outcome = await asyncio.to_thread(self._checks.run, *program, lease.request)
        if isinstance(outcome, str):
            self.unable[lease.program] = outcome
        else:
            self.checked += 1
        return outcome

    async def _send(self, draining: Callable[[], bool]) -> None:
        """Send answers as they come, all of a moment in one message."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._wake.wait()
            self._wake.clear()
            answers, self._answers = self._answers, []
            outcomes, self._outcomes = self._outcomes, []
            message: dict[str, Any] = {"answers": answers, "outcomes": outcomes}
            await self._comm.write({**message, "draining": draining()})
            self.answered += len(answers)

    async def close(self) -> None:
        """Give up what is in flight, and close all connections to models."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for provider in self._providers.values():
            if (close := getattr(provider, "aclose", None)) is not None:
                await close()
        self.over.set()
        with contextlib.suppress(OSError):
            await self._comm.close()


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Where a worker connects, and its patience."""

    address: ClusterAddress
    certificates: Certificates | None
    grace_s: float
    """How long calls in flight may take after the first signal."""
    wait_s: float
    """How long it waits for a scheduler that does not answer."""


class WorkerLoop:
    """Runs a worker until a signal, or until its scheduler is gone for good."""

    def __init__(
        self, options: WorkerOptions, service: WorkerService, tell: Callable[[str], None]
    ) -> None:
        self._options, self._service, self._tell = options, service, tell
        self._stop, self._abort = asyncio.Event(), asyncio.Event()
        self._until = 0.0
        """When the scheduler has to be reached."""

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Serve runs; raises CallFailed without a scheduler, Interrupted at a second signal."""
        carry_plain_data()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)
        with tempfile.TemporaryDirectory(prefix="edison-worker-") as folder:
            worker = await self._reach_scheduler(partial(self._start, Path(folder)))
            if worker is None:
                return
            async with worker:
                self._check_clock(worker)
                on_ready(worker.address)
                await self._serve(worker)

    def _signalled(self) -> None:
        (self._abort if self._stop.is_set() else self._stop).set()

    def _check_clock(self, worker: PlainWorker) -> None:
        ahead_s = float(worker.scheduler_delay)
        if why := refuse_clock(ahead_s, "scheduler"):
            raise UsageError(f"this machine cannot work here: {why}", hint="set the clock")
        self._tell(f"clock: {tell_offset(ahead_s, 'scheduler')}")

    async def _reach_scheduler(
        self, attempt: Callable[[], Awaitable[T]], *, again: bool = False
    ) -> T | None:
        """Return the result of an attempt to register, repeated until it works; None at a signal.

        Raises CallFailed after a while, if no run is served. Certificates that were accepted before
        are not refused now: a scheduler that dies while it is asked resets the connection, as one
        that refuses them does.
        """
        passing = (CallFailed, UsageError) if again else CallFailed
        self._until, is_waiting = time.monotonic() + self._options.wait_s, False
        while not self._stop.is_set():
            try:
                return await attempt()
            except passing as error:
                if time.monotonic() > self._until and not self._service.runs:
                    raise
                if not is_waiting:
                    self._tell(f"{error.message}; waiting {self._options.wait_s:g} s for it")
                is_waiting = True
            await self._pause()
        return None

    @property
    def _left_s(self) -> float:
        return max(_LEAST_S, self._until - time.monotonic())

    async def _start(self, folder: Path) -> PlainWorker:
        """Return a worker that the scheduler knows; raises CallFailed or UsageError."""
        address, certificates = self._options.address, self._options.certificates
        await probe(address, certificates, self._left_s)
        security = None if certificates is None else certificates.security()
        worker = PlainWorker(address, folder, self._service, security, self._left_s)
        try:
            await worker
        except (RuntimeError, TimeoutError) as error:
            raise self._not_registered(error) from None
        return worker

    async def _register(self, worker: PlainWorker) -> bool:
        """Register at a scheduler that is back; raises CallFailed or UsageError.

        It may be gone again, or not have missed us yet.
        """
        await probe(self._options.address, self._options.certificates, self._left_s)
        try:
            async with asyncio.timeout(self._left_s):
                await worker.register_again()
        except (OSError, TimeoutError, ValueError) as error:
            raise self._not_registered(error) from None
        return True

    def _not_registered(self, error: Exception) -> CallFailed:
        why = error.__cause__ or error
        return CallFailed(
            f"no scheduler registers this worker at {self._options.address}: "
            f"{line(str(why)) or 'no answer in time'}",
            hint="look at the scheduler there: edison worker scheduler",
        )

    async def _serve(self, worker: PlainWorker) -> None:
        while not self._stop.is_set():
            await self._first(self._stop.wait(), worker.scheduler_left.wait())
            if self._stop.is_set():
                break
            self._tell("the scheduler is gone; runs that are served continue")
            if await self._reach_scheduler(partial(self._register, worker), again=True):
                self._tell("the scheduler is back")
        await self._drain()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_S):
                await self._stop.wait()

    async def _drain(self) -> None:
        """Finish the calls in flight; raises Interrupted at a second signal."""
        grace_s, calls = self._options.grace_s, self._service.in_flight
        self._tell(
            f"ending: no new calls; {counted(calls, 'call')} in flight, at most {grace_s:g} s"
        )
        try:
            async with asyncio.timeout(grace_s):
                await self._first(self._service.drain(), self._abort.wait())
        except TimeoutError:
            self._tell(f"{counted(self._service.in_flight, 'call')} took too long")
        if self._abort.is_set():
            raise Interrupted(
                f"aborted with {counted(self._service.in_flight, 'call')} in flight",
                hint="their runs ask them again at other workers",
            )

    @staticmethod
    async def _first(*waiting: Coroutine[Any, Any, Any]) -> None:
        """Return when the first of these is done; the others are given up."""
        tasks = [asyncio.create_task(coroutine) for coroutine in waiting]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
