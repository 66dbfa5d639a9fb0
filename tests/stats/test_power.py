"""Plans agree with STATS.md, with statsmodels, with integrals and with simulated gates."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import chdtri, ndtr, ndtri, stdtrit
from statsmodels.stats.power import TTestPower

from edison_ci import stats
from edison_ci.stats import (
    MOST_CASES,
    best_repeats,
    cases_for_effect,
    cases_for_margin,
    paired_power,
    sd_range,
    smallest_effect,
    variance_split,
)

SD = st.floats(0.01, 1.0)
MARGIN = st.floats(0.01, 0.5)
EFFECT = st.floats(0.01, 0.5)


def cases(sd: float, margin: float = 0.05) -> int:
    needed = cases_for_margin(sd, margin=margin).value
    assert needed is not None
    return needed


# --- cases for the gate ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sd", "margin", "needed"),
    [
        (0.15, 0.05, 107),
        (0.20, 0.05, 147),
        (0.25, 0.05, 200),
        (0.20, 0.02, 729),
        (0.20, 0.10, 50),
        (0.00, 0.05, 53),
        (0.00, 0.02, 132),
    ],
)
def test_the_gate_needs_the_cases_that_the_documentation_promises(
    sd: float, margin: float, needed: int
) -> None:
    assert cases(sd, margin) == needed


@pytest.mark.parametrize("sd", [0.0, 0.01, 0.2, 1.0])
@pytest.mark.parametrize("drop", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.99])
def test_the_search_finds_what_trying_every_number_finds(
    sd: float, drop: float, power: float
) -> None:
    margin, alpha = 0.11, 0.05
    n = np.arange(2, 2_000, dtype=float)
    variance = ((n - 1) * sd**2 + n * drop**2 / (n + 1)) / n
    criterion = (
        drop / (n + 1)
        + stdtrit(n, 1 - alpha) * np.sqrt(variance / (n + 1))
        + ndtri(power) * sd * np.sqrt(n) / (n + 1)
    )
    assert np.all(np.diff(criterion) <= 0)
    needed = cases_for_margin(sd, margin=margin, worst_case_drop=drop, power=power)
    assert needed.value == int(n[np.argmax(criterion < margin)])


@pytest.mark.parametrize(("sd", "margin"), [(0.15, 0.05), (0.20, 0.05), (0.25, 0.05), (0.20, 0.10)])
def test_an_unchanged_candidate_passes_four_times_in_five_at_the_computed_n(
    sd: float, margin: float
) -> None:
    n, simulations = cases(sd, margin), 20_000
    differences = np.random.default_rng(20250131).normal(0.0, sd, size=(simulations, n))
    with_pseudo_case = np.column_stack([differences, np.full(simulations, -1.0)])
    error = with_pseudo_case.std(axis=1, ddof=1) / math.sqrt(n + 1)
    bound = with_pseudo_case.mean(axis=1) - stdtrit(n, 0.95) * error
    passed = float(np.mean(bound > -margin))
    monte_carlo_error = 3 * math.sqrt(0.8 * 0.2 / simulations)
    assert 0.79 - monte_carlo_error <= passed <= 0.81 + monte_carlo_error


def test_a_plan_beyond_every_budget_is_none_rather_than_a_number() -> None:
    assert cases_for_margin(0.25, margin=1e-5).value is None
    assert cases_for_effect(1e-5, sd=0.25).value is None
    assert cases_for_effect(5e-324, sd=1e300).value is None
    assert cases_for_margin(1e200).value is None


def test_the_largest_plan_is_still_found() -> None:
    # The criterion is about (1.645 + 0.842) sd / sqrt(n) for many cases.
    needed = cases_for_margin(1.0, margin=0.0025).value
    assert needed is not None
    assert 980_000 < needed <= MOST_CASES


@settings(deadline=None)
@given(sd=SD, other=SD, margin=MARGIN)
def test_noisier_differences_never_need_fewer_cases(sd: float, other: float, margin: float) -> None:
    low, high = sorted((sd, other))
    assert cases(low, margin) <= cases(high, margin)


@settings(deadline=None)
@given(sd=SD, margin=MARGIN, other=MARGIN)
def test_a_wider_margin_never_needs_more_cases(sd: float, margin: float, other: float) -> None:
    narrow, wide = sorted((margin, other))
    assert cases(sd, wide) <= cases(sd, narrow)


# --- cases for an effect --------------------------------------------------------------------


def test_planning_prints_what_the_documentation_promises() -> None:
    assert round(100 * smallest_effect(50, sd=0.20).value) == 8
    assert cases_for_effect(0.05, sd=0.20).value == 128
    assert cases_for_effect(0.02, sd=0.20).value == 787


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.10])
def test_power_agrees_with_statsmodels(alpha: float) -> None:
    reference = TTestPower()
    for n, ratio in itertools.product([2, 3, 5, 10, 30, 100, 1_000], [0.05, 0.1, 0.3, 0.5, 1.0]):
        if ratio * math.sqrt(n) > 5:  # from here on the reference has nan in its lower tail
            continue
        expected = reference.power(effect_size=ratio, nobs=n, alpha=alpha)
        found = paired_power(n, effect=ratio * 0.2, sd=0.2, alpha=alpha).value
        assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("ratio", [0.05, 0.1, 0.25, 0.5, 0.8])
def test_cases_for_an_effect_agree_with_statsmodels(ratio: float, power: float) -> None:
    expected = TTestPower().solve_power(effect_size=ratio, alpha=0.05, power=power)
    assert cases_for_effect(ratio * 0.2, sd=0.2, power=power).value == math.ceil(expected)


@pytest.mark.parametrize("n", [2, 3, 6, 31, 1_001])
def test_power_agrees_with_an_integral_where_scipy_answers_nan(n: int) -> None:
    critical = stdtrit(n - 1, 0.975)
    middles = (np.arange(50_000) + 0.5) / 50_000
    spread = np.sqrt(chdtri(n - 1, middles) / (n - 1))
    for shift in np.linspace(0.25, 40.0, 80):
        expected = np.mean(ndtr(shift - critical * spread) + ndtr(-shift - critical * spread))
        found = paired_power(n, effect=shift / math.sqrt(n), sd=1.0).value
        assert found == pytest.approx(expected, abs=2e-5)


@settings(deadline=None)
@given(effect=EFFECT, sd=SD)
def test_cases_for_an_effect_are_enough_and_one_fewer_is_not(effect: float, sd: float) -> None:
    n = cases_for_effect(effect, sd=sd).value
    assert n is not None
    assert paired_power(n, effect=effect, sd=sd).value >= 0.8
    assert n == 2 or paired_power(n - 1, effect=effect, sd=sd).value < 0.8


@settings(max_examples=50, deadline=None)
@given(n=st.integers(2, 100_000), sd=SD, power=st.floats(0.1, 0.999))
def test_the_smallest_effect_has_the_power_asked_for(n: int, sd: float, power: float) -> None:
    effect = smallest_effect(n, sd=sd, power=power).value
    assert paired_power(n, effect=effect, sd=sd).value == pytest.approx(power, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(2, 10_000), more=st.integers(1, 10_000), sd=SD)
def test_more_cases_show_smaller_effects(n: int, more: int, sd: float) -> None:
    assert smallest_effect(n + more, sd=sd).value < smallest_effect(n, sd=sd).value


@settings(deadline=None)
@given(n=st.integers(2, 10_000), more=st.integers(1, 100), effect=EFFECT, sd=SD)
def test_more_cases_never_lose_power(n: int, more: int, effect: float, sd: float) -> None:
    before = paired_power(n, effect=effect, sd=sd).value
    assert paired_power(n + more, effect=effect, sd=sd).value >= before - 1e-9


@settings(deadline=None)
@given(effect=EFFECT, sd=SD, other=SD)
def test_noisier_differences_never_show_an_effect_sooner(
    effect: float, sd: float, other: float
) -> None:
    low, high = sorted((sd, other))
    quiet, noisy = (cases_for_effect(effect, sd=spread).value for spread in (low, high))
    assert quiet is not None
    assert noisy is not None
    assert quiet <= noisy


def test_a_drop_is_as_visible_as_a_gain() -> None:
    drop, gain = (paired_power(40, effect=effect, sd=0.2).value for effect in (-0.07, 0.07))
    assert drop == gain


def test_without_an_effect_power_is_the_false_alarm_rate() -> None:
    assert paired_power(25, effect=0.0, sd=0.2, alpha=0.05).value == pytest.approx(0.05)


# --- a shaky sd -----------------------------------------------------------------------------


def test_the_range_of_an_sd_uses_the_chi_squared_table() -> None:
    found = sd_range(0.2, 10)  # table: chi-squared(9) has 4.168 at 0.1 and 14.684 at 0.9
    assert found.low == pytest.approx(0.2 * math.sqrt(9 / 14.684), rel=1e-4)
    assert found.high == pytest.approx(0.2 * math.sqrt(9 / 4.168), rel=1e-4)


def test_the_range_of_an_sd_covers_the_truth_four_times_in_five() -> None:
    n, simulations = 8, 20_000
    samples = np.random.default_rng(7).normal(size=(simulations, n)).std(axis=1, ddof=1)
    one = sd_range(1.0, n)
    covered = float(np.mean((samples * one.low < 1.0) & (samples * one.high > 1.0)))
    assert covered == pytest.approx(0.8, abs=0.01)


# --- repeats --------------------------------------------------------------------------------


def test_the_variance_of_equal_repeats_splits_as_worked_by_hand() -> None:
    split = variance_split([[1.0, 3.0], [5.0, 7.0], [9.0, 11.0]])
    assert split is not None
    # Means 2, 6, 10 about 6; every case has a sum of squares of 2 about its own mean.
    assert (split.n, split.k0, split.msw, split.msb) == (3, 2.0, 2.0, 32.0)
    assert (split.within, split.between) == (2.0, 15.0)


def test_the_variance_of_unequal_repeats_splits_as_worked_by_hand() -> None:
    split = variance_split([[0.0], [2.0, 4.0], [6.0, 6.0, 6.0]])
    assert split is not None
    # N = 6, grand mean 4: SSW = 2, SSB = 1*16 + 2*1 + 3*4 = 30, k0 = (6 - 14/6) / 2.
    assert split.msw == pytest.approx(2 / 3)
    assert split.msb == pytest.approx(15.0)
    assert split.k0 == pytest.approx(11 / 6)
    assert split.between == pytest.approx((15 - 2 / 3) / (11 / 6))


def test_planted_variances_are_recovered() -> None:
    rng = np.random.default_rng(11)
    centres = rng.normal(0.0, 0.3, size=4_000)
    repeats = [rng.normal(centre, 0.1, size=rng.integers(1, 5)).tolist() for centre in centres]
    split = variance_split(repeats)
    assert split is not None
    assert split.between == pytest.approx(0.09, rel=0.1)
    assert split.within == pytest.approx(0.01, rel=0.1)


def test_noise_alone_never_gives_a_negative_variance_between_cases() -> None:
    split = variance_split([[0.0, 1.0], [1.0, 0.0]])
    assert split is not None
    assert (split.between, split.within) == (0.0, 0.5)


@pytest.mark.parametrize(
    "repeats", [[], [[]], [[0.1, 0.9]], [[0.1], [0.9], [0.5]], [[0.1, 0.2], []]]
)
def test_a_split_that_cannot_be_estimated_is_none(repeats: list[list[float]]) -> None:
    assert variance_split(repeats) is None


def test_missing_repeats_must_be_left_out() -> None:
    with pytest.raises(ValueError, match="leave missing ones out"):
        variance_split([[0.1, math.nan], [0.2, 0.3]])


@pytest.mark.parametrize(
    ("within", "between", "cost_ratio", "best"),
    [
        (0.04, 0.01, 4.0, 4),
        (0.01, 0.04, 1.0, 1),
        (0.0, 0.04, 9.0, 1),
        (0.0, 0.0, 9.0, 1),
        (0.04, 0.0, 1.0, None),
        (1.0, 5e-324, 1.0, None),
    ],
)
def test_repeats_pay_only_where_noise_within_cases_dominates(
    within: float, between: float, cost_ratio: float, best: int | None
) -> None:
    assert best_repeats(within, between, cost_ratio=cost_ratio).value == best


@settings(deadline=None)
@given(
    within=st.floats(0.001, 1.0), between=st.floats(0.001, 1.0), cost_ratio=st.floats(0.1, 100.0)
)
def test_no_other_number_of_repeats_is_clearly_cheaper(
    within: float, between: float, cost_ratio: float
) -> None:
    def cost_of_precision(k: float) -> float:
        return (between + within / k) * (cost_ratio + k)

    best = best_repeats(within, between, cost_ratio=cost_ratio).value
    assert best is not None
    exact = math.sqrt(cost_ratio * within / between)
    assert abs(best - max(1.0, exact)) <= 0.5
    assert cost_of_precision(max(1.0, exact)) <= cost_of_precision(best) * (1 + 1e-12)


# --- what cannot be planned, and what is said -----------------------------------------------


@pytest.mark.parametrize("bad", [0.0, -0.1, math.nan, math.inf])
def test_an_effect_cannot_be_planned_without_a_spread(bad: float) -> None:
    with pytest.raises(ValueError, match="sd must be above 0"):
        cases_for_effect(0.05, sd=bad)
    with pytest.raises(ValueError, match="sd must be above 0"):
        smallest_effect(50, sd=bad)
    with pytest.raises(ValueError, match="sd must be above 0"):
        paired_power(50, effect=0.05, sd=bad)
    with pytest.raises(ValueError, match="sd must be above 0"):
        sd_range(bad, 50)


@pytest.mark.parametrize("bad", [1, 0, -5])
def test_fewer_than_two_cases_have_no_power(bad: int) -> None:
    for plan in (
        lambda: smallest_effect(bad, sd=0.2),
        lambda: paired_power(bad, effect=0.05, sd=0.2),
        lambda: sd_range(0.2, bad),
    ):
        with pytest.raises(ValueError, match="at least 2 cases"):
            plan()


@pytest.mark.parametrize("bad", [0.0, -0.05, math.nan, math.inf])
def test_a_margin_or_an_effect_must_be_above_zero(bad: float) -> None:
    with pytest.raises(ValueError, match="margin must be above 0"):
        cases_for_margin(0.2, margin=bad)
    with pytest.raises(ValueError, match="effect must be above 0"):
        cases_for_effect(bad, sd=0.2)


def test_other_impossible_plans_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="sd must be a number from 0 up"):
        cases_for_margin(-0.1)
    with pytest.raises(ValueError, match="alpha must be"):
        cases_for_margin(0.2, alpha=0.5)
    with pytest.raises(ValueError, match="power must be"):
        cases_for_margin(0.2, power=1.0)
    with pytest.raises(ValueError, match="worst_case_drop must be"):
        cases_for_margin(0.2, worst_case_drop=-1.0)
    with pytest.raises(ValueError, match="power must be between alpha"):
        smallest_effect(50, sd=0.2, power=0.05)
    with pytest.raises(ValueError, match="alpha must be between"):
        paired_power(50, effect=0.05, sd=0.2, alpha=0.0)
    with pytest.raises(ValueError, match="cost_ratio must be above 0"):
        best_repeats(0.1, 0.1, cost_ratio=0.0)
    with pytest.raises(ValueError, match="between must be a variance"):
        best_repeats(0.1, -0.1, cost_ratio=1.0)


def test_every_plan_says_how_and_under_which_assumptions() -> None:
    gate = cases_for_margin(0.2)
    assert gate.n == gate.value
    assert "the candidate is really unchanged" in gate.assumptions
    assert "sd of the paired differences 0.2" in gate.assumptions
    for plan in (cases_for_effect(0.05, sd=0.2), smallest_effect(50, sd=0.2)):
        assert plan.method == "noncentral t, two-sided paired t-test"
        assert "power 0.8" in plan.assumptions


def test_the_public_names_are_the_ones_listed() -> None:
    assert all(hasattr(stats, name) for name in stats.__all__)
    assert stats.DEFAULT_SD == 0.25
