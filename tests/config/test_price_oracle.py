"""Costs to the micro-dollar, held to an independent table and formula: the package genai-prices."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter

import pytest
from genai_prices import Usage, calc_price

from edison_ci.config.prices import load_prices, price_of_row
from edison_ci.records import Completion

VENDORS = {
    "openai": "openai", "anthropic": "anthropic", "azure": "azure", "bedrock": "aws",
    "vertex": "google", "litellm/gemini": "google", "litellm/deepseek": "deepseek",
    "litellm/xai": "x-ai", "litellm/mistral": "mistral", "litellm/groq": "groq",
    "litellm/cohere_chat": "cohere", "litellm/fireworks_ai": "fireworks",
    "litellm/together_ai": "together",
}  # fmt: skip
"""Our names of providers, and the oracle's."""
CALLS = {
    "plain": Completion("", tokens_in=1_000, tokens_out=500),
    "cached": Completion("", tokens_in=10_000, tokens_out=500, cached_in=8_000),
    "written": Completion("", tokens_in=10_000, tokens_out=500, written_in=6_000),
    "large": Completion("", tokens_in=300_000, tokens_out=500),
    "batch": Completion("", tokens_in=1_000, tokens_out=500),
}
REASONS = {
    r"bedrock/(eu|apac|jp|us-gov)\.": "the oracle has one price for all regions",
    r"bedrock/(anthropic|claude|openai\.gpt-6)": "the oracle adds 10% for a regional endpoint",
    r"bedrock/.*claude-3-opus": "its cache has a price in our table only",
    r"azure/gpt-4-turbo": "the oracle has the price of OpenAI",
    r"azure/gpt-5\.[45]-pro": "its cache has a price in our table only",
    r"vertex/claude-3-": "retired; our table has no price for its cache",
    r"vertex/gemini-2\.0-flash$": "retired; our table has the price of its image tokens",
    r"vertex/gemini-3\.8-flash-cyber": "the oracle takes it for gemini-3.8-flash",
    r"vertex/gemma-4": "free in the oracle, which knows another endpoint",
    r"openai/gpt-4o-search-preview": "the oracle has no price for its cache and batch",
    r"openai/gpt-5\.6-cyber": "a price by size in our table only",
    r"litellm/deepseek/": "prices by time of day, and names that moved to newer models",
    r"litellm/(fireworks_ai|together_ai|groq)/": "resellers; prices changed between the tables",
    r"litellm/mistral/": "names such as -latest stand for different models in the tables",
    r"litellm/xai/grok-code-fast": "prices changed between the tables",
}
"""Why our cost of a model differs from the oracle's."""


def differences() -> tuple[Counter[str], dict[tuple[str, str], tuple[float, float]]]:
    """Return how many calls were compared by vendor, and those that differ."""
    compared: Counter[str] = Counter()
    found: dict[tuple[str, str], tuple[float, float]] = {}
    prices = load_prices()
    at = dt.datetime.fromisoformat(prices.date).replace(tzinfo=dt.UTC)
    for key, row in prices.models.items():
        ours = next((name for name in VENDORS if key.startswith(f"{name}/")), None)
        if ours is None or row.get("mode", "chat") not in ("chat", "responses"):
            continue
        price = price_of_row(row)
        plain = 0.0
        for kind, used in CALLS.items():
            if kind == "large" and row.get("context", 0) < 300_000:
                continue
            rates = price.batch if kind == "batch" else price
            if rates is None:
                continue
            usage = Usage(
                input_tokens=used.tokens_in,
                output_tokens=used.tokens_out,
                cache_read_tokens=used.cached_in,
                cache_write_tokens=used.written_in,
            )
            try:
                theirs = calc_price(
                    usage,
                    key.removeprefix(f"{ours}/"),
                    provider_id=VENDORS[ours],
                    genai_request_timestamp=at,
                    price_context={"processing": "batch"} if kind == "batch" else None,
                )
            except LookupError:
                break  # a model that the oracle does not know
            cost = 1e6 * float(theirs.total_price)
            plain = cost if kind == "plain" else plain
            if kind == "batch" and cost == plain:
                continue  # the oracle has no price for a batch
            compared[ours] += 1
            if rates.cost(used) != pytest.approx(cost, rel=1e-6, abs=0.5):
                found[key, kind] = (rates.cost(used), cost)
    return compared, found


def test_costs_agree_with_the_oracle_or_differ_for_a_known_reason() -> None:
    compared, found = differences()
    assert compared["openai"] > 250
    assert compared["anthropic"] > 80
    assert sum(compared.values()) > 2_000
    used = {
        (key, kind): next((p for p in REASONS if re.match(p, key)), None) for key, kind in found
    }
    assert not {where: found[where] for where, reason in used.items() if reason is None}
    assert {key for key, _ in found if key.startswith(("openai/", "anthropic/"))} <= {
        "openai/gpt-4o-search-preview",
        "openai/gpt-4o-search-preview-2025-03-11",
        "openai/gpt-5.6-cyber",
    }


def test_a_reason_that_no_difference_has_is_removed() -> None:
    _, found = differences()
    unused = {p for p in REASONS if not any(re.match(p, key) for key, _ in found)}
    assert not unused
