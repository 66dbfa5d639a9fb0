"""Sets of assertions, lists and patterns become checks that decide alike."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from edison_ci.checks.options import parse_check
from edison_ci.importing.asserts import combine_checks, list_argument, python_pattern
from edison_ci.importing.drafts import GradeComponent
from edison_ci.importing.experiments import compact_check
from edison_ci.importing.prompts import ConversionError
from tests.checks.answers import answered


def parts(count: int) -> list[GradeComponent]:
    entries: list[Any] = [{"contains": {"value": f"w{number}"}} for number in range(count)]
    return [GradeComponent("check", str(entry), entry) for entry in entries]


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("threshold", [None, 0.25, 0.34, 0.5, 0.6, 0.75, 1.0])
def test_a_set_passes_when_the_share_of_its_members_does(
    count: int, threshold: float | None
) -> None:
    entry, exact = combine_checks(parts(count), threshold)
    assert exact
    check = parse_check(compact_check(entry))
    for present in itertools.product([False, True], repeat=count):
        text = " ".join(f"w{number}" for number, there in enumerate(present) if there)
        share = sum(present) / count
        passes = share >= (1.0 if threshold is None else threshold)
        assert (check.evaluate(answered(text or "-")).score >= check.passes_at) is passes


def test_a_share_that_cannot_be_said_is_told() -> None:
    entry, exact = combine_checks(parts(9), 0.5)
    assert (next(iter(entry)), exact) == ("all_of", False)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [("a, b", ["a", "b"]), ('"1,000", in stock', ["1,000", "in stock"]), ("one", ["one"])],
)
def test_a_text_is_a_list_with_commas(text: str, pieces: list[str]) -> None:
    assert list_argument(text, "contains-any").value == pieces


def test_patterns_of_javascript_are_rewritten_or_refused() -> None:
    assert python_pattern(r"(?<year>\d{4})\/\k<year>") == (r"(?P<year>\d{4})/(?P=year)", "")
    assert "may mean something else" in python_pattern(r"a$b")[1]
    with pytest.raises(ConversionError, match="not valid in Python"):
        python_pattern("(")
