"""The client of a model: cache, retries, limits and budget around one adapter.

One layer serves every call: `Cached(Retrying(Guarded(Throttled(Budgeted(adapter)))))`. Each wrapper
adds one thing and knows nothing of the others; `build_lane` stacks them.
"""

from __future__ import annotations

import asyncio
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.budgeting import Budgeted, Paid
from edison_ci.providers.resilience import Breaker, Clock, retrying, wish_is_too_long
from edison_ci.providers.throttling import AHEAD, Bucket, Concurrency, Turn
from edison_ci.safety.redaction import redacted_completion
from edison_ci.store.answers import newest_answer

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.providers.budgeting import Purse
    from edison_ci.records import Request


DEADLINE_TIMEOUTS = 10
"""A cell is given up after so many times the time-out of one attempt."""


class Answering(Protocol):
    """Something that brings a stored answer to a request."""

    async def answer(self, request: Request) -> Paid:
        """Return the answer; raises CallError, LaneClosed or BudgetExhausted."""
        ...


@dataclass(frozen=True, slots=True)
class Bought:
    """The innermost step: book, send, store."""

    budgeted: Budgeted
    breaker: Breaker
    newer_than: str | None

    async def answer(self, request: Request, turn: Turn) -> Paid:
        """Return the answer that was bought, or one that came into the store meanwhile."""
        self.breaker.refuse_closed()  # it may have been closed while this call waited its turn
        newer_than = self.newer_than
        if newer_than is not None:
            newer_than = max(newer_than, request.not_before)
        return await self.budgeted.buy(request, newer_than=newer_than, turn=turn)


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """How hard a lane may be driven."""

    concurrency: int = 10
    rpm: int | None = None
    tpm: int | None = None
    attempts: int = 3
    timeout_s: float = 60.0

    @property
    def deadline_s(self) -> float:
        """How long a cell is tried; pauses that the provider asks for included."""
        return DEADLINE_TIMEOUTS * self.timeout_s


