"""Bar charts of amounts by name or day, and histograms of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.report.charts.drawing import (
    Box,
    Drawing,
    Scale,
    Size,
    Unit,
    bottom_axis,
    empty,
    finite,
    format_value,
    frame,
    hatch,
    left_axis,
    line,
    mark,
    nice_step,
    scale_of,
    series_class,
    shorten,
    text,
    tick_text,
    width_of,
)
from edison_ci.report.document import Column, Table
from edison_ci.report.markup import element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Bin:
    """Number of values from `low` (inclusive) to `high` (exclusive)."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Values counted in bins of one width."""

    title: str
    bins: tuple[Bin, ...]
    unit: Unit = Unit.POINTS
    mean: float | None = None
    width: int = 420
    height: int = 220


def tenths(counts: Sequence[int]) -> tuple[Bin, ...]:
    """Return equal bins from 0 to 1 with these counts."""
    width = len(counts)
    return tuple(Bin(i / width, (i + 1) / width, count) for i, count in enumerate(counts))


def histogram(chart: Histogram) -> Drawing:
    """Draw a histogram."""
    size, table = Size(chart.width, chart.height), _histogram_table(chart)
    total = sum(bin_.count for bin_ in chart.bins)
    if not total:
        return Drawing(chart.title, empty(chart.width, chart.title, "No scores yet."), table)
    box = Box(44, 44, chart.width - 14, chart.height - 40)
    most = scale_of([bin_.count for bin_ in chart.bins], Unit.COUNT, zero=True, most_ticks=4)
    up = most.on(box.bottom, box.top)
    low, high = chart.bins[0].low, chart.bins[-1].high
    along = Scale(low, high, box.left, box.right, chart.unit, nice_step(high - low, 5))
    drawn = left_axis(up, box, _COUNTED)
    for bin_ in chart.bins:
        left, right = along.at(bin_.low) + 1, along.at(bin_.high) - 1
        top = up.at(bin_.count)
        tooltip = element("title", f"{_range(chart, bin_)}: {bin_.count:,}")
        bar = element(
            "rect", tooltip, x=left, y=top, width=max(right - left, 0.5), height=box.bottom - top,
            class_="c-bar c-s1", fill="currentColor",
        )  # fmt: skip
        drawn.append(bar)
    drawn += _below(along, box, chart.unit.noun)
    drawn += _mean_line(chart, along, box)
    return Drawing(
        chart.title, frame(size, chart.title, _histogram_summary(chart, total), *drawn), table
    )


def _below(along: Scale, box: Box, label: str) -> Iterator[Markup]:
    """Yield the lower axis without grid lines."""
    axis = bottom_axis(along, box._replace(top=box.bottom), label)
    yield from (piece for piece in axis if not piece.startswith("<line"))
    yield line((box.left, box.bottom), (box.right, box.bottom), "c-axis")


def _mean_line(chart: Histogram, along: Scale, box: Box) -> Iterator[Markup]:
    """Yield the mean as a line with a label above."""
    mean = finite(chart.mean)
    if mean is None:
        return
    x, words = along.at(mean), f"mean {format_value(chart.unit, mean)}"
    wide = width_of(words)
    left = min(max(x - wide / 2, 0.0), chart.width - wide)
    yield line((x, box.top - 22), (x, box.bottom), "c-mean", None)
    yield mark("down", (x, box.top - 22), class_="c-mean", r=3)
    yield text((left, box.top - 30), words)


def _range(chart: Histogram, bin_: Bin) -> str:
    step = bin_.high - bin_.low
    low, high = (tick_text(chart.unit, value, step) for value in (bin_.low, bin_.high))
    return f"{low} to {high}"


def _histogram_summary(chart: Histogram, total: int) -> str:
    fullest = max(chart.bins, key=lambda bin_: bin_.count)
    summary = f"{total:,} {_COUNTED}; most, {fullest.count:,}, at {_range(chart, fullest)}."
    if finite(chart.mean) is not None:
        summary += f" The mean is {format_value(chart.unit, chart.mean)}."
    return summary


