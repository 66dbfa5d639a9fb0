"""Shared parts of charts: units and axes, the SVG frame, texts, marks, and the data table."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.numeric import NOTHING, dollars, fixed, rounded, significant
from edison_ci.report.markup import Child, element, join, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from markupsafe import Markup

    from edison_ci.report.document import Table


_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TINY = 1e-12


class Unit(StrEnum):
    """The unit of a number, which decides its format."""

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
    CORRELATION = "correlation"
    """From -1 to 1."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the greatest possible value."""
        if self in (Unit.POINTS, Unit.SHARE):
            return 0.0, 1.0
        if self is Unit.CORRELATION:
            return -1.0, 1.0
        return (-math.inf if self in (Unit.CHANGE, Unit.RATIO) else 0.0), math.inf

    @property
    def least_span(self) -> float:
        """Smallest range of an axis, so that noise does not look like a change."""
        if self in (Unit.POINTS, Unit.SHARE, Unit.CHANGE, Unit.RATIO):
            return 0.1
        return 1.0

    @property
    def noun(self) -> str:
        """The label of an axis."""
        return _NOUNS[self]


_NOUNS = {
    Unit.POINTS: "points of 100",
    Unit.CHANGE: "change in points",
    Unit.SHARE: "percent",
    Unit.RATIO: "change in percent",
    Unit.DOLLARS: "dollars",
    Unit.MILLISECONDS: "milliseconds",
    Unit.COUNT: "count",
    Unit.CORRELATION: "correlation",
}


def finite(value: float | None) -> float | None:
    """Return a finite value, else None."""
    return float(value) if value is not None and math.isfinite(value) else None


def format_value(unit: Unit, value: float | None) -> str:
    """Return a value as text for tables and sentences."""
    number_ = finite(value)
    if number_ is None:
        return NOTHING
    if unit is Unit.POINTS:
        return fixed(100 * number_, 1)
    if unit is Unit.CHANGE:
        return fixed(100 * number_, 1, signed=True)
    if unit is Unit.SHARE:
        return f"{fixed(100 * number_)}%"
    if unit is Unit.RATIO:
        return f"{fixed(100 * number_, 1, signed=True)}%"
    if unit is Unit.DOLLARS:
        return dollars(number_)
    if unit is Unit.MILLISECONDS:
        return f"{fixed(number_, grouped=True)} ms"
    if unit is Unit.CORRELATION:
        return fixed(number_, 2)
    return significant(number_, 6, grouped=True)


def format_interval(unit: Unit, low: float | None, high: float | None) -> str:
    """Return an interval as text for tables."""
    if finite(low) is None or finite(high) is None:
        return NOTHING
    return f"{format_value(unit, low)} to {format_value(unit, high)}"


def tick_text(unit: Unit, value: float, step: float) -> str:
    """Return a value as text for an axis, with only the digits that distinguish ticks."""
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
    """A linear scale from values to positions."""

    low: float
    high: float
    start: float
    end: float
    unit: Unit
    step: float
    """Distance between ticks."""

    def at(self, value: float) -> float:
        """Return the position of a value, clamped to the ends of the scale."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """The values of the ticks, with their labels."""
        step = self.step
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = (i * step for i in range(first, last + 1))
        return tuple((value, tick_text(self.unit, value, step)) for value in values)

    def on(self, start: float, end: float) -> Scale:
        """Return the scale with other positions."""
        return self._replace(start=start, end=end)


def nice_step(span: float, most: int) -> float:
    """Return a round step that divides a span into at most `most` parts."""
    rough = max(span, _TINY) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * step for step in _STEPS if power * step >= rough * (1 - 1e-9))


def scale_of(
    values: Iterable[float | None], unit: Unit, *, zero: bool = False, most_ticks: int = 5
) -> Scale:
    """Return a scale with round ends that covers all values, and 0 with `zero`."""
    numbers = [number_ for value in values if (number_ := finite(value)) is not None]
    if zero or not numbers:
        numbers.append(0.0)
    low, high = min(numbers), max(numbers)
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


TEXT = 12
"""Font size of charts, as in the stylesheet."""
_EMPTY = 88
_CUT = "\u2026"
_NARROW = frozenset("iljtfrI.,:;|!'()[] ")
_WIDE = frozenset("mwMW@%")

SHAPES = ("circle", "square", "triangle", "diamond", "down", "cross")
"""Marks of the first, second, ... series, distinguishable without color."""
_DASHES = (None, "7 3", "2 3", "9 3 2 3", "4 2", "1 2")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A rendered chart: SVG, title, data table and note."""

    title: str
    svg: Markup
    table: Table
    note: str = ""
    """Reading aid below the chart."""


