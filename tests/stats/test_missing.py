"""Missing is counted at the door and never becomes a number."""

from __future__ import annotations

import math

import pytest

from edison_ci.stats.missing import both_sides, mean_range, present


def test_none_nan_and_infinities_are_missing() -> None:
    found = present([0.5, None, math.nan, math.inf, -math.inf, 0.0])
    assert (found.values, found.missing, found.n) == ((0.5, 0.0), 4, 2)
    assert found.warn and not found.decidable


@pytest.mark.parametrize(
    ("missing", "warn", "decidable"), [(0, False, True), (5, False, True), (6, True, True),
                                       (20, True, True), (21, True, False)]
)  # fmt: skip
def test_shares_above_5_warn_and_above_20_decide_nothing(
    missing: int, warn: bool, decidable: bool
) -> None:
    found = present([0.5] * (100 - missing) + [None] * missing)
    assert (found.warn, found.decidable) == (warn, decidable)


def test_nothing_at_all_decides_nothing() -> None:
    assert present([]).share_missing == 0
    assert not present([]).decidable


def test_cases_leave_the_pairing_and_are_counted() -> None:
    base = {"a": 0.1, "b": 0.2, "c": None, "d": math.nan}
    found = both_sides(base, {"a": 0.1, "b": None, "c": 0.3, "e": 0.4})
    assert (found.cases, found.base_only) == (("a",), ("b",))
    assert (found.head_only, found.neither, found.missing) == (("c", "e"), ("d",), 4)


def test_the_bounds_of_a_mean_with_errors() -> None:
    assert mean_range([0.5, 1.0, None, None]) == pytest.approx((0.375, 0.875))
    assert mean_range([]) is None
