"""Bar charts: amounts by name or by day, and what they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.report.charts.drawing import (
    Box,
    Column,
    DataTable,
    Drawing,
    Size,
    bottom_axis,
    empty,
    framed,
    hatch,
    left_axis,
    line,
    series_class,
    shortened,
    text,
    whisker,
    width_of,
)
from edison_ci.report.charts.scales import Unit, finite, interval_written, scale_of, written
from edison_ci.report.markup import Html, element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.report.charts.scales import Scale

_HIGH = 26
_WIDEST_LABEL = 180.0
_MOST_BARS = 40


@dataclass(frozen=True, slots=True)
class Bar:
    """One amount, in one or more parts."""

    label: str
    parts: tuple[float | None, ...]
    low: float | None = None
    high: float | None = None

    @property
    def total(self) -> float | None:
        """What its parts add up to; None when nothing is known."""
        known = [part for each in self.parts if (part := finite(each)) is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Bars:
    """Amounts beside each other."""

    title: str
    bars: tuple[Bar, ...]
    unit: Unit = Unit.DOLLARS
    parts: tuple[str, ...] = ("amount",)
    """What each part of a bar is."""
    limit: tuple[str, float] | None = None
    """A line that is not to be passed, with its name."""
    standing: bool = False
    """Whether bars stand beside each other, as days do, or lie below each other."""
    width: int = 640


def bars(chart: Bars) -> Drawing:
    """Return amounts as a drawing."""
    table = _table(chart)
    # Days are cut off at their old end, a list by name at its lower end.
    shown = chart.bars[-_MOST_BARS:] if chart.standing else chart.bars[:_MOST_BARS]
    left_out = len(chart.bars) - len(shown)
    note = f"{left_out:,} more are in the table." if left_out else ""
    if not any(bar.total is not None for bar in shown):
        return Drawing(chart.title, empty(chart.width, chart.title, "Nothing to show yet."), table)
    above, height = _legend(chart)
    draw = _standing if chart.standing else _lying
    size, drawn = draw(chart, shown, height)
    svg = framed(size, chart.title, _told(chart), *above, *drawn)
    return Drawing(chart.title, svg, table, note)


def _ends(chart: Bars, shown: Sequence[Bar]) -> list[float | None]:
    ends = [value for bar in shown for value in (bar.total, bar.low, bar.high)]
    return ends if chart.limit is None else [*ends, chart.limit[1]]


def _lying(chart: Bars, shown: Sequence[Bar], top: float) -> tuple[Size, list[Html]]:
    room = max(width_of(bar.label) for bar in shown) + 10
    amount = max(width_of(written(chart.unit, bar.total)) for bar in shown) + 10
    box = Box(
        min(room, _WIDEST_LABEL),
        top + 6 + (18 if chart.limit else 0),
        chart.width - amount,
        0,
    )
    box = box._replace(bottom=box.top + _HIGH * len(shown) + 4)
    scale = scale_of(_ends(chart, shown), chart.unit, zero=True).on(box.left, box.right)
    drawn = bottom_axis(scale, box, chart.unit.noun)
    for row, bar in enumerate(shown):
        upper = box.top + 5 + _HIGH * row
        lower, middle = upper + _HIGH - 10, upper + (_HIGH - 10) / 2
        pieces = [element("title", _said(chart, bar))]
        for i, (start, end) in _stack(bar, scale):
            left, right = min(start, end), max(start, end)
            pieces += _filled(Box(left, upper, right, lower), i)
        low, high = finite(bar.low), finite(bar.high)
        if low is not None and high is not None:
            pieces.append(whisker((scale.at(low), middle), (scale.at(high), middle), "c-over"))
        drawn.append(element("g", *pieces))
        drawn.append(text((box.left - 8, middle + 4), bar.label, "end", room=box.left - 8))
        end = max(scale.at(value) for value in (bar.total or 0.0, high or 0.0, 0.0))
        words = written(chart.unit, bar.total)
        drawn.append(text((end + 6, middle + 4), words, class_="c-text c-number"))
    zero = scale.at(0.0)
    drawn.append(line((zero, box.top), (zero, box.bottom), "c-axis"))
    if chart.limit and finite(chart.limit[1]) is not None:
        x = scale.at(chart.limit[1])
        drawn.append(line((x, box.top - 6), (x, box.bottom), "c-rule", "5 4"))
        words = f"{chart.limit[0]} {written(chart.unit, chart.limit[1])}"
        half = width_of(words) / 2
        middle = min(max(x, half), chart.width - half)
        drawn.append(text((middle, box.top - 10), words, "middle", class_="c-text c-rule-text"))
    return Size(chart.width, box.bottom + 40), drawn


def _standing(chart: Bars, shown: Sequence[Bar], top: float) -> tuple[Size, list[Html]]:
    box = Box(62, top + 26, chart.width - 12, top + 190)
    scale = scale_of(_ends(chart, shown), chart.unit, zero=True).on(box.bottom, box.top)
    drawn = left_axis(scale, box, chart.unit.noun)
    wide = box.width / len(shown)
    free = -1.0
    for column, bar in enumerate(shown):
        middle = box.left + wide * (column + 0.5)
        half = min(wide * 0.38, 22)
        pieces = [element("title", _said(chart, bar))]
        for i, (start, end) in _stack(bar, scale):
            upper, lower = min(start, end), max(start, end)
            pieces += _filled(Box(middle - half, upper, middle + half, lower), i)
        low, high = finite(bar.low), finite(bar.high)
        if low is not None and high is not None:
            pieces.append(whisker((middle, scale.at(low)), (middle, scale.at(high)), "c-over"))
        drawn.append(element("g", *pieces))
        needed = min(width_of(bar.label), 90) / 2
        if middle - needed > free:
            drawn.append(text((middle, box.bottom + 18), bar.label, "middle", room=90))
            free = middle + needed + 8
    zero = scale.at(0.0)
    drawn.append(line((box.left, zero), (box.right, zero), "c-axis"))
    if chart.limit and finite(chart.limit[1]) is not None:
        y = scale.at(chart.limit[1])
        drawn.append(line((box.left, y), (box.right, y), "c-rule", "5 4"))
        words = f"{chart.limit[0]} {written(chart.unit, chart.limit[1])}"
        drawn.append(text((box.right, y - 5), words, "end", class_="c-text c-rule-text"))
    return Size(chart.width, box.bottom + 28), drawn


def _stack(bar: Bar, scale: Scale) -> Iterator[tuple[int, tuple[float, float]]]:
    """Yield where each part begins and ends, one after the other."""
    reached = 0.0
    for i, part in enumerate(bar.parts):
        known = finite(part)
        if known:
            yield i, (scale.at(reached), scale.at(reached + known))
            reached += known


def _filled(box: Box, position: int) -> Iterator[Html]:
    """Yield a part of a bar; all but the first have strokes too, so colour is not needed."""
    class_ = series_class(position)
    wide, high = max(box.width, 0.5), max(box.height, 0.5)
    yield element(
        "rect", x=box.left, y=box.top, width=wide, height=high, class_=f"c-bar {class_}",
        fill="currentColor", fill_opacity=str(max(1 - 0.25 * position, 0.25)),
    )  # fmt: skip
    if position and wide > 2 and high > 2:
        strokes = hatch(box, 6 if position % 2 else 4, falling=position > 1)
        yield element("path", d=strokes, class_="c-hatch", fill="none", stroke="currentColor")


def _legend(chart: Bars) -> tuple[list[Html], float]:
    if len(chart.parts) < 2:
        return [], 0.0
    drawn: list[Html] = []
    x, y = 2.0, 6.0
    for position, name in enumerate(chart.parts):
        shown = shortened(name, 200)
        needed = 22 + width_of(shown) + 14
        if x > 2 and x + needed > chart.width:
            x, y = 2.0, y + 18
        drawn += _filled(Box(x, y, x + 16, y + 12), position)
        drawn.append(text((x + 22, y + 10), name, room=200))
        x += needed
    return drawn, y + 14


def _said(chart: Bars, bar: Bar) -> str:
    said = f"{bar.label}: {written(chart.unit, bar.total)}"
    if len(chart.parts) > 1:
        named = zip(chart.parts, bar.parts, strict=False)
        said += f" ({', '.join(f'{name} {written(chart.unit, part)}' for name, part in named)})"
    if finite(bar.low) is not None:
        said += f" ({interval_written(chart.unit, bar.low, bar.high)})"
    return said


def _told(chart: Bars) -> str:
    known = [bar for bar in chart.bars if bar.total is not None]
    most = max(known, key=lambda bar: bar.total or 0.0)
    said = f"{len(chart.bars)} bars; the greatest is {_said(chart, most)}."
    if chart.limit is not None:
        said += f" {chart.limit[0]}: {written(chart.unit, chart.limit[1])}."
    return said


def _table(chart: Bars) -> DataTable:
    several = len(chart.parts) > 1
    ranged = any(finite(bar.low) is not None for bar in chart.bars)
    columns = (
        Column("name"),
        *(Column(name, numeric=True) for name in chart.parts if several),
        Column("total" if several else chart.unit.noun, numeric=True),
        *((Column("95% interval", numeric=True),) if ranged else ()),
    )
    rows = tuple(
        (
            bar.label,
            *(written(chart.unit, part) for part in bar.parts if several),
            written(chart.unit, bar.total),
            *((interval_written(chart.unit, bar.low, bar.high),) if ranged else ()),
        )
        for bar in chart.bars
    )
    return DataTable(columns, rows)
