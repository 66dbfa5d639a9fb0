"""Prices of models: dollars for tokens by the size of a call, for batches, or for each call."""

import math
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field

from edison_ci.shape import Shape, items, short, wrong

if TYPE_CHECKING:
    from edison_ci.records import Completion

PricePerMillion = Annotated[float, Field(ge=0, le=100_000)]


FIVE_MINUTES = 1.25
"""Price of a token that is written to the cache of a provider for five minutes, in tokens of input,
where the price does not say it (Anthropic, also through other services)."""
HOUR = 1.6
"""Price of a token that is written for an hour, in tokens that are written for five minutes."""


class Rates(Shape):
    """Dollars per million tokens, which are micro-dollars per token."""

    tokens_in: PricePerMillion = Field(alias="in", description="Input.")
    tokens_out: PricePerMillion = Field(alias="out", description="Output, with reasoning.")
    cached_in: PricePerMillion | None = Field(
        None, description="Input read from the cache of the provider; default: as `in`."
    )
    cache_write: PricePerMillion | None = Field(
        None, description="Input written to that cache; default: 1.25 times `in`."
    )

    @property
    def read(self) -> float:
        """Input that is read from the cache."""
        return self.tokens_in if self.cached_in is None else self.cached_in

    @property
    def written(self) -> float:
        """Input that is written to the cache for five minutes."""
        return FIVE_MINUTES * self.tokens_in if self.cache_write is None else self.cache_write


class RatesAbove(Rates):
    """What a call costs that has more input; the whole call, not only the rest of it."""

    tokens: int = Field(ge=1, le=100_000_000, description="Input above this many tokens.")


class BatchPrice(Rates):
    """Dollars per million tokens of calls in a batch, by the size of a call."""

    above: Annotated[tuple[RatesAbove, ...], items(1, 5)] = Field(
        (), description="Rates of calls with more input."
    )

    def at(self, tokens_in: int) -> Rates:
        """Return the rates of a call with this much input."""
        tiers = [tier for tier in self.above if tokens_in > tier.tokens]
        return max(tiers, key=lambda tier: tier.tokens, default=self)

    def cost(self, used: "Completion") -> float:
        """Return the micro-dollars that a call was charged, not rounded."""
        total = used.tokens_in or 0
        rates = self.at(total)
        written = min(max(used.written_in, 0), total)
        hour = min(max(used.written_hour_in, 0), written)
        read = min(max(used.cached_in, 0), total - written)
        return (
            (total - written - read) * rates.tokens_in
            + read * rates.read
            + (written - hour + hour * HOUR) * rates.written
            + (used.tokens_out or 0) * rates.tokens_out
        )

    def charge(self, used: "Completion") -> int:
        """Return the same in whole micro-dollars, rounded up."""
        return math.ceil(self.cost(used) - 1e-9)

    def most(self, tokens_in: int, tokens_out: int, *, writes: float = 0.0) -> float:
        """Return the micro-dollars that a call of at most this size can cost.

        `writes` is the weight of a token that may be written to the cache: 0, 1 or `HOUR`.
        """
        return max(
            tokens_in * max(rates.tokens_in, rates.read, writes * rates.written)
            + tokens_out * rates.tokens_out
            for rates in (self, *(tier for tier in self.above if tokens_in > tier.tokens))
        )


def _by_tokens_or_call(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"required": schema.pop("required")}, {"required": ["call"]}]


class Price(BatchPrice):
    """Dollars per million tokens, by the size of a call."""

    model_config = ConfigDict(json_schema_extra=_by_tokens_or_call)
    call: Annotated[float, Field(ge=0, le=1_000)] = Field(
        0.0, description="Dollars for each call; for an application, the most that one may cost."
    )
    batch: BatchPrice | None = Field(None, description="Rates of calls in a batch.")

    def cost(self, used: "Completion") -> float:
        """Return the micro-dollars that a call was charged, not rounded."""
        if used.cost_microusd is not None:
            return used.cost_microusd
        return BatchPrice.cost(self, used) + 1e6 * self.call

    def most(self, tokens_in: int, tokens_out: int, *, writes: float = 0.0) -> float:
        """Return the micro-dollars that a call of at most this size can cost."""
        return BatchPrice.most(self, tokens_in, tokens_out, writes=writes) + 1e6 * self.call

    def as_json(self) -> dict[str, Any]:
        """Return it as it is written, without what is not said."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def expand_price(value: Any) -> Any:
    """Return a price as it may be written as a map."""
    if value == "free":
        return {"in": 0.0, "out": 0.0}
    if isinstance(value, str):
        said = f"{short(value)} is not a price"
        raise wrong("price", said, "write free or {in: 0.15, out: 0.6}, per million tokens")
    if isinstance(value, dict) and "call" in value:
        return {"in": 0.0, "out": 0.0, **value}
    return value
