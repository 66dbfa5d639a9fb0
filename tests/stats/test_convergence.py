"""Loops: when they stop, what they accept, and what they drop."""

from __future__ import annotations

import numpy as np
import pytest

from edison_ci.stats.convergence import accept, converged, verified, weak_prompts


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_a_loop_stops_when_the_last_three_gains_are_small() -> None:
    found = converged([0.50, 0.60, 0.61, 0.615, 0.62])
    assert found.value and found.n == 4 and found.best == 4
    assert found.gains == pytest.approx((0.1, 0.01, 0.005, 0.005))
    assert not converged([0.50, 0.60, 0.61, 0.615]).value


def test_a_gain_is_that_of_the_best_so_far() -> None:
    found = converged([0.6, 0.4, 0.59, 0.5])
    assert found.value and found.gains == (0, 0, 0) and found.best == 0


def test_fewer_rounds_than_the_window_go_on() -> None:
    assert not converged([0.5]).value
    assert not converged([0.5, 0.5, 0.5]).value
    assert converged([0.5, 0.5], window=1).value
    with pytest.raises(ValueError, match="original"):
        converged([])


def test_a_gain_of_exactly_min_delta_is_a_gain() -> None:
    assert not converged([0.5, 0.52, 0.54, 0.56]).value


def test_a_candidate_must_gain_and_not_by_luck() -> None:
    assert accept([0.1] * 10 + [0.0] * 10, rng=rng()).value
    assert accept([0.1] * 10, rng=rng()).reason == "fewer than 20 search cases"
    assert accept([-0.1] * 20, rng=rng()).reason == "no gain"
    assert accept([0.1, -0.1] * 9 + [0.05, 0.0], rng=rng()).reason == "the gain may be luck"
    assert accept([], rng=rng()).gain is None


def test_a_useless_candidate_is_accepted_at_most_one_time_in_ten() -> None:
    draw, runs = np.random.default_rng(5), 300
    hits = sum(accept(draw.normal(0, 0.2, 25).clip(-1, 1), rng=draw).value for _ in range(runs))
    assert hits / runs <= 0.10 + 2.5 * (0.1 * 0.9 / runs) ** 0.5


def test_an_improvement_is_verified_from_16_unseen_cases() -> None:
    assert verified(16) and not verified(15)


def test_only_prompts_shown_worse_are_dropped() -> None:
    best = [0.9, 0.8, 0.95, 0.85, 0.9, 0.8, 0.9, 0.85, 0.9, 0.95]
    scores = {"best": best, "near": [x - 0.01 * (i % 2) for i, x in enumerate(best)]}
    scores["weak"] = [x - 0.3 for x in best]
    (found,) = weak_prompts(scores, rng=rng())
    assert (found.name, found.level) == ("weak", 0.025)
    assert found.p.value == pytest.approx(2**-10)
    assert found.value == pytest.approx(-0.3)


def test_one_prompt_or_no_case_drops_nothing() -> None:
    assert weak_prompts({"a": [0.1, 0.2]}, rng=rng()) == ()
    assert weak_prompts({"a": [], "b": []}, rng=rng()) == ()
    with pytest.raises(ValueError, match="same cases"):
        weak_prompts({"a": [0.1], "b": [0.1, 0.2]}, rng=rng())
