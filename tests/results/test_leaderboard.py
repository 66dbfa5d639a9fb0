"""Differences on common cases, and what is compared at all."""

from __future__ import annotations

import random
from array import array
from typing import TYPE_CHECKING

import pytest

from edison_ci.results.leaderboard import CaseFilter, Scores, common_cases, contrast_of
from edison_ci.results.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence


def scores(values: Sequence[float], *, first: int = 0) -> Scores:
    cases = [f"c{first + index:05}" for index in range(len(values))]
    sample = Sample(cases=cases, values=array("d", values))
    return Scores(sample, array("q", [7] * len(cases)))


@pytest.mark.parametrize(
    ("first", "n", "common"),
    [(0, 5, 5), (0, 4, 0), (20, 40, 20), (21, 40, 0), (0, 100, 0)],
    ids=["the same few", "fewer", "half of both", "less than half", "half of one"],
)
def test_different_cases_are_compared_when_enough_are_common(
    first: int, n: int, common: int
) -> None:
    base = scores([0.5] * (5 if n < 10 else 40))
    assert len(common_cases(base, scores([0.5] * n, first=first))) == common


def test_cases_with_another_content_are_not_common() -> None:
    base, head = scores([0.5] * 40), scores([0.5] * 40)
    changed = array("q", [8, *head.contents[1:]])
    assert common_cases(base, head._replace(contents=changed)) == base.sample.cases[1:]
    unknown = array("q", [0] * 40)
    assert common_cases(base, head._replace(contents=unknown)) == base.sample.cases


def test_a_difference_of_nothing_is_not_shown() -> None:
    values = [0.1 * (i % 10) for i in range(60)]
    found = contrast_of(scores(values), scores(values), CaseFilter())
    assert found is not None
    assert (found.difference, found.p, found.significant) == (0, 1, False)
    assert found.interval is not None
    assert found.interval.low < 0 < found.interval.high


@pytest.mark.nightly
@pytest.mark.parametrize(("n", "times", "most"), [(100, 200, 20), (1_000, 60, 9)])
def test_chance_finds_a_difference_at_the_rate_that_is_promised(
    n: int, times: int, most: int
) -> None:
    rng = random.Random(7)
    hits = 0
    for _ in range(times):
        base, head = ([rng.random() for _ in range(n)] for _ in range(2))
        found = contrast_of(scores(base), scores(head), CaseFilter())
        assert found is not None
        hits += found.significant
    assert hits <= most, "5%, and what luck adds: more in 1 of 800 such tests"


def test_clusters_count_as_one_however_large_they_are() -> None:
    """Four clusters that go up and one that stays show little, though they have 1,000 cases."""
    base = scores([0.5] * 1_000)
    head = scores([0.5 + 0.1 * (index % 5 > 0) for index in range(1_000)])
    case_filter = CaseFilter({case: str(index % 5) for index, case in enumerate(base.sample.cases)})
    alone, together = contrast_of(base, head, CaseFilter()), contrast_of(base, head, case_filter)
    assert alone is not None
    assert together is not None
    assert alone.significant
    assert not together.significant
    assert together.p == pytest.approx(2 / 2**4)
