"""The life of a worker: it connects, serves runs, waits for a lost scheduler, and drains."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.errors import CallFailed, Interrupted, UsageError
from edison_ci.features.cluster.nodes import carry_plain_data
from edison_ci.features.cluster.preparation import refuse_clock, tell_offset
from edison_ci.features.cluster.tls import probe
from edison_ci.features.cluster.worker_tasks import PlainWorker
from edison_ci.numeric import counted
from edison_ci.sanitize import line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from edison_ci.features.cluster.tls import Certificates, ClusterAddress
    from edison_ci.features.cluster.worker_tasks import WorkerService

_RETRY_S = 1.0
_LEAST_S = 2.0
"""An attempt to reach the scheduler gets this long, also with a shorter `--wait`."""
T = TypeVar("T")


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
        self._until, said = time.monotonic() + self._options.wait_s, False
        while not self._stop.is_set():
            try:
                return await attempt()
            except passing as error:
                if time.monotonic() > self._until and not self._service.runs:
                    raise
                if not said:
                    self._tell(f"{error.message}; waiting {self._options.wait_s:g} s for it")
                said = True
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
            self._tell("the scheduler is gone; runs that are served go on")
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
        tasks = [asyncio.create_task(each) for each in waiting]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
