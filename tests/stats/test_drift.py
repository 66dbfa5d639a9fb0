"""Drift: drops, sums, trends and forecasts against references, and false alarms counted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import kendalltau, linregress, norm, t, theilslopes, ttest_ind, ttest_rel

from edison_ci.stats.drift import Alarm, cusum, drop_since, forecast, reference_scores, trend, watch

if TYPE_CHECKING:
    from edison_ci.stats.arrays import Array


def runs_of(means: list[float], cases: int = 20, seed: int = 1) -> list[dict[str, float]]:
    repeat = np.random.default_rng(seed)
    ability = repeat.normal(0, 0.05, cases)
    return [
        {
            f"c{i}": float(np.clip(mean + ability[i] + repeat.normal(0, 0.02), 0, 1))
            for i in range(cases)
        }
        for mean in means
    ]


# --- reference and drop -----------------------------------------------------------------------


def test_the_reference_is_the_mean_of_each_case_over_five_runs() -> None:
    runs = [{"a": 0.2, "b": 1.0}, {"a": 0.4}, {"a": 0.6}, {"a": 0.6}, {"a": 0.7}, {"a": 0.0}]
    assert reference_scores(runs) == {"a": pytest.approx(0.5), "b": 1.0}


def test_a_drop_is_tested_in_pairs() -> None:
    old, new = runs_of([0.8])[0], runs_of([0.7], seed=2)[0]
    found = drop_since(old, new)
    a, b = list(old.values()), list(new.values())
    assert found.p == pytest.approx(ttest_rel(b, a, alternative="less").pvalue)
    assert found.value == pytest.approx((np.mean(a) - np.mean(b)) / np.mean(a))
    assert found.large and found.sure


def test_other_cases_are_compared_by_welch() -> None:
    old = {f"x{i}": 0.5 + 0.01 * i for i in range(12)}
    new = {f"y{i}": 0.4 + 0.02 * i for i in range(15)}
    found = drop_since(old, new)
    expected = ttest_ind(
        list(new.values()), list(old.values()), equal_var=False, alternative="less"
    )
    assert found.p == pytest.approx(expected.pvalue)


def test_cases_that_all_fall_alike_are_as_sure_as_coins() -> None:
    old = {f"c{i}": 0.8 for i in range(12)}
    found = drop_since(old, dict.fromkeys(old, 0.6))
    assert found.p == pytest.approx(0.5**12)
    assert drop_since(old, old).p == 1
    other = {f"d{i}": 0.6 for i in range(12)}
    assert drop_since(old, other).p == pytest.approx(1 / math.comb(24, 12))
    assert drop_since(old, {f"d{i}": 0.8 for i in range(12)}).p == 1


def test_nothing_to_compare_is_no_number() -> None:
    assert drop_since({}, {"a": 0.5}).value is None
    zero = drop_since({"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0})
    assert zero.value is None and not zero.large
    assert drop_since({"a": 0.5}, {"a": 0.4}).p is None


# --- CUSUM ------------------------------------------------------------------------------------


def test_the_sum_is_that_of_the_contract() -> None:
    x = [0.8, 0.82, 0.79, 0.81, 0.74, 0.73]
    total = 0.0
    for n in range(4, 7):
        before = np.array(x[: n - 1])
        spread = max(before.std(ddof=1), 0.005)
        statistic = math.sqrt((n - 1) / n) * (x[n - 1] - before.mean()) / spread
        total = max(0.0, total - norm.ppf(t.cdf(statistic, n - 2)) - 0.5)
    assert cusum(x).value == pytest.approx(total)


def test_a_fall_warns_and_the_sum_restarts() -> None:
    found = cusum([0.8, 0.81, 0.79, 0.8, 0.8, 0.81] * 2 + [0.7] * 4)
    assert found.warnings and found.warnings[0] in (12, 13)
    assert not cusum([0.8, 0.9, 0.7]).warnings
    assert cusum([]).value == 0


def test_a_rise_never_warns_and_equal_runs_do_not_divide_by_zero() -> None:
    assert not cusum(np.linspace(0.5, 0.9, 30)).warnings
    assert not cusum([0.8] * 30).warnings
    assert cusum([0.8] * 10 + [0.1]).warns_now


def test_few_series_without_drift_warn() -> None:
    repeat = np.random.default_rng(4)
    warned = np.mean([bool(cusum(repeat.normal(0.8, 0.02, 50)).warnings) for _ in range(400)])
    assert warned <= 0.12 + 0.04


# --- trend ------------------------------------------------------------------------------------


def test_the_trend_is_kendalls_s_and_the_median_slope() -> None:
    repeat = np.random.default_rng(5)
    times = np.cumsum(repeat.uniform(0.5, 2, 20))
    x = 0.9 - 0.004 * times + repeat.normal(0, 0.01, 20)
    found = trend(times, x)
    assert found.value == pytest.approx(theilslopes(x, times).slope)
    assert found.s is not None
    assert found.s == pytest.approx(kendalltau(times, x).statistic * 190)
    z = (found.s + 1) / math.sqrt(20 * 19 * 45 / 18)
    assert found.p == pytest.approx(2 * norm.cdf(-abs(z)))
    assert found.falling


def test_ties_lower_the_variance() -> None:
    x = [0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8]
    found = trend(range(8), x)
    # S: 28 pairs less 3 + 1 + 1 tied; var = (8*7*21 - 3*2*11 - 2*1*9 - 2*1*9) / 18
    z = 22 / math.sqrt((1176 - 66 - 18 - 18) / 18)
    assert found.s == 23
    assert found.p == pytest.approx(2 * norm.cdf(-z))


def test_fewer_than_eight_runs_have_no_trend_and_equal_ones_none_either() -> None:
    assert trend(range(7), [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]).value is None
    flat = trend(range(10), [0.5] * 10)
    assert (flat.p, flat.falling) == (1.0, False)
    with pytest.raises(ValueError, match="order"):
        trend([1, 1], [0.5, 0.5])
    with pytest.raises(ValueError, match="times"):
        trend([1, 2], [0.5])


# --- forecast ---------------------------------------------------------------------------------


def falling(n: int = 20, seed: int = 6) -> tuple[Array, Array]:
    repeat = np.random.default_rng(seed)
    times = np.arange(float(n))
    return times, 0.9 - 0.01 * times + repeat.normal(0, 0.004, n)


def test_the_line_crosses_where_it_crosses_and_the_limits_around_it() -> None:
    times, x = falling()
    found = forecast(times, x, threshold=0.66)
    line = linregress(times, x)
    assert found.value == pytest.approx((0.66 - line.intercept) / line.slope)
    assert found.interval is not None and found.value is not None
    residual = x - line.intercept - line.slope * times
    s = math.sqrt(float(residual @ residual) / 18)
    for when, sign in zip(found.interval, (-1, 1), strict=True):
        sxx = float(((times - times.mean()) ** 2).sum())
        wide = s * math.sqrt(1 + 1 / 20 + (when - times.mean()) ** 2 / sxx)
        limit = line.intercept + line.slope * when + sign * t.ppf(0.975, 18) * wide
        assert limit == pytest.approx(0.66)
    assert found.interval.low < found.value < found.interval.high


def test_what_cannot_be_predicted_is_not() -> None:
    times, x = falling()
    assert forecast(times, x, threshold=0.3).reason == "too far to predict"
    assert forecast(times, x, threshold=0.85).reason == "already at the threshold"
    assert forecast(times, x[::-1], threshold=0.5).reason == "no clear fall"


def test_an_unsure_slope_has_no_upper_crossing() -> None:
    x = 0.8 - 0.002 * np.arange(11.0)
    x[5] += 0.3  # a clear fall by ranks, with one run so far off that the line is unsure
    found = forecast(np.arange(11.0), x, threshold=0.805)
    assert found.value is not None and found.interval is None


# --- the whole --------------------------------------------------------------------------------


def test_a_large_sure_drop_alerts_and_a_steady_series_is_quiet() -> None:
    steady = watch(range(9), runs_of([0.8] * 9))
    assert (steady.alarm, steady.reasons) == (Alarm.NONE, ())
    fallen = watch(range(9), runs_of([0.8] * 8 + [0.65]))
    assert fallen.alarm is Alarm.ALERT
    assert "10% below the reference" in fallen.reasons


def test_a_small_sure_drop_only_warns() -> None:
    found = watch(range(9), runs_of([0.8] * 8 + [0.76], cases=60))
    assert found.alarm is Alarm.WARN and found.drop.sure and not found.drop.large


def test_a_slow_fall_warns() -> None:
    found = watch(range(14), runs_of([0.8 - 0.003 * i for i in range(14)]))
    assert found.alarm is not Alarm.NONE and found.trend.falling


def test_there_is_a_run_to_watch_and_it_has_scores() -> None:
    with pytest.raises(ValueError, match="no run"):
        watch([], [])
    with pytest.raises(ValueError, match="without a score"):
        watch([1], [{}])


def test_a_year_of_weekly_runs_hardly_ever_alerts_falsely() -> None:
    repeat, alerts, years = np.random.default_rng(8), 0, 120
    for _ in range(years):
        ability = repeat.beta(6, 2, 20)
        runs = (repeat.random((53, 20, 2)) < ability[None, :, None]).mean(axis=2)
        reference = runs[:5].mean(axis=0)
        d = runs[5:] - reference
        sizes = (reference.mean() - runs[5:].mean(axis=1)) / reference.mean()
        p = t.cdf(d.mean(axis=1) / (d.std(axis=1, ddof=1) / math.sqrt(20)), 19)
        alerts += bool(((sizes >= 0.1) & (p <= 0.001)).any())
    assert alerts / years <= 0.03
