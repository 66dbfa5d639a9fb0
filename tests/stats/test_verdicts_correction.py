"""Adjusted p-values against statsmodels and by property."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from edison_ci.stats.verdicts import benjamini_hochberg, holm

P_VALUES = st.lists(st.floats(0, 1, allow_nan=False), min_size=1, max_size=20)


def test_holm_by_hand() -> None:
    # sorted .01 .02 .03 .04 times 4 3 2 1: .04 .06 .06 .04, made monotone: .04 .06 .06 .06
    assert holm([0.03, 0.01, 0.04, 0.02]).value == pytest.approx((0.06, 0.04, 0.06, 0.06))


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_both_agree_with_statsmodels(n: int) -> None:
    p = (np.random.default_rng(n).random(n) ** 3).round(2)  # with ties
    expected = multipletests(p, method="holm")[1]
    assert holm(p).value == pytest.approx(expected.tolist(), abs=1e-12)
    expected = multipletests(p, method="fdr_bh")[1]
    assert benjamini_hochberg(p).value == pytest.approx(expected.tolist(), abs=1e-12)


@settings(deadline=None)
@given(P_VALUES)
def test_adjusting_never_lowers_a_p_and_keeps_the_order(p: list[float]) -> None:
    adjusted = holm(p).value
    assert all(a >= b - 1e-15 for a, b in zip(adjusted, p, strict=True))
    pairs = sorted(zip(p, adjusted, strict=True))
    assert all(x[1] <= y[1] for x, y in itertools.pairwise(pairs) if x[0] < y[0])


@settings(deadline=None)
@given(P_VALUES, st.floats(0, 1, allow_nan=False))
def test_a_larger_family_never_makes_a_p_smaller(p: list[float], other: float) -> None:
    small, large = holm(p).value, holm([*p, other]).value[:-1]
    assert all(a <= b + 1e-15 for a, b in zip(small, large, strict=True))


def test_one_comparison_needs_no_allowance_and_none_has_none() -> None:
    assert holm([0.04]).value == (0.04,)
    assert holm([]).value == () and benjamini_hochberg([]).value == ()


def test_what_stands_out_is_named() -> None:
    assert holm([0.01, 0.2]).stands_out == (True, False)
    assert benjamini_hochberg([0.01, 0.2]).level == 0.10


@pytest.mark.parametrize("bad", [[-0.1], [1.1], [float("nan")]])
def test_what_is_no_p_value_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="p-values"):
        holm(bad)