class Throttled:
    """Keeps to the lane's rates and adapts how many calls run at once."""

    def __init__(self, inner: Bought, limits: LaneLimits, clock: Clock) -> None:
        self._inner, self._clock = inner, clock
        self.places = Concurrency(limits.concurrency, clock)
        ahead = limits.concurrency // AHEAD
        self._ahead = Concurrency(ahead, clock) if ahead else None
        self._requests = Bucket(limits.rpm, clock) if limits.rpm else None
        self._tokens = Bucket(limits.tpm, clock) if limits.tpm else None
        self._not_before = 0.0

    async def answer(self, request: Request) -> Paid:
        """Wait for a place and for room in the buckets, then pass on."""
        turn = Turn(self.places, self._ahead, self._inner.breaker.refuse_closed)
        await turn.to_book()
        try:
            expected = await self._room(request)
            paid = await self._inner.answer(request, turn)
        except CallError as error:
            if error.kind is ErrorKind.RATE_LIMIT:
                self.places.too_many()
                if error.retry_after_s and not wish_is_too_long(error):
                    until = self._clock.monotonic() + error.retry_after_s
                    self._not_before = max(self._not_before, until)
            raise
        finally:
            turn.leave()
        self.places.fine()
        if self._tokens is not None and paid.completion.tokens_out is not None:
            used = (paid.completion.tokens_in or 0) + paid.completion.tokens_out
            self._tokens.give_back(max(0.0, expected - used))
        return paid

    async def _room(self, request: Request) -> float:
        while (left := self._not_before - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        if self._requests is not None:
            await self._requests.take(1)
        if self._tokens is None:
            return 0.0
        most = request.params.get("max_tokens", 0)
        prompt = sum(len(message.content) for message in request.messages) / 4
        expected = prompt + (most if isinstance(most, int) else 0)
        await self._tokens.take(expected)
        return expected


class Guarded:
    """Leaves a lane alone while its breaker is open."""

    def __init__(self, inner: Answering, breaker: Breaker) -> None:
        self._inner, self.breaker = inner, breaker

    async def answer(self, request: Request) -> Paid:
        """Pass on unless the lane is closed; tell the breaker how it went."""
        probe = await self.breaker.wait()
        try:
            paid = await self._inner.answer(request)
        except CallError as error:
            self.breaker.failed(error, probe=probe)
            raise
        except BaseException:
            self.breaker.abandoned(probe=probe)
            raise
        self.breaker.succeeded()
        return paid


class Retrying:
    """Tries again what failed on the way."""

    def __init__(self, inner: Answering, limits: LaneLimits, clock: Clock) -> None:
        self._inner, self._limits, self._clock = inner, limits, clock
        self.retried = 0

    async def answer(self, request: Request) -> Paid:
        """Return the first answer that comes, after at most so many attempts."""
        # Nearly every call succeeds at once, and the loop costs as much as the call's own work.
        try:
            return await self._inner.answer(request)
        except CallError as error:
            if not error.retried:
                raise
            first = error
        limits = self._limits
        loop = retrying(limits.attempts, self._clock, deadline_s=limits.deadline_s)
        async for attempt in loop:
            with attempt:
                if attempt.retry_state.attempt_number == 1:
                    raise first
                self.retried += 1
                return await self._inner.answer(request)
        raise AssertionError("the retry loop ends by returning or raising")


class Cached:
    """Answers from the store where it can, and makes identical calls in flight once."""

    def __init__(
        self,
        inner: Answering,
        reader: sqlite3.Connection | None,
        newer_than: str | None,
        purse: Purse,
    ) -> None:
        self._inner, self._reader, self._newer_than = inner, reader, newer_than
        self._purse = purse
        self._in_flight: dict[str, asyncio.Future[Paid]] = {}

    async def answer(self, request: Request) -> Paid:
        """Return a stored answer that is new enough, else pass on."""
        address = request.address
        if self._newer_than is not None and self._reader is not None:
            since = max(self._newer_than, request.not_before)
            stored = newest_answer(self._reader, address, since=since)
            if stored is not None:
                kept = stored.completion
                if redacted_completion(kept, self._purse.redact) is kept:
                    return Paid(kept, stored.take, False, stored.cost_microusd)
                # It was stored as it came, before texts were redacted: nobody is shown it again.
                request = replace(request, not_before=self._purse.now())
        shared = self._in_flight.get(address)
        if shared is not None:
            paid = await asyncio.shield(shared)
            return replace(paid, bought=False)
        future: asyncio.Future[Paid] = asyncio.get_running_loop().create_future()
        self._in_flight[address] = future
        try:
            paid = await self._inner.answer(request)
        except asyncio.CancelledError:
            future.cancel()
            raise
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # looked at, so that nobody is warned when nobody waited
            raise
        else:
            future.set_result(paid)
            return paid
        finally:
            del self._in_flight[address]


@dataclass(slots=True)
class Tally:
    """What the lanes of a run have brought."""

    bought: int = 0
    reused: int = 0
    cost_microusd: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def add(self, paid: Paid) -> None:
        """Count an answer."""
        if paid.bought:
            self.bought += 1
            self.cost_microusd += paid.cost_microusd
        else:
            self.reused += 1
        self.tokens_in += paid.completion.tokens_in or 0
        self.tokens_out += paid.completion.tokens_out or 0


@dataclass(frozen=True, slots=True)
class Lane:
    """A model's stack, and the parts of it that a runner looks at."""

    top: Answering
    retries: Retrying
    breaker: Breaker
    throttle: Throttled
    tally: Tally = field(default_factory=Tally)

    async def answer(self, request: Request) -> Paid:
        """Return the answer to a request."""
        paid = await self.top.answer(request)
        self.tally.add(paid)
        return paid


def build_lane(
    budgeted: Budgeted,
    limits: LaneLimits,
    clock: Clock,
    reader: sqlite3.Connection | None,
    newer_than: str | None,
) -> Lane:
    """Return the whole stack over a budgeted adapter."""
    breaker = Breaker(clock, budgeted.model)
    throttle = Throttled(Bought(budgeted, breaker, newer_than), limits, clock)
    retries = Retrying(Guarded(throttle, breaker), limits, clock)
    return Lane(Cached(retries, reader, newer_than, budgeted.purse), retries, breaker, throttle)