def _histogram_table(chart: Histogram) -> Table:
    total = sum(bin_.count for bin_ in chart.bins)
    columns = (
        Column(chart.unit.noun),
        Column(_COUNTED, numeric=True),
        Column("share", numeric=True),
    )
    rows = tuple(
        (
            _range(chart, bin_),
            f"{bin_.count:,}",
            format_value(Unit.SHARE, bin_.count / total if total else None),
        )
        for bin_ in chart.bins
    )
    return Table(columns, rows)


_COUNTED = "answers"
"""What a histogram counts."""
_HIGH = 26
_WIDEST_LABEL = 180.0
_MOST_BARS = 40


@dataclass(frozen=True, slots=True)
class Bar:
    """One amount, of one or more parts."""

    label: str
    parts: tuple[float | None, ...]

    @property
    def total(self) -> float | None:
        """Sum of its known parts; None if none is known."""
        parts = [part for amount in self.parts if (part := finite(amount)) is not None]
        return sum(parts) if parts else None


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar chart."""

    title: str
    bars: tuple[Bar, ...]
    unit: Unit = Unit.DOLLARS
    parts: tuple[str, ...] = ("amount",)
    """Names of the parts of a bar."""
    vertical: bool = False
    """Whether bars are vertical, for example by day; else horizontal."""
    width: int = 640


def bars(chart: Bars) -> Drawing:
    """Draw a bar chart."""
    table = _table(chart)
    # Of too many days the oldest are left out, of too many names the last.
    drawn_bars = chart.bars[-_MOST_BARS:] if chart.vertical else chart.bars[:_MOST_BARS]
    left_out = len(chart.bars) - len(drawn_bars)
    note = f"The data table has {left_out:,} more." if left_out else ""
    if not any(bar.total is not None for bar in drawn_bars):
        return Drawing(chart.title, empty(chart.width, chart.title, "No data yet."), table)
    above, height = _legend(chart)
    draw = _vertical if chart.vertical else _horizontal
    size, drawn = draw(chart, drawn_bars, height)
    svg = frame(size, chart.title, _summary(chart), *above, *drawn)
    return Drawing(chart.title, svg, table, note)


def _horizontal(chart: Bars, drawn_bars: Sequence[Bar], top: float) -> tuple[Size, list[Markup]]:
    room = max(width_of(bar.label) for bar in drawn_bars) + 10
    amount = max(width_of(format_value(chart.unit, bar.total)) for bar in drawn_bars) + 10
    box = Box(min(room, _WIDEST_LABEL), top + 6, chart.width - amount, 0)
    box = box._replace(bottom=box.top + _HIGH * len(drawn_bars) + 4)
    scale = scale_of([bar.total for bar in drawn_bars], chart.unit, zero=True).on(
        box.left, box.right
    )
    drawn = bottom_axis(scale, box, chart.unit.noun)
    for row, bar in enumerate(drawn_bars):
        upper = box.top + 5 + _HIGH * row
        lower, middle = upper + _HIGH - 10, upper + (_HIGH - 10) / 2
        pieces = [element("title", _bar_label(chart, bar))]
        for i, (start, end) in _stacked_parts(bar, scale):
            left, right = min(start, end), max(start, end)
            pieces += _fill(Box(left, upper, right, lower), i)
        drawn.append(element("g", *pieces))
        drawn.append(text((box.left - 8, middle + 4), bar.label, "end", room=box.left - 8))
        end = max(scale.at(bar.total or 0.0), scale.at(0.0))
        words = format_value(chart.unit, bar.total)
        drawn.append(text((end + 6, middle + 4), words, class_="c-text c-number"))
    zero = scale.at(0.0)
    drawn.append(line((zero, box.top), (zero, box.bottom), "c-axis"))
    return Size(chart.width, box.bottom + 40), drawn


def _vertical(chart: Bars, drawn_bars: Sequence[Bar], top: float) -> tuple[Size, list[Markup]]:
    box = Box(62, top + 26, chart.width - 12, top + 190)
    scale = scale_of([bar.total for bar in drawn_bars], chart.unit, zero=True).on(
        box.bottom, box.top
    )
    drawn = left_axis(scale, box, chart.unit.noun)
    wide = box.width / len(drawn_bars)
    free = -1.0
    for column, bar in enumerate(drawn_bars):
        middle = box.left + wide * (column + 0.5)
        half = min(wide * 0.38, 22)
        pieces = [element("title", _bar_label(chart, bar))]
        for i, (start, end) in _stacked_parts(bar, scale):
            upper, lower = min(start, end), max(start, end)
            pieces += _fill(Box(middle - half, upper, middle + half, lower), i)
        drawn.append(element("g", *pieces))
        needed = min(width_of(bar.label), 90) / 2
        if middle - needed > free:
            drawn.append(text((middle, box.bottom + 18), bar.label, "middle", room=90))
            free = middle + needed + 8
    zero = scale.at(0.0)
    drawn.append(line((box.left, zero), (box.right, zero), "c-axis"))
    return Size(chart.width, box.bottom + 28), drawn


def _stacked_parts(bar: Bar, scale: Scale) -> Iterator[tuple[int, tuple[float, float]]]:
    """Yield index, start and end position of each part."""
    reached = 0.0
    for i, part in enumerate(bar.parts):
        amount = finite(part)
        if amount:
            yield i, (scale.at(reached), scale.at(reached + amount))
            reached += amount


def _fill(box: Box, position: int) -> Iterator[Markup]:
    """Yield a part of a bar; all but the first are hatched, so that color is not needed."""
    class_ = series_class(position)
    wide, high = max(box.width, 0.5), max(box.height, 0.5)
    yield element(
        "rect", x=box.left, y=box.top, width=wide, height=high, class_=f"c-bar {class_}",
        fill="currentColor", fill_opacity=str(max(1 - 0.25 * position, 0.25)),
    )  # fmt: skip
    if position and wide > 2 and high > 2:
        strokes = hatch(box, 6 if position % 2 else 4, falling=position > 1)
        yield element("path", d=strokes, class_="c-hatch", fill="none", stroke="currentColor")


def _legend(chart: Bars) -> tuple[list[Markup], float]:
    if len(chart.parts) < 2:
        return [], 0.0
    drawn: list[Markup] = []
    x, y = 2.0, 6.0
    for position, name in enumerate(chart.parts):
        label = shorten(name, 200)
        needed = 22 + width_of(label) + 14
        if x > 2 and x + needed > chart.width:
            x, y = 2.0, y + 18
        drawn += _fill(Box(x, y, x + 16, y + 12), position)
        drawn.append(text((x + 22, y + 10), name, room=200))
        x += needed
    return drawn, y + 14


def _bar_label(chart: Bars, bar: Bar) -> str:
    summary = f"{bar.label}: {format_value(chart.unit, bar.total)}"
    if len(chart.parts) > 1:
        named = zip(chart.parts, bar.parts, strict=False)
        summary += (
            f" ({', '.join(f'{name} {format_value(chart.unit, part)}' for name, part in named)})"
        )
    return summary


def _summary(chart: Bars) -> str:
    measured = [bar for bar in chart.bars if bar.total is not None]
    most = max(measured, key=lambda bar: bar.total or 0.0)
    return f"{len(chart.bars)} bars; the greatest is {_bar_label(chart, most)}."


def _table(chart: Bars) -> Table:
    several = len(chart.parts) > 1
    columns = (
        Column("name"),
        *(Column(name, numeric=True) for name in chart.parts if several),
        Column("total" if several else chart.unit.noun, numeric=True),
    )
    rows = tuple(
        (
            bar.label,
            *(format_value(chart.unit, part) for part in bar.parts if several),
            format_value(chart.unit, bar.total),
        )
        for bar in chart.bars
    )
    return Table(columns, rows)
