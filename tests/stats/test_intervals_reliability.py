"""pass@k and pass^k by counting, exact intervals by statsmodels, settling by hand."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from edison_ci.stats.intervals import (
    exact_pass_interval,
    jeffreys_interval,
    pass_all_k,
    pass_at_k,
)
from edison_ci.stats.power import VarianceSplit, cases_for_margin, variance_split
from edison_ci.stats.settling import Design, cheapest_settling, flip_sd


@settings(deadline=None)
@given(
    st.integers(1, 7).flatmap(lambda r: st.tuples(st.just(r), st.integers(0, r), st.integers(1, r)))
)
def test_reliability_is_the_share_of_subsets(drawn: tuple[int, int, int]) -> None:
    runs, passes, k = drawn
    marks = [True] * passes + [False] * (runs - passes)
    subsets = list(combinations(marks, k))
    assert pass_at_k(passes, runs, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert pass_all_k(passes, runs, k) == pytest.approx(sum(map(all, subsets)) / len(subsets))


def test_more_than_there_were_is_unknown() -> None:
    assert pass_at_k(2, 3, 4) is None and pass_all_k(2, 3, 4) is None
    with pytest.raises(ValueError, match="cannot be"):
        pass_at_k(4, 3, 1)


@pytest.mark.parametrize(("passes", "n"), [(0, 8), (17, 20), (30, 30)])
def test_exact_and_jeffreys_agree_with_statsmodels(passes: int, n: int) -> None:
    exact, jeffreys = exact_pass_interval(passes, n), jeffreys_interval(passes, n)
    assert exact is not None and jeffreys is not None
    assert (exact.low, exact.high) == pytest.approx(
        proportion_confint(passes, n, method="beta"), abs=1e-10
    )
    low, high = proportion_confint(passes, n, method="jeffreys")
    expected = (0.0 if passes == 0 else low, 1.0 if passes == n else high)
    assert (jeffreys.low, jeffreys.high) == pytest.approx(expected, abs=1e-10)
    assert exact_pass_interval(0, 0) is None
    one = jeffreys_interval(1, 1)
    assert one is not None and one.low is None


# --- settling ---------------------------------------------------------------------------------


def split(between: float, within: float) -> VarianceSplit:
    return VarianceSplit(between, within, 0.0, 0.0, 1.0, 50, "", ())


def test_repeats_are_cheaper_when_noise_is_all_there_is() -> None:
    found = cheapest_settling(split(0.0, 0.04), Design(80, 1, cost_case=10, cost_repeat=1))
    assert found.value == "repeats" and found.repeats is not None
    assert cases_for_margin((0.04 / found.repeats) ** 0.5).value <= 80  # type: ignore[operator]  # int
    fewer = cases_for_margin((0.04 / (found.repeats - 1)) ** 0.5).value
    assert fewer is not None and fewer > 80
    assert found.cost_repeats == 80 * (found.repeats - 1)


def test_cases_are_the_only_way_when_cases_differ() -> None:
    found = cheapest_settling(split(0.04, 0.0), Design(80, 1, cost_case=10, cost_repeat=1))
    assert (found.value, found.repeats, found.more_cases) == ("cases", None, 147 - 80)
    assert found.cost_cases == 67 * 11


def test_a_plan_beyond_every_budget_has_no_way() -> None:
    found = cheapest_settling(split(1e6, 0.0), Design(80, 1, cost_case=10, cost_repeat=1))
    assert (found.value, found.more_cases, found.repeats) == (None, None, None)
    with pytest.raises(ValueError, match="at least one case"):
        cheapest_settling(split(1, 1), Design(0, 1, 1, 1))


def test_a_split_from_data_feeds_the_plan() -> None:
    found = variance_split([[0.1, -0.1], [0.2, 0.0], [-0.2, 0.1]])
    assert found is not None
    assert cheapest_settling(found, Design(3, 2, 1, 1)).n == 3


def test_flips_give_an_sd() -> None:
    assert flip_sd(0.2) == pytest.approx(0.2**0.5)
    assert flip_sd(0.2, -0.1) == pytest.approx((0.2 - 0.01) ** 0.5)
    with pytest.raises(ValueError, match="cannot be"):
        flip_sd(0.1, 0.2)
