"""Tokens, cut-offs, latency and chance of simulated answers."""

from __future__ import annotations

import math
from functools import lru_cache
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.records import Completion, FinishReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.records import Message, Request
    from edison_ci.simulator.options import SimOptions


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


_SEPARATOR = "\x1f"


def seed_of(*parts: object) -> int:
    """Return a number that only these parts decide, on every machine."""
    text = _SEPARATOR.join(str(part) for part in parts)
    return int.from_bytes(sha256(text.encode(errors="surrogatepass")).digest()[:8])


def stream(*parts: object) -> Random:
    """Return the chance that belongs to these parts."""
    return Random(seed_of(*parts))


@lru_cache(maxsize=8_192)
def leanings(*parts: object, count: int) -> tuple[float, ...]:
    """Return standard normal numbers that stay with a case, whatever prompt it meets."""
    rng = stream(*parts)
    return tuple(rng.gauss(0.0, 1.0) for _ in range(count))


def share_below(z: float) -> float:
    """Return the share of a standard normal distribution below `z`."""
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))


def logit(chance: float) -> float:
    """Return the log odds of a chance strictly between 0 and 1."""
    return math.log(chance / (1.0 - chance))


def chance_of(log_odds: float) -> float:
    """Return the chance that has these log odds."""
    return 1.0 / (1.0 + math.exp(-log_odds))


BYTES_PER_TOKEN = 4
PER_MESSAGE = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a model pretends to be."""

    first_token_ms: float
    per_token_ms: float

    def latency_ms(self, tokens_out: int, rng: Random) -> float:
        """Return how long so many tokens take, with the scatter of a real service."""
        return (self.first_token_ms + self.per_token_ms * tokens_out) * rng.lognormvariate(0, 0.25)


def tokens_of(text: str) -> int:
    """Return the simulator's own count: a token is four bytes."""
    return -(-len(text.encode(errors="surrogatepass")) // BYTES_PER_TOKEN)


def tokens_of_messages(messages: Iterable[Message]) -> int:
    """Return the tokens of a chat, with what each message adds around its text."""
    return sum(tokens_of(message.content) + PER_MESSAGE for message in messages)


def cut_to(text: str, max_tokens: int) -> str:
    """Return as much of the text as fits into so many tokens."""
    data = text.encode(errors="surrogatepass")[: max_tokens * BYTES_PER_TOKEN]
    return data.decode(errors="ignore")
