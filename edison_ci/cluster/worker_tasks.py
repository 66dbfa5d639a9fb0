"""What a worker does: it makes the calls that coordinators lease to it, and nothing else.

A Dask worker gets one more operation, which turns a connection into a stream of messages. All keys
are those of the worker's own process. Calls of a coordinator that is gone are given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

from distributed import Worker
from distributed.core import Status

from edison_ci.cluster.wire import (
    HANDLER,
    Hello,
    Lease,
    Welcome,
    WireError,
    read_hello,
    read_lease,
    travels,
    write_answer,
    write_welcome,
)
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import EdisonError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed.comm.core import Comm
    from distributed.security import Security

    from edison_ci.cluster.tls import ClusterAddress
    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider
    from edison_ci.records import Completion

BEAT_S = 2.0
"""A worker without answers to send says at this interval that it is alive."""
MOST_LEASES = 20_000
"""Calls at most that one coordinator may have at a worker."""


class WorkerService:
    """Serves the coordinators of runs with the keys of this process."""

    def __init__(
        self, provider_for: Callable[[Model], Provider], *, name: str, version: str
    ) -> None:
        self._provider_for = provider_for
        self.name, self._version = name, version
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
        session = self._sessions[asked.run] = _RunSession(comm, asked)
        try:
            session.prepare(self._provider_for)
            told = Welcome(self._version, self.name, time.time(), session.unready)
            await comm.write({"welcome": write_welcome(told)})
            await session.work(lambda: self.draining)
        finally:
            del self._sessions[asked.run]
            await session.close()
        return Status.dont_reply

    async def drain(self) -> None:
        """Take no more calls, and return when those in flight are answered."""
        self.draining = True
        busy = [session.idle.wait() for session in self._sessions.values()]
        await asyncio.gather(*busy)

    def _refuse(self, asked: Hello) -> None:
        if asked.version != self._version:
            raise WireError(f"it has edison {self._version}, the coordinator {asked.version}")
        if self.draining:
            raise WireError("it is about to end")
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
    ) -> None:
        super().__init__(
            str(scheduler),
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
        # An unknown message on a stream would end the connection to the scheduler.
        for name in self.stream_handlers.keys() - {"close"}:
            self.stream_handlers[name] = _ignore

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Serve no pages."""

    async def plugin_add(self, *_: Any, **__: Any) -> Any:
        """Install no plugin that a scheduler sends."""
        return {"status": "OK"}


def _ignore(*_: Any, **__: Any) -> None:
    """Do nothing."""


class _RunSession:
    """The calls of one coordinator for one run."""

    def __init__(self, comm: Comm, hello: Hello) -> None:
        self._comm, self._hello = comm, hello
        self.coordinator = hello.coordinator
        self._providers: dict[int, Provider] = {}
        self.unready: dict[int, str] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._answers: list[str] = []
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        """Whether it has neither calls in flight nor answers to send."""
        self.idle.set()

    def prepare(self, provider_for: Callable[[Model], Provider]) -> None:
        """Open the providers of the run, and note which models cannot be called here."""
        for place, model in enumerate(self._hello.models):
            try:
                if not travels(model):
                    raise WireError(f"{model.provider} needs files of the project")
                self._providers[place] = provider_for(model)
            except (EdisonError, WireError) as error:
                self.unready[place] = str(error)

    async def work(self, draining: Callable[[], bool]) -> None:
        """Take leases and send answers until the coordinator leaves."""
        sending = asyncio.create_task(self._send(draining))
        try:
            while True:
                message = await self._comm.read()
                if not isinstance(message, dict):
                    raise WireError("a message is not a mapping")
                for text in message.get("leases", ()):
                    self._take(read_lease(text))
                for given_up in message.get("given_up", ()):
                    if (task := self._tasks.get(given_up)) is not None:
                        task.cancel()
                if len(self._tasks) > MOST_LEASES:
                    raise WireError("too many calls at once")
        except (OSError, WireError):
            return
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending

    def _take(self, lease: Lease) -> None:
        if lease.id in self._tasks:
            raise WireError("a call was given twice")
        self.idle.clear()
        self._tasks[lease.id] = asyncio.create_task(self._call(lease))

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
        finally:
            del self._tasks[lease.id]
        self._answers.append(write_answer(lease.id, result))
        self._wake.set()

    async def _send(self, draining: Callable[[], bool]) -> None:
        """Send answers as they come, all of a moment in one message."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._wake.wait()
            self._wake.clear()
            answers, self._answers = self._answers, []
            message: dict[str, Any] = {"answers": answers, "draining": draining()}
            await self._comm.write(message)
            if not self._tasks and not self._answers:
                self.idle.set()

    async def close(self) -> None:
        """Give up what is in flight, and close all connections to models."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for provider in self._providers.values():
            if (close := getattr(provider, "aclose", None)) is not None:
                await close()
        self.idle.set()
        with contextlib.suppress(OSError):
            await self._comm.close()
