"""Axes: round marks, round ends, and no number that is not finite."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.report.charts.drawing import (
    Unit,
    finite,
    format_interval,
    format_value,
    nice_step,
    scale_of,
    tick_text,
)

pytestmark = pytest.mark.daily

NUMBERS = st.lists(st.none() | st.floats(-1e12, 1e12) | st.sampled_from([math.nan, math.inf]))


@given(NUMBERS, st.sampled_from(list(Unit)), st.booleans())
def test_every_scale_has_marks_that_differ(
    values: list[float | None], unit: Unit, zero: bool
) -> None:
    scale = scale_of(values, unit, zero=zero).on(0, 100)
    assert math.isfinite(scale.low) and scale.low < scale.high
    words = [words for _, words in scale.ticks]
    assert 2 <= len(words) <= 8
    assert len(set(words)) == len(words)


@given(st.lists(st.floats(0, 1), min_size=1))
def test_scores_lie_between_the_ends(values: list[float]) -> None:
    scale = scale_of(values, Unit.POINTS).on(0, 100)
    assert 0.0 <= scale.low <= min(values) + 1e-9
    assert max(values) - 1e-9 <= scale.high <= 1.0


@pytest.mark.parametrize(
    ("span", "most", "step"), [(1.0, 5, 0.2), (0.12, 5, 0.025), (100, 4, 25), (7, 5, 2), (0, 5, 1)]
)
def test_steps_are_round(span: float, most: int, step: float) -> None:
    found = nice_step(span, most)
    assert found == pytest.approx(step) if span else found > 0


@pytest.mark.parametrize(
    ("unit", "value", "step", "words"),
    [
        (Unit.POINTS, 0.5, 0.1, "50"),
        (Unit.POINTS, 0.525, 0.025, "52.5"),
        (Unit.CHANGE, 0.1, 0.1, "+10"),
        (Unit.CHANGE, -0.0, 0.1, "0"),
        (Unit.RATIO, -0.05, 0.05, "-5%"),
        (Unit.SHARE, 0.6, 0.2, "60%"),
        (Unit.DOLLARS, 1_250_000, 250_000, "$1.25"),
        (Unit.DOLLARS, 500, 500, "$0.0005"),
        (Unit.MILLISECONDS, 1200, 200, "1,200"),
    ],
)
def test_marks_are_written_with_the_digits_they_need(
    unit: Unit, value: float, step: float, words: str
) -> None:
    assert tick_text(unit, value, step) == words


def test_values_are_written_in_their_unit() -> None:
    assert format_value(Unit.POINTS, 0.715) == "71.5"
    assert format_value(Unit.CHANGE, 0.021) == "+2.1"
    assert format_value(Unit.RATIO, -0.1) == "-10.0%"
    assert format_value(Unit.DOLLARS, 1240) == "$0.0012"
    assert format_value(Unit.MILLISECONDS, 1006.2) == "1,006 ms"
    assert format_value(Unit.COUNT, 12_000) == "12,000"
    assert format_value(Unit.POINTS, math.nan) == "-"
    assert format_interval(Unit.POINTS, 0.1, None) == "-"
    assert finite(math.inf) is None
