"""Corrections of a judge: formulas by hand, promises by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm, t

from edison_ci.stats.calibration import (
    JudgeTrust,
    LabelCounts,
    LabelledScores,
    corrected_mean,
    corrected_rate,
    judge_trust,
    side_bias,
    worst_criteria,
)
from edison_ci.stats.intervals import mean_interval


def sample(n: int, others: int, seed: int, *, bias: float = 0.1) -> tuple[LabelledScores, float]:
    """Return labels and scores of a judge that is too generous, and the true mean."""
    repeat = np.random.default_rng(seed)
    truth = repeat.beta(4, 2, n + others)
    judge = np.clip(truth + bias + repeat.normal(0, 0.1, n + others), 0, 1)
    return LabelledScores(truth[:n], judge[:n], judge[n:]), 4 / 6


def test_the_prediction_powered_mean_is_the_formula() -> None:
    data, _ = sample(40, 200, 1)
    human, judge, rest = (np.asarray(x) for x in (data.human, data.judge, data.unlabelled))
    everything = np.concatenate((judge, rest))
    lam = np.cov(human, judge)[0, 1] / ((1 + 40 / 200) * everything.var(ddof=1))
    lam = min(1, max(0, lam))
    mean = lam * rest.mean() + (human - lam * judge).mean()
    se = math.sqrt(lam**2 * rest.var(ddof=1) / 200 + (human - lam * judge).var(ddof=1) / 40)
    found = corrected_mean(data)
    assert found.value == pytest.approx(mean)
    assert found.trust == pytest.approx(lam)
    reach = t.ppf(0.975, 39) * se
    assert found.interval == pytest.approx((mean - reach, mean + reach))


def test_a_generous_judge_is_corrected_and_the_interval_is_narrower() -> None:
    data, truth = sample(60, 300, 2)
    found = corrected_mean(data)
    assert found.value is not None and found.judge_mean is not None and found.interval is not None
    assert found.judge_mean > truth + 0.05
    assert abs(found.value - truth) < 0.05
    alone = mean_interval(data.human)
    assert alone is not None and alone.interval is not None
    assert found.interval.high - found.interval.low < alone.interval.high - alone.interval.low


def test_a_useless_judge_is_not_trusted() -> None:
    repeat = np.random.default_rng(3)
    human = repeat.uniform(0, 1, 50)
    assert corrected_mean(LabelledScores(human, [0.7] * 50, [0.7] * 100)).trust == 0
    backwards = corrected_mean(LabelledScores(human, 1 - human, repeat.uniform(0, 1, 100)))
    assert backwards.trust == 0
    assert backwards.value == pytest.approx(human.mean())


def test_few_labels_stand_alone() -> None:
    data, _ = sample(19, 100, 4)
    found = corrected_mean(data)
    assert "labels alone" in found.method and found.trust == 0
    assert found.value == pytest.approx(np.mean(data.human))
    assert corrected_mean(LabelledScores([], [], [0.5])).value is None
    everything = corrected_mean(LabelledScores([0.5, 0.6] * 15, [0.5, 0.6] * 15, []))
    assert "all cases labelled" in everything.method


def test_labels_without_spread_still_have_width() -> None:
    found = corrected_mean(LabelledScores([1.0] * 30, [1.0] * 30, [1.0] * 50))
    assert found.value == 1 and found.interval is not None and found.interval.low < 0.95


def test_differences_are_corrected_too() -> None:
    repeat = np.random.default_rng(5)
    human = repeat.normal(-0.05, 0.2, 150).clip(-1, 1)
    judge = (human + 0.1 + repeat.normal(0, 0.1, 150)).clip(-1, 1)
    found = corrected_mean(LabelledScores(human[:40], judge[:40], judge[40:]), differences=True)
    assert found.value is not None and found.value < 0 < float(judge.mean())
    few = corrected_mean(LabelledScores(human[:5], judge[:5], judge[5:]), differences=True)
    assert few.interval is not None and few.interval.low >= -1


def test_labels_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="labels"):
        corrected_mean(LabelledScores([0.5], [], [0.5]))
    with pytest.raises(ValueError, match="finite"):
        corrected_mean(LabelledScores([math.nan], [0.5], [0.5]))


def test_the_corrected_mean_covers_the_truth_where_the_judge_does_not() -> None:
    runs, hits, judge_hits = 600, 0, 0
    for seed in range(runs):
        data, truth = sample(40, 260, 100 + seed)
        found = corrected_mean(data)
        assert found.interval is not None
        hits += found.interval.low <= truth <= found.interval.high
        alone = mean_interval(np.concatenate((data.judge, data.unlabelled)))
        assert alone is not None and alone.interval is not None
        judge_hits += alone.interval.low <= truth <= alone.interval.high
    assert hits / runs >= 0.93
    assert judge_hits / runs < 0.5


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


# --- clusters -------------------------------------------------------------------------------------


def test_every_case_for_itself_is_nearly_the_same_as_no_clusters() -> None:
    repeat = np.random.default_rng(5)
    people, judge, rest = (repeat.uniform(0, 1, n) for n in (40, 40, 200))
    judge = 0.5 * judge + 0.5 * people
    alone = ([f"a{i}" for i in range(40)], [f"b{i}" for i in range(200)])
    plain = corrected_mean(LabelledScores(people, judge, rest))
    clustered = corrected_mean(LabelledScores(people, judge, rest, alone))
    assert plain.value == clustered.value
    assert plain.interval is not None
    assert clustered.interval is not None
    assert clustered.method == "prediction-powered mean, clustered"
    assert clustered.interval.low == pytest.approx(plain.interval.low, abs=0.003)


def test_cases_that_are_copies_of_each_other_count_once() -> None:
    repeat = np.random.default_rng(5)
    people, judge, rest = (repeat.uniform(0, 1, n) for n in (40, 40, 200))
    names = ([f"a{i}" for i in range(40)], [f"b{i}" for i in range(200)])
    twice = (names[0] * 2, names[1] * 2)
    once = corrected_mean(LabelledScores(people, judge, rest, names))
    more = [np.concatenate((x, x)) for x in (people, judge, rest)]
    doubled = corrected_mean(LabelledScores(more[0], more[1], more[2], twice))
    careless = corrected_mean(LabelledScores(more[0], more[1], more[2]))
    widths = [
        found.interval.high - found.interval.low
        for found in (once, doubled, careless)
        if found.interval is not None
    ]
    assert widths[1] == pytest.approx(widths[0], rel=0.05)
    assert widths[2] < 0.8 * widths[0]


def test_few_labels_of_clusters_stand_alone_with_the_interval_of_clusters() -> None:
    found = corrected_mean(
        LabelledScores(
            [1.0, 1.0, 0.0, 0.0], [1.0] * 4, [1.0] * 5, (["a", "a", "b", "b"], list("vwxyz"))
        )
    )
    plain = corrected_mean(LabelledScores([1.0, 1.0, 0.0, 0.0], [1.0] * 4, [1.0] * 5))
    assert found.interval is not None
    assert plain.interval is not None
    assert found.interval.high - found.interval.low > plain.interval.high - plain.interval.low
