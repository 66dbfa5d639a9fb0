"""Plans agree with STATS.md, with statsmodels, with integrals and with simulated gates."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri, stdtrit
from statsmodels.stats.power import TTestPower

from edison_ci.stats.power import (
    DEFAULT_SD,
    MOST_CASES,
    cases_for_margin,
    sd_range,
    smallest_effect,
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


def test_the_search_finds_what_trying_every_number_finds(subtests: pytest.Subtests) -> None:
    for power, drop, sd in product([0.5, 0.8, 0.99], [0.0, 0.1, 1.0], [0.0, 0.01, 0.2, 1.0]):
        with subtests.test(power=power, drop=drop, sd=sd):
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


@settings(max_examples=50, deadline=None)
@given(n=st.integers(2, 10_000), more=st.integers(1, 10_000), sd=SD)
def test_more_cases_show_smaller_effects(n: int, more: int, sd: float) -> None:
    assert smallest_effect(n + more, sd=sd).value < smallest_effect(n, sd=sd).value


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


# --- what cannot be planned, and what is said -----------------------------------------------


def test_a_plan_beyond_every_budget_is_none_rather_than_a_number() -> None:
    assert cases_for_margin(0.25, margin=1e-5).value is None
    assert cases_for_margin(1e200).value is None


def test_the_smallest_effect_has_the_power_asked_for(subtests: pytest.Subtests) -> None:
    for n, power in product([3, 5, 10, 30, 100, 1_000], [0.5, 0.8, 0.95]):
        with subtests.test(n=n, power=power):
            effect = smallest_effect(n, sd=0.2, power=power).value
            # One-sided at half the level: the far tail of the two-sided reference is nan.
            reference = TTestPower().power(effect / 0.2, n, 0.025, alternative="larger")
            assert reference == pytest.approx(power, abs=1e-3)


def test_planning_prints_what_the_documentation_promises() -> None:
    assert DEFAULT_SD == 0.25
    assert round(100 * smallest_effect(50, sd=0.20).value) == 8


@pytest.mark.parametrize("bad", [0.0, -0.1, math.nan, math.inf])
def test_an_effect_cannot_be_planned_without_a_spread(bad: float) -> None:
    with pytest.raises(ValueError, match="sd must be above 0"):
        smallest_effect(50, sd=bad)
    with pytest.raises(ValueError, match="sd must be above 0"):
        sd_range(bad, 50)


@pytest.mark.parametrize("bad", [1, 0, -5])
def test_fewer_than_two_cases_have_no_power(bad: int) -> None:
    with pytest.raises(ValueError, match="at least 2 cases"):
        smallest_effect(bad, sd=0.2)
    with pytest.raises(ValueError, match="at least 2 cases"):
        sd_range(0.2, bad)


@pytest.mark.parametrize("bad", [0.0, -0.05, math.nan, math.inf])
def test_a_margin_must_be_above_zero(bad: float) -> None:
    with pytest.raises(ValueError, match="margin must be above 0"):
        cases_for_margin(0.2, margin=bad)


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


def test_every_plan_says_how_and_under_which_assumptions() -> None:
    gate = cases_for_margin(0.2)
    assert gate.n == gate.value
    assert "the candidate is really unchanged" in gate.assumptions
    assert "sd of the paired differences 0.2" in gate.assumptions
    plan = smallest_effect(50, sd=0.2)
    assert plan.method == "noncentral t, two-sided paired t-test"
    assert "power 0.8" in plan.assumptions
