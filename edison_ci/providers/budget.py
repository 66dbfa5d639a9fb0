"""Budgets of calls: reserved before a call is sent, settled with its stored answer."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import tokens_booked, writes_cache
from edison_ci.config.prices import HOUR
from edison_ci.contracts import CallError, Provider
from edison_ci.documents.secrets import hidden, hidden_in
from edison_ci.errors import UsageError
from edison_ci.records import canonical_json
from edison_ci.safety.redaction import Redact, keep_text, redact_completion
from edison_ci.store.answers import CachedAnswer, Settlement
from edison_ci.store.ledger import (
    BATCH,
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
from edison_ci.telemetry.spans import call_span

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable

    from edison_ci.config.prices import BatchPrice
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
_BYTES_PER_TOKEN = 4
_MOST_TOKEN_CHARACTERS = 256
"""A token of every known model has fewer."""
_WRITE_UNASKED = frozenset({"openai", "azure"})
"""Providers that write every long prompt to their cache; some of their models charge for it."""


def is_other_model(asked: str, served: str) -> bool:
    """Whether another model answered; a dated or tagged name is the same model."""
    expected = asked.rpartition("/")[2].lower().removesuffix("-latest")
    name = served.rpartition("/")[2].lower()
    more = name.removeprefix(expected)
    return bool(name) and (more == name or more[:1].isalnum())


class BudgetExhausted(Exception):
    """The budget has no room for the next call, and no call in flight can free some."""

    def __init__(self, refused: BudgetRefusal) -> None:
        super().__init__(f"{refused.cap.name} is used up")
        self.refused = refused


class AwaitsBatch(UsageError):
    """The call waits in a batch, in which it is answered later."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(
            f"the call waits in batch {batch_id}", hint="collect its answer with edison resume"
        )


class Lease(Protocol):
    """Money of a budget that other machines share."""

    @property
    def scope(self) -> str:
        """The scope in which calls are booked."""
        ...

    @property
    def cap(self) -> SpendingCap:
        """What was leased."""
        ...

    async def extend(self, microusd: int) -> str:
        """Lease money for calls that cost at most this; return what has no room, or nothing."""
        ...

    async def close(self) -> None:
        """Return what was not spent."""
        ...


