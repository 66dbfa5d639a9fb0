"""Checks made of checks: 1 - s, the highest, the lowest; a skipped part leaves the group."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.checks.evaluation import EvaluationError, Grade
from edison_ci.checks.options import Check, parse_check
from edison_ci.templating.templates import MissingValueError
from tests.checks.answers import answered, graded, score
from tests.checks.entries import check


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("not: {contains: a}", "b", 1),
        ("not: {contains: a}", "a", 0),
        ("not: {not: {contains: a}}", "a", 1),
        ("any_of: [{contains: a}, {contains: b}]", "b", 1),
        ("any_of: [{contains: a}, {contains: b}]", "c", 0),
        ("all_of: [{contains: a}, {contains: b}]", "ab", 1),
        ("all_of: [{contains: a}, {contains: b}]", "a", 0),
        ("any_of: [{overlap: b d}, {contains: x}]", "a b c", 0.425),
        ("all_of: [{overlap: b d}, {contains: a}]", "a b c", 0.425),
        ("not: {overlap: b d}", "a b c", 0.575),
    ],
)
def test_known_answers(line: str, text: str, expected: float) -> None:
    assert score(line, text) == pytest.approx(expected)


class Fixed(Check):
    """A check with a score that is known."""

    check = "fixed"
    value: float

    def evaluate(self, _: Any) -> Grade:
        return Grade(self.value, f"it is {self.value}")


SCORES = st.floats(0, 1)


@given(SCORES)
def test_not_twice_is_the_check_itself(value: float) -> None:
    fixed = Fixed(value=value)
    once = parse_check({"not": {"value": fixed}})
    twice = parse_check({"not": {"value": once}})
    assert once.evaluate(answered("")).score == pytest.approx(1 - value)
    assert twice.evaluate(answered("")).score == pytest.approx(value)


@given(st.lists(SCORES, min_size=1, max_size=5))
def test_groups_are_the_highest_and_the_lowest(values: list[float]) -> None:
    parts = [Fixed(value=value) for value in values]
    assert parse_check({"any_of": parts}).evaluate(answered("")).score == max(values)
    assert parse_check({"all_of": parts}).evaluate(answered("")).score == min(values)


@given(st.lists(SCORES, min_size=1, max_size=5))
def test_not_any_is_all_not(values: list[float]) -> None:
    parts = [Fixed(value=value) for value in values]
    outer = parse_check({"not": {"value": parse_check({"any_of": parts})}})
    inner = parse_check({"all_of": [parse_check({"not": {"value": part}}) for part in parts]})
    assert outer.evaluate(answered("")).score == pytest.approx(inner.evaluate(answered("")).score)


@pytest.mark.parametrize("group", ["any_of", "all_of"])
def test_a_skipped_part_leaves_the_group(group: str) -> None:
    line = f"{group}: [{{contains: '{{{{ lacking }}}}'}}, {{contains: a}}]"
    assert score(line, "a") == 1
    assert score(line, "b") == 0
    with pytest.raises(MissingValueError, match="lacking"):
        graded(f"{group}: [{{contains: '{{{{ lacking }}}}'}}]", "a")


def test_the_opposite_of_a_skipped_check_is_skipped() -> None:
    with pytest.raises(MissingValueError):
        graded("not: {contains: '{{ lacking }}'}", "a")


@pytest.mark.parametrize("group", ["any_of", "all_of"])
def test_a_part_in_error_is_an_error_of_the_group(group: str) -> None:
    with pytest.raises(EvaluationError):
        graded(f"{group}: [{{number: '{{{{ word }}}}'}}]", "a", word="b")


def test_a_group_stops_at_the_part_that_settles_it() -> None:
    broken = "{number: '{{ word }}'}"
    assert score(f"any_of: [{{contains: a}}, {broken}]", "a", word="b") == 1
    assert score(f"all_of: [{{contains: x}}, {broken}]", "a", word="b") == 0


def test_the_reason_is_that_of_the_part_that_counts() -> None:
    fails = graded("any_of: [{contains: q}, {contains: r}]", "a").reason
    assert fails == "'q' is not in the answer; 'r' is not in the answer"
    worst = graded("all_of: [{contains: a}, {contains: r}]", "a").reason
    assert worst == "'r' is not in the answer"
    assert graded("not: {contains: a}", "a").reason == "'a' is in the answer"


@pytest.mark.parametrize(
    ("line", "passes_at"),
    [
        ("not: {contains: a}", 1.0),
        ("not: {overlap: a}", 0.5),
        ("any_of: [{contains: a}, {overlap: a}]", 0.5),
        ("all_of: [{not: {overlap: a}}]", 0.5),
        ("all_of: [{contains: a}]", 1.0),
        ("not: {value: {overlap: a}, threshold: 0.9}", 0.9),
    ],
)
def test_a_group_with_a_graded_part_is_graded(line: str, passes_at: float) -> None:
    assert check(line).passes_at == passes_at
