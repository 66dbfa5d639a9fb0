"""What does a call cost at least, whatever a pull request writes down?

Budgets are held by prices, so whoever sets the price of a model to nothing has no budget. In a job
for a pull request a model therefore costs no less than the program's own table says, and no less
than the base of the pull request says of the same model at the same address.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci.config.model_entry import Price
from edison_ci.config.model_rules import OFFLINE
from edison_ci.config.prices import PriceTable, bundled, key_of
from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.config.models import Model

_Where = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class FlooredPrices(PriceTable):
    """Prices that are not below what is known from elsewhere."""

    floor: Mapping[_Where, Price] = field(default_factory=dict)
    """What the base says, by provider, address and model."""
    ours: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What the program's own table says."""

    def price_of(self, model: Model) -> Price | None:
        """Return the price of a model, at least that of the base and of our own table."""
        # By name: a frozen class with slots is made anew, and `super()` would know the old one.
        said = PriceTable.price_of(self, model)
        if said is None or model.provider in OFFLINE:
            return said
        row = self.ours.get(key_of(model))
        least = [self.floor.get(_where(model)), Price.model_validate(row) if row else None]
        return _dearest([said, *(price for price in least if price is not None)])


def floored(table: PriceTable, models: Iterable[Model], base: PriceTable) -> FlooredPrices:
    """Return a table that is not below what the base says of its models."""
    prices = {_where(model): base.price_of(model) for model in models}
    known = {where: price for where, price in prices.items() if price is not None}
    rows = json.loads(bundled())["models"]
    ours = {
        name: {key: row[key] for key in ("in", "out", "cached_in") if key in row}
        for name, row in rows.items()
    }
    return FlooredPrices(table.date, table.source, table.models, table.origin, known, ours)


def _where(model: Model) -> _Where:
    return model.provider, model.endpoint, model.model


def _dearest(prices: list[Price]) -> Price:
    first = prices[0]
    if len(prices) == 1:
        return first
    tokens_in, tokens_out = (
        max(getattr(price, name) for price in prices) for name in ("tokens_in", "tokens_out")
    )
    cached = max(p.tokens_in if p.cached_in is None else p.cached_in for p in prices)
    return Price.model_validate({"in": tokens_in, "out": tokens_out, "cached_in": cached})
