"""Pruning: the range of means against every permutation, false drops counted."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import binom

from edison_ci.stats.convergence import Contrast, contrasts
from edison_ci.stats.permutation import sign_flip


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def by_name(found: tuple[Contrast, ...]) -> dict[str, Contrast]:
    return {one.prompt: one for one in found}


def test_the_p_value_is_that_of_all_permutations() -> None:
    table = rng(3).random((5, 3)).round(2)
    found = contrasts(dict(zip("abc", table.T, strict=True)), rng=rng())
    ranges = [
        np.ptp(sum(np.array(rows)))
        for rows in product(*(list(permutations(row)) for row in table.tolist()))
    ]
    worst = min(found, key=lambda one: one.value)
    exact = np.mean(np.array(ranges) >= -worst.value * 5 - 1e-9)
    assert worst.p == pytest.approx(exact, abs=0.03)
    assert worst.draws is not None


def test_two_prompts_are_a_sign_flip_test() -> None:
    a, b = rng(4).random((2, 12))
    (one,) = contrasts({"a": a, "b": b}, rng=rng())
    assert one.p == sign_flip(a - b, rng=rng()).value
    assert one.draws is None


def test_a_bad_prompt_does_not_hide_a_weak_one() -> None:
    """The worst leaves before the next is tested, so its distance does not count."""
    base = rng(5).uniform(0.6, 0.8, 20)
    noise = rng(6).uniform(-0.02, 0.02, (3, 20))
    found = by_name(
        contrasts({"good": base, "weak": base - 0.05 + noise[0], "zero": base * 0}, rng=rng())
    )
    assert found["weak"].weak and found["zero"].weak
    assert found["weak"].best == "good"
    assert found["weak"].value == pytest.approx(-0.05 + noise[0].mean())
    alike = by_name(contrasts({"good": base, "same": base + noise[1], "zero": base * 0}, rng=rng()))
    assert [one for one in alike.values() if one.weak] == [alike["zero"]]


def test_clusters_count_once() -> None:
    base = rng(7).uniform(0.6, 0.8, 24)
    scores = {"a": base, "b": base - 0.1, "c": base - 0.1}
    assert all(one.weak for one in contrasts(scores, rng=rng()))
    few = contrasts(scores, rng=rng(), clusters=[f"d{i % 3}" for i in range(24)])
    assert not any(one.weak for one in few)


@pytest.mark.nightly
@pytest.mark.parametrize("count", [2, 4, 8])
def test_of_prompts_that_are_alike_one_in_twenty_runs_drops_any(count: int) -> None:
    random, runs = rng(count), 150
    names = [f"p{i}" for i in range(count)]
    dropped = sum(
        any(
            one.weak
            for one in contrasts(
                dict(zip(names, random.beta(4, 2, (count, 15)), strict=True)), rng=random
            )
        )
        for _ in range(runs)
    )
    assert dropped <= binom.ppf(0.999, runs, 0.05)


def test_ties_and_degenerate_input() -> None:
    same = {"a": [0.5, 0.6], "b": [0.5, 0.6], "c": [0.5, 0.6]}
    assert [one.p for one in contrasts(same, rng=rng())] == [1.0, 1.0]
    assert {one.best for one in contrasts(same, rng=rng())} == {"a"}
    assert contrasts({"a": [0.5]}, rng=rng()) == ()
    assert contrasts({"a": [], "b": []}, rng=rng()) == ()
    with pytest.raises(ValueError, match="same cases"):
        contrasts({"a": [0.5], "b": [0.5, 0.6]}, rng=rng())
    with pytest.raises(ValueError, match="clusters"):
        contrasts(same, rng=rng(), clusters=["x"])
