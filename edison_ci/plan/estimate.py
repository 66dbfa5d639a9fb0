"""Estimates of calls, tokens, dollars and seconds.

Low and high ends are the 10th and 90th percentile of past output lengths where there are any, else
500 tokens more or less 20%. The limit on spending is not an estimate but a reservation: every call
books its worst case before it is sent.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config import model_entry, prices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.config.models import Model
    from edison_ci.config.prices import BatchPrice


_FAST_TOKENS_PER_S, _SLOW_TOKENS_PER_S = 120.0, 25.0
_FAST_START_S, _SLOW_START_S = 0.3, 1.5
_SIMULATED_CALL_S = 0.001
BATCH_S = 24 * 3600.0
"""Within this time a batch ends."""


@dataclass(frozen=True, slots=True)
class CostRange:
    """A low and a high end."""

    low: float
    high: float

    def __add__(self, other: CostRange) -> CostRange:
        return CostRange(self.low + other.low, self.high + other.high)

    def times(self, low: float, high: float | None = None) -> CostRange:
        """Return the span scaled, its ends by different factors if two are given."""
        return CostRange(self.low * low, self.high * (low if high is None else high))

    def at_most(self, limit: float) -> CostRange:
        """Return the span with neither end above the limit."""
        return CostRange(min(self.low, limit), min(self.high, limit))

    def rounded(self) -> dict[str, int]:
        """Return both ends as whole numbers."""
        return {"low": math.floor(self.low), "high": math.ceil(self.high)}


ZERO = CostRange(0, 0)
ONCE = CostRange(1, 1)

TYPICAL_OUTPUT = CostRange(400, 600)
"""500 tokens more or less 20%."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one model would do in one phase."""

    phase: str
    model: Model
    name: str
    """Name of the model or of one of its configurations."""
    price: prices.Price | None
    once_calls: int = 0
    """Calls of one iteration."""
    once_in: CostRange = ZERO
    """Input tokens of one iteration, all calls together."""
    once_out: CostRange = ZERO
    iterations: CostRange = ONCE
    exact_tokens: bool = False
    """Whether the input was counted with the model's own tokenizer."""
    single_price: prices.Price | None = None
    """The price of single calls, if they are made in a batch."""

    @property
    def calls(self) -> int:
        """Calls, of all iterations if there are several."""
        return round(self.once_calls * self.iterations.high)

    @property
    def tokens_in(self) -> CostRange:
        """Input tokens of all iterations."""
        return self.once_in.times(self.iterations.low, self.iterations.high)

    @property
    def tokens_out(self) -> CostRange:
        """Output tokens of all iterations."""
        return self.once_out.times(self.iterations.low, self.iterations.high)

    @property
    def tokens(self) -> CostRange:
        """Tokens in and out."""
        return self.tokens_in + self.tokens_out

    @property
    def cost_microusd(self) -> CostRange | None:
        """Cost in micro-dollars (dollars per million tokens are micro-dollars per token)."""
        price, calls = self.price, max(self.once_calls, 1)
        if price is None:
            return None
        low, high = (
            price.at(round(tokens / calls)) for tokens in (self.once_in.low, self.once_in.high)
        )
        flat = 1e6 * price.call * self.once_calls
        # An application may report that a call cost less.
        called = CostRange(0 if self.model.provider in model_entry.APPLICATIONS else flat, flat)
        spent_in = self.tokens_in.times(low.tokens_in, high.tokens_in)
        spent_in += called.times(self.iterations.low, self.iterations.high)
        return spent_in + self.tokens_out.times(low.tokens_out, high.tokens_out)

    @property
    def seconds(self) -> CostRange:
        """Time with as many calls at once as the model allows, one iteration after another."""
        if not self.once_calls:
            return ZERO
        if self.single_price is not None:
            return CostRange(0, BATCH_S)
        return self._once_seconds().times(self.iterations.low, self.iterations.high)

    def _once_seconds(self) -> CostRange:
        calls, limits = self.once_calls, self.model.limits
        rounds = math.ceil(calls / limits.concurrency)
        if self.model.simulated:
            seconds = float(self.model.options.get("latency_ms", 0)) / 1000
            return CostRange(rounds * seconds, rounds * seconds + _SIMULATED_CALL_S * calls)
        out, both = self.once_out.times(1 / calls), self.once_in + self.once_out
        low = [rounds * (_FAST_START_S + out.low / _FAST_TOKENS_PER_S)]
        high = [rounds * (_SLOW_START_S + out.high / _SLOW_TOKENS_PER_S)]
        for rate, needed in ((limits.rpm, CostRange(calls, calls)), (limits.tpm, both)):
            if rate:
                low.append(60 * needed.low / rate)
                high.append(60 * needed.high / rate)
        return CostRange(max(low), max(high))


def in_batches(load: Load, price: BatchPrice | None) -> Load:
    """Return the load at the price of a batch, if its model has one and it asks for answers."""
    if price is None or load.phase != "generate":
        return load
    rates = prices.Price.model_validate(price.model_dump(by_alias=True, exclude_defaults=True))
    return replace(load, price=rates, single_price=load.price)


def saving(loads: Iterable[Load]) -> CostRange | None:
    """Return what batches save; None if no call is made in one."""
    batched = [load for load in loads if load.single_price is not None and load.calls]
    single = [replace(load, price=load.single_price) for load in batched]
    before, after = total_cost(single), total_cost(batched)
    if not batched or before is None or after is None:
        return None
    return CostRange(before.low - after.low, before.high - after.high)


def total(spans: Iterable[CostRange]) -> CostRange:
    """Return the sum of spans."""
    summed = ZERO
    for span in spans:
        summed += span
    return summed


def total_cost(loads: Iterable[Load]) -> CostRange | None:
    """Return the cost of all loads; None when one of them has no price."""
    costs = [load.cost_microusd for load in loads if load.calls]
    return None if None in costs else total(cost for cost in costs if cost is not None)


def total_seconds(loads: Iterable[Load]) -> CostRange:
    """Return the time of all loads: models run side by side, one model's work in a row."""
    clients: dict[str, CostRange] = {}
    for load in loads:
        clients[load.model.name] = clients.get(load.model.name, ZERO) + load.seconds
    spans = list(clients.values()) or [ZERO]
    return CostRange(max(span.low for span in spans), max(span.high for span in spans))
