"""Calls within budgets: reserved before they are sent, kept when they are paid for."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import tokens_booked, writes_cache
from edison_ci.contracts import CallError, Provider
from edison_ci.documents.secrets import hidden, hidden_in
from edison_ci.records import canonical_json
from edison_ci.safety.redaction import Redact, redacted_completion, unchanged
from edison_ci.store.answers import Settlement, Stored
from edison_ci.store.ledger import (
    Booking,
    Cap,
    Elsewhere,
    Refused,
    Reserved,
    lose,
    reclaim,
    release,
    replay,
    reserve,
    settle,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from edison_ci.providers.replay import ReplayProvider
    from edison_ci.providers.throttling import Turn
    from edison_ci.records import Completion, Request
    from edison_ci.store.ledger import Outcome
    from edison_ci.store.writer import Writer

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_WAITS_S = 0.02
_SHARE_OF_CALL = 0.1
"""Calls are booked and stored together with those that come within a tenth of the time a call
takes; as a fifth of a lane's places is booked ahead, none is left empty by it."""
_BUSY = 8
"""With fewer calls in flight than this nobody comes to be waited for."""
_DEFAULT_MAX_TOKENS = 4096
_MOST_FOR_WRITING = 2
"""Times the price of input that a token costs which is written to a cache for an hour."""


def is_other_model(asked: str, served: str) -> bool:
    """Whether the model that answered is another; a dated or tagged name is the same one's."""
    wanted = asked.rpartition("/")[2].lower().removesuffix("-latest")
    name = served.rpartition("/")[2].lower()
    more = name.removeprefix(wanted)
    return bool(name) and (more == name or more[:1].isalnum())


class BudgetExhausted(Exception):
    """No budget has room for the next call, and nothing is in flight that could make some."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(f"{refused.cap.name} is used up")
        self.refused = refused


class Drained(Exception):
    """The run takes no more answers; this one was not asked for."""


class Prices(Protocol):
    """Dollars per million tokens, which are micro-dollars per token."""

    @property
    def tokens_in(self) -> float:
        """Input."""

    @property
    def tokens_out(self) -> float:
        """Output."""

    @property
    def cached_in(self) -> float | None:
        """Input that the provider had cached; None is as `tokens_in`."""


@dataclass(slots=True)
class Purse:
    """What all lanes of a run share: the writer, the budgets, and how many calls are in flight."""

    writer: Writer
    run_id: str
    owner: str
    scopes: tuple[str, ...]
    caps: tuple[Cap, ...]
    now: Callable[[], str]
    is_alive: Callable[[str], bool]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    redact: Redact = unchanged
    """What is done to every text that comes back, before anybody stores or grades it."""
    in_flight: int = 0
    draining: bool = False
    """Whether no more answers are asked for; those that are there may still be judged."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def arrived(self) -> None:
        """Wake the calls that wait for money to come free."""
        self.in_flight -= 1
        self.settled.set()
        self.settled.clear()


@dataclass(frozen=True, slots=True)
class Paid:
    """An answer, its place in the store and whether it was bought just now."""

    completion: Completion
    take: int
    bought: bool
    cost_microusd: int


def fit_to_store(completion: Completion, redact: Redact) -> Completion:
    """Return an answer without our own keys, and redacted, before anybody grades or stores it."""
    return redacted_completion(_without_secrets(completion), redact)


def _without_secrets(completion: Completion) -> Completion:
    text, model = hidden(completion.text), hidden(completion.served_model)
    tools = hidden_in(completion.tool_calls)
    if (text, model, tools) == (completion.text, completion.served_model, completion.tool_calls):
        return completion
    return replace(completion, text=text, served_model=model, tool_calls=tools)


