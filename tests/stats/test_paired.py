"""Differences against closed forms and scipy, and cases matched by id and content."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t, ttest_ind, ttest_rel

from edison_ci.stats.arrays import Range, generator_for, grouped, seed_of
from edison_ci.stats.paired import (
    Pairs,
    match_cases,
    mean_error,
    paired_difference,
    unpaired_difference,
)

DIFFERENCES = st.lists(st.floats(-1, 1, allow_nan=False), min_size=2, max_size=40)


def interval(found: object) -> Range:
    got = getattr(found, "interval", None)
    assert isinstance(got, Range)
    return got


def test_the_interval_is_the_paired_t_interval() -> None:
    rng = np.random.default_rng(3)
    base, head = rng.uniform(0.2, 0.8, 30), rng.uniform(0.2, 0.8, 30)
    found = paired_difference(head - base)
    reference = ttest_rel(head, base).confidence_interval(0.95)
    assert interval(found) == pytest.approx((reference.low, reference.high), abs=1e-12)
    assert found is not None
    assert found.se == pytest.approx(np.std(head - base, ddof=1) / math.sqrt(30))


def test_an_interval_never_leaves_minus_one_to_one() -> None:
    assert interval(paired_difference([1.0, -1.0, 1.0])) == (-1, 1)


def test_equal_differences_follow_the_zero_variance_line() -> None:
    # q = 1 - 0.025^(1/10) = 0.30850; (1 - q) * 0.2 -+ q
    found = interval(paired_difference([0.2] * 10))
    q = 1 - 0.025**0.1
    assert found == pytest.approx((0.8 * 0 + 0.2 * (1 - q) - q, 0.2 * (1 - q) + q))
    assert found.high - found.low == pytest.approx(0.6170, abs=1e-4)


def test_ties_leave_a_wide_interval_around_zero() -> None:
    assert interval(paired_difference([0.0] * 40)) == pytest.approx((-0.0881, 0.0881), abs=1e-4)


def test_one_case_has_a_difference_without_interval_and_none_has_nothing() -> None:
    single = paired_difference([0.3])
    assert single is not None
    assert (single.value, single.interval, single.n) == (0.3, None, 1)
    assert paired_difference([]) is None


@pytest.mark.parametrize("bad", [[float("nan"), 0.1], [float("inf")], [1.5], [[0.1, 0.2]]])
def test_what_is_no_difference_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="differences"):
        paired_difference(bad)


@settings(deadline=None)
@given(DIFFERENCES)
def test_swapping_the_sides_flips_the_sign(d: list[float]) -> None:
    found, swapped = paired_difference(d), paired_difference([-x for x in d])
    assert found is not None and swapped is not None
    assert swapped.value == pytest.approx(-found.value, abs=1e-12)
    assert interval(swapped) == pytest.approx(
        (-interval(found).high, -interval(found).low), abs=1e-9
    )


@settings(deadline=None)
@given(DIFFERENCES)
def test_an_interval_contains_its_estimate_and_has_width(d: list[float]) -> None:
    found = paired_difference(d)
    assert found is not None
    low, high = interval(found)
    assert low - 1e-9 <= found.value <= high + 1e-9
    assert high > low


def test_clusters_that_move_together_widen_the_interval() -> None:
    d = [0.1, 0.1, 0.1, -0.1, -0.1, -0.1, 0.2, 0.2, 0.2, 0.0, 0.0, 0.0]
    alone = interval(paired_difference(d))
    together = interval(paired_difference(d, clusters=list("aaabbbcccddd")))
    assert together.low < alone.low and together.high > alone.high
    # Equal clusters: the interval is that of their four means.
    means = [0.1, -0.1, 0.2, 0.0]
    half = t.ppf(0.975, 3) * np.std(means, ddof=1) / 2
    assert together == pytest.approx((0.05 - half, 0.05 + half))


def test_a_single_cluster_has_no_interval() -> None:
    found = paired_difference([0.1, 0.2], clusters=["a", "a"])
    assert found is not None
    assert found.interval is None and "cluster" in found.method


def test_clusters_of_one_give_the_plain_standard_error() -> None:
    d = np.array([0.1, -0.3, 0.25, 0.0])
    error = mean_error(grouped(d, list("abcd")))
    assert error is not None
    assert error.se == pytest.approx(d.std(ddof=1) / 2)
    with pytest.raises(ValueError, match="clusters"):
        grouped(d, ["a"])


def test_unpaired_differences_agree_with_welch() -> None:
    rng = np.random.default_rng(5)
    base, head = rng.uniform(0.4, 0.9, 25), rng.uniform(0.2, 0.95, 40)
    reference = ttest_ind(head, base, equal_var=False).confidence_interval(0.95)
    found = unpaired_difference(base, head)
    assert found is not None
    assert (found.n, found.sd) == (25, None)
    assert interval(found) == pytest.approx((reference.low, reference.high), abs=1e-10)
    assert found.p == pytest.approx(ttest_ind(head, base, equal_var=False).pvalue)
    back = unpaired_difference(head, base)
    assert back is not None and back.p == pytest.approx(found.p)


def test_unpaired_sides_without_spread_still_have_width() -> None:
    found = unpaired_difference([1.0] * 10, [0.5] * 10)
    low, high = interval(found)
    assert low < -0.5 < high
    assert found is not None and found.p == pytest.approx(2 / math.comb(20, 10))
    same = unpaired_difference([0.5] * 10, [0.5] * 10)
    assert same is not None and same.p == 1
    lone = unpaired_difference([0.5], [0.5, 0.6])
    assert lone is not None and lone.interval is None
    assert unpaired_difference([], [0.5]) is None


# --- pairs ------------------------------------------------------------------------------------


def test_a_case_counts_once_however_often_it_was_asked() -> None:
    pairs = Pairs(((0.2, 0.4), (1.0,)), ((0.6,), (0.0, 0.5, 1.0)))
    assert pairs.n == 2
    assert pairs.differences == pytest.approx([0.3, -0.5])
    assert not pairs.equal_repeats
    assert Pairs.of([0.1], [0.2]).equal_repeats


@pytest.mark.parametrize(
    ("base", "head", "clusters"),
    [(((0.1,),), (), None), (((),), ((0.1,),), None), (((0.1,),), ((0.1,),), ("a", "b"))],
)
def test_pairs_that_do_not_match_are_refused(
    base: tuple[tuple[float, ...], ...],
    head: tuple[tuple[float, ...], ...],
    clusters: tuple[str, ...] | None,
) -> None:
    with pytest.raises(ValueError, match=r"cases|case"):
        Pairs(base, head, clusters)


# --- matching ---------------------------------------------------------------------------------


def test_the_same_dataset_is_paired_however_small() -> None:
    same = {"a": "1", "b": "2"}
    assert match_cases(same, dict(same)).paired


def test_different_datasets_pair_from_20_cases_and_half_of_both() -> None:
    base = {f"c{i}": "x" for i in range(30)}
    assert match_cases(base, {f"c{i}": "x" for i in range(10, 50)}).paired
    assert not match_cases(base, {f"c{i}": "x" for i in range(11, 31)}).paired  # 19 common
    wide = {f"c{i}": "x" for i in range(10, 80)}  # 20 common, less than half of 70
    assert not match_cases(base, wide).paired


def test_a_changed_case_is_listed_and_not_paired() -> None:
    found = match_cases({"a": "1", "b": "2", "gone": "3"}, {"a": "1", "b": "other", "new": "4"})
    assert (found.common, found.changed) == (("a",), ("b",))
    assert (found.added, found.removed) == (("new",), ("gone",))
    assert "less sensitive" in found.method


# --- seeds ------------------------------------------------------------------------------------


def test_the_seed_depends_on_the_cases_and_not_on_their_order() -> None:
    assert seed_of(["a", "b"]) == seed_of(["b", "a"])
    assert seed_of(["a", "b"]) != seed_of(["ab"])
    assert seed_of(["a"], config_hash="1") != seed_of(["a"])
    many = [f'\udc80"{number}' for number in range(2_001)]
    text = json.dumps([sorted(many), "1"], ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert f"{seed_of(many, config_hash='1'):064x}" == hashlib.sha256(text).hexdigest()
    first, again = (generator_for(["x", "y"]).integers(0, 1 << 60) for _ in range(2))
    assert first == again
