"""Drift: drops, evidence, trends and forecasts against references, and false alarms counted."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import kendalltau, linregress, norm, t, theilslopes

from edison_ci.stats.drift import (
    ALERT_YEARS,
    WARN_YEARS,
    Alarm,
    AlarmRule,
    case_means,
    drop_since,
    evidence_of_drop,
    evidence_of_rate,
    evidence_path,
    forecast,
    trend,
    watch,
    watch_means,
)
from edison_ci.stats.paired import paired_difference

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_the_reference_is_the_mean_of_each_case() -> None:
    runs = [{"a": 0.2, "b": 1.0}, {"a": 0.4}, {"a": 0.6}, {"a": 0.6}, {"a": 0.7}]
    assert case_means(runs) == {"a": pytest.approx(0.5), "b": 1.0}


def test_a_drop_has_an_interval_over_cases_or_clusters() -> None:
    old, new = runs_of([0.8])[0], runs_of([0.7], seed=2)[0]
    found = drop_since(old, new)
    a, b = np.array(list(old.values())), np.array(list(new.values()))
    assert found.value == pytest.approx((a.mean() - b.mean()) / a.mean())
    expected = paired_difference(b - a)
    assert expected is not None and found.interval == expected.interval
    assert found.reaches(0.1) and found.n == 20
    documents = {case: f"d{i % 4}" for i, case in enumerate(sorted(old))}
    clustered = drop_since(old, new, clusters=documents)
    assert clustered.method == "paired t, clustered" and clustered.interval != found.interval


def test_nothing_to_compare_is_no_number() -> None:
    empty = drop_since({}, {"a": 0.5})
    assert (empty.value, empty.points, empty.n) == (None, 0, 0)
    zero = drop_since({"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0})
    assert zero.value is None and not zero.reaches(0.1)


# --- evidence ---------------------------------------------------------------------------------

WEEKLY = 7 * np.arange(200.0)


def by_hand(scores: Array, gaps: list[float]) -> float:
    """Return (Q + g) e, run by run, from the definition: which of the runs was the newest?"""
    capital = [0.0] * 4
    for n in range(6, len(scores) + 1):
        away = scores[:n] - scores[:n].mean(axis=0)
        noise = (away**2).sum() / (n - 1)
        for place, shift in enumerate((0.02, 0.05, 0.1, 0.2)):
            bets = np.exp(-scores.shape[1] * shift / noise * away)
            e = np.prod(bets[-1] / bets.mean(axis=0))
            capital[place] = (capital[place] + gaps[n - 1]) * e
    return float(np.mean(capital))


def as_runs(scores: Array) -> list[dict[str, float]]:
    return [{f"c{i:03}": float(x) for i, x in enumerate(row)} for row in scores]


def test_the_evidence_is_that_of_its_definition() -> None:
    scores = np.random.default_rng(3).uniform(0.5, 0.9, (9, 6))
    times = np.array([0, 1, 2, 4, 5, 5.5, 6, 36, 37.0])
    gaps = [0.0, *(min(gap, 7.0) / 365.25 for gap in np.diff(times))]
    found = evidence_of_drop(times, as_runs(scores))
    assert found.value == pytest.approx(by_hand(scores, gaps), rel=1e-6)
    assert found.value < WARN_YEARS


def test_an_e_value_has_mean_one_over_which_run_was_the_newest() -> None:
    """The promise rests on it: with every order of a case as likely, exactly."""
    scores = np.array([[0.9, 0.2, 0.7, 0.6, 0.6, 0.1]]).T
    years = [
        evidence_of_drop(WEEKLY[:6], as_runs(np.roll(scores, shift, axis=0))).value
        for shift in range(6)
    ]
    assert np.mean(years) == pytest.approx(7 / 365.25)


def test_clusters_count_as_one_and_many_cases_are_added_up() -> None:
    runs = runs_of([0.8] * 8 + [0.7], cases=40)
    documents = {f"c{i}": f"d{i % 5}" for i in range(40)}
    alone = evidence_of_drop(WEEKLY[:9], runs)
    clustered = evidence_of_drop(WEEKLY[:9], runs, clusters=documents)
    assert clustered.value < alone.value
    sums = [
        {f"d{d}": np.mean([run[f"c{i}"] for i in range(d, 40, 5)]).item() for d in range(5)}
        for run in runs
    ]
    assert clustered.value == pytest.approx(evidence_of_drop(WEEKLY[:9], sums).value, rel=1e-6)
    many = runs_of([0.8] * 8 + [0.7], cases=400)
    assert evidence_of_drop(WEEKLY[:9], many).value > 20


def test_a_missing_score_says_nothing() -> None:
    runs = runs_of([0.8] * 8, cases=10)
    low = [*runs[:-1], {**runs[-1], "c3": 0.0}]
    gone = [*runs[:-1], {case: x for case, x in runs[-1].items() if case != "c3"}]
    values = [evidence_of_drop(WEEKLY[:8], each).value for each in (low, gone)]
    assert values[1] < WARN_YEARS and values[1] < values[0]


def test_evidence_says_when_a_fall_began_and_starts_anew_after_it() -> None:
    runs = runs_of([0.8] * 12 + [0.6] * 4 + [0.8] * 5)
    fallen = evidence_of_drop(WEEKLY[:16], runs[:16])
    assert (fallen.since, fallen.value > 20) == (12, True)
    path = evidence_path(WEEKLY[:21], runs).years
    assert min(path[12:18]) >= WARN_YEARS > max(path[19:])
    rise = evidence_of_drop(WEEKLY[:20], runs_of([0.6] * 10 + [0.8] * 10))
    assert rise.value < WARN_YEARS


def test_a_pause_is_not_evidence_and_equal_runs_are_quiet() -> None:
    runs = [dict.fromkeys("abc", 0.8)] * 9
    assert evidence_of_drop(WEEKLY[:9], runs).value == pytest.approx(4 * 7 / 365.25)
    times = [*range(8), 4_000.0]
    assert watch(times, runs).alarm is Alarm.NONE
    with pytest.raises(ValueError, match="times"):
        evidence_of_drop([1.0], runs)


@pytest.mark.parametrize(("days", "runs"), [(7, 57), (1, 130), (1 / 24, 200)])
@pytest.mark.parametrize("documents", [None, 5])
def test_a_quiet_series_warns_at_most_once_a_quarter(
    days: float, runs: int, documents: int | None
) -> None:
    repeat, warned, alerted, series = np.random.default_rng(8), 0, 0, 10
    for _ in range(series):
        ability = repeat.beta(6, 2, 20)
        shared = repeat.normal(0, 0.15, (runs, documents or 1))[:, np.arange(20) % (documents or 1)]
        chance = (ability + shared * (documents is not None)).clip(0, 1)
        scores = (repeat.random((runs, 20)) < chance).astype(float)
        clusters = documents and {f"c{i:03}": f"d{i % documents}" for i in range(20)}
        path = evidence_path(
            [days * i for i in range(runs)], as_runs(scores), clusters=clusters or None
        )
        above = np.array(path.years) >= WARN_YEARS
        warned += int((above[1:] & ~above[:-1]).sum())
        alerted += max(path.years) >= ALERT_YEARS
    years = series * (runs - 5) * days / 365.25
    allowed = 4 * years
    assert warned <= allowed + 2 * math.sqrt(allowed) + 1
    assert alerted <= years / 20 + 2 * math.sqrt(years / 20) + 1


# --- rates ------------------------------------------------------------------------------------


def test_a_rate_at_its_limit_is_quiet_and_a_higher_one_is_evident() -> None:
    repeat, days = np.random.default_rng(3), range(200)
    quiet = [(repeat.random(50) < 0.05).astype(float).tolist() for _ in days]
    assert max(evidence_of_rate(days, quiet, limit=0.05)) < 20
    high = [(repeat.random(50) < 0.2).astype(float).tolist() for _ in range(6)]
    assert evidence_of_rate(range(6), high, limit=0.05)[-1] > 1_000


def test_evidence_of_a_rate_is_the_likelihood_ratio_times_the_years() -> None:
    (years,) = evidence_of_rate([3.0], [[1, 0, 1, 0]], limit=0.1)
    rates = [0.1 + 0.9 * share for share in (0.03, 0.1, 0.25, 0.5, 0.9)]
    ratios = [(q / 0.1) ** 2 * ((1 - q) / 0.9) ** 2 for q in rates]
    assert years == pytest.approx(sum(ratios) / 5 / 365.25)


def test_a_run_within_the_limit_ends_the_evidence() -> None:
    runs = [[1.0] * 10, [1.0] * 10, [0.0] * 10, [1.0, *[0.0] * 9]]
    years = evidence_of_rate(range(4), runs, limit=0.2)
    assert years[1] > years[0] > 1
    assert years[2:] == (0, 0)
    assert evidence_of_rate(range(4), runs, limit=1.0) == (0, 0, 0, 0)
    with pytest.raises(ValueError, match="times"):
        evidence_of_rate([1.0], runs, limit=0.2)


def test_a_line_is_a_gradual_fall_and_a_step_is_not() -> None:
    line = watch(WEEKLY[:20], runs_of([0.9 - 0.015 * i for i in range(20)], cases=60))
    step = watch(WEEKLY[:20], runs_of([0.9] * 10 + [0.7] * 10, cases=60))
    assert (line.gradual, step.gradual) == (True, False)
    assert (line.alarm, step.alarm) == (Alarm.ALERT, Alarm.ALERT)
    assert step.evidence.since == 10


def test_a_rule_says_which_drop_matters_and_how_sure_one_has_to_be() -> None:
    runs = runs_of([0.8] * 8 + [0.65] * 4)
    assert watch(range(12), runs).alarm is Alarm.ALERT
    assert watch(range(12), runs, rule=AlarmRule(drop=0.5)).alarm is Alarm.WARN
    assert watch(range(12), runs, rule=AlarmRule(years=1e9)).alarm is Alarm.WARN


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
    left = x - theilslopes(x, times).slope * (times - times[0])
    assert found.intercept == pytest.approx(np.median(left))
    assert not found.equal


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
    assert (flat.p, flat.falling, flat.equal) == (1.0, False, True)
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
    first, last = found.path[0], found.path[-1]
    assert (first.time, last.time) == (times[-1], found.value)
    assert last.value == pytest.approx(0.66)
    wide = s * math.sqrt(1 + 1 / 20 + (found.value - times.mean()) ** 2 / sxx)
    assert last.high - last.value == pytest.approx(t.ppf(0.975, 18) * wide)
    assert first.low < first.value < first.high


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
    assert steady.alarm is Alarm.NONE
    fallen = watch(range(9), runs_of([0.8] * 8 + [0.65]))
    assert (fallen.alarm, fallen.drop.runs) == (Alarm.ALERT, 1)
    lasting = watch(range(12), runs_of([0.8] * 8 + [0.65] * 4))
    assert (lasting.alarm, lasting.drop.runs) == (Alarm.ALERT, 4)
    assert lasting.drop.current == pytest.approx(0.65, abs=0.02)


def test_a_small_sure_drop_only_warns_and_a_tiny_one_is_quiet() -> None:
    found = watch(WEEKLY[:9], runs_of([0.8] * 8 + [0.76], cases=60))
    assert found.alarm is Alarm.WARN and found.evidence.value >= ALERT_YEARS
    assert not found.drop.reaches(0.1)
    tiny = watch(WEEKLY[:9], runs_of([0.8] * 8 + [0.785], cases=200))
    assert tiny.alarm is Alarm.NONE and tiny.evidence.value >= WARN_YEARS


def test_a_slow_fall_warns() -> None:
    found = watch(WEEKLY[:14], runs_of([0.8 - 0.005 * i for i in range(14)]))
    assert found.alarm is not Alarm.NONE and found.trend.falling


def test_a_drop_of_ten_points_alerts_within_a_few_weekly_runs() -> None:
    repeat, seen = np.random.default_rng(9), []
    for _ in range(20):
        ability = repeat.beta(6, 2, 50)
        scores = ability + repeat.normal(0, 0.15, (20, 50))
        scores[12:] -= 0.1
        years = evidence_path(WEEKLY[:20], as_runs(scores.clip(0, 1))).years
        seen.append(next(i for i in range(12, 20) if years[i] >= ALERT_YEARS) - 11)
    assert np.median(seen) <= 2 and max(seen) <= 6


def test_there_is_a_run_to_watch_and_it_has_scores() -> None:
    with pytest.raises(ValueError, match="no run"):
        watch([], [])
    with pytest.raises(ValueError, match="without a score"):
        watch([1], [{}])
    assert watch([1], [{"a": 0.5}]).alarm is Alarm.NONE


# --- samples of other cases each time -------------------------------------------------------------


def false_alarms(draw: Callable[[int], Array], per_year: int, years: int) -> tuple[int, int]:
    """Return how often quiet samples begin to be called WARN and ALERT, or ALERT, in some years."""
    n = per_year * years
    x, times = draw(n), np.arange(n) * 365.25 / per_year
    alarms = [watch_means(times[:k], x[:k]).alarm for k in range(6, n + 1)]
    starts = [now for was, now in pairwise([Alarm.NONE, *alarms]) if was is Alarm.NONE != now]
    return len(starts), alarms.count(Alarm.ALERT)


@pytest.mark.nightly
@pytest.mark.parametrize(("share", "size"), [(0.9, 50), (0.98, 20), (0.6, 20)])
def test_quiet_samples_are_called_a_fall_at_most_once_a_quarter(share: float, size: int) -> None:
    rng = np.random.default_rng(8)
    found = [false_alarms(lambda n: rng.binomial(size, share, n) / size, 52, 2) for _ in range(4)]
    assert sum(warned for warned, _ in found) / 8 <= 4
    assert sum(alerted for _, alerted in found) <= 2


def test_a_fall_of_the_samples_is_seen_within_a_few_of_them() -> None:
    rng = np.random.default_rng(9)
    x = rng.normal(0.8, 0.02, 30)
    x[20:] -= 0.2
    seen = [watch_means(np.arange(float(k)), x[:k]).alarm for k in range(6, 31)]
    assert Alarm.WARN in seen[15:17] and Alarm.NONE not in seen[17:20]
    assert Alarm.ALERT in seen[15:20]
    found = watch_means(np.arange(22.0), x[:22])
    assert (found.drop.runs, found.evidence.since) == (2, 20)
    assert found.drop.reference is not None
    assert found.drop.value == pytest.approx(0.25, abs=0.04)
