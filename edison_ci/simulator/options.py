"""Options of the simulator, and the calls that it lets fail."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.simulator.pace import stream

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from edison_ci.records import Json, Request


class FaultKind(StrEnum):
    """The kinds of the call layer's errors that the simulator produces."""

    RATE_LIMIT = "RATE_LIMIT"
    TIMEOUT = "TIMEOUT"
    PROVIDER_ERROR = "PROVIDER_ERROR"
    BAD_RESPONSE = "BAD_RESPONSE"


@dataclass(frozen=True, slots=True)
class Fault:
    """A call that brought no answer."""

    kind: str
    """A FaultKind, or whatever error kind a script names."""
    message: str
    retry_after_s: float | None = None


class Breakage(StrEnum):
    """How an answer comes back malformed."""

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


def failure(request: Request, options: SimOptions, *, attempt: int = 0) -> Fault | None:
    """Return how this attempt fails, or None. Each attempt has its own chance."""
    if options.error_rate <= 0:
        return None
    rng = stream(request.address, options.seed, "fault", attempt)
    if rng.random() >= options.error_rate:
        return None
    kind = rng.choice(tuple(FaultKind))
    retry_after_s = float(rng.randint(1, 5)) if kind is FaultKind.RATE_LIMIT else None
    return Fault(kind, _MESSAGES[kind], retry_after_s)


def breakage(request: Request, options: SimOptions) -> Breakage | None:
    """Return how the answer to this request comes back malformed, or None."""
    if options.malformed_rate <= 0:
        return None
    rng = stream(request.address, options.seed, "malformed")
    if rng.random() >= options.malformed_rate:
        return None
    return rng.choice(tuple(Breakage))


def broken(text: str, how: Breakage, rng: Random) -> str:
    """Return the text malformed in the stated way, as far as its form allows."""
    if how is Breakage.NO_CLOSING_TAG and "</" in text:
        start = text.rindex("</")
        return text[:start] + text[text.find(">", start) + 1 :]
    if how is Breakage.PROSE_AROUND:
        return rng.choice(_BEFORE) + text + rng.choice(_AFTER)
    return text[: max(1, int(len(text.rstrip()) * rng.uniform(0.3, 0.8)))] if text else text


@dataclass(frozen=True, slots=True)
class SimOptions:
    """The `options` of a model of provider `sim`, as config has checked them."""

    latency_ms: float = 0.0
    """Mean time an answer pretends to take. 0: the model's own pace is reported, nobody waits."""
    error_rate: float = 0.0
    malformed_rate: float = 0.0
    noise: float = 0.05
    """Standard deviation of a judge's score, as a share of the scale."""
    position_bias: float = 0.0
    """Added to the chance that the answer shown first wins a comparison."""
    bad_diff_rate: float = 0.0
    seed: int = 0
    file: str | None = None
    """Answers of the model `script`; read by the adapter."""

    @classmethod
    def from_mapping(cls, options: Mapping[str, Json]) -> SimOptions:
        """Return the options that a configuration file names."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise UsageError(
                f"the simulator has no option {unknown[0]!r}",
                hint=f"it has {', '.join(sorted(known))}",
            )
        given: dict[str, Any] = {
            name: value for name, value in options.items() if value is not None
        }
        return cls(**given)
