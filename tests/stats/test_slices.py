"""Parts of the cases against the rest, held to scipy, to the arrays and to permutations."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from edison_ci.stats.intervals import clustered_interval, mean_interval
from edison_ci.stats.scores import t_tail
from edison_ci.stats.slices import ClusteredScores, Moments, Scores, against_rest


def scores(n: int, seed: int) -> list[float]:
    return [float(x) for x in np.random.default_rng(seed).beta(4, 2, n)]


@pytest.mark.parametrize("n", [1, 2, 10, 500])
def test_running_sums_give_the_interval_of_the_scores(n: int) -> None:
    values = scores(n, n)
    found, expected = Moments.of(values).interval(), mean_interval(values)
    assert found is not None and expected is not None
    assert (found.n, found.method) == (expected.n, expected.method)
    assert found.estimate == pytest.approx(expected.estimate)
    assert found.low == (None if expected.low is None else pytest.approx(expected.low))


def test_ten_perfect_scores_are_no_certainty() -> None:
    found = Moments.of([1.0] * 10).interval()
    assert found is not None and found.low == pytest.approx(0.69, abs=0.005)
    assert Moments().interval() is None


def test_parts_add_up_and_are_taken_out_again() -> None:
    values = scores(40, 1)
    whole, part, rest = (Moments.of(v) for v in (values, values[:15], values[15:]))
    left = whole.without(part)
    assert left.n == 25
    assert left.mean == pytest.approx(rest.mean)
    assert left.sd == pytest.approx(rest.sd)
    part.merge(rest)
    assert part.sd == pytest.approx(statistics.stdev(values))
    part.merge(Moments())
    assert part.n == 40
    assert Moments.of(values).without(whole).n == 0
    assert Moments.of([0.5]).sd is None


@pytest.mark.parametrize("clustered", [False, True])
def test_many_scores_at_once_are_the_same_as_one_by_one(clustered: bool) -> None:
    values = [*scores(25, 4), 0.0, 1.0]
    groups = [f"g{i % 9}" for i in range(len(values))]
    single, many = (Scores.empty(clustered=clustered) for _ in range(2))
    for value, group in zip(values, groups, strict=True):
        single.add(value, group)
    for at in range(0, len(values), 10):
        many.extend(values[at : at + 10], groups[at : at + 10])
    assert many == single, "to the last digit"
    assert not many.yes_or_no


def test_clusters_have_the_interval_of_the_arrays() -> None:
    values = scores(60, 2)
    groups = [f"g{i % 17}" for i in range(60)]
    grouped = ClusteredScores()
    for group, value in zip(groups, values, strict=True):
        grouped.add(group, value)
    found, expected = grouped.interval(), clustered_interval(values, groups)
    assert found is not None and expected is not None
    assert found.low == pytest.approx(expected.low)
    assert found.high == pytest.approx(expected.high)
    assert grouped.units().n == 17
    one = ClusteredScores({"g": (1.2, 2)}).interval()
    assert one is not None and one.low is None and one.estimate == pytest.approx(0.6)
    assert ClusteredScores().interval() is None
    same = ClusteredScores({"a": (1.0, 1), "b": (2.0, 2)}).interval()
    assert same is not None and same.method == "all scores equal"


def test_clusters_are_taken_out_of_clusters() -> None:
    whole = ClusteredScores({"a": (2.0, 3), "b": (0.5, 1), "c": (1.0, 1)})
    left = whole.without(ClusteredScores({"a": (1.0, 1), "b": (0.5, 1)}))
    assert left.groups == {"a": (1.0, 2), "c": (1.0, 1)}


def test_a_part_is_compared_as_scipy_does() -> None:
    part, rest = scores(15, 3), [min(1.0, x + 0.1) for x in scores(80, 4)]
    found = against_rest(Moments.of(part), Moments.of(rest))
    assert found is not None
    expected = stats.ttest_ind(part, rest)
    assert found.p == pytest.approx(float(expected.pvalue))
    assert found.difference == pytest.approx(statistics.fmean(part) - statistics.fmean(rest))
    turned = against_rest(Moments.of(rest), Moments.of(part))
    assert turned is not None and turned.difference == pytest.approx(-found.difference)


@pytest.mark.parametrize(("n", "rest"), [(9, 50), (50, 9), (0, 50)])
def test_fewer_than_ten_are_not_compared(n: int, rest: int) -> None:
    assert against_rest(Moments.of([1.0] * n), Moments.of([0.0] * rest)) is None


def test_without_any_spread_the_chance_is_counted() -> None:
    ones, zeros = Moments.of([1.0] * 10), Moments.of([0.0] * 12)
    apart = against_rest(ones, zeros)
    assert apart is not None and apart.p == pytest.approx(2 / math.comb(22, 10))
    same = against_rest(ones, Moments.of([1.0] * 30))
    assert same is not None and same.p == 1


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95])
def test_parts_that_are_like_the_rest_stand_out_no_more_often_than_promised(share: float) -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(2_000):
        values = (rng.random(60) < share) * 1.0
        found = against_rest(Moments.of(values[:10]), Moments.of(values[10:]))
        hits += found is not None and found.p <= 0.05
    assert hits / 2_000 <= 0.065


@pytest.mark.parametrize(("t", "df"), [(0.0, 5), (1.3, 7.5), (4.0, 300), (2.5, 5_000), (6.0, 2e6)])
def test_the_tail_of_t_is_that_of_scipy(t: float, df: float) -> None:
    assert t_tail(t, df) == pytest.approx(float(stats.t.sf(t, df)), rel=2e-3, abs=1e-12)


def test_a_pass_rate_is_wilson_s_unless_repeats_differ_or_cases_belong_together() -> None:
    plain = Scores.empty(clustered=False)
    for value in (1.0, 0.0, 1.0, None, 1.0):
        plain.add(value, "g")
    rate = plain.rate()
    assert rate is not None and (rate.method, rate.n, rate.estimate) == ("Wilson", 4, 0.75)
    plain.add(0.5, "g")
    rate = plain.rate()
    assert rate is not None and rate.method == "effective-n Wilson, t"
    clustered = Scores.empty(clustered=True)
    for index, value in enumerate((1.0, 0.0, 1.0)):
        clustered.add(value, f"g{index % 2}")
    rate = clustered.rate()
    assert rate is not None and rate.method == "effective-n Wilson, t"
