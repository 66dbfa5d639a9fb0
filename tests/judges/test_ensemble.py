"""Judges become one score, criteria one composite, and what is missing stays missing."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from edison_ci.judges.ensemble import Combine, Dispute, combined, grade, spread_of
from edison_ci.judges.pointwise import Opinion
from edison_ci.judges.replies import Failure, Missing, Scored, Verdict
from tests.judges.bench import criterion, rubric

if TYPE_CHECKING:
    from edison_ci.config.rubric import RubricFile

LOST = Failure(Missing.JUDGE_ERROR, "junk")


def opinion(judge: str = "a", /, *flags: str, **shares: float | None) -> Opinion:
    """What a judge says, in shares; None is a criterion it failed on."""
    scores = {name: Scored(s * 5, s, f"{name}?") for name, s in shares.items() if s is not None}
    missing = {name: LOST for name, s in shares.items() if s is None}
    verdict = Verdict(scores, missing, flags) if scores else None
    return Opinion(judge, "hash", verdict, LOST if missing else None)


# --- several judges ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "how", "expected"),
    [
        ([], "mean", None),
        ([0.4], "median", 0.4),
        ([0.0, 0.5, 1.0, 1.0], "mean", 0.625),
        ([0.0, 0.5, 1.0, 1.0], "median", 0.75),
        ([0.0, 0.5, 1.0, 1.0], "trimmed", 0.625),  # under 5 judges nothing is dropped
        ([0.0, 0.5, 0.6, 0.7, 1.0], "trimmed", 0.6),
        ([1.0, 0.0, 0.7, 0.5, 0.6], "trimmed", 0.6),
        ([0.1, 0.2, 0.3, 0.4, 1.0], "median", 0.3),
    ],
)
def test_judges_are_combined_as_asked(
    scores: list[float], how: Combine, expected: float | None
) -> None:
    found = combined(scores, how)
    assert found == (None if expected is None else pytest.approx(expected))


def test_one_judge_cannot_disagree() -> None:
    assert spread_of([0.2]) is None
    assert not Dispute().between(None)


@pytest.mark.parametrize(
    ("scores", "disputed"),
    [
        ([0.2, 0.7], True),  # range .5
        ([0.2, 0.6], True),  # range .4, sd .283
        ([0.3, 0.6], False),  # sd .212
        ([0.4, 0.5, 0.6], False),
        ([0.25, 0.5, 0.749], False),  # range .499, sd .2495
        ([0.0, 0.0, 0.0, 0.0, 0.5], True),
    ],
)
def test_disagreement_is_flagged_from_range_or_deviation(
    scores: list[float], disputed: bool
) -> None:
    spread = spread_of(scores)
    assert spread is not None
    assert spread.sd == pytest.approx(statistics.stdev(scores))
    assert Dispute().between(spread) is disputed


def test_the_case_is_disputed_when_one_criterion_is() -> None:
    two = rubric(criterion("A"), criterion("B"))
    result = grade(two, [opinion("a", A=0.9, B=0.2), opinion("b", A=0.8, B=0.9)])
    assert [c.disputed for c in result.criteria] == [False, True]
    assert result.disputed
    assert result.criteria[1].by_judge == {"a": 0.2, "b": 0.9}
    assert result.composite == pytest.approx((0.85 + 0.55) / 2)


def test_judges_are_combined_before_criteria() -> None:
    two = rubric(criterion("A", 0.8), criterion("B", 0.2))
    said = [opinion("a", A=0.0, B=1.0), opinion("b", A=1.0, B=0.0), opinion("c", A=1.0, B=0.5)]
    # By criterion: medians 1.0 and 0.5. The median of the judges' own composites would be 0.8.
    assert grade(two, said, "median").composite == pytest.approx(0.8 * 1.0 + 0.2 * 0.5)


def test_a_judge_that_fails_is_left_out() -> None:
    two = rubric(criterion("A"), criterion("B"))
    result = grade(two, [opinion("a", A=0.8, B=0.6), Opinion("b", "h", None, LOST)])
    assert result.composite == pytest.approx(0.7)
    assert result.criteria[0].spread is None
    assert "b: judge_error: junk" in result.criteria[0].reason


def test_no_judge_at_all_is_missing_and_not_zero() -> None:
    two = rubric(criterion("A"), criterion("B"), pass_at=0.5)
    result = grade(two, [Opinion("a", "h", None, LOST), Opinion("b", "h", None, LOST)])
    assert result.composite is None
    assert result.passed is None
    assert result.coverage == 0
    assert "junk" in result.reason


# --- composite and coverage ----------------------------------------------------------------------


def test_the_composite_is_the_weighted_mean() -> None:
    # STATS 2: weights 3:1:2:1:3 of five criteria.
    weights = {"A": 0.3, "B": 0.1, "C": 0.2, "D": 0.1, "E": 0.3}
    five = rubric(*(criterion(name, weight) for name, weight in weights.items()))
    result = grade(five, [opinion(A=1.0, B=0.0, C=0.5, D=1.0, E=0.8)])
    assert result.composite == pytest.approx(0.3 + 0 + 0.1 + 0.1 + 0.24)
    assert result.coverage == pytest.approx(1)


def test_weights_are_proportions() -> None:
    doubled = rubric(criterion("A", 1.0), criterion("B", 0.5))
    result = grade(doubled, [opinion(A=1.0, B=0.4)])
    assert result.composite == pytest.approx(0.8)
    assert [c.weight for c in result.criteria] == pytest.approx([2 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("weight_lost", "composite"),
    [(0.2, 0.9), (0.5, 0.9), (0.51, None), (0.9, None)],
)
def test_a_composite_needs_half_of_the_weights(weight_lost: float, composite: float | None) -> None:
    two = rubric(criterion("A", 1 - weight_lost), criterion("B", weight_lost))
    result = grade(two, [opinion(A=0.9, B=None)])
    assert result.coverage == pytest.approx(1 - weight_lost)
    assert result.composite == (None if composite is None else pytest.approx(composite))
    if composite is None:
        assert "of the rubric was scored" in result.reason


def test_a_missing_required_criterion_makes_the_composite_missing() -> None:
    three = rubric(criterion("A", 0.6), criterion("B", 0.3), criterion("C", 0.1, required=True))
    result = grade(three, [opinion(A=1.0, B=1.0, C=None)])
    assert result.coverage == pytest.approx(0.9)
    assert result.composite is None
    assert "required criterion C" in result.reason


# --- the pass ------------------------------------------------------------------------------------


def passes(of: RubricFile, **shares: float | None) -> bool | None:
    return grade(of, [opinion("a", **shares)]).passed


def test_the_pass_is_decided_by_the_composite() -> None:
    two = rubric(criterion("A"), criterion("B"), pass_at=0.6)
    assert passes(two, A=0.6, B=0.6) is True
    assert passes(two, A=0.6, B=0.59) is False
    assert passes(rubric(criterion("A"), criterion("B")), A=0.0, B=0.0) is True


def test_a_score_below_its_min_fails_whatever_the_composite() -> None:
    two = rubric(criterion("A", 0.9), criterion("B", 0.1, min=0.5), pass_at=0.5)
    assert passes(two, A=1.0, B=0.4) is False
    assert passes(two, A=1.0, B=0.5) is True
    result = grade(two, [opinion(A=1.0, B=0.4)])
    assert result.composite == pytest.approx(0.94)
    assert [c.passed for c in result.criteria] == [True, False]


def test_min_is_compared_after_low_is_good_was_turned_round() -> None:
    # The share is what counts: a raw 1 of 5 where low is good is a share of .8.
    two = rubric(criterion("A"), criterion("B", lower_is_better=True, min=0.7))
    assert passes(two, A=0.5, B=0.8) is True
    assert passes(two, A=0.5, B=0.6) is False


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (1.0, True),  # .7 whatever B is
        (0.5, None),  # .35 to .65: B decides, and nobody knows B
        (0.2, False),  # at most .44
    ],
)
def test_a_missing_score_never_turns_into_a_pass(score: float, expected: bool | None) -> None:
    two = rubric(criterion("A", 0.7), criterion("B", 0.3), pass_at=0.6)
    result = grade(two, [opinion(A=score, B=None)])
    assert result.composite == pytest.approx(score)
    assert result.passed is expected


def test_a_missing_criterion_with_a_min_leaves_the_pass_open() -> None:
    two = rubric(criterion("A", 0.9), criterion("B", 0.1, min=0.5))
    assert passes(two, A=1.0, B=None) is None


# --- flags ---------------------------------------------------------------------------------------


def test_a_flag_of_any_judge_is_raised_and_changes_nothing_else() -> None:
    two = rubric(criterion("A"), criterion("B"), pass_at=0.5)
    plain = grade(two, [opinion("a", A=0.8, B=0.8), opinion("b", A=0.8, B=0.8)])
    said = [opinion("a", "toxicity", A=0.8, B=0.8), opinion("b", "pii", A=0.8, B=0.8)]
    flagged = grade(two, said)
    assert flagged.flags == ("pii", "toxicity")
    assert (flagged.composite, flagged.passed) == (plain.composite, plain.passed)
