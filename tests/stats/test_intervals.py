"""Intervals against closed forms, independent references, and their own promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, t
from statsmodels.stats.proportion import proportion_confint

from edison_ci.stats.intervals import (
    clustered_interval,
    mean_interval,
    pass_interval,
)
from edison_ci.stats.scores import Unseen, clustered_mean

scores = st.lists(st.floats(0, 1, allow_nan=False), min_size=2, max_size=60)


def test_ten_perfect_scores_could_be_as_low_as_69() -> None:
    found = mean_interval([1.0] * 10)
    assert found is not None and found.low is not None and found.high is not None
    assert round(100 * found.low) == 69
    assert found.high == 1.0


def test_equal_scores_of_one_agree_with_clopper_pearson() -> None:
    found = mean_interval([1.0] * 25)
    assert found is not None
    assert found.low == pytest.approx(beta.ppf(0.025, 25, 1), abs=1e-12)


def test_one_case_gives_no_interval_and_none_gives_nothing() -> None:
    single = mean_interval([0.4])
    assert single is not None
    assert (single.estimate, single.low, single.high, single.n) == (0.4, None, None, 1)
    assert mean_interval([]) is None


@pytest.mark.parametrize(("passes", "n"), [(0, 5), (17, 20), (20, 20), (50, 400)])
def test_pass_rates_agree_with_statsmodels(passes: int, n: int) -> None:
    found = pass_interval(passes, n)
    low, high = proportion_confint(passes, n, method="wilson")
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)


def test_seventeen_of_twenty_prints_as_documented() -> None:
    found = pass_interval(17, 20)
    assert found is not None and found.low is not None and found.high is not None
    assert (round(100 * found.low), round(100 * found.high)) == (64, 95)


def test_yes_no_scores_give_a_wilson_interval_with_a_t_quantile() -> None:
    data = [1.0] * 15 + [0.0] * 5
    found = mean_interval(data)
    assert found is not None
    n_effective = 0.75 * 0.25 / (np.var(data, ddof=1) / 20)
    q = t.ppf(0.975, 19)
    center = (0.75 + q**2 / (2 * n_effective)) / (1 + q**2 / n_effective)
    spread = np.sqrt(0.75 * 0.25 / n_effective + q**2 / (4 * n_effective**2))
    half = q / (1 + q**2 / n_effective) * spread
    assert (found.low, found.high) == pytest.approx((center - half, center + half), abs=1e-12)


def test_mid_range_scores_give_nearly_the_t_interval() -> None:
    data = np.random.default_rng(1).normal(0.5, 0.05, 200).clip(0, 1)
    found = mean_interval(data)
    half = t.ppf(0.975, 199) * data.std(ddof=1) / np.sqrt(200)
    assert found is not None and found.low is not None and found.high is not None
    assert found.low == pytest.approx(data.mean() - half, abs=2e-4)
    assert found.high == pytest.approx(data.mean() + half, abs=2e-4)


def test_clusters_of_one_are_nearly_no_clusters() -> None:
    data = [0.1, 0.5, 0.9, 0.4, 0.7]
    plain, clustered = mean_interval(data), clustered_interval(data, list("abcde"))
    assert plain is not None and clustered is not None
    assert (clustered.low, clustered.high) == pytest.approx((plain.low, plain.high), abs=1e-12)


def test_clusters_that_agree_widen_the_interval() -> None:
    data = [0.2] * 10 + [0.8] * 10 + [0.5] * 10
    plain = mean_interval(data)
    clustered = clustered_interval(data, ["a"] * 10 + ["b"] * 10 + ["c"] * 10)
    assert plain is not None and clustered is not None
    assert plain.low is not None and clustered.low is not None
    assert clustered.low < plain.low - 0.1


def test_one_cluster_gives_no_interval() -> None:
    found = clustered_interval([0.1, 0.2], ["a", "a"])
    assert found is not None and found.low is None


@settings(deadline=None)
@given(scores)
def test_an_interval_contains_the_mean_and_stays_between_0_and_1(data: list[float]) -> None:
    found = mean_interval(data)
    assert found is not None and found.low is not None and found.high is not None
    assert 0 <= found.low <= found.estimate + 1e-9
    assert found.estimate - 1e-9 <= found.high <= 1
    assert found.high > found.low


@settings(deadline=None)
@given(scores)
def test_turning_scores_around_turns_the_interval_around(data: list[float]) -> None:
    found, turned = mean_interval(data), mean_interval([1 - x for x in data])
    assert found is not None and turned is not None
    assert found.low is not None and turned.high is not None
    assert turned.high == pytest.approx(1 - found.low, abs=1e-6)


@pytest.mark.parametrize("n", [10, 30, 100])
def test_the_interval_covers_the_truth_as_often_as_promised(n: int) -> None:
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(2_000):
        sample = rng.beta(8, 1, n)
        found = mean_interval(sample)
        assert found is not None and found.low is not None and found.high is not None
        hits += found.low <= 8 / 9 <= found.high
    assert hits / 2_000 >= 0.915  # nominal 0.95; ceiling-heavy scores at n = 10 are the worst


@pytest.mark.parametrize("bad", [[1.2], [-0.1, 0.5], [float("nan")]])
def test_scores_outside_0_to_1_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        mean_interval(bad)


# --- clusters, repeats and one-sided bounds -----------------------------------------------------


def test_equal_scores_in_clusters_are_as_many_as_the_clusters() -> None:
    clustered = clustered_interval([1.0] * 30, [str(i // 3) for i in range(30)])
    assert clustered is not None and clustered.low is not None
    assert round(100 * clustered.low) == 69


def test_one_case_of_a_pass_rate_has_no_interval() -> None:
    one = pass_interval(1, 1)
    assert one is not None and (one.value, one.interval, one.n) == (1.0, None, 1)
    assert pass_interval(0, 0) is None


@pytest.mark.parametrize("n", [10, 20])
def test_tied_pass_marks_are_covered_too(n: int) -> None:
    repeat, hits = np.random.default_rng(n), 0
    for _ in range(2_000):
        found = mean_interval((repeat.random(n) < 0.9).astype(float))
        assert found is not None and found.low is not None and found.high is not None
        hits += found.low <= 0.9 <= found.high
    assert hits / 2_000 >= 0.925


# --- clusters of unequal size ---------------------------------------------------------------------


def by_matrices(sums: list[float], sizes: list[int]) -> tuple[float, float]:
    """Return the CR2 variance of a mean and Satterthwaite's df, from the definition.

    Residuals of each cluster are multiplied by the inverse square root of its block of I - H.
    """
    n = sum(sizes)
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    x = np.repeat([total / size for total, size in zip(sums, sizes, strict=True)], sizes)
    leave = np.eye(n) - np.full((n, n), 1 / n)
    columns = []
    for cluster in range(len(sizes)):
        mine = clusters == cluster
        values, vectors = np.linalg.eigh(leave[np.ix_(mine, mine)])
        half = vectors @ np.diag(values**-0.5) @ vectors.T
        columns.append(leave[mine].T @ half @ np.ones(mine.sum()) / n)
    rows = np.array(columns)
    spread = rows @ rows.T
    return float(np.sum((rows @ x) ** 2)), float(np.trace(spread) ** 2 / np.sum(spread**2))


@pytest.mark.parametrize("sizes", [[1, 1, 1], [3, 3, 3, 3], [1, 5, 2, 9, 1], [30, 1, 1, 1, 1]])
def test_the_variance_of_clusters_is_cr2_with_satterthwaites_df(sizes: list[int]) -> None:
    sums = [size * value for size, value in zip(sizes, (0.2, 0.9, 0.4, 0.7, 0.1), strict=False)]
    found = clustered_mean(sums, sizes)
    variance, df = by_matrices(sums, sizes)
    assert (found.mean, found.variance, found.df) == pytest.approx(
        (sum(sums) / sum(sizes), variance, df)
    )


def test_an_unseen_cluster_has_the_size_of_that_of_a_random_case() -> None:
    sums, sizes = [1.0, 0.0, -2.0], [1, 1, 4]
    whole = clustered_mean([*sums, -3.0], [*sizes, 3])
    assert clustered_mean(sums, sizes, Unseen(1, -1.0)) == pytest.approx(whole)  # 18 / 6


@pytest.mark.nightly
@pytest.mark.parametrize(("groups", "most"), [(8, 11), (12, 5), (30, 11)])
def test_intervals_of_few_unequal_clusters_cover(groups: int, most: int) -> None:
    rng, runs, hits = np.random.default_rng(groups), 500, 0
    for _ in range(runs):
        sizes = rng.integers(1, most + 1, groups)
        names = np.repeat(np.arange(groups), sizes)
        scores = np.clip(rng.normal(0.5, 0.1, groups)[names] + rng.normal(0, 0.1, names.size), 0, 1)
        found = clustered_interval(scores, [str(name) for name in names])
        hits += found is not None and (found.low or 0) <= 0.5 <= (found.high or 1)
    assert hits >= binom.ppf(0.001, runs, 0.95)
