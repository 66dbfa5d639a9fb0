"""The coordinator's side of a cluster: workers found through a Dask scheduler, and calls to them.

The scheduler only says which workers there are. The coordinator has one connection to each, over
which it leases calls: those that are booked in the ledger and have their slot of the rate limits. A
worker that is gone may have made its calls: they fail as calls of unknown fate, which stay booked
at their worst and are asked again elsewhere. Checks cost nothing: they are just run again, at
another worker or by the coordinator. A worker that breaks the protocol is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from distributed.comm.core import connect

from edison_ci import __version__
from edison_ci.checks.child import LIMIT_S
from edison_ci.contracts import CallError, ErrorKind, WorkerState
from edison_ci.errors import EdisonError, UsageError
from edison_ci.features.cluster.nodes import ForeignMessage, carry_plain_data
from edison_ci.features.cluster.preparation import MOST_CLOCK_S, PYTHON
from edison_ci.features.cluster.tls import read_address
from edison_ci.features.cluster.wire import (
    HANDLER,
    MOST_REQUEST,
    CheckLease,
    Hello,
    Lease,
    Welcome,
    WireError,
    read_answer,
    read_outcome,
    read_welcome,
    travels,
    write_check,
    write_hello,
    write_lease,
)
from edison_ci.numeric import counted, fixed
from edison_ci.shape import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distributed.comm.core import Comm
    from distributed.security import Security

    from edison_ci.config.models import Model
    from edison_ci.contracts import CheckOutcome, Provider
    from edison_ci.features.cluster.wire import Answer, Checked
    from edison_ci.records import Completion, Request

LOOK_S = 1.0
"""Interval at which the scheduler is asked for new workers."""
LISTED_S = 5.0
"""How long it may take to say which there are."""
CONNECT_S = 10.0
SILENT_S = 20.0
"""A worker that has said nothing for so long is given up; it speaks every 2 s."""
OVERDUE_S = 120.0
"""How much longer than the model's timeout a worker may take for a call."""
START_S = 60.0
"""How long a run waits for its first workers."""
_MOST_IDLE = 50.0
_IDLE_A_SECOND = 5.0
"""Messages without an answer that are no flood: a few at once, and a few a second."""
_MOST_ADDRESSES = 10_000
"""Workers that a run connects to or refuses; a scheduler could name new ones without end."""
_MOST_AT_ONCE = 100
"""Workers that it connects to at the same time."""
_LONGEST_ADDRESS = 300
_MOST_LOSSES = 3
"""Times that a worker is lost with calls, before it has answered one, until it gets no more."""
_LISTED = 5
"""Reasons that an error lists, and names of workers."""
_CHECK_ATTEMPTS = 3
"""Workers at which a check is tried before the coordinator runs it."""


class _Call(NamedTuple):
    place: int
    """Of its model."""
    request: Request
    result: asyncio.Future[Completion]
    due: float


class _Check(NamedTuple):
    place: int
    """Of its program."""
    result: asyncio.Future[CheckOutcome | None]
    due: float


