"""Corrections of a judge: formulas by hand, promises by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from edison_ci.stats.calibration import (
    JudgeTrust,
    LabelCounts,
    corrected_rate,
    judge_trust,
    side_bias,
    worst_criteria,
)

# --- pass rates -------------------------------------------------------------------------------


def test_a_pass_rate_is_corrected_by_the_published_formula() -> None:
    labels = LabelCounts(45, 50, 40, 50)  # sensitivity .9, specificity .8
    found = corrected_rate(140, 200, labels)
    assert found.value == pytest.approx((0.7 + 0.8 - 1) / 0.7)
    z = norm.ppf(0.975)
    p, q0, q1 = (140 + z**2 / 2) / (200 + z**2), 41 / 52, 46 / 52
    theta = (p + q0 - 1) / (q0 + q1 - 1)
    v0, v1 = q0 * (1 - q0) / 52, q1 * (1 - q1) / 52
    shift = 2 * z**2 * (-(1 - theta) * v0 + theta * v1)
    se = math.sqrt(p * (1 - p) / (200 + z**2) + (1 - theta) ** 2 * v0 + theta**2 * v1)
    se /= q0 + q1 - 1
    assert found.interval == pytest.approx((theta + shift - z * se, theta + shift + z * se))


def test_corrections_that_would_mislead_are_refused() -> None:
    few = corrected_rate(10, 20, LabelCounts(9, 9, 40, 50))
    assert few.value is None and "fewer than 10" in few.method
    blind = corrected_rate(10, 20, LabelCounts(25, 50, 27, 50))
    assert blind.value is None and "hardly" in blind.method
    assert corrected_rate(1, 2, LabelCounts(0, 0, 0, 0)).sensitivity is None
    with pytest.raises(ValueError, match="cannot be"):
        LabelCounts(3, 2, 0, 0)
    with pytest.raises(ValueError, match="cannot be"):
        corrected_rate(3, 2, LabelCounts(1, 2, 1, 2))


def test_a_corrected_rate_stays_between_0_and_1() -> None:
    found = corrected_rate(38, 200, LabelCounts(45, 50, 40, 50))
    assert found.value == 0 and found.interval is not None
    assert found.interval.low == 0 < found.interval.high < 0.3


def test_fewer_passes_than_the_error_rates_allow_are_not_called_zero() -> None:
    # A judge that passes a fifth of the failures cannot pass 1% of anything.
    found = corrected_rate(2, 200, LabelCounts(45, 50, 40, 50))
    assert (found.value, found.interval) == (None, None) and "do not fit" in found.method


def test_a_corrected_rate_covers_the_truth() -> None:
    repeat, runs, hits = np.random.default_rng(6), 1_000, 0
    truth, sensitivity, specificity = 0.7, 0.9, 0.8
    raw = truth * sensitivity + (1 - truth) * (1 - specificity)
    for _ in range(runs):
        labels = LabelCounts(
            int(repeat.binomial(40, sensitivity)), 40, int(repeat.binomial(30, specificity)), 30
        )
        found = corrected_rate(int(repeat.binomial(200, raw)), 200, labels)
        assert found.interval is not None
        hits += found.interval.low <= truth <= found.interval.high
    assert hits / runs >= 0.94


# --- trust ------------------------------------------------------------------------------------


def test_trust_says_bias_agreement_and_correlation() -> None:
    human, judge = [0.2, 0.4, 0.6, 0.8], [0.3, 0.5, 0.7, 0.9]
    found = judge_trust(human, judge)
    assert found.value == pytest.approx(0.1)
    assert found.agreement == 1 and found.correlation == pytest.approx(1)
    assert judge_trust(human, judge, tolerance=0).agreement == 0
    assert judge_trust([0.5, 0.5], [0.1, 0.9]).correlation is None
    assert judge_trust([], []).value is None
    with pytest.raises(ValueError, match="labels"):
        judge_trust([0.5], [])


def test_the_worst_criteria_come_first() -> None:
    def trust(agreement: float, bias: float, n: int = 30) -> JudgeTrust:
        return JudgeTrust(bias, n, "", None, 0.95, agreement, None)

    trusts = {
        "a": trust(0.9, 0.0),
        "b": trust(0.4, 0.1),
        "c": trust(0.4, -0.3),
        "d": trust(0, 0, 0),
    }
    assert worst_criteria(trusts) == ("c", "b", "a")


def test_a_judge_that_favours_one_side_is_noticed() -> None:
    rng = np.random.default_rng(1)
    base = [(0.5 + 0.01 * i, 0.5) for i in range(12)]
    head = [(0.8 + 0.01 * i, 0.5) for i in range(12)]
    found = side_bias(base, head, rng=rng)
    assert found is not None and found.warn
    assert found.value == pytest.approx(0.3)
    assert found.interval is not None and found.interval.low <= 0.3 <= found.interval.high
    fair = side_bias(base, base, rng=rng)
    assert fair is not None and not fair.warn
    assert side_bias([], [], rng=rng) is None
    with pytest.raises(ValueError, match="head"):
        side_bias(base, [], rng=rng)
