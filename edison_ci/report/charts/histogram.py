"""Histograms of scores."""

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
    left_axis,
    line,
    mark,
    text,
    width_of,
)
from edison_ci.report.charts.scales import (
    Scale,
    Unit,
    finite,
    nice_step,
    scale_of,
    tick_text,
    written,
)
from edison_ci.report.markup import Html, element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Bin:
    """How many values lie from `low` up to, and without, `high`."""

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
    threshold: float | None = None
    """What a value has to reach, where something is asked for."""
    counted: str = "answers"
    width: int = 420
    height: int = 220


def tenths(counts: Sequence[int]) -> tuple[Bin, ...]:
    """Return the bins of a scale from 0 to 1 with a count for each."""
    width = len(counts)
    return tuple(Bin(i / width, (i + 1) / width, count) for i, count in enumerate(counts))


def histogram(chart: Histogram) -> Drawing:
    """Return the histogram as a drawing."""
    size, table = Size(chart.width, chart.height), _table(chart)
    total = sum(each.count for each in chart.bins)
    if not total:
        return Drawing(chart.title, empty(chart.width, chart.title, "No scores yet."), table)
    box = Box(44, 44, chart.width - 14, chart.height - 40)
    most = scale_of([each.count for each in chart.bins], Unit.COUNT, zero=True, most_ticks=4)
    up = most.on(box.bottom, box.top)
    low, high = chart.bins[0].low, chart.bins[-1].high
    along = Scale(low, high, box.left, box.right, chart.unit, nice_step(high - low, 5))
    drawn = left_axis(up, box, chart.counted)
    for each in chart.bins:
        left, right = along.at(each.low) + 1, along.at(each.high) - 1
        top = up.at(each.count)
        said = element("title", f"{_range(chart, each)}: {each.count:,}")
        bar = element(
            "rect", said, x=left, y=top, width=max(right - left, 0.5), height=box.bottom - top,
            class_="c-bar c-s1", fill="currentColor",
        )  # fmt: skip
        drawn.append(bar)
    drawn += _below(along, box, chart.unit.noun)
    drawn += _pointers(chart, along, box)
    return Drawing(chart.title, framed(size, chart.title, _told(chart, total), *drawn), table)


def _below(along: Scale, box: Box, label: str) -> Iterator[Html]:
    """Yield the lower axis, without lines through the bars."""
    axis = bottom_axis(along, box._replace(top=box.bottom), label)
    yield from (piece for piece in axis if not piece.startswith("<line"))
    yield line((box.left, box.bottom), (box.right, box.bottom), "c-axis")


def _pointers(chart: Histogram, along: Scale, box: Box) -> Iterator[Html]:
    """Yield the mean and what is asked for, as lines with a word above."""
    pointed = (
        ("mean", chart.mean, "c-mean", "", "down"),
        ("asked", chart.threshold, "c-rule", "5 4", "diamond"),
    )
    known = sorted(
        (along.at(value), f"{word} {written(chart.unit, value)}", class_, dash, shape)
        for word, given, class_, dash, shape in pointed
        if (value := finite(given)) is not None
    )
    for position, (x, words, class_, dash, shape) in enumerate(known):
        wide = width_of(words)
        # Of two words side by side one ends at its line and the other starts there.
        left = x - wide / 2 if len(known) == 1 else x - (wide - 4) * (position == 0) - 4 * position
        left = min(max(left, 0.0), chart.width - wide)
        yield line((x, box.top - 22), (x, box.bottom), class_, dash or None)
        yield mark(shape, (x, box.top - 22), class_=class_, r=3)
        yield text((left, box.top - 30), words)


def _range(chart: Histogram, each: Bin) -> str:
    step = each.high - each.low
    low, high = (tick_text(chart.unit, value, step) for value in (each.low, each.high))
    return f"{low} to {high}"


def _told(chart: Histogram, total: int) -> str:
    fullest = max(chart.bins, key=lambda each: each.count)
    said = f"{total:,} {chart.counted}; most, {fullest.count:,}, lie at {_range(chart, fullest)}."
    if finite(chart.mean) is not None:
        said += f" The mean is {written(chart.unit, chart.mean)}."
    if finite(chart.threshold) is not None:
        said += f" Asked for is {written(chart.unit, chart.threshold)}."
    return said


def _table(chart: Histogram) -> DataTable:
    total = sum(each.count for each in chart.bins)
    columns = (
        Column(chart.unit.noun),
        Column(chart.counted, numeric=True),
        Column("share", numeric=True),
    )
    rows = tuple(
        (
            _range(chart, each),
            f"{each.count:,}",
            written(Unit.SHARE, each.count / total if total else None),
        )
        for each in chart.bins
    )
    return DataTable(columns, rows)