class _WorkerLink:
    """The connection to one worker, and the calls and checks that it has."""

    def __init__(self, address: str, comm: Comm, welcome: Welcome) -> None:
        self.address, self.name = address, welcome.name
        self.unready, self.unable = dict(welcome.unready), dict(welcome.unable)
        self.places = welcome.places
        self.ahead_s = welcome.now - time.time()
        self.calls: dict[int, _Call] = {}
        self.checks: dict[int, _Check] = {}
        self.answered = self.checked = 0
        self.leaving = False
        self.heard = time.monotonic()
        self._comm = comm
        self._spare = _MOST_IDLE
        self._leases: list[str] = []
        self._check_leases: list[str] = []
        self._given_up: list[int] = []
        self._late: dict[int, Request] = {}
        """Calls that were given up, whose answers may still come."""
        self._late_checks: set[int] = set()
        self._wake = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    def lease(self, lease: Lease, call: _Call) -> None:
        """Give the worker a call."""
        self.calls[lease.id] = call
        self._leases.append(write_lease(lease))
        self._wake.set()

    def give_up(self, lease: int) -> None:
        """Notify the worker that the result of a call is no longer needed."""
        if (call := self.calls.pop(lease, None)) is not None:
            self._late[lease] = call.request
            self._given_up.append(lease)
            self._wake.set()

    def lease_check(self, lease: CheckLease, result: asyncio.Future[CheckOutcome | None]) -> None:
        """Give the worker a check, which waits for those that it has."""
        before = (len(self.checks) // self.places + 1) * LIMIT_S
        due = time.monotonic() + before + OVERDUE_S
        self.checks[lease.id] = _Check(lease.program, result, due)
        self._check_leases.append(write_check(lease))
        self._wake.set()

    def give_up_check(self, lease: int) -> None:
        """Notify the worker that the result of a check is no longer needed."""
        if self.checks.pop(lease, None) is not None:
            self._late_checks.add(lease)
            self._given_up.append(lease)
            self._wake.set()

    async def send(self) -> None:
        """Send what there is to say, all of a moment in one message."""
        with contextlib.suppress(OSError):  # `receive` finds out as well
            while True:
                await self._wake.wait()
                self._wake.clear()
                leases, self._leases = self._leases, []
                checks, self._check_leases = self._check_leases, []
                given_up, self._given_up = self._given_up, []
                await self._comm.write({"leases": leases, "checks": checks, "given_up": given_up})

    async def receive(self) -> tuple[Sequence[object], Sequence[object]]:
        """Return answers and outcomes of the next message, unread; raises OSError or WireError."""
        message = await _read(self._comm)
        before, self.heard = self.heard, time.monotonic()
        if not isinstance(message, dict) or set(message) != {"answers", "outcomes", "draining"}:
            raise WireError("it sent an unknown message")
        texts, outcomes, draining = (message[name] for name in ("answers", "outcomes", "draining"))
        lists = isinstance(texts, tuple | list) and isinstance(outcomes, tuple | list)
        if not lists or not isinstance(draining, bool):
            raise WireError("it sent an unknown message")
        self._spare = min(_MOST_IDLE, self._spare + _IDLE_A_SECOND * (self.heard - before))
        self._spare -= not (texts or outcomes)
        if self._spare < 0:
            raise WireError("it sends messages without end")
        self.leaving = draining
        return texts, outcomes

    def read(self, text: object) -> tuple[_Call, Answer] | None:
        """Read an answer, and take its call from the list; None for one that was given up."""
        answer = read_answer(text, self._request)
        if self._late.pop(answer.lease, None) is not None:
            return None
        self.answered += 1
        return self.calls.pop(answer.lease), answer

    def read_check(self, text: object) -> tuple[_Check, Checked] | None:
        """Read an outcome, and take its check from the list; None for one that was given up."""
        checked = read_outcome(text, self.checks.keys() | self._late_checks)
        if checked.lease in self._late_checks:
            self._late_checks.remove(checked.lease)
            return None
        self.checked += checked.outcome is not None
        return self.checks.pop(checked.lease), checked

    @property
    def overdue(self) -> bool:
        """Whether it keeps something without an answer."""
        dues = [next(iter(self.calls.values())).due] if self.calls else []
        dues += [next(iter(self.checks.values())).due] if self.checks else []
        return any(time.monotonic() > due for due in dues)

    def _request(self, lease: int) -> Request | None:
        call = self.calls.get(lease)
        return call.request if call is not None else self._late.get(lease)

    def abort(self) -> None:
        """Close the connection at once."""
        for task in self.tasks:
            task.cancel()
        self._comm.abort()


class _ClusterProvider:
    """Calls one model at the workers."""

    def __init__(self, executor: DaskExecutor, place: int, timeout_s: float) -> None:
        self._executor, self._place, self._timeout_s = executor, place, timeout_s

    async def complete(self, request: Request) -> Completion:
        """Return the answer of a worker; raises CallError."""
        return await self._executor.call(self._place, request, self._timeout_s)


class DaskExecutor:
    """The workers of one run."""

    def __init__(
        self,
        scheduler: str,
        security: Security | None,
        run_id: str,
        models: Sequence[Model],
        tell: Callable[[str], None],
    ) -> None:
        self._scheduler, self._run_id, self._tell = scheduler, run_id, tell
        self._connection = {} if security is None else security.get_connection_args("client")
        by_key = {model.key: model for model in models if travels(model)}
        self._models = tuple(by_key.values())
        self._places = {key: place for place, key in enumerate(by_key)}
        self._programs: tuple[tuple[str, str], ...] = ()
        self._links: dict[str, _WorkerLink] = {}
        self._refused: dict[str, str] = {}
        """Why a worker is not used, by its address."""
        self._losses: Counter[str] = Counter()
        """Connections that ended with calls and without an answer, by address."""
        self._name = uuid.uuid4().hex
        self._ids = itertools.count(1)
        self._looking: asyncio.Task[None] | None = None
        self._scheduler_seen = True
        self._stranded_at: float | None = None
        self.on_change: Callable[[], None] = lambda: None

    async def open(self, at_least: int, programs: Mapping[str, str] | None = None) -> None:
        """Connect to the workers; raises UsageError if too few of them can call the models.

        `at_least` counts those that were started for this run, 0 if others started them.
        `programs` are those of code checks, which may be run by fewer workers or by none.
        """
        carry_plain_data()
        self._programs = tuple((programs or {}).items())
        until, is_announced = time.monotonic() + START_S, at_least > 0
        while True:
            await self._look()
            lacking = [model for model in self._models if self.workers(model) < max(at_least, 1)]
            if not lacking:
                break
            seen = self._refused or self._links
            if time.monotonic() > until or (not at_least and seen):
                raise self._useless(lacking[0])
            if not is_announced:
                is_announced = True
                self._tell(f"none at {self._scheduler} yet; waiting {fixed(START_S)} s for one")
            await asyncio.sleep(0.2)
        if self._links:
            names = sorted(link.name for link in self._links.values())
            more = ", ..." if len(names) > _LISTED else ""
            listed = ", ".join(names[:_LISTED])
            self._tell(f"{counted(len(names), 'worker')} for the calls: {listed}{more}")
        self._looking = asyncio.create_task(self._watch())

    def provider_for(self, model: Model) -> Provider | None:
        """Return what calls a model at the workers; None for one that needs files from here."""
        place = self._places.get(model.key)
        return None if place is None else _ClusterProvider(self, place, model.limits.timeout_s)

    def workers(self, model: Model) -> int:
        """Return how many workers can call a model."""
        return len(self._ready(self._places[model.key]))

    def states(self) -> list[WorkerState]:
        """Return the workers at this moment."""
        states = []
        for link in sorted(self._links.values(), key=lambda link: link.name):
            unable, *others = [*self._unable(link)] or [""]
            unable += f" (and {len(others):,} more)" if others else ""
            counts = (len(link.calls), link.answered, link.leaving, link.checked)
            states.append(WorkerState(link.name, *counts, unable))
        return states

    def _unable(self, link: _WorkerLink) -> Iterator[str]:
        """Yield the programs that a worker does not run, and why."""
        for place, why in link.unable.items():
            if place < len(self._programs):
                yield f"{self._programs[place][0]}: {why}"

    @property
    def stranded_s(self) -> float:
        """How long a model has had no worker, in seconds."""
        return 0.0 if self._stranded_at is None else time.monotonic() - self._stranded_at

    async def call(self, place: int, request: Request, timeout_s: float) -> Completion:
        """Lease a call to the worker that has the fewest; raises CallError."""
        ready = self._ready(place)
        if not ready:
            raise _lost("no worker is left", charged=False)
        link = min(ready, key=lambda link: len(link.calls))
        lease = Lease(next(self._ids), place, request)
        result: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        due = time.monotonic() + timeout_s + OVERDUE_S
        link.lease(lease, _Call(place, request, result, due))
        try:
            return await result
        except asyncio.CancelledError:
            link.give_up(lease.id)
            raise

    async def check(self, program: str, request: str) -> CheckOutcome | None:
        """Return what the code of a check finds at a worker; None if no worker runs it."""
        place = next((at for at, (name, _) in enumerate(self._programs) if name == program), None)
        if place is None or len(request) > MOST_REQUEST:
            return None
        loop = asyncio.get_running_loop()
        for _ in range(_CHECK_ATTEMPTS):
            staying = [link for link in self._links.values() if not link.leaving]
            ready = [link for link in staying if place not in link.unable]
            if not ready:
                return None
            link = min(ready, key=lambda link: len(link.checks) / link.places)
            lease = CheckLease(next(self._ids), place, request)
            result: asyncio.Future[CheckOutcome | None] = loop.create_future()
            link.lease_check(lease, result)
            try:
                if (outcome := await result) is not None:
                    return outcome
            except asyncio.CancelledError:
                link.give_up_check(lease.id)
                raise
        return None

    async def aclose(self) -> None:
        """Let the workers go."""
        if self._looking is not None:
            self._looking.cancel()
        links, self._links = [*self._links.values()], {}
        for link in links:
            link.abort()
        tasks = [task for link in links for task in link.tasks]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ready(self, place: int) -> list[_WorkerLink]:
        return [
            link for link in self._links.values() if not link.leaving and place not in link.unready
        ]

    def _useless(self, model: Model) -> UsageError:
        reasons = [f"{address} {why}" for address, why in self._refused.items()]
        place = self._places[model.key]
        unready = (link for link in self._links.values() if place in link.unready)
        reasons += [f"{link.name}: {link.unready[place]}" for link in unready]
        why = f": {'; '.join(reasons[:_LISTED])}" if reasons else ""
        others = "fix that, or start others" if reasons else "start workers"
        return UsageError(
            f"no worker at {self._scheduler} can call {model.name}{why}",
            hint=f"{others}: edison worker --connect {self._scheduler}",
        )

    async def _watch(self) -> None:
        """Connect to new workers, and give up those that are silent or late."""
        while True:
            await asyncio.sleep(LOOK_S)
            for link in [*self._links.values()]:
                if time.monotonic() - link.heard > SILENT_S:
                    self._lose(link, f"has said nothing for {fixed(SILENT_S)} s")
                elif link.overdue:
                    self._lose(link, "keeps a call without an answer")
            await self._look()

    async def _look(self) -> None:
        try:
            addresses = await self._listed()
        except (OSError, TimeoutError, WireError) as error:
            if self._scheduler_seen:
                self._scheduler_seen = False
                has = counted(len(self._links), "worker")
                why = str(error) or "no answer in time"
                self._tell(f"the scheduler does not answer ({why}); the run has {has}")
            return
        if not self._scheduler_seen:
            self._scheduler_seen = True
            self._tell("the scheduler answers again")
        seen = self._links.keys() | self._refused.keys()
        most = min(_MOST_AT_ONCE, max(_MOST_ADDRESSES - len(seen), 0))
        new = [address for address in addresses if address not in seen][:most]
        await asyncio.gather(*(self._connect(address) for address in new))

    async def _listed(self) -> list[str]:
        """Return the addresses of the workers that the scheduler knows."""
        async with asyncio.timeout(LISTED_S):
            comm = await self._open(self._scheduler)
            try:
                await comm.write({"op": "identity", "reply": True})
                identity = await _read(comm)
            finally:
                comm.abort()
        workers = identity.get("workers") if isinstance(identity, dict) else None
        if not isinstance(workers, dict):
            raise WireError(f"it said {short(identity)}")
        addresses = [str(address) for address in workers]
        longest = max(map(len, addresses), default=0)
        if len(addresses) > _MOST_ADDRESSES or longest > _LONGEST_ADDRESS:
            raise WireError("it lists more workers than a cluster has, or addresses without end")
        return addresses

    async def _open(self, address: str) -> Comm:
        with _translated():
            comm: Comm = await connect(address, timeout=CONNECT_S, **self._connection)
        return comm

    async def _greet(self, address: str) -> _WorkerLink:
        """Connect to a worker; raises UsageError, WireError, OSError or TimeoutError."""
        read_address(address)  # a plain connection to another machine is refused
        async with asyncio.timeout(CONNECT_S):
            comm = await self._open(address)
            try:
                await comm.write({"op": HANDLER, "hello": write_hello(self._hello())})
                return _WorkerLink(address, comm, _welcome(await _read(comm)))
            except BaseException:
                comm.abort()
                raise

    async def _connect(self, address: str) -> None:
        try:
            link = await self._greet(address)
        except (EdisonError, WireError) as error:
            self._refused[address] = str(error)
            self._tell(f"worker {address} is not used: {error}")
            return
        except (OSError, TimeoutError):
            return  # it is gone, or about to come; the scheduler will say
        self._links[address] = link
        link.tasks = [*map(asyncio.create_task, (self._receive(link), link.send()))]
        if self._looking is not None:  # the first ones are reported together
            self._tell(f"worker {link.name} takes calls; {counted(len(self._links), 'worker')}")
        if abs(link.ahead_s) > MOST_CLOCK_S:
            wrong = "ahead" if link.ahead_s > 0 else "behind"
            clock = f"the clock of worker {link.name} is {fixed(abs(link.ahead_s))} s {wrong}"
            self._tell(f"{clock}; all times are taken here")
        for place, why in link.unready.items():
            if place < len(self._models):
                self._tell(f"worker {link.name} cannot call {self._models[place].name}: {why}")
        for unable in self._unable(link):
            self._tell(f"worker {link.name} does not run {unable}")
        self._changed()

    def _hello(self) -> Hello:
        return Hello(
            __version__,
            self._run_id,
            self._name,
            PYTHON,
            time.time(),
            self._models,
            self._programs,
        )

    async def _receive(self, link: _WorkerLink) -> None:
        try:
            while True:
                leaving = link.leaving
                answers, outcomes = await link.receive()
                for text in answers:
                    if (answered := link.read(text)) is not None:
                        self._settle(link, *answered)
                for text in outcomes:
                    if (checked := link.read_check(text)) is not None:
                        self._settle_check(link, *checked)
                if link.leaving != leaving:
                    self._tell(f"worker {link.name} is leaving")
                    self._changed()
                if link.leaving and not link.calls and not link.checks:
                    # It waits for that, as calls may have been on their way to it.
                    self._refused[link.address] = "has left"
                    return self._lose(link, "has left")
        except OSError:
            self._lose(link, "is gone")
        except WireError as error:
            self._refused[link.address] = str(error)
            self._lose(link, f"was dropped: {error}")

    def _settle(self, link: _WorkerLink, call: _Call, answer: Answer) -> None:
        if call.result.done():
            return
        if (error := answer.error) is None:
            assert answer.completion is not None, "an answer has one of the two"
            call.result.set_result(answer.completion)
            return
        others = any(other is not link for other in self._ready(call.place))
        if error.kind is ErrorKind.INVALID_KEY and others:
            # The key of this worker says nothing about the keys of the others.
            if call.place not in link.unready:
                link.unready[call.place] = str(error)
                name = self._models[call.place].name
                self._tell(f"worker {link.name} cannot call {name}: {error}")
                self._changed()
            error = _lost(f"worker {link.name}: {error}", charged=error.charged)
        call.result.set_exception(error)

    def _settle_check(self, link: _WorkerLink, check: _Check, checked: Checked) -> None:
        if checked.outcome is None and check.place not in link.unable:
            link.unable[check.place] = checked.unable
            program = self._programs[check.place][0]
            self._tell(f"worker {link.name} does not run {program}: {checked.unable}")
        if not check.result.done():
            check.result.set_result(checked.outcome)

    def _lose(self, link: _WorkerLink, why: str) -> None:
        """Let a worker go; its calls fail, and may have been made, and its checks are run again."""
        if self._links.pop(link.address, None) is None:
            return
        link.abort()
        calls, checks = counted(len(link.calls), "call"), counted(len(link.checks), "check")
        lost = f"; {calls} of it will be asked again" if link.calls else ""
        lost += f"; {checks} of it will be run again" if link.checks else ""
        left = counted(len(self._links), "worker")
        self._tell(f"worker {link.name} {why}{lost}; {left} left")
        self._losses[link.address] += bool(link.calls) and not link.answered
        if self._losses[link.address] >= _MOST_LOSSES:
            self._refused.setdefault(link.address, "lost all its calls, again and again")
        self._changed()
        for call in link.calls.values():
            if not call.result.done():
                call.result.set_exception(_lost(f"worker {link.name} {why}", charged=True))
        for check in link.checks.values():
            if not check.result.done():
                check.result.set_result(None)

    def _changed(self) -> None:
        stranded = [model.name for model in self._models if not self.workers(model)]
        if not stranded:
            self._stranded_at = None
        elif self._stranded_at is None:
            self._stranded_at = time.monotonic()
            if self._looking is not None:
                self._tell(f"none can call {' and '.join(stranded)}; the run waits for one")
        self.on_change()


async def _read(comm: Comm) -> object:
    """Return the next message; raises OSError at its end, and WireError for what is none."""
    with _translated():
        return await comm.read()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn what Dask raises for messages that it cannot read into WireError."""
    try:
        yield
    except ForeignMessage as error:
        raise WireError(f"it sent {error}") from None
    except OSError:
        raise
    except Exception as error:  # a hostile message makes its decoders raise anything
        raise WireError(f"it sent an invalid message ({type(error).__name__})") from None


def _lost(message: str, *, charged: bool) -> CallError:
    error = CallError(ErrorKind.NETWORK, message, charged=charged)
    error.lost_worker = True
    return error


def _welcome(reply: object) -> Welcome:
    """Return what a worker answers to a hello; raises WireError if it does not take the run."""
    if not isinstance(reply, dict) or len(reply) != 1:
        raise WireError("it is not a worker of edison: start it with edison worker")
    if "refused" in reply:
        raise WireError(f"it refuses the run: {short(reply['refused'])}")
    welcome = read_welcome(reply.get("welcome"))
    if welcome.version != __version__:
        raise WireError(f"it has edison {short(welcome.version)}, this is {__version__}")
    return welcome