class ModelPaused(Exception):
    """The model was paused before a booked call was sent."""


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
    on_bought: Callable[[str, Settlement], None] = lambda _request_hash, _settlement: None
    """Called with the hash of a request whose answer was bought and is stored."""
    lease: Lease | None = None
    """Money of a shared budget; None without one."""

    def terms(self) -> dict[str, Any]:
        """Return the scopes and caps of a call that is booked now."""
        if self.lease is None:
            return {"scopes": self.scopes, "caps": self.caps}
        return {
            "scopes": (*self.scopes, self.lease.scope),
            "caps": (*self.caps, self.lease.cap),
        }

    async def lease_more(self, microusd: int) -> str:
        """Lease money for calls that cost at most this; return what has no room, or nothing."""
        return "" if self.lease is None else await self.lease.extend(microusd)

    def limit(self, microusd: int | None) -> None:
        """Add the budget of --budget, if there is one."""
        if microusd is not None:
            cap = SpendingCap(f"run:{self.run_id}", None, microusd=microusd, name="--budget")
            self.caps = (*self.caps, cap)

    def replace_caps(self, caps: tuple[SpendingCap, ...]) -> None:
        """Change the limits, and wake the calls that wait for budget."""
        self.caps = caps
        self._wake()

    def call_finished(self) -> None:
        """Record the end of a call, and wake the calls that wait for budget."""
        self.in_flight -= 1
        self._wake()

    def _wake(self) -> None:
        self.settled.set()
        self.settled.clear()


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer, its number in the store, and whether it was bought just now."""

    completion: Completion
    answer_no: int
    bought: bool
    cost_microusd: int
    """What it cost; an estimate if the provider reported no usage."""
    booked_microusd: int | None = None
    """What counts against budgets, if that is not the cost."""


def sanitize_completion(
    completion: Completion, redact: Redact, *, embedding: bool = False
) -> Completion:
    """Return an answer without keys, and redacted, for storage and grading."""
    # A vector is no text: what looks like a number of a person in it is none.
    redact = keep_text if embedding else redact
    return redact_completion(_without_secrets(completion), redact)


def _without_secrets(completion: Completion) -> Completion:
    text, model = hidden(completion.text), hidden(completion.served_model)
    tools, details = hidden_in(completion.tool_calls), hidden_in(completion.details)
    hidden_completion = replace(
        completion, text=text, served_model=model, tool_calls=tools, details=details
    )
    return completion if hidden_completion == completion else hidden_completion


class ReplayedAnswers:
    """Answers from a recording; their cost was paid when they were recorded."""

    def __init__(self, recording: ReplayProvider, budget: RunBudget, *, model: str) -> None:
        self._recording, self._budget, self._model = recording, budget, model

    async def answer(self, request: Request) -> StoredAnswer:
        """Return the recorded answer; raises MissingRecording."""
        completion = await self._recording.complete(request)
        recorded = self._recording.find(request)
        cost = recorded.cost_microusd if recorded is not None else 0
        settlement = Settlement(completion, cost, "replayed", self._budget.now())
        return await store_unpaid(self._budget, request, self._model, settlement)


async def store_unpaid(
    budget: RunBudget,
    request: Request,
    model: str,
    settlement: Settlement,
    note: Callable[[sqlite3.Connection], None] | None = None,
) -> StoredAnswer:
    """Store an answer that was paid for elsewhere, without keys and redacted; return it.

    `note` is called in the same transaction.
    """
    completion = sanitize_completion(
        settlement.completion, budget.redact, embedding=request.embedding
    )
    booking = Booking(
        request.request_hash, budget.run_id, model, "replay", 0, 0, budget.owner, budget.now(), ()
    )
    stored = replay(booking, replace(settlement, completion=completion))

    def operation(connection: sqlite3.Connection) -> int:
        if note is not None:
            note(connection)
        return stored(connection)

    answer_no = await budget.writer.write(operation)
    return StoredAnswer(completion, answer_no, False, settlement.cost_microusd)


def _with_tokens(
    count: Callable[[list[str]], int], request: Request, completion: Completion
) -> Completion:
    """Return an answer without usage with the tokens of its texts."""
    sent = [message.content for message in request.messages]
    sent += [canonical_json(part) for part in (request.tools, request.response_format) if part]
    texts = [completion.text] if completion.text else []
    texts += [canonical_json(completion.tool_calls)] if completion.tool_calls else []
    tokens_out = 0 if request.embedding else count(texts)
    return replace(completion, tokens_in=count(sent), tokens_out=tokens_out)


def _too_few_tokens(completion: Completion, request: Request | None) -> bool:
    """Whether an answer names no tokens, or fewer than its text can have."""
    if completion.tokens_out is None:
        return True
    if request is not None and request.embedding:
        return False
    return len(completion.text) > _MOST_TOKEN_CHARACTERS * completion.tokens_out


class Budgeted:
    """Books a call before it is sent, and stores its answer with its cost."""

    def __init__(
        self,
        inner: Provider,
        budget: RunBudget,
        *,
        model: str,
        phase: str,
        price: BatchPrice | None,
    ) -> None:
        self._inner, self.budget = inner, budget
        self.model, self._phase, self._price = model, phase, price
        self.count: Callable[[list[str]], int] | None = None
        """Counts the tokens of texts, for answers without usage."""
        self._served: set[str] = set()
        self._usual_s = 0.0
        """Moving average of the duration of a call."""

    async def buy(
        self, request: Request, *, newer_than: str | None, turn: RateLimitSlot
    ) -> StoredAnswer:
        """Return a stored answer; raises CallError, BudgetExhausted or RunDraining."""
        booking = self.booking(request, newer_than)
        while True:
            self._refuse_drained()
            outcome = await self._reserve(booking)
            if isinstance(outcome, CachedAnswer):
                return StoredAnswer(
                    outcome.completion, outcome.answer_no, False, outcome.cost_microusd
                )
            if isinstance(outcome, Reservation):
                try:
                    return await self._send(request, booking, outcome.attempt, turn)
                except ModelPaused:
                    # Its booking was given up: other models may use the money meanwhile.
                    turn.leave()
                    await turn.wait_to_book()
                    booking = self.booking(request, newer_than)
                    continue
            if isinstance(outcome, InFlight):
                turn.leave()
                await self._wait_for(outcome)
                await turn.wait_to_book()
                # The answer of the other process is used for this call too.
                since = booking.now if newer_than is None else newer_than
                booking = self.booking(request, since)
                continue
            await self._wait_for_money(outcome)
            # The budget of a run can be changed meanwhile, and money can be leased.
            booking = replace(booking, **self.budget.terms())

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
        settlement = self.settlement(booking, completion, request)
        stored = settle(booking, attempt, settlement)
        answer_no = await budget.writer.write(stored, within_s=self._patience())
        budget.on_bought(booking.request_hash, settlement)
        return StoredAnswer(
            settlement.completion,
            answer_no,
            True,
            settlement.cost_microusd,
            settlement.booked_microusd,
        )

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
            with call_span(request, self.model, self._phase) as span:
                completion = await self._inner.complete(request)
                completion = sanitize_completion(
                    completion, budget.redact, embedding=request.embedding
                )
                span.answered(completion)
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

    def settlement(
        self, booking: Booking, completion: Completion, request: Request | None = None
    ) -> Settlement:
        """Return what a call did cost; without usage it is counted, if the request is known."""
        # With a clock that went back, the answer would be too old for the run that has bought it.
        now, booked = max(self.budget.now(), booking.newer_than or ""), booking.est_microusd
        if completion.cost_microusd is not None:
            return Settlement(completion, completion.cost_microusd, "billed", now)
        if completion.tokens_in is not None and not _too_few_tokens(completion, request):
            if self._price is None:
                return Settlement(completion, booked, "estimated", now)
            return Settlement(completion, self._price.charge(completion), "billed", now)
        if self.count is None or request is None:
            return Settlement(completion, booked, "estimated", now)
        # The texts are not all that is charged: a model may have reasoned unseen. So the answer has
        # the estimated cost, by which models are compared, and budgets keep what was reserved.
        completion = _with_tokens(self.count, request, completion)
        cost = booked if self._price is None else min(self._price.charge(completion), booked)
        return Settlement(completion, cost, "estimated", now, booked_microusd=booked)

    def booking(self, request: Request, newer_than: str | None) -> Booking:
        """Return what is booked for a call: the most that it can cost."""
        # A token has at least one byte, so the bytes of the prompt are an upper bound.
        tokens_in = sum(len(m.content.encode()) + 8 for m in request.messages)
        for part in (request.tools, request.response_format):
            tokens_in += len(canonical_json(part).encode()) if part else 0
        most = request.params.get("max_tokens", _DEFAULT_MAX_TOKENS)
        sent_bytes = tokens_in
        tokens_out = most if isinstance(most, int) else _DEFAULT_MAX_TOKENS
        if request.embedding:
            tokens_out = 0
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
            least_tokens=sent_bytes // _BYTES_PER_TOKEN,
            owner=self.budget.owner,
            now=self.budget.now(),
            newer_than=newer_than,
            **self.budget.terms(),
        )

    async def _wait_for(self, elsewhere: InFlight) -> None:
        budget = self.budget
        if elsewhere.owner.startswith(BATCH):
            raise AwaitsBatch(elsewhere.owner.removeprefix(BATCH))
        if elsewhere.owner != budget.owner and not budget.is_alive(elsewhere.owner):
            await budget.writer.write(reclaim(budget.is_alive, now=budget.now()))
            return
        await budget.sleep(_POLL_S)

    async def _wait_for_money(self, refused: BudgetRefusal) -> None:
        budget = self.budget
        if budget.lease is not None and refused.cap.scope == budget.lease.scope:
            without_room = await budget.lease_more(refused.reserves_microusd)
            if not without_room:
                return
            refused = replace(refused, cap=SpendingCap("", None, name=without_room))
        if budget.in_flight > 0:
            await budget.settled.wait()
        elif any(budget.is_alive(owner) for owner in refused.in_flight):
            await budget.sleep(_POLL_S)
        else:
            raise BudgetExhausted(refused)