class Replayed:
    """Answers from a recording; what they cost was paid by whoever recorded them."""

    def __init__(self, recording: ReplayProvider, purse: Purse, *, model: str) -> None:
        self._recording, self._purse, self._model = recording, purse, model

    async def answer(self, request: Request) -> Paid:
        """Return the recorded answer; raises Unrecorded."""
        completion = fit_to_store(await self._recording.complete(request), self._purse.redact)
        recorded = self._recording.recorded(request)
        cost = recorded.cost_microusd if recorded is not None else 0
        now, purse = self._purse.now(), self._purse
        booking = Booking(
            request.address, purse.run_id, self._model, "replay", 0, 0, purse.owner, now, ()
        )
        settlement = Settlement(completion, cost, "replayed", now)
        take = await purse.writer.write(replay(booking, settlement))
        return Paid(completion, take, False, cost)


class Budgeted:
    """Sends a call only after it is booked, and stores its answer with its price."""

    def __init__(
        self, inner: Provider, purse: Purse, *, model: str, phase: str, price: Prices | None
    ) -> None:
        self._inner, self.purse = inner, purse
        self.model, self._phase, self._price = model, phase, price
        self._served: set[str] = set()
        self._usual_s = 0.0
        """How long a call takes."""

    async def buy(self, request: Request, *, newer_than: str | None, turn: Turn) -> Paid:
        """Return an answer that is stored; raises CallError, BudgetExhausted or Drained."""
        booking = self._booking(request, newer_than)
        while True:
            self._refuse_drained()
            outcome = await self._reserved(booking)
            if isinstance(outcome, Stored):
                return Paid(outcome.completion, outcome.take, False, outcome.cost_microusd)
            if isinstance(outcome, Reserved):
                return await self._send(request, booking, outcome.attempt, turn)
            if isinstance(outcome, Elsewhere):
                turn.leave()
                await self._wait_for(outcome)
                await turn.to_book()
                # Whoever makes this call has made it for us as well.
                since = booking.now if newer_than is None else newer_than
                booking = self._booking(request, since)
                continue
            await self._wait_for_money(outcome)

    def _refuse_drained(self) -> None:
        if self.purse.draining and self._phase == "generate":
            raise Drained

    async def _reserved(self, booking: Booking) -> Outcome:
        pending = self.purse.writer.begin(reserve(booking), within_s=self._patience())
        try:
            return await asyncio.shield(pending)
        except asyncio.CancelledError:
            pending.add_done_callback(partial(self._unsent, booking))
            raise

    def _unsent(self, booking: Booking, reserved: asyncio.Future[Outcome]) -> None:
        """Release a call whose caller gave up before it was booked."""
        if reserved.cancelled() or reserved.exception() is not None:
            return
        outcome = reserved.result()
        if isinstance(outcome, Reserved):
            self._give_up(booking, outcome.attempt)

    def _give_up(self, booking: Booking, attempt: int) -> None:
        said, purse = "given up before it was sent", self.purse
        purse.writer.submit(release(booking, attempt, now=purse.now(), error=said))

    async def _send(self, request: Request, booking: Booking, attempt: int, turn: Turn) -> Paid:
        purse = self.purse
        purse.in_flight += 1
        try:
            await self._turn(booking, attempt, turn)
            completion = await self._sent(request, booking, attempt)
        finally:
            purse.arrived()
        turn.leave()
        self._notice(request.model, completion.served_model)
        settlement = self._settlement(booking, completion)
        stored = settle(booking, attempt, settlement)
        take = await purse.writer.write(stored, within_s=self._patience())
        return Paid(completion, take, True, settlement.cost_microusd)

    async def _turn(self, booking: Booking, attempt: int, turn: Turn) -> None:
        """Wait until a booked call may be sent; one that no longer may is released."""
        try:
            await turn.to_send()
            self._refuse_drained()
        except BaseException:
            self._give_up(booking, attempt)
            raise

    async def _sent(self, request: Request, booking: Booking, attempt: int) -> Completion:
        purse = self.purse
        clock = asyncio.get_running_loop().time
        sent = clock()
        try:
            completion = fit_to_store(await self._inner.complete(request), purse.redact)
            self._usual_s += _SHARE_OF_CALL * (clock() - sent - self._usual_s)
            return completion
        except asyncio.CancelledError:
            # Its bytes may have left. Nobody waits for this: the process may be about to end.
            purse.writer.submit(lose(attempt, now=purse.now(), error="given up while in flight"))
            raise
        except CallError as error:
            error.rewrite(purse.redact)
            close = lose(attempt, now=purse.now(), error=str(error), http_status=error.status)
            if not error.charged:
                close = release(
                    booking, attempt, now=purse.now(), error=str(error), http_status=error.status
                )
            await purse.writer.write(close)
            raise

    def _patience(self) -> float:
        """Return how long a booking or an answer may wait for others to be written with it."""
        if self.purse.in_flight < _BUSY:
            return 0.0
        return min(_WAITS_S, _SHARE_OF_CALL * self._usual_s)

    def _notice(self, asked: str, served: str) -> None:
        """Warn once of each other model that answers; the answer is kept with its name."""
        if served not in self._served:
            self._served.add(served)
            if is_other_model(asked, served):
                told = {"model": self.model, "asked": asked, "served": served}
                logger.warning("another model answers than was asked for", extra=told)

    def _settlement(self, booking: Booking, completion: Completion) -> Settlement:
        tokens_in, tokens_out = completion.tokens_in, completion.tokens_out
        now = self.purse.now()
        if self._price is None or tokens_in is None or tokens_out is None:
            return Settlement(completion, booking.est_microusd, "estimated", now)
        return Settlement(completion, self._cost(completion), "billed", now)

    def _cost(self, completion: Completion) -> int:
        assert self._price is not None
        cached = min(completion.cached_in, completion.tokens_in or 0)
        rate = self._price.cached_in
        cached_rate = self._price.tokens_in if rate is None else rate
        fresh = (completion.tokens_in or 0) - cached
        plain = fresh + max(completion.write_surcharge_in, 0.0)
        spent = plain * self._price.tokens_in + cached * cached_rate
        return math.ceil(spent + (completion.tokens_out or 0) * self._price.tokens_out - 1e-9)

    def _booking(self, request: Request, newer_than: str | None) -> Booking:
        # A token is at least one byte, so the bytes of the prompt are the most it can cost.
        tokens_in = sum(len(m.content.encode()) + 8 for m in request.messages)
        for told in (request.tools, request.response_format):
            tokens_in += len(canonical_json(told).encode()) if told else 0
        most = request.params.get("max_tokens", _DEFAULT_MAX_TOKENS)
        tokens_out = most if isinstance(most, int) else _DEFAULT_MAX_TOKENS
        more_in, more_out = tokens_booked(request.params)
        tokens_in, tokens_out = tokens_in + more_in, tokens_out + more_out
        price = self._price
        weight = _MOST_FOR_WRITING if writes_cache(request.params) else 1
        worst = 0.0
        if price:
            worst = weight * tokens_in * price.tokens_in + tokens_out * price.tokens_out
        return Booking(
            address=request.address,
            run_id=self.purse.run_id,
            model=self.model,
            phase=self._phase,
            est_microusd=math.ceil(worst),
            est_tokens=tokens_in + tokens_out,
            owner=self.purse.owner,
            now=self.purse.now(),
            scopes=self.purse.scopes,
            caps=self.purse.caps,
            newer_than=newer_than,
        )

    async def _wait_for(self, elsewhere: Elsewhere) -> None:
        purse = self.purse
        if elsewhere.owner != purse.owner and not purse.is_alive(elsewhere.owner):
            await purse.writer.write(reclaim(purse.is_alive, now=purse.now()))
            return
        await purse.sleep(_POLL_S)

    async def _wait_for_money(self, refused: Refused) -> None:
        purse = self.purse
        if purse.in_flight > 0:
            await purse.settled.wait()
        elif any(purse.is_alive(owner) for owner in refused.in_flight):
            await purse.sleep(_POLL_S)
        else:
            raise BudgetExhausted(refused)
