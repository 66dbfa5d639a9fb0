"""How does a text become an answer: counted, cut off, and given its time?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.providers.sim.pace import Pace, cut_to, tokens_of, tokens_of_messages
from edison_ci.records import Completion, FinishReason

if TYPE_CHECKING:
    from random import Random

    from edison_ci.providers.sim.options import SimOptions
    from edison_ci.records import Request


def spoken(request: Request, options: SimOptions, text: str, pace: Pace, rng: Random) -> Completion:
    """Return a text as the answer to a request, no longer than its max_tokens."""
    reason = FinishReason.STOP
    limit = request.params.get("max_tokens")
    if isinstance(limit, int) and not isinstance(limit, bool) and tokens_of(text) > limit > 0:
        text, reason = cut_to(text, limit), FinishReason.LENGTH
    tokens_out = tokens_of(text)
    latency_ms = pace.latency_ms(tokens_out, rng)
    if options.latency_ms > 0:
        latency_ms = options.latency_ms * rng.lognormvariate(0, 0.25)
    return Completion(
        text,
        reason,
        tokens_in=tokens_of_messages(request.messages),
        tokens_out=tokens_out,
        latency_ms=round(latency_ms),
        served_model=f"sim/{request.model}",
    )
