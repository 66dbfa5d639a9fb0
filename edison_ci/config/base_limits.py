"""Limits that the base sets for a job of a pull request: budgets and minimum prices.

A pull request may lower every budget and raise none. The limit of a run applies to each run, and a
limit of the job to all of them, so that ten experiments cannot spend ten times as much.

Budgets depend on prices, so a model of a pull request costs no less than the base says for the same
model at the same host, and no less than the bundled table says for the vendor. An unknown model on
a host that gets a key costs as much as the most expensive one known there, or anywhere, until its
price is on the default branch. Hosts are compared as they are called, not as they are written.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import APPLICATIONS, LITELLM_VENDORS, OFFLINE
from edison_ci.config.prices import BatchPrice, Price, PriceTable, RatesAbove, bundled, price_of_row
from edison_ci.config.trust import origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.config.experiment import Stop
    from edison_ci.config.models import Model
    from edison_ci.config.project import ProjectFile


_Where = tuple[str, str]
"""Host and name of a model."""
_OWN_HOSTS = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}
"""Built-in providers whose prices are in the table under their names."""


@dataclass(frozen=True, slots=True)
class FlooredPrices(PriceTable):
    """A price table with minimum prices."""

    floor: Mapping[_Where, Price] = field(default_factory=dict)
    """Minimum prices from the base and the bundled table, by host and model."""
    bundled: Mapping[str, Price] = field(default_factory=dict)
    """Bundled prices of models whose host differs between customers."""

    def price_of(self, model: Model) -> Price | None:
        """Return the price of a model, at least that of the base and of the bundled table."""
        # Not `super()`: a frozen class with slots is created again, and `super()` knows the old
        # one.
        written = PriceTable.price_of(self, model)
        if written is None or model.provider in OFFLINE:
            return written
        floors = [
            self.floor.get(_where(model)),
            self.bundled.get(f"{model.provider}/{_name(model)}"),
        ]
        least = [price for price in floors if price is not None]
        if not least and (model.keys or model.installed):  # a plugin may have its own keys
            least = self._near(model) or [*self.floor.values(), *self.bundled.values()]
        batches = [] if written.batch is None else [written.batch, *(_batches(least) or least)]
        highest = _highest_price([written, *least], batches)
        # A price that is high enough stays as it is written: another one would count as a change.
        return (
            written
            if highest == _highest_price([written, written], _batches([written]))
            else highest
        )

    def _near(self, model: Model) -> list[Price]:
        host, kind = _where(model)[0], f"{model.provider}/"
        at_host = [price for (place, _), price in self.floor.items() if place == host]
        return at_host or [price for key, price in self.bundled.items() if key.startswith(kind)]


def with_minimum_prices(
    table: PriceTable, models: Iterable[Model], base: PriceTable
) -> FlooredPrices:
    """Return a table with the prices of the base and the bundled table as minimum."""
    at_hosts, elsewhere = _bundled_prices(bundled())
    floor = dict(at_hosts)
    for model in models:
        base_price = base.price_of(model)
        if base_price is not None and model.provider not in OFFLINE:
            where = _where(model)
            least = [base_price, *([floor[where]] if where in floor else [])]
            floor[where] = _highest_price(least, _batches(least))
    return FlooredPrices(table.date, table.source, table.models, table.origin, floor, elsewhere)


@cache
def _bundled_prices(text: str) -> tuple[Mapping[_Where, Price], Mapping[str, Price]]:
    """Return the prices of the bundled table by host and model, and those without a host."""
    at_hosts: dict[_Where, Price] = {}
    elsewhere: dict[str, Price] = {}
    for key, row in json.loads(text)["models"].items():
        price = price_of_row(row)
        host, name = _in_table(key)
        if host:
            at_hosts[host, name] = price
        else:
            elsewhere[key.casefold()] = price
    return at_hosts, elsewhere


def _in_table(key: str) -> _Where:
    """Return host and name of a row of the table; no host if it differs between customers."""
    provider, _, name = key.casefold().partition("/")
    address = _OWN_HOSTS.get(provider, "")
    if provider == "litellm":
        vendor, _, name = name.partition("/")
        address = LITELLM_VENDORS.get(vendor, "")
    return (origin(address) if address else ""), name


def _where(model: Model) -> _Where:
    address = model.service
    if model.base_url_env is not None:
        address = os.environ.get(model.base_url_env, "")
    if not address and (model.installed or model.provider == "command"):
        return model.provider, _name(model)
    try:
        host = origin(address or "")
    except ValueError:
        host = ""
    return host, _name(model)


def _name(model: Model) -> str:
    """Return the vendor's name of a model; litellm names have the vendor in front."""
    name = (model.name if model.provider in APPLICATIONS else model.model).casefold()
    return name.partition("/")[2] if model.provider == "litellm" else name


def _batches(prices: Iterable[Price]) -> list[BatchPrice]:
    return [price.batch for price in prices if price.batch is not None]


def _highest_price(prices: Sequence[Price], batches: Sequence[BatchPrice]) -> Price:
    """Return a price that is not below any of these, for a call or a batch of any size."""
    if len(prices) == 1:
        return prices[0]
    call = max(price.call for price in prices)
    batch = BatchPrice.model_construct(**_highest_rates(batches)) if batches else None
    return Price.model_construct(**_highest_rates(prices), call=call, batch=batch)


def _highest_rates(prices: Sequence[BatchPrice]) -> dict[str, Any]:
    sizes = {tier.tokens for price in prices for tier in price.above}
    # Not validated: together they may have more sizes than a price may be written with.
    above = [RatesAbove.model_construct(tokens=size, **_rates_at(prices, size + 1))
             for size in sorted(sizes)]  # fmt: skip
    return {**_rates_at(prices, 0), "above": tuple(above)}


def _rates_at(prices: Sequence[BatchPrice], tokens_in: int) -> dict[str, Any]:
    rates = [price.at(tokens_in) for price in prices]
    return {
        "in": max(rate.tokens_in for rate in rates),
        "out": max(rate.tokens_out for rate in rates),
        "cached_in": max(rate.read for rate in rates),
        "cache_write": max(rate.written for rate in rates),
    }


@dataclass(frozen=True, slots=True)
class BaseLimits:
    """Budgets of the base."""

    run_usd: float
    job_usd: float
    monthly_usd: float | None = None
    stops: Mapping[str, Stop] = field(default_factory=dict)
    """Stop rules by experiment; only their budgets are used."""
    run_tokens: int | None = None
    """Limit of tokens for a run of a new experiment; None without a limit."""


def limits_of(header: ProjectFile, stops: Mapping[str, Stop], most: float | None) -> BaseLimits:
    """Return the limits of a base: `most` for run and job, or else what its runs may spend.

    A job may spend at most what the experiments of the base may spend in a day, so that a renamed
    experiment does not get around its daily limit.
    """
    usual = header.defaults.budget_usd
    budgets = [usual if stop.budget_usd is None else stop.budget_usd for stop in stops.values()]
    days = [
        budget if stop.daily_budget_usd is None else min(budget, stop.daily_budget_usd)
        for budget, stop in zip(budgets, stops.values(), strict=True)
    ]
    tokens = [stop.max_total_tokens for stop in stops.values()]
    limited = [most_tokens for most_tokens in tokens if most_tokens is not None]
    return BaseLimits(
        run_usd=max([usual, *budgets]) if most is None else most,
        job_usd=(sum(days) if days else usual) if most is None else most,
        monthly_usd=header.settings.monthly_budget_usd,
        stops=stops,
        run_tokens=max(limited) if limited and len(limited) == len(tokens) else None,
    )
