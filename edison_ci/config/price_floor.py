"""What a call costs at least, whatever a proposal writes down.

Budgets are held by prices, so whoever sets the price of a model to nothing has no budget. In a job
for a proposal a model therefore costs no less than the base says of the same model at the same
host, and no less than the program's own table says of the vendor's. A model that neither knows, on
a host that gets a key, costs as much as the dearest that is known there, or anywhere: it is held to
its own price once that is on the default branch. Hosts are compared as they are called, and not as
they are written.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import LITELLM_VENDORS, OFFLINE, Price
from edison_ci.config.prices import PriceTable, bundled
from edison_ci.config.rules import service_of
from edison_ci.config.trust import origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.config.models import Model

_Where = tuple[str, str]
"""Host and name of a model."""
_OWN_HOSTS = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}
"""Providers of our own whose prices stand in the table under their names."""


@dataclass(frozen=True, slots=True)
class FlooredPrices(PriceTable):
    """Prices that are not below what is known from elsewhere."""

    floor: Mapping[_Where, Price] = field(default_factory=dict)
    """What the base and our own table say, by host and model."""
    ours: Mapping[str, Price] = field(default_factory=dict)
    """What our own table says of models whose host differs from customer to customer."""

    def price_of(self, model: Model) -> Price | None:
        """Return the price of a model, at least that of the base and of our own table."""
        # By name: a frozen class with slots is made anew, and `super()` would know the old one.
        said = PriceTable.price_of(self, model)
        if said is None or model.provider in OFFLINE:
            return said
        known = [self.floor.get(_where(model)), self.ours.get(f"{model.provider}/{_name(model)}")]
        least = [price for price in known if price is not None]
        if not least and model.keys:
            least = self._near(model) or [*self.floor.values(), *self.ours.values()]
        return _dearest([said, *least])

    def _near(self, model: Model) -> list[Price]:
        host, kind = _where(model)[0], f"{model.provider}/"
        at_host = [price for (place, _), price in self.floor.items() if place == host]
        return at_host or [price for key, price in self.ours.items() if key.startswith(kind)]


def floored(table: PriceTable, models: Iterable[Model], base: PriceTable) -> FlooredPrices:
    """Return a table that is not below what the base says of its models."""
    rows = json.loads(bundled())["models"]
    floor: dict[_Where, Price] = {}
    ours: dict[str, Price] = {}
    for key, row in rows.items():
        price = Price.model_validate({k: row[k] for k in ("in", "out", "cached_in") if k in row})
        host, name = _in_table(key)
        if host:
            floor[host, name] = price
        else:
            ours[key.casefold()] = price
    for model in models:
        known = base.price_of(model)
        if known is not None and model.provider not in OFFLINE:
            where = _where(model)
            floor[where] = _dearest([known, *([floor[where]] if where in floor else [])])
    return FlooredPrices(table.date, table.source, table.models, table.origin, floor, ours)


def _in_table(key: str) -> _Where:
    """Return host and name of a row of the table; no host where each customer has another."""
    provider, _, name = key.casefold().partition("/")
    address = _OWN_HOSTS.get(provider, "")
    if provider == "litellm":
        vendor, _, name = name.partition("/")
        address = LITELLM_VENDORS.get(vendor, "")
    return (origin(address) if address else ""), name


def _where(model: Model) -> _Where:
    address = service_of(model)
    if model.base_url_env is not None:
        address = os.environ.get(model.base_url_env, "")
    try:
        host = origin(address or "")
    except ValueError:
        host = ""
    return host, _name(model)


def _name(model: Model) -> str:
    """Return the vendor's name for a model, which litellm wants with the vendor in front."""
    name = model.model.casefold()
    return name.partition("/")[2] if model.provider == "litellm" else name


def _dearest(prices: list[Price]) -> Price:
    first = prices[0]
    if len(prices) == 1:
        return first
    tokens_in, tokens_out = (
        max(getattr(price, name) for price in prices) for name in ("tokens_in", "tokens_out")
    )
    cached = max(p.tokens_in if p.cached_in is None else p.cached_in for p in prices)
    return Price.model_validate({"in": tokens_in, "out": tokens_out, "cached_in": cached})
