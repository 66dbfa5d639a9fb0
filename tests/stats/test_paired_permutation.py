"""Permutation tests against exact tests, by hand, and in their promise."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm, permutation_test

from edison_ci.stats.paired import Pairs
from edison_ci.stats.permutation import DRAWS, MOST_DRAWS, paired_p, relabel_repeats, sign_flip

if TYPE_CHECKING:
    from edison_ci.stats.permutation import Side

SIDES: list[Side] = ["two-sided", "less", "greater"]


def rng() -> np.random.Generator:
    return np.random.default_rng(20250601)


@pytest.mark.parametrize("side", SIDES)
def test_it_agrees_with_scipy_on_every_sign_vector(side: Side) -> None:
    d = np.random.default_rng(2).normal(0.05, 0.2, 10).clip(-1, 1)
    found = sign_flip(d, rng=rng(), side=side)
    if side == "two-sided":
        expected = np.mean(
            [
                abs(np.dot(s, d)) >= abs(d.sum()) - 1e-9
                for s in itertools.product((-1, 1), repeat=10)
            ]
        )
    else:
        reference = permutation_test(
            (d,), np.sum, permutation_type="samples", alternative=side, n_resamples=np.inf
        )
        expected = reference.pvalue
    assert found.value == pytest.approx(expected, abs=1e-12)
    assert found.draws is None


@pytest.mark.parametrize(("better", "worse"), [(0, 5), (3, 9), (1, 4), (7, 7), (0, 16)])
def test_pass_or_fail_scores_give_the_exact_mcnemar_test(better: int, worse: int) -> None:
    d = [1.0] * better + [-1.0] * worse + [0.0] * 30
    less = sign_flip(d, rng=rng(), side="less").value
    assert less == pytest.approx(binomtest(better, better + worse, 0.5, "less").pvalue)
    both = sign_flip(d, rng=rng()).value
    assert both == pytest.approx(binomtest(better, better + worse, 0.5).pvalue)


def test_many_passes_and_fails_are_counted_exactly() -> None:
    """Recorded solutions of GSM8K: 209 and 152 problems that only one of two systems solves."""
    d = [1.0] * 209 + [-1.0] * 152 + [0.0] * 958
    found = sign_flip(d, rng=rng())
    assert found.value == pytest.approx(binomtest(152, 361, 0.5).pvalue)
    assert f"{found.value:.5f}" == "0.00315"
    assert (found.draws, found.differing, found.n) == (None, 361, 1319)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("steps", [4, 5, 100, 3000])
def test_scores_on_a_grid_are_counted_exactly(side: Side, steps: int) -> None:
    drawn = np.random.default_rng(steps)
    d = drawn.integers(-steps, steps, 15) / steps / 3
    listed = np.array([np.dot(s, d) for s in itertools.product((-1, 1), repeat=15)])
    total = d.sum()
    expected = {
        "less": np.mean(listed <= total + 1e-9),
        "greater": np.mean(listed >= total - 1e-9),
        "two-sided": np.mean(np.abs(listed) >= abs(total) - 1e-9),
    }
    found = sign_flip(d, rng=rng(), side=side)
    assert found.value == pytest.approx(expected[side], abs=1e-12)


def test_a_grid_needs_no_random_numbers_for_a_thousand_cases() -> None:
    d = np.random.default_rng(3).integers(-5, 5, 1000) / 5
    found = sign_flip(d, rng=rng())
    assert found.draws is None
    z = abs(d.sum()) / np.sqrt((d**2).sum())
    assert found.value == pytest.approx(2 * norm.sf(z), abs=0.005)


def test_twenty_clusters_are_listed_and_more_are_drawn() -> None:
    d = np.random.default_rng(3).normal(-0.02, 0.1, 21)
    listed, drawn = (sign_flip(d[:n], rng=rng(), side="less") for n in (20, 21))
    assert listed.draws is None
    assert drawn.draws is not None
    assert f"Monte Carlo with {drawn.draws:,} draws" in drawn.method


def test_the_seed_does_not_decide_near_the_level() -> None:
    """More is drawn while the level is within reach, up to a cap."""
    d = np.random.default_rng(8).normal(-0.0455, 0.2, 60)
    level = 0.01705
    at_it = sign_flip(d, rng=rng(), side="less", level=level)
    assert at_it.draws == MOST_DRAWS
    level = at_it.value + 0.002
    near = [
        sign_flip(d, rng=np.random.default_rng(seed), side="less", level=level)
        for seed in range(20)
    ]
    assert all(found.value < level for found in near)
    assert max(found.draws or 0 for found in near) > DRAWS


def test_four_differing_cases_can_never_be_significant_but_five_can() -> None:
    assert sign_flip([-1.0] * 4, rng=rng(), side="less").value == 1 / 16
    assert sign_flip([-0.1] * 5, rng=rng(), side="less").value == 1 / 32


def test_without_a_differing_case_p_is_one() -> None:
    for d in ([], [0.0], [0.0, 1e-13]):
        assert sign_flip(d, rng=rng()).value == 1


def test_clusters_flip_as_a_whole() -> None:
    d = [-0.1, -0.2, -0.1, -0.3, -0.2, -0.1]
    assert sign_flip(d, rng=rng(), side="less").value == 1 / 64
    found = sign_flip(d, rng=rng(), side="less", clusters=list("aabbcc"))
    assert (found.value, found.differing) == (1 / 8, 3)


def test_a_cluster_that_cancels_out_says_nothing() -> None:
    found = sign_flip([0.5, -0.5, -0.1], rng=rng(), side="less", clusters=list("aab"))
    assert (found.value, found.differing) == (0.5, 1)


def test_the_same_generator_gives_the_same_value() -> None:
    d = np.random.default_rng(1).normal(0, 0.1, 50).clip(-1, 1)
    assert sign_flip(d, rng=rng()) == sign_flip(d, rng=rng())


@settings(deadline=None)
@given(st.lists(st.floats(-1, 1, allow_nan=False), min_size=0, max_size=14))
def test_p_lies_above_0_and_at_most_at_1_and_swapping_sides_swaps_tails(d: list[float]) -> None:
    less = sign_flip(d, rng=rng(), side="less").value
    greater = sign_flip([-x for x in d], rng=rng(), side="greater").value
    assert 0 < less <= 1
    assert greater == pytest.approx(less)
    two = sign_flip(d, rng=rng()).value
    assert two == sign_flip([-x for x in d], rng=rng()).value


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-1, 1, allow_nan=False), min_size=17, max_size=40))
def test_a_sampled_p_is_never_0(d: list[float]) -> None:
    assert 1 / (DRAWS + 1) <= sign_flip(d, rng=rng()).value <= 1


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        sign_flip([0.1, float("nan")], rng=rng())


# --- relabelling ------------------------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
def test_one_repeat_on_both_sides_is_the_sign_flip(side: Side) -> None:
    base, head = np.random.default_rng(4).uniform(0, 1, (2, 12))
    pairs = Pairs.of(base.tolist(), head.tolist())
    flipped = sign_flip(head - base, rng=rng(), side=side)
    assert relabel_repeats(pairs, rng=rng(), side=side).value == pytest.approx(flipped.value)


def test_relabelling_by_hand() -> None:
    # One case, base (1, 1, 0), head (0): of the 4 choices of the head, 2 pick a 0, so p = 1/2;
    # two such cases: both must pick a 0, so p = 1/4.
    one = Pairs(((1.0, 1.0, 0.0),), ((0.0,),))
    assert relabel_repeats(one, rng=rng(), side="less").value == pytest.approx(0.5)
    two = Pairs(one.base * 2, one.head * 2)
    found = relabel_repeats(two, rng=rng(), side="less")
    assert found.value == pytest.approx(0.25)
    assert found.draws is None


def test_many_relabellings_of_passes_are_counted_exactly() -> None:
    case = ((1.0, 1.0, 0.0), (0.0,))
    pairs = Pairs((case[0],) * 12, (case[1],) * 12)
    found = relabel_repeats(pairs, rng=rng(), side="less")
    assert found.draws is None
    assert found.value == pytest.approx(0.5**12)


def test_cases_with_very_many_relabellings_are_shuffled() -> None:
    pool = np.linspace(0, 1, 20)
    pairs = Pairs((tuple(pool[:8].tolist()),), (tuple(pool[8:].tolist()),))
    found = relabel_repeats(pairs, rng=rng(), side="greater")
    assert found.value == pytest.approx(1 / 10_000)


def test_repeats_that_are_all_equal_say_nothing() -> None:
    pairs = Pairs(((0.4, 0.4),), ((0.4,),))
    assert relabel_repeats(pairs, rng=rng()).value == 1


def test_the_method_follows_the_repeats() -> None:
    equal = Pairs(((0.1, 0.2), (0.5, 0.4)), ((0.2, 0.2), (0.4, 0.4)))
    assert "sign test" in paired_p(equal, rng=rng()).method
    unequal = Pairs(equal.base, ((0.2,), (0.4, 0.4)))
    assert "permutation test of repeats" in paired_p(unequal, rng=rng()).method


def test_clusters_with_unequal_repeats_take_the_weaker_evidence() -> None:
    base, head = ((0.9, 1.0, 0.8),) * 6, ((0.1,),) * 6
    grouped = Pairs(base, head, ("a", "a", "a", "b", "b", "b"))
    found = paired_p(grouped, rng=rng(), side="less")
    assert found.value == 0.25 and "clusters" in found.method


def test_the_sign_flip_keeps_its_promise_for_few_tied_cases() -> None:
    draw = np.random.default_rng(8)
    alarms = 0
    for _ in range(2_000):
        base, head = draw.binomial(4, 0.9, (2, 10)) / 4
        alarms += sign_flip(head - base, rng=draw, side="less").value <= 0.05
    assert alarms / 2_000 <= 0.05


def test_relabelling_keeps_the_promise_where_the_sign_flip_would_not() -> None:
    """A pooled base of three runs against one of the head, few passes: STATS 6."""
    draw, runs, n = np.random.default_rng(9), 300, 20
    flips = relabelled = 0
    for _ in range(runs):
        base = (draw.random((n, 3)) < 0.1).astype(float)
        head = (draw.random((n, 1)) < 0.1).astype(float)
        pairs = Pairs(tuple(map(tuple, base.tolist())), tuple(map(tuple, head.tolist())))
        relabelled += relabel_repeats(pairs, rng=draw, side="less").value <= 0.05
        flips += sign_flip(pairs.differences, rng=draw, side="less").value <= 0.05
    assert relabelled / runs <= 0.05
    assert flips / runs > 0.07
