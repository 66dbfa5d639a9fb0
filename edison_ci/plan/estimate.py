"""How many calls, tokens, dollars and seconds is that?

Low and high ends are the 10th and 90th percentile of past output lengths where there are any, else
500 tokens more or less 20%. What a run really may spend at most is not an estimate but a
reservation: every call books its worst case before it is sent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edison_ci.config.model_entry import Price
    from edison_ci.config.models import Model

TYPICAL_OUTPUT = (400, 600)
"""500 tokens more or less 20%."""
JUDGE_INSTRUCTIONS = 400
PER_CRITERION_OUT = (30, 60)
GRADER_OUT = (5, 60)
REFINER_OUT = (300, 900)
PAIRWISE_OUT = (20, 80)
_FAST_TOKENS_PER_S, _SLOW_TOKENS_PER_S = 120.0, 25.0
_FAST_START_S, _SLOW_START_S = 0.3, 1.5


@dataclass(frozen=True, slots=True)
class Span:
    """A low and a high end."""

    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def times(self, low: float, high: float | None = None) -> Span:
        """Return the span scaled, its ends by different factors if two are given."""
        return Span(self.low * low, self.high * (low if high is None else high))

    def rounded(self) -> dict[str, int]:
        """Return both ends as whole numbers."""
        return {"low": math.floor(self.low), "high": math.ceil(self.high)}


ZERO = Span(0, 0)


@dataclass(slots=True)
class Load:
    """What one model would do in one phase."""

    phase: str
    model: Model
    name: str
    price: Price | None
    calls: int = 0
    tokens_in: Span = ZERO
    tokens_out: Span = ZERO
    exact_tokens: bool = False
    _one_out: Span = field(default_factory=lambda: Span(*TYPICAL_OUTPUT))

    def add(self, calls: int, tokens_in: Span, out_per_call: Span) -> None:
        """Add calls with the input tokens of all of them and the output tokens of one."""
        self.calls += calls
        self.tokens_in += tokens_in
        self.tokens_out += out_per_call.times(calls)
        self._one_out = out_per_call

    @property
    def tokens(self) -> Span:
        """Tokens in and out."""
        return self.tokens_in + self.tokens_out

    @property
    def cost_microusd(self) -> Span | None:
        """Cost in micro-dollars (dollars per million tokens are micro-dollars per token)."""
        if self.price is None:
            return None
        spent_in = self.tokens_in.times(self.price.tokens_in)
        return spent_in + self.tokens_out.times(self.price.tokens_out)

    @property
    def seconds(self) -> Span:
        """Time with as many calls at once as the model allows."""
        if self.calls == 0:
            return ZERO
        limits = self.model.limits
        rounds = math.ceil(self.calls / limits.concurrency)
        if self.model.simulated:
            each = float(self.model.options.get("latency_ms", 0)) / 1000
            return Span(rounds * each, rounds * each + 0.001 * self.calls)
        low = rounds * (_FAST_START_S + self._one_out.low / _FAST_TOKENS_PER_S)
        high = rounds * (_SLOW_START_S + self._one_out.high / _SLOW_TOKENS_PER_S)
        waiting = [60 * self.calls / limits.rpm] if limits.rpm else []
        waiting += [60 * self.tokens.high / limits.tpm] if limits.tpm else []
        return Span(max([low, *waiting]), max([high, *waiting]))


def total(spans: list[Span]) -> Span:
    """Return the sum of spans."""
    return Span(sum(s.low for s in spans), sum(s.high for s in spans))


def longest(spans: list[Span]) -> Span:
    """Return the span of lanes that run side by side."""
    return Span(max((s.low for s in spans), default=0), max((s.high for s in spans), default=0))


def total_cost(loads: list[Load]) -> Span | None:
    """Return the cost of all loads; None when one of them has no price."""
    costs = [load.cost_microusd for load in loads if load.calls]
    return None if None in costs else total([cost for cost in costs if cost is not None])
