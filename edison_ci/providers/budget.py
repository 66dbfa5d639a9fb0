"""Budgets of calls: reserved before a call is sent, settled with its stored answer."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import HOUR, tokens_booked, writes_cache
from edison_ci.contracts import CallError, Provider
from edison_ci.documents.secrets import hidden, hidden_in
from edison_ci.records import canonical_json
from edison_ci.safety.redaction import Redact, keep_text, redact_completion
from edison_ci.store.answers import CachedAnswer, Settlement
from edison_ci.store.ledger import (
    Booking,
    BudgetRefusal,
    InFlight,
    Reservation,
    SpendingCap,
    lose,
    reclaim,
    release,
    replay,
    reserve,
    settle,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from edison_ci.config.model_entry import Price
    from edison_ci.providers.client import RateLimitSlot
    from edison_ci.providers.replay import ReplayProvider
    from edison_ci.records import Completion, Request
    from edison_ci.store.ledger import Outcome
    from edison_ci.store.writer import Writer

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_WAITS_S = 0.02
_SHARE_OF_CALL = 0.1
"""Bookings and answers are written in batches, for a tenth of the duration of a call at most; as a
fifth of the slots of a client is booked ahead, no slot is idle because of that."""
_BUSY = 8
"""With fewer calls in flight there is no batch to wait for."""
_DEFAULT_MAX_TOKENS = 4096
_WRITE_UNASKED = frozenset({"openai", "azure"})
"""Providers that write every long prompt to their cache; some of their models charge for it."""


def is_other_model(asked: str, served: str) -> bool:
    """Whether another model answered; a dated or tagged name is the same model."""
    wanted = asked.rpartition("/")[2].lower().removesuffix("-latest")
    name = served.rpartition("/")[2].lower()
    more = name.removeprefix(wanted)
    return bool(name) and (more == name or more[:1].isalnum())


class BudgetExhausted(Exception):
    """The budget has no room for the next call, and no call in flight can free some."""

    def __init__(self, refused: BudgetRefusal) -> None:
        super().__init__(f"{refused.cap.name} is used up")
        self.refused = refused


class RunDraining(Exception):
    """The run accepts no more answers; this call was not made."""


@dataclass(slots=True)
class RunBudget:
    """Shared by all clients of a run: writer, budgets, and the number of calls in flight."""

    writer: Writer
    run_id: str
    owner: str
    scopes: tuple[str, ...]
    caps: tuple[SpendingCap, ...]
    now: Callable[[], str]
    is_alive: Callable[[str], bool]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    redact: Redact = keep_text
    """Applied to every answer before it is stored or graded."""
    in_flight: int = 0
    draining: bool = False
    """Whether no more answers are generated; existing ones may still be judged."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def call_finished(self) -> None:
        """Record the end of a call, and wake the calls that wait for budget."""
        self.in_flight -= 1
        self.settled.set()
        self.settled.clear()


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer, its number in the store, and whether it was bought just now."""

    completion: Completion
    answer_no: int
    bought: bool
    cost_microusd: int


def sanitize_completion(completion: Completion, redact: Redact) -> Completion:
    """Return an answer without keys, and redacted, for storage and grading."""
    return redact_completion(_without_secrets(completion), redact)


def _without_secrets(completion: Completion) -> Completion:
    text, model = hidden(completion.text), hidden(completion.served_model)
    tools = hidden_in(completion.tool_calls)
    if (text, model, tools) == (completion.text, completion.served_model, completion.tool_calls):
        return completion
    return replace(completion, text=text, served_model=model, tool_calls=tools)


class ReplayedAnswers:
    """Answers from a recording; their cost was paid when they were recorded."""

    def __init__(self, recording: ReplayProvider, budget: RunBudget, *, model: str) -> None:
        self._recording, self._budget, self._model = recording, budget, model

    async def answer(self, request: Request) -> StoredAnswer:
        """Return the recorded answer; raises MissingRecording."""
        completion = sanitize_completion(
            await self._recording.complete(request), self._budget.redact
        )
        recorded = self._recording.find(request)
        cost = recorded.cost_microusd if recorded is not None else 0
        now, budget = self._budget.now(), self._budget
        booking = Booking(
            request.request_hash, budget.run_id, self._model, "replay", 0, 0, budget.owner, now, ()
        )
        settlement = Settlement(completion, cost, "replayed", now)
        answer_no = await budget.writer.write(replay(booking, settlement))
        return StoredAnswer(completion, answer_no, False, cost)


class Budgeted:
    """Books a call before it is sent, and stores its answer with its cost."""

    def __init__(
        self, inner: Provider, budget: RunBudget, *, model: str, phase: str, price: Price | None
    ) -> None:
        self._inner, self.budget = inner, budget
        self.model, self._phase, self._price = model, phase, price
        self._served: set[str] = set()
        self._usual_s = 0.0
        """Moving average of the duration of a call."""

    async def buy(
        self, request: Request, *, newer_than: str | None, turn: RateLimitSlot
    ) -> StoredAnswer:
        """Return a stored answer; raises CallError, BudgetExhausted or RunDraining."""
        booking = self._booking(request, newer_than)
        while True:
            self._refuse_drained()
            outcome = await self._reserve(booking)
            if isinstance(outcome, CachedAnswer):
                return StoredAnswer(
                    outcome.completion, outcome.answer_no, False, outcome.cost_microusd
                )
            if isinstance(outcome, Reservation):
                return await self._send(request, booking, outcome.attempt, turn)
            if isinstance(outcome, InFlight):
                turn.leave()
                await self._wait_for(outcome)
                await turn.wait_to_book()
                # The answer of the other process is used for this call too.
                since = booking.now if newer_than is None else newer_than
                booking = self._booking(request, since)
                continue
            await self._wait_for_money(outcome)

    def _refuse_drained(self) -> None:
        if self.budget.draining and self._phase == "generate":
            raise RunDraining

    async def _reserve(self, booking: Booking) -> Outcome:
        pending = self.budget.writer.begin(reserve(booking), within_s=self._patience())
        try:
            return await asyncio.shield(pending)
        except asyncio.CancelledError:
            pending.add_done_callback(partial(self._release_unsent, booking))
            raise

    def _release_unsent(self, booking: Booking, reserved: asyncio.Future[Outcome]) -> None:
        """Release the booking of a call that was cancelled meanwhile."""
        if reserved.cancelled() or reserved.exception() is not None:
            return
        outcome = reserved.result()
        if isinstance(outcome, Reservation):
            self._give_up(booking, outcome.attempt)

    def _give_up(self, booking: Booking, attempt: int) -> None:
        message, budget = "given up before it was sent", self.budget
        budget.writer.submit(release(booking, attempt, now=budget.now(), error=message))

    async def _send(
        self, request: Request, booking: Booking, attempt: int, turn: RateLimitSlot
    ) -> StoredAnswer:
        budget = self.budget
        budget.in_flight += 1
        try:
            await self._wait_turn(booking, attempt, turn)
            completion = await self._send_booked(request, booking, attempt)
        finally:
            budget.call_finished()
        turn.leave()
        self._notice(request.model, completion.served_model)
        settlement = self._settlement(booking, completion)
        stored = settle(booking, attempt, settlement)
        answer_no = await budget.writer.write(stored, within_s=self._patience())
        return StoredAnswer(completion, answer_no, True, settlement.cost_microusd)

    async def _wait_turn(self, booking: Booking, attempt: int, turn: RateLimitSlot) -> None:
        """Wait until a booked call may be sent; release it if it may not."""
        try:
            await turn.wait_to_send()
            self._refuse_drained()
        except BaseException:
            self._give_up(booking, attempt)
            raise

    async def _send_booked(self, request: Request, booking: Booking, attempt: int) -> Completion:
        budget = self.budget
        clock = asyncio.get_running_loop().time
        sent = clock()
        try:
            completion = sanitize_completion(await self._inner.complete(request), budget.redact)
            self._usual_s += _SHARE_OF_CALL * (clock() - sent - self._usual_s)
            return completion
        except asyncio.CancelledError:
            # The request may have been sent. Not awaited, as the process may be about to end.
            budget.writer.submit(lose(attempt, now=budget.now(), error="given up while in flight"))
            raise
        except CallError as error:
            error.rewrite(budget.redact)
            close = lose(attempt, now=budget.now(), error=str(error), http_status=error.status)
            if not error.charged:
                close = release(
                    booking, attempt, now=budget.now(), error=str(error), http_status=error.status
                )
            await budget.writer.write(close)
            raise

    def _patience(self) -> float:
        """Return how long a booking or an answer may wait for its batch."""
        if self.budget.in_flight < _BUSY:
            return 0.0
        return min(_WAITS_S, _SHARE_OF_CALL * self._usual_s)

    def _notice(self, asked: str, served: str) -> None:
        """Warn once for each other model that answers."""
        if served not in self._served:
            self._served.add(served)
            if is_other_model(asked, served):
                data = {"model": self.model, "asked": asked, "served": served}
                logger.warning("another model answers than requested", extra=data)

    def _settlement(self, booking: Booking, completion: Completion) -> Settlement:
        tokens_in, tokens_out = completion.tokens_in, completion.tokens_out
        now = self.budget.now()
        if self._price is None or tokens_in is None or tokens_out is None:
            return Settlement(completion, booking.est_microusd, "estimated", now)
        cost = math.ceil(self._price.cost(completion) - 1e-9)
        return Settlement(completion, cost, "billed", now)

    def _booking(self, request: Request, newer_than: str | None) -> Booking:
        # A token has at least one byte, so the bytes of the prompt are an upper bound.
        tokens_in = sum(len(m.content.encode()) + 8 for m in request.messages)
        for told in (request.tools, request.response_format):
            tokens_in += len(canonical_json(told).encode()) if told else 0
        most = request.params.get("max_tokens", _DEFAULT_MAX_TOKENS)
        tokens_out = most if isinstance(most, int) else _DEFAULT_MAX_TOKENS
        more_in, more_out = tokens_booked(request.params)
        tokens_in, tokens_out = tokens_in + more_in, tokens_out + more_out
        price, worst = self._price, 0.0
        if price:
            unasked = price.cache_write is not None and request.provider in _WRITE_UNASKED
            writes = HOUR if writes_cache(request.params) else float(unasked)
            worst = price.most(tokens_in, tokens_out, writes=writes)
        return Booking(
            request_hash=request.request_hash,
            run_id=self.budget.run_id,
            model=self.model,
            phase=self._phase,
            est_microusd=math.ceil(worst),
            est_tokens=tokens_in + tokens_out,
            owner=self.budget.owner,
            now=self.budget.now(),
            scopes=self.budget.scopes,
            caps=self.budget.caps,
            newer_than=newer_than,
        )

    async def _wait_for(self, elsewhere: InFlight) -> None:
        budget = self.budget
        if elsewhere.owner != budget.owner and not budget.is_alive(elsewhere.owner):
            await budget.writer.write(reclaim(budget.is_alive, now=budget.now()))
            return
        await budget.sleep(_POLL_S)

    async def _wait_for_money(self, refused: BudgetRefusal) -> None:
        budget = self.budget
        if budget.in_flight > 0:
            await budget.settled.wait()
        elif any(budget.is_alive(owner) for owner in refused.in_flight):
            await budget.sleep(_POLL_S)
        else:
            raise BudgetExhausted(refused)
