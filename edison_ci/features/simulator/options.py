"""Options of the simulator; tokens, latency, random numbers and faults of its answers."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.features.simulator.assignment import without_objective
from edison_ci.records import Completion, FinishReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.records import Json, Message, Request


def make_completion(
    request: Request, options: SimOptions, text: str, pace: Pace, rng: Random
) -> Completion:
    """Return a text as the answer to a request, cut to its max_tokens."""
    reason = FinishReason.STOP
    limit = request.params.get("max_tokens")
    if isinstance(limit, int) and not isinstance(limit, bool) and count_tokens(text) > limit > 0:
        text, reason = truncate_tokens(text, limit), FinishReason.LENGTH
    tokens_out = count_tokens(text)
    latency_ms = pace.latency_ms(tokens_out, rng)
    if options.latency_ms > 0:
        latency_ms = options.latency_ms * rng.lognormvariate(0, 0.25)
    return Completion(
        text,
        reason,
        tokens_in=count_message_tokens(request.messages),
        tokens_out=tokens_out,
        latency_ms=round(latency_ms),
        served_model=f"sim/{request.model}",
    )


def random_stream(*parts: object) -> Random:
    """Return a random generator that depends on these parts only, on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return Random(int.from_bytes(sha256(text.encode(errors="surrogatepass")).digest()[:8]))


def draw_key(request: Request) -> str:
    """Return what random numbers depend on: the request without the options of the model.

    Options enter by their effect only, so that models that differ in one of them share the rest.
    The objective has no effect on a simulated judge, so it is left out as well.
    """
    messages = without_objective(request.messages, request.params.get("seed"))
    if request.endpoint or messages is not request.messages:
        request = replace(request, endpoint="", messages=messages)
    return request.request_hash


@lru_cache(maxsize=8_192)
def case_normals(*parts: object, count: int) -> tuple[float, ...]:
    """Return standard normal numbers of a case, independent of the prompt."""
    rng = random_stream(*parts)
    return tuple(rng.gauss(0.0, 1.0) for _ in range(count))


def normal_cdf(z: float) -> float:
    """Return the cumulative standard normal distribution at `z`."""
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))


def logit(chance: float) -> float:
    """Return the log odds of a probability strictly between 0 and 1."""
    return math.log(chance / (1.0 - chance))


def probability_of(log_odds: float) -> float:
    """Return the probability of log odds."""
    return 1.0 / (1.0 + math.exp(-log_odds))


BYTES_PER_TOKEN = 4
PER_MESSAGE = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """The simulated speed of a model."""

    first_token_ms: float
    per_token_ms: float

    def latency_ms(self, tokens_out: int, rng: Random) -> float:
        """Return the latency of `tokens_out` tokens, with the scatter of a real service."""
        return (self.first_token_ms + self.per_token_ms * tokens_out) * rng.lognormvariate(0, 0.25)


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text: four bytes each."""
    return -(-len(text.encode(errors="surrogatepass")) // BYTES_PER_TOKEN)


def count_message_tokens(messages: Iterable[Message]) -> int:
    """Return the number of tokens of a chat, with the overhead of each message."""
    return sum(count_tokens(message.content) + PER_MESSAGE for message in messages)


def truncate_tokens(text: str, max_tokens: int) -> str:
    """Return the start of a text that has at most `max_tokens`."""
    data = text.encode(errors="surrogatepass")[: max_tokens * BYTES_PER_TOKEN]
    return data.decode(errors="ignore")


class FaultKind(StrEnum):
    """The kinds of errors that the simulator produces."""

    RATE_LIMIT = "RATE_LIMIT"
    TIMEOUT = "TIMEOUT"
    PROVIDER_ERROR = "PROVIDER_ERROR"
    BAD_RESPONSE = "BAD_RESPONSE"


@dataclass(frozen=True, slots=True)
class Fault:
    """A call without an answer."""

    kind: str
    """A FaultKind, or the kind of error that a script names."""
    message: str
    retry_after_s: float | None = None


class Breakage(StrEnum):
    """How an answer is malformed."""

    CUT = "cut"
    NO_CLOSING_TAG = "no closing tag"
    PROSE_AROUND = "prose around"


_MESSAGES = {
    FaultKind.RATE_LIMIT: "simulated: too many requests",
    FaultKind.TIMEOUT: "simulated: no answer in time",
    FaultKind.PROVIDER_ERROR: "simulated: internal error, status 503",
    FaultKind.BAD_RESPONSE: "simulated: the reply is not the protocol's JSON",
}
_BEFORE = ("Sure, here is what you asked for:\n\n", "Of course! I looked at it carefully.\n\n")
_AFTER = ("\n\nLet me know if you need anything else.", "\n\nI hope this helps!")


def draw_failure(request: Request, options: SimOptions, *, attempt: int = 0) -> Fault | None:
    """Return the fault of this attempt, or None; attempts are independent."""
    if options.error_rate <= 0:
        return None
    rng = random_stream(draw_key(request), options.seed, "fault", attempt)
    if rng.random() >= options.error_rate:
        return None
    kind = rng.choice(tuple(FaultKind))
    retry_after_s = float(rng.randint(1, 5)) if kind is FaultKind.RATE_LIMIT else None
    return Fault(kind, _MESSAGES[kind], retry_after_s)


def draw_breakage(request: Request, options: SimOptions) -> Breakage | None:
    """Return how the answer to this request is malformed, or None."""
    if options.malformed_rate <= 0:
        return None
    rng = random_stream(draw_key(request), options.seed, "malformed")
    if rng.random() >= options.malformed_rate:
        return None
    return rng.choice(tuple(Breakage))


def break_text(text: str, how: Breakage, rng: Random) -> str:
    """Return the text malformed in this way, as far as its form allows."""
    if how is Breakage.NO_CLOSING_TAG and "</" in text:
        start = text.rindex("</")
        return text[:start] + text[text.find(">", start) + 1 :]
    if how is Breakage.PROSE_AROUND:
        return rng.choice(_BEFORE) + text + rng.choice(_AFTER)
    return text[: max(1, int(len(text.rstrip()) * rng.uniform(0.3, 0.8)))] if text else text


@dataclass(frozen=True, slots=True)
class SimOptions:
    """The `options` of a model of provider `sim`, validated by config."""

    latency_ms: float = 0.0
    """Mean latency that is waited for; 0 reports the pace of the model without waiting."""
    error_rate: float = 0.0
    malformed_rate: float = 0.0
    noise: float = 0.05
    """Standard deviation of scores, as a share of the scale."""
    position_bias: float = 0.0
    """Added to the probability that the first answer wins a comparison."""
    bad_diff_rate: float = 0.0
    seed: int = 0
    file: str | None = None
    """File with the answers of the model `script`."""

    @classmethod
    def from_mapping(cls, options: Mapping[str, Json]) -> SimOptions:
        """Return the options of a configuration file; raises UsageError for an unknown one."""
        names = {field.name for field in fields(cls)}
        unknown = sorted(set(options) - names)
        if unknown:
            raise UsageError(
                f"unknown option {unknown[0]!r} of the simulator",
                hint=f"use {', '.join(sorted(names))}",
            )
        values: dict[str, Any] = {
            name: value for name, value in options.items() if value is not None
        }
        return cls(**values)
