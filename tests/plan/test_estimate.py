"""Loads: tokens, dollars and seconds from calls, by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from edison_ci.config.model_entry import Limits
from edison_ci.config.models import Model
from edison_ci.config.prices import Price
from edison_ci.errors import Location
from edison_ci.plan.estimate import (
    TYPICAL_OUTPUT,
    ZERO,
    CostRange,
    Load,
    total,
    total_cost,
    total_seconds,
)

CHEAP = Price.model_validate({"in": 2.0, "out": 8.0})


def model(name: str = "m", *, provider: str = "openai", **limits: Any) -> Model:
    options = {"latency_ms": 200.0} if provider == "sim" else {}
    return Model(
        name=name,
        provider=provider,
        model="x",
        base_url=None,
        base_url_env=None,
        keys={},
        options=options,
        params={},
        price=None,
        limits=Limits(**limits),
        fallback=(),
        store=None,
        where=Location("models.yaml"),
    )


def load(of: Model, *, price: Price | None = CHEAP, calls: int = 10) -> Load:
    """Ten calls that read 100 and write 400 to 600 tokens each."""
    return Load(
        "generate",
        of,
        of.name,
        price,
        once_calls=calls,
        once_in=CostRange(100, 100).times(calls),
        once_out=TYPICAL_OUTPUT.times(calls),
    )


def test_without_history_an_answer_has_500_tokens_more_or_less_20_percent() -> None:
    assert CostRange(500 * 0.8, 500 * 1.2) == TYPICAL_OUTPUT


def test_spans_add_scale_are_capped_and_rounded_outwards() -> None:
    assert CostRange(1, 2) + CostRange(10, 20) == CostRange(11, 22)
    assert CostRange(1, 2).times(3) == CostRange(3, 6)
    assert CostRange(1, 2).times(3, 10) == CostRange(3, 20)
    assert CostRange(400, 600).at_most(450) == CostRange(400, 450)
    assert CostRange(1.7, 2.1).rounded() == {"low": 1, "high": 3}
    assert total([CostRange(1, 2), CostRange(3, 4)]) == CostRange(4, 6)
    assert total([]) == ZERO


def test_tokens_are_those_in_and_out() -> None:
    assert load(model()).tokens == CostRange(1_000 + 4_000, 1_000 + 6_000)


def test_cost_is_dollars_per_million_tokens_in_micro_dollars() -> None:
    assert load(model()).cost_microusd == CostRange(1_000 * 2 + 4_000 * 8, 1_000 * 2 + 6_000 * 8)


def test_one_unknown_price_makes_the_sum_unknown() -> None:
    known, unknown = load(model()), load(model(), price=None)
    assert unknown.cost_microusd is None
    assert total_cost([known, unknown]) is None
    assert total_cost([known, known]) == CostRange(68_000, 100_000)
    assert total_cost([]) == ZERO


def test_an_unknown_price_of_a_model_that_is_not_called_does_not_matter() -> None:
    assert total_cost([load(model()), load(model(), price=None, calls=0)]) == CostRange(
        34_000, 50_000
    )


def test_calls_run_in_rounds_of_as_many_as_are_allowed_at_once() -> None:
    # 10 calls, 4 at once: 3 rounds of 0.3 s + 400 tokens at 120/s to 1.5 s + 600 tokens at 25/s.
    seconds = load(model(concurrency=4)).seconds
    assert seconds.low == pytest.approx(3 * (0.3 + 400 / 120))
    assert seconds.high == pytest.approx(3 * (1.5 + 600 / 25))


def test_requests_per_minute_hold_calls_up() -> None:
    assert load(model(rpm=5)).seconds == CostRange(120, 120)  # 10 calls at 5 a minute


def test_tokens_per_minute_hold_calls_up_at_each_end_by_its_own_tokens() -> None:
    assert load(model(tpm=1_000)).seconds == CostRange(5 * 60, 7 * 60)


def test_limits_that_are_wide_enough_cost_no_time() -> None:
    assert load(model(rpm=10_000, tpm=10_000_000)).seconds == load(model()).seconds


def test_a_simulated_model_takes_its_latency() -> None:
    assert load(model(provider="sim", concurrency=5)).seconds == CostRange(0.4, 0.4 + 0.01)


def test_no_calls_take_no_time() -> None:
    assert load(model(rpm=1), calls=0).seconds == ZERO


def test_iterations_multiply_everything_by_their_own_end() -> None:
    once = load(model(rpm=5))
    loop = dataclasses.replace(once, iterations=CostRange(3, 5))
    assert loop.calls == 50
    assert loop.tokens == CostRange(3 * 5_000, 5 * 7_000)
    assert loop.cost_microusd == CostRange(3 * 34_000, 5 * 50_000)
    assert loop.seconds == CostRange(3 * 120, 5 * 120)


def test_models_run_side_by_side_and_one_models_work_in_a_row() -> None:
    slow, fast = model("slow", rpm=5), model("fast", rpm=10)
    assert total_seconds([load(slow), load(fast)]) == CostRange(120, 120)
    assert total_seconds([load(fast), load(fast), load(fast)]) == CostRange(180, 180)
    assert total_seconds([]) == ZERO
