"""Axes: where a value stands, and which values are marked."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.formatting import NOTHING, dollars
from edison_ci.rounding import fixed, rounded, significant

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TINY = 1e-12


class Unit(StrEnum):
    """What a number is, and so how it is written."""

    POINTS = "points"
    """A score from 0 to 1, written as points out of 100."""
    CHANGE = "change"
    """A difference of scores, in points with its sign."""
    SHARE = "share"
    """A share from 0 to 1, written in percent."""
    RATIO = "ratio"
    """A relative change, in percent with its sign."""
    DOLLARS = "dollars"
    """Micro-dollars, written in dollars."""
    MILLISECONDS = "milliseconds"
    COUNT = "count"

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value there can be."""
        if self in (Unit.POINTS, Unit.SHARE):
            return 0.0, 1.0
        return (-math.inf if self in (Unit.CHANGE, Unit.RATIO) else 0.0), math.inf

    @property
    def least_span(self) -> float:
        """How much an axis shows at least, so that noise does not look like a movement."""
        if self in (Unit.POINTS, Unit.SHARE, Unit.CHANGE, Unit.RATIO):
            return 0.1
        return 1.0

    @property
    def noun(self) -> str:
        """What is written at an axis."""
        return _NOUNS[self]


_NOUNS = {
    Unit.POINTS: "points of 100",
    Unit.CHANGE: "change in points",
    Unit.SHARE: "percent",
    Unit.RATIO: "change in percent",
    Unit.DOLLARS: "dollars",
    Unit.MILLISECONDS: "milliseconds",
    Unit.COUNT: "count",
}


def finite(value: float | None) -> float | None:
    """Return a value that can be drawn, or None."""
    return float(value) if value is not None and math.isfinite(value) else None


def written(unit: Unit, value: float | None) -> str:
    """Return a value as tables and sentences write it."""
    shown = finite(value)
    if shown is None:
        return NOTHING
    if unit is Unit.POINTS:
        return fixed(100 * shown, 1)
    if unit is Unit.CHANGE:
        return fixed(100 * shown, 1, signed=True)
    if unit is Unit.SHARE:
        return f"{fixed(100 * shown)}%"
    if unit is Unit.RATIO:
        return f"{fixed(100 * shown, 1, signed=True)}%"
    if unit is Unit.DOLLARS:
        return dollars(shown)
    if unit is Unit.MILLISECONDS:
        return f"{fixed(shown, grouped=True)} ms"
    return significant(shown, 6, grouped=True)


def interval_written(unit: Unit, low: float | None, high: float | None) -> str:
    """Return an interval as tables write it."""
    if finite(low) is None or finite(high) is None:
        return NOTHING
    return f"{written(unit, low)} to {written(unit, high)}"


def tick_text(unit: Unit, value: float, step: float) -> str:
    """Return a value as an axis writes it: no more digits than tell two ticks apart."""
    if unit in (Unit.POINTS, Unit.CHANGE, Unit.SHARE, Unit.RATIO):
        value, step = 100 * value, 100 * step
    elif unit is Unit.DOLLARS:
        value, step = value / 1e6, step / 1e6
    digits = max(0, -math.floor(math.log10(step) + _TINY)) if step > 0 else 0
    if rounded(step, digits) != rounded(step, digits + 1):
        digits += 1  # 2.5 needs a digit more than 2
    signed = unit in (Unit.CHANGE, Unit.RATIO) and rounded(value, digits) > 0
    text = fixed(value, min(digits, 9), signed=signed, grouped=True)
    if unit is Unit.DOLLARS:
        return f"-${text[1:]}" if text.startswith("-") else f"${text}"
    return f"{text}%" if unit in (Unit.SHARE, Unit.RATIO) else text


class Scale(NamedTuple):
    """A line between two values and two places."""

    low: float
    high: float
    start: float
    end: float
    unit: Unit
    step: float
    """From one mark to the next."""

    def at(self, value: float) -> float:
        """Return the place of a value; what lies outside stands at the end."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """The values that are marked, with what is written there."""
        step = self.step
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = (i * step for i in range(first, last + 1))
        return tuple((value, tick_text(self.unit, value, step)) for value in values)

    def on(self, start: float, end: float) -> Scale:
        """Return the same values between other places."""
        return self._replace(start=start, end=end)


def nice_step(span: float, most: int) -> float:
    """Return a round step that cuts a span into at most so many pieces."""
    rough = max(span, _TINY) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * step for step in _STEPS if power * step >= rough * (1 - 1e-9))


def scale_of(
    values: Iterable[float | None], unit: Unit, *, zero: bool = False, most_ticks: int = 5
) -> Scale:
    """Return a scale that shows all values, with round ends; `zero` makes it start there."""
    known = [shown for value in values if (shown := finite(value)) is not None]
    if zero or not known:
        known.append(0.0)
    low, high = min(known), max(known)
    span = max(high - low, unit.least_span, abs(high) * 1e-6)
    if high - low < span:
        middle = (low + high) / 2
        low, high = (
            (low, low + span) if zero and low >= 0 else (middle - span / 2, middle + span / 2)
        )
    bottom, top = unit.bounds
    if low < bottom:
        low, high = bottom, high + (bottom - low)
    if high > top:
        low, high = max(low - (high - top), bottom), top
    step = nice_step(high - low, most_ticks)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Scale(max(low, bottom), min(high, top), 0.0, 1.0, unit, step)