class Size(NamedTuple):
    """Size of a chart in CSS pixels."""

    width: float
    height: float


class Box(NamedTuple):
    """A rectangle in a chart."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """Width in pixels."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """Height in pixels."""
        return self.bottom - self.top


def frame(size: Size, title: str, description: str, *children: Child) -> Markup:
    """Return an SVG with its title and description for screen readers."""
    width, height = math.ceil(size.width), math.ceil(size.height)
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        class_="plot",
        role="img",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
    )


def empty(width: float, title: str, reason: str) -> Markup:
    """Return the placeholder of a chart without data."""
    border = element(
        "rect", x=0.5, y=0.5, width=width - 1, height=_EMPTY - 1, rx=6, class_="c-frame",
        fill="none", stroke="currentColor", stroke_dasharray="4 4",
    )  # fmt: skip
    label = text((width / 2, _EMPTY / 2 + 4), reason, "middle", class_="c-text c-quiet")
    return frame(Size(width, _EMPTY), title, reason, border, label)


WIDTHS = {"narrow": 360, "middle": 720, "wide": 1180}
"""Widths in which a chart of a whole panel is drawn; the stylesheet shows the one that fits."""


class _Wide(Protocol):
    """The record of a chart that can be drawn in any width."""

    @property
    def width(self) -> int: ...


_Chart = TypeVar("_Chart", bound=_Wide)


def fluid(draw: Callable[[_Chart], Drawing], chart: _Chart) -> Drawing:
    """Draw a chart that fills its panel, from a phone to a wide screen, with texts of one size."""
    drawn = {name: draw(replace(chart, width=width)) for name, width in WIDTHS.items()}  # type: ignore[type-var]  # a dataclass, which no protocol can say
    svgs = (element("div", drawing.svg, class_=f"plot-{name}") for name, drawing in drawn.items())
    return replace(drawn["middle"], svg=join(svgs))


def width_of(words: str, size: float = TEXT) -> float:
    """Return the approximate width of a text, rather too wide than too narrow."""
    return sum(_advance(letter) for letter in words) * size


def _advance(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if letter in _NARROW:
        return 0.34
    if letter in _WIDE:
        return 0.92
    return 0.7 if letter.isupper() else 0.58


def shorten(words: str, room: float, size: float = TEXT) -> str:
    """Cut a text to a width, with an ellipsis where it was cut."""
    one_line = " ".join(words.split())
    if width_of(one_line, size) <= room:
        return one_line
    left = room - width_of(_CUT, size)
    kept = ""
    for letter in one_line:
        left -= _advance(letter) * size
        if left < 0:
            break
        kept += letter
    return kept.rstrip() + _CUT


def text(
    at: Sequence[float],
    words: str,
    anchor: str = "start",
    *,
    class_: str = "c-text",
    room: float = math.inf,
) -> Markup:
    """Return a text; a cut text has the whole text as tooltip."""
    cut = shorten(words, room)
    rtl = _right_to_left(cut)
    if rtl:  # the anchor is the start of a text, which is on the right here
        anchor = {"start": "end", "end": "start"}.get(anchor, anchor)
    whole = element("title", words) if cut != " ".join(words.split()) else None
    return element(
        "text",
        whole,
        cut,
        x=at[0],
        y=at[1],
        class_=class_,
        text_anchor=None if anchor == "start" else anchor,
        direction="rtl" if rtl else None,
        font_size=TEXT,
        fill="currentColor",
    )


def _right_to_left(words: str) -> bool:
    for letter in words:
        kind = unicodedata.bidirectional(letter)
        if kind in ("L", "R", "AL"):
            return kind != "L"
    return False


def line(
    start: Sequence[float], end: Sequence[float], class_: str, dash: str | None = None
) -> Markup:
    """Return a straight line."""
    return element(
        "line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], class_=class_,
        stroke="currentColor", stroke_dasharray=dash,
    )  # fmt: skip


def path_of(points: Iterable[Sequence[float]]) -> str:
    """Return points as path data."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def polyline(
    points: Sequence[Sequence[float]], class_: str, dash: str | None = None
) -> Markup | None:
    """Return a line through points; None for fewer than two."""
    if len(points) < 2:
        return None
    return element(
        "path", d=path_of(points), class_=class_, fill="none", stroke="currentColor",
        stroke_dasharray=dash,
    )  # fmt: skip


