"""The client of a model: cache, retries, limits and budget around one adapter.

All calls use the same stack: `Cached(Retrying(Guarded(Throttled(Budgeted(adapter)))))`. Each
wrapper adds one thing and is independent of the others; `build_client` stacks them.

Requests per minute are counted in a window that slides. Tokens per minute are a token bucket;
expected use that was not needed is refunded.
Concurrency starts at its cap, decreases when the provider reports a rate limit, once per episode,
and increases again step by step. A busy client books a few calls ahead, so that a slot is filled as
soon as a reply arrives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.budget import Budgeted, ModelPaused, StoredAnswer
from edison_ci.providers.resilience import (
    GIVE_UP_S,
    Breaker,
    Clock,
    retry_after_too_long,
    retry_loop,
)
from edison_ci.safety.redaction import redact_completion
from edison_ci.store.answers import newest_answer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable

    from edison_ci.providers.budget import RunBudget
    from edison_ci.records import Request


EPISODE_S = 15.0
FALL = 0.7
_WINDOW_S = 60.0
_WINDOW_POLL_S = 1.0
AHEAD = 5
"""One call is booked ahead for this many slots; a small client books none."""


class TokenBucket:
    """A token bucket: units per minute, at most those of a minute at once."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._rate = per_minute / 60
        self._most = float(per_minute)
        self._level = float(per_minute)
        self._clock = clock
        self._at = clock.monotonic()

    async def take(self, amount: float) -> None:
        """Wait until `amount` units are available, and take them."""
        amount = min(amount, self._most)  # more is never available
        while True:
            self._fill()
            if self._level >= amount:
                self._level -= amount
                return
            await self._clock.sleep((amount - self._level) / self._rate)

    def refund(self, amount: float) -> None:
        """Return units that were taken and not used."""
        self._fill()
        self._level = min(self._most, self._level + amount)

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._level = min(self._most, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now


class MinuteWindow:
    """Requests of which at most a number reaches the provider in every 60 seconds.

    A request arrives some time between the moment it is let through and its answer, so that it
    counts until 60 seconds after that.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self._most, self._clock = most, clock
        self._open = 0
        self._ended: deque[float] = deque()
        """When requests were answered, the oldest first."""

    async def enter(self) -> None:
        """Wait until one more request may be sent."""
        while True:
            now = self._clock.monotonic()
            while self._ended and self._ended[0] + _WINDOW_S <= now:
                self._ended.popleft()
            if self._open + len(self._ended) < self._most:
                self._open += 1
                return
            left = self._ended[0] + _WINDOW_S - now if self._ended else _WINDOW_POLL_S
            await self._clock.sleep(left)

    def leave(self) -> None:
        """Note that a request was answered, or is not sent."""
        self._open -= 1
        self._ended.append(self._clock.monotonic())


class Concurrency:
    """A number of slots that adapts between one and its cap, and can be paused."""

    def __init__(self, cap: int, clock: Clock) -> None:
        self.cap, self._clock = cap, clock
        self.limit = float(cap)
        self.paused = False
        self.taken = 0
        """Slots in use."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._fell_at = float("-inf")
        self._since_rise = 0

    async def enter(self, *, booked: bool = False) -> None:
        """Wait for a slot; a call that is booked raises ModelPaused instead of waiting paused."""
        while self.paused or self.taken >= int(self.limit):
            if self.paused and booked:
                raise ModelPaused
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                self._wake()  # the slot may have been assigned to this call already
                raise
        self.taken += 1

    def leave(self) -> None:
        """Release the slot."""
        self.taken -= 1
        self._wake()

    def resize(self, cap: int) -> None:
        """Change the cap; calls beyond a lower one are finished."""
        # A cap that is raised on purpose is tried at once, even if the provider refused before.
        self.limit = float(cap) if cap > self.cap else min(self.limit, float(cap))
        self.cap = cap
        self._wake()

    def pause(self) -> None:
        """Give out no more slots; calls that wait with a booking are notified."""
        self.paused = True
        waiting, self._waiting = self._waiting, deque()
        for place in waiting:
            if not place.done():
                place.set_result(None)

    def resume(self) -> None:
        """Give out slots again."""
        self.paused = False
        self._wake()

    def decrease(self) -> None:
        """Decrease the limit, once per episode of rate limits."""
        now = self._clock.monotonic()
        if now - self._fell_at >= EPISODE_S:
            self.limit = max(1.0, self.limit * FALL)
            self._fell_at = now
        self._since_rise = 0

    def increase(self) -> None:
        """Count a success; increase the limit after as many as the limit."""
        if self.limit >= self.cap:
            return
        self._since_rise += 1
        if self._since_rise >= self.limit:
            self.limit = min(float(self.cap), self.limit + max(1.0, 0.05 * self.limit))
            self._since_rise = 0
            self._wake()

    def _wake(self) -> None:
        free = 0 if self.paused else int(self.limit) - self.taken
        while free > 0 and self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                free -= 1


class RateLimitSlot:
    """The slot of one call, first for booking, then for sending."""

    __slots__ = ("_ahead", "_places", "_slot", "refuse_closed")

    def __init__(
        self,
        places: Concurrency,
        ahead: Callable[[], Concurrency | None],
        refuse_closed: Callable[[], None],
    ) -> None:
        self._places, self._ahead, self.refuse_closed = places, ahead, refuse_closed
        self._slot: Concurrency | None = None

    async def wait_to_book(self) -> None:
        """Wait until the call may be booked."""
        first = self._ahead() or self._places
        await first.enter()
        self._slot = first

    async def wait_to_send(self) -> None:
        """Wait until a booked call may be sent; raises ClientClosed or ModelPaused."""
        if self._slot is not self._places:
            await self._places.enter(booked=True)
            self.leave()
            self._slot = self._places
            self.refuse_closed()
        elif self._places.paused:
            raise ModelPaused

    def leave(self) -> None:
        """Release the slot; may be called twice."""
        if self._slot is not None:
            self._slot.leave()
            self._slot = None


DEADLINE_TIMEOUTS = 10
"""Deadline of a cell, in timeouts of one attempt."""


class AnswerSource(Protocol):
    """Returns a stored answer to a request."""

    async def answer(self, request: Request) -> StoredAnswer:
        """Return the answer; raises CallError, ClientClosed or BudgetExhausted."""
        ...


@dataclass(frozen=True, slots=True)
class Buyer:
    """The innermost step: book, send, store."""

    budgeted: Budgeted
    breaker: Breaker
    newer_than: str | None

    async def answer(self, request: Request, turn: RateLimitSlot) -> StoredAnswer:
        """Return the bought answer, or one that was stored meanwhile."""
        self.breaker.refuse_closed()  # it may have been closed while this call was waiting
        newer_than = self.newer_than
        if newer_than is not None:
            newer_than = max(newer_than, request.not_before)
        return await self.budgeted.buy(request, newer_than=newer_than, turn=turn)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of a client."""

    concurrency: int = 10
    rpm: int | None = None
    tpm: int | None = None
    attempts: int = 3
    timeout_s: float = 60.0
    own_deadline_s: float | None = None
    give_up_s: float = GIVE_UP_S

    @property
    def deadline_s(self) -> float:
        """The longest time for a cell, including pauses that the provider asks for."""
        return self.own_deadline_s or DEADLINE_TIMEOUTS * self.timeout_s


class Throttled:
    """Respects the rate limits of the client and adapts its concurrency."""

    def __init__(self, inner: Buyer, limits: ClientLimits, clock: Clock) -> None:
        self._inner, self._clock = inner, clock
        self.places = Concurrency(limits.concurrency, clock)
        ahead = limits.concurrency // AHEAD
        self._ahead = Concurrency(ahead, clock) if ahead else None
        self._requests = MinuteWindow(limits.rpm, clock) if limits.rpm else None
        self._tokens = TokenBucket(limits.tpm, clock) if limits.tpm else None
        self._not_before = 0.0

    def resize(self, concurrency: int) -> None:
        """Change how many calls may be made at once."""
        self.places.resize(concurrency)
        ahead = concurrency // AHEAD
        if self._ahead is not None and ahead:
            self._ahead.resize(ahead)
        else:
            self._ahead = Concurrency(ahead, self._clock) if ahead else None
            if self._ahead is not None and self.places.paused:
                self._ahead.pause()

    def pause(self) -> None:
        """Send no more calls; those that are on their way are finished."""
        for slots in (self.places, self._ahead):
            if slots is not None:
                slots.pause()

    def resume(self) -> None:
        """Send calls again."""
        for slots in (self.places, self._ahead):
            if slots is not None:
                slots.resume()

    async def answer(self, request: Request) -> StoredAnswer:
        """Wait for a slot and for the buckets, then pass on."""
        turn = RateLimitSlot(self.places, lambda: self._ahead, self._inner.breaker.refuse_closed)
        await turn.wait_to_book()
        counted = False
        try:
            expected = await self._room(request)
            counted = True
            paid = await self._inner.answer(request, turn)
        except CallError as error:
            if error.kind is ErrorKind.RATE_LIMIT:
                self.places.decrease()
                if error.retry_after_s and not retry_after_too_long(error):
                    until = self._clock.monotonic() + error.retry_after_s
                    self._not_before = max(self._not_before, until)
            raise
        finally:
            turn.leave()
            if counted and self._requests is not None:
                self._requests.leave()
        self.places.increase()
        if self._tokens is not None and paid.completion.tokens_out is not None:
            used = (paid.completion.tokens_in or 0) + paid.completion.tokens_out
            self._tokens.refund(max(0.0, expected - used))
        return paid

    async def _room(self, request: Request) -> float:
        while (left := self._not_before - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        expected = 0.0
        if self._tokens is not None:
            most = request.params.get("max_tokens", 0)
            prompt = sum(len(message.content) for message in request.messages) / 4
            expected = prompt + (most if isinstance(most, int) else 0)
            await self._tokens.take(expected)
        if self._requests is not None:
            await self._requests.enter()
        return expected


class Guarded:
    """Makes no calls while the breaker is open."""

    def __init__(self, inner: AnswerSource, breaker: Breaker) -> None:
        self._inner, self.breaker = inner, breaker

    async def answer(self, request: Request) -> StoredAnswer:
        """Pass on unless the client is closed; report the result to the breaker."""
        probe = await self.breaker.wait()
        try:
            paid = await self._inner.answer(request)
        except CallError as error:
            if error.lost_worker:
                self.breaker.record_abandoned(probe=probe)
            else:
                self.breaker.record_failure(error, probe=probe)
            raise
        except BaseException:
            self.breaker.record_abandoned(probe=probe)
            raise
        self.breaker.record_success()
        return paid


class Retrying:
    """Retries calls that failed in transport."""

    def __init__(self, inner: Guarded, limits: ClientLimits, clock: Clock) -> None:
        self._inner, self._limits, self._clock = inner, limits, clock
        self.retried = 0

    async def answer(self, request: Request) -> StoredAnswer:
        """Return the first answer, after at most `attempts` attempts."""
        calls, call = self._inner.breaker.calls, object()
        calls[call] = self._clock.monotonic()
        try:
            return await self._attempt(request)
        finally:
            del calls[call]

    async def _attempt(self, request: Request) -> StoredAnswer:
        # Most calls succeed at once, and the retry loop costs as much as the rest of a call.
        try:
            return await self._inner.answer(request)
        except CallError as error:
            if not error.retried:
                raise
            first = error
        limits = self._limits
        loop = retry_loop(limits.attempts, self._clock, deadline_s=limits.deadline_s)
        async for attempt in loop:
            with attempt:
                if attempt.retry_state.attempt_number == 1:
                    raise first
                self.retried += 1
                return await self._inner.answer(request)
        raise AssertionError("the retry loop ends by returning or raising")


class Cached:
    """Answers from the store if possible, and makes identical concurrent calls once."""

    def __init__(
        self,
        inner: AnswerSource,
        reader: sqlite3.Connection | None,
        newer_than: str | None,
        budget: RunBudget,
    ) -> None:
        self._inner, self._reader, self._newer_than = inner, reader, newer_than
        self._budget = budget
        self._in_flight: dict[str, asyncio.Future[StoredAnswer]] = {}
        self.find_shared: Callable[[Request, str], Awaitable[StoredAnswer | None]] | None = None
        """Looks for an answer in the shared cache, from a time on; None if there is no cache."""

    async def shared(self, request: Request) -> StoredAnswer | None:
        """Return the answer of the shared cache to a request that has no stored one."""
        if self.find_shared is None or self._newer_than is None:
            return None
        return await self.find_shared(request, max(self._newer_than, request.not_before))

    def stored(self, request: Request) -> tuple[StoredAnswer | None, Request]:
        """Return a stored answer that is new enough, if any, and the request to make if not."""
        if self._newer_than is not None and self._reader is not None:
            since = max(self._newer_than, request.not_before)
            answer = newest_answer(self._reader, request.request_hash, since=since)
            if answer is not None:
                kept = answer.completion
                if request.embedding or redact_completion(kept, self._budget.redact) is kept:
                    cost = answer.cost_microusd
                    return StoredAnswer(kept, answer.answer_no, False, cost), request
                # It was stored before redaction was enabled, so it is not used.
                return None, replace(request, not_before=self._budget.now())
        return None, request

    async def answer(self, request: Request) -> StoredAnswer:
        """Return a stored answer that is new enough, else pass on."""
        request_hash = request.request_hash
        stored, request = self.stored(request)
        if stored is not None:
            return stored
        shared = self._in_flight.get(request_hash)
        if shared is not None:
            paid = await asyncio.shield(shared)
            return replace(paid, bought=False)
        future: asyncio.Future[StoredAnswer] = asyncio.get_running_loop().create_future()
        self._in_flight[request_hash] = future
        try:
            paid = await self.shared(request) or await self._inner.answer(request)
        except asyncio.CancelledError:
            future.cancel()
            raise
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # retrieved, so that asyncio does not warn if no call waits for it
            raise
        else:
            future.set_result(paid)
            return paid
        finally:
            del self._in_flight[request_hash]


@dataclass(slots=True)
class BudgetUsage:
    """The usage of the clients of a run."""

    bought: int = 0
    reused: int = 0
    cost_microusd: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def add(self, paid: StoredAnswer) -> None:
        """Count an answer."""
        if paid.bought:
            self.bought += 1
            booked = paid.booked_microusd
            self.cost_microusd += paid.cost_microusd if booked is None else booked
        else:
            self.reused += 1
        self.tokens_in += paid.completion.tokens_in or 0
        self.tokens_out += paid.completion.tokens_out or 0


@dataclass(frozen=True, slots=True)
class ModelClient:
    """The stack of a model, and its parts that a runner needs."""

    top: AnswerSource
    cached: Cached
    retries: Retrying
    breaker: Breaker
    throttle: Throttled
    usage: BudgetUsage = field(default_factory=BudgetUsage)

    async def answer(self, request: Request) -> StoredAnswer:
        """Return the answer to a request."""
        paid = await self.top.answer(request)
        self.usage.add(paid)
        return paid


def build_client(
    budgeted: Budgeted,
    limits: ClientLimits,
    clock: Clock,
    reader: sqlite3.Connection | None,
    newer_than: str | None,
) -> ModelClient:
    """Return the whole stack over a budgeted adapter."""
    breaker = Breaker(clock, budgeted.model, give_up_s=limits.give_up_s, timeout_s=limits.timeout_s)
    throttle = Throttled(Buyer(budgeted, breaker, newer_than), limits, clock)
    retries = Retrying(Guarded(throttle, breaker), limits, clock)
    cached = Cached(retries, reader, newer_than, budgeted.budget)
    return ModelClient(cached, cached, retries, breaker, throttle)
