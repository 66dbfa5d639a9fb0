"""Loops: when they stop, what they accept, and what they drop."""

from __future__ import annotations

import numpy as np
import pytest

from edison_ci.stats.convergence import accept, converged, verified


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


@pytest.mark.nightly
def test_a_useless_candidate_is_accepted_at_most_one_time_in_ten() -> None:
    repeat, runs = np.random.default_rng(5), 300
    hits = sum(accept(repeat.normal(0, 0.2, 25).clip(-1, 1), rng=repeat).value for _ in range(runs))
    assert hits / runs <= 0.10 + 2.5 * (0.1 * 0.9 / runs) ** 0.5


def test_an_improvement_is_verified_from_16_unseen_cases() -> None:
    assert verified(16) and not verified(15)