def dash_of(position: int) -> str | None:
    """Return the dash pattern of the n-th series."""
    return _DASHES[position % len(_DASHES)]


def series_class(position: int) -> str:
    """Return the color class of the n-th series."""
    return f"c-s{position % len(SHAPES) + 1}"


def mark(
    shape: str, at: Sequence[float], *, class_: str, r: float = 4, hollow: bool = False
) -> Markup:
    """Return a mark; shapes distinguish series and verdicts without color."""
    x, y = at
    fill = {"fill": "none"} if hollow or shape == "cross" else {"fill": "currentColor"}
    class_ = f"c-mark {class_}" + (" c-hollow" if hollow or shape == "cross" else "")
    if shape == "circle":
        return element("circle", cx=x, cy=y, r=r, class_=class_, stroke="currentColor", **fill)
    corners = {
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "triangle": ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
        "down": ((0, 1.15), (1.1, -0.85), (-1.1, -0.85)),
        "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    }
    if shape == "cross":
        d = "".join(
            path_of(((x - r * s, y - r), (x + r * s, y + r))) for s in (1, -1)
        )  # fmt: skip
    else:
        d = path_of((x + r * dx, y + r * dy) for dx, dy in corners[shape]) + "Z"
    return element("path", d=d, class_=class_, stroke="currentColor", **fill)


def hatch(box: Box, step: float, *, falling: bool = False) -> str:
    """Return diagonal strokes that fill a box, as path data."""
    parts = []
    offset = step / 2
    while offset < box.width + box.height:
        start = (min(offset, box.width), max(0.0, offset - box.width))
        end = (max(0.0, offset - box.height), min(offset, box.height))
        ends = [(box.left + dx, (box.top + dy)) for dx, dy in (start, end)]
        if falling:
            ends = [(box.left + box.right - x, y) for x, y in ends]
        parts.append(path_of(ends))
        offset += step
    return "".join(parts)


def whisker(start: Sequence[float], end: Sequence[float], class_: str, cap: float = 3) -> Markup:
    """Return an error bar with caps at both ends."""
    across = (cap, 0.0) if start[0] == end[0] else (0.0, cap)
    caps = "".join(
        path_of(((x - across[0], y - across[1]), (x + across[0], y + across[1])))
        for x, y in (start, end)
    )
    d = path_of((start, end)) + caps
    return element("path", d=d, class_=f"c-interval {class_}", fill="none", stroke="currentColor")


def left_axis(scale: Scale, box: Box, label: str) -> list[Markup]:
    """Return horizontal grid lines with their values on the left."""
    drawn = [text((box.left, box.top - 10), label, class_="c-text c-quiet", room=box.width)]
    for value, words in scale.ticks:
        y = scale.at(value)
        drawn.append(line((box.left, y), (box.right, y), "c-grid"))
        drawn.append(text((box.left - 6, y + 4), words, "end", class_="c-text c-number"))
    return drawn


def bottom_axis(scale: Scale, box: Box, label: str) -> list[Markup]:
    """Return vertical grid lines with their values below."""
    drawn = []
    for value, words in scale.ticks:
        x = scale.at(value)
        drawn.append(line((x, box.top), (x, box.bottom), "c-grid"))
        drawn.append(text((x, box.bottom + 16), words, "middle", class_="c-text c-number"))
    middle = (box.left + box.right) / 2
    drawn.append(text((middle, box.bottom + 34), label, "middle", class_="c-text c-quiet"))
    return drawn


def legend(
    names: Sequence[str], left: float, top: float, width: float
) -> tuple[list[Markup], float]:
    """Return the legend of series, and its height."""
    drawn: list[Markup] = []
    x, y = left, top
    for position, name in enumerate(names):
        label = shorten(name, min(220, width - 30))
        needed = width_of(label) + 34
        if x > left and x + needed > left + width:
            x, y = left, y + 18
        class_ = series_class(position)
        drawn.append(line((x, y), (x + 18, y), f"c-line {class_}", dash_of(position)))
        drawn.append(mark(SHAPES[position % len(SHAPES)], (x + 9, y), class_=class_))
        drawn.append(text((x + 24, y + 4), name, room=min(220, width - 30)))
        x += needed
    return drawn, y - top + 20
