"""Composites: weights, what is missing, and both sides alike."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.stats.composite import Weighted, composite, paired_composite

CRITERIA = [Weighted("a", 3), Weighted("b", 1), Weighted("c", 2)]


def test_a_composite_is_the_weighted_mean() -> None:
    found = composite({"a": 1.0, "b": 0.5, "c": 0.0}, CRITERIA)
    assert found.value == pytest.approx((3 + 0.5) / 6)
    assert (found.n, found.coverage, found.missing) == (3, 1.0, ())


def test_half_of_the_weights_must_be_scored() -> None:
    half = composite({"a": 0.8}, CRITERIA)
    assert half.value == pytest.approx(0.8) and half.coverage == pytest.approx(0.5)
    assert half.missing == ("b", "c")
    assert composite({"b": 1.0, "c": None}, CRITERIA).value is None
    assert composite({}, CRITERIA).value is None


def test_a_required_criterion_cannot_be_missing() -> None:
    criteria = [Weighted("a", 3), Weighted("safe", 0.1, required=True, minimum=0.5)]
    assert composite({"a": 1.0}, criteria).value is None
    found = composite({"a": 1.0, "safe": 0.4}, criteria)
    assert found.value is not None and found.below_minimum == ("safe",)
    assert composite({"a": 1.0, "safe": 0.5}, criteria).below_minimum == ()


def test_pairs_keep_only_criteria_scored_on_both_sides() -> None:
    # The hard criterion c is missing for the head: without pairing it would look improved.
    base, head = {"a": 0.9, "b": 0.8, "c": 0.1}, {"a": 0.9, "b": 0.8, "c": None}
    found = paired_composite(base, head, CRITERIA)
    assert found.difference == pytest.approx(0)
    assert found.base.missing == found.head.missing == ("c",)
    assert paired_composite(base, {"c": 0.5}, CRITERIA).difference is None


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), st.floats(0, 1), min_size=3, max_size=3))
def test_a_composite_lies_between_its_scores(scores: dict[str, float]) -> None:
    value = composite(scores, CRITERIA).value
    assert value is not None
    assert min(scores.values()) - 1e-9 <= value <= max(scores.values()) + 1e-9


def test_what_makes_no_sense_is_refused() -> None:
    for bad in (lambda: Weighted("a", 0), lambda: composite({}, [])):
        with pytest.raises(ValueError, match=r"weight|criterion"):
            bad()
    with pytest.raises(ValueError, match="normalised"):
        composite({"a": 81.4}, CRITERIA)
    with pytest.raises(ValueError, match="normalised"):
        composite({"a": math.nan}, CRITERIA)
