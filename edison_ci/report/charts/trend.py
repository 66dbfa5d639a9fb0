"""Trend charts: a number from run to run, and how sure each value is."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.formatting import counted
from edison_ci.report.charts.drawing import (
    SHAPES,
    Box,
    Column,
    DataTable,
    Drawing,
    Size,
    dash_of,
    empty,
    framed,
    left_axis,
    legend,
    line,
    mark,
    path_of,
    polyline,
    series_class,
    text,
    whisker,
    width_of,
)
from edison_ci.report.charts.scales import (
    Unit,
    finite,
    interval_written,
    scale_of,
    written,
)
from edison_ci.report.markup import Html, element
from edison_ci.rounding import mean_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.report.charts.scales import Scale

_MOST_POINTS = 200
"""More are drawn together, several runs to a mark."""
_MOST_WHISKERS = 60


@dataclass(frozen=True, slots=True)
class Moment:
    """One measurement of a series."""

    at: float
    """Where it stands from left to right: a time, or a number in a row."""
    label: str
    """What is written below it, such as a day."""
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    """What is said when it is pointed at, and in the table."""


@dataclass(frozen=True, slots=True)
class Series:
    """What one line of a chart follows."""

    name: str
    moments: tuple[Moment, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A value that a line marks, such as a gate."""

    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Trend:
    """Series of values with intervals, from left to right."""

    title: str
    series: tuple[Series, ...]
    unit: Unit = Unit.POINTS
    rules: tuple[Rule, ...] = ()
    width: int = 640
    height: int = 240


def trend(chart: Trend) -> Drawing:
    """Return the trend as a drawing."""
    size = Size(chart.width, chart.height)
    series, together = _thinned(chart.series)
    moments = [each for one in series for each in one.moments]
    table = _table(chart)
    if not any(finite(each.value) is not None for each in moments):
        return Drawing(chart.title, empty(chart.width, chart.title, "No measurements yet."), table)
    names = [one.name for one in series]
    above, height = legend(names, 52, 14, chart.width - 68) if len(series) > 1 else ([], 0)
    box = Box(52, 28 + height, chart.width - 16, chart.height - 28)
    ends = [value for each in moments for value in (each.value, each.low, each.high)]
    ends += [rule.value for rule in chart.rules]
    scale = scale_of(ends, chart.unit).on(box.bottom, box.top)
    across = _Across.of(moments, box)
    drawn = [*above, *left_axis(scale, box, chart.unit.noun), *_labels(moments, across, box)]
    drawn += [piece for rule in chart.rules for piece in _rule(rule, scale, box)]
    whiskers = len(moments) <= _MOST_WHISKERS
    for position, one in enumerate(series):
        drawn += _series(one.moments, position, (across, scale), whiskers=whiskers)
    note = (
        f"Each point of a line is the mean of up to {together} measurements."
        if together > 1
        else ""
    )
    return Drawing(
        chart.title, framed(size, chart.title, _told(chart), *drawn), table, note
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Across:
    """Places from left to right."""

    low: float
    high: float
    box: Box

    @classmethod
    def of(cls, moments: Sequence[Moment], box: Box) -> _Across:
        places = [each.at for each in moments]
        return cls(min(places), max(places), box)

    def at(self, place: float) -> float:
        left, right = self.box.left + 10, self.box.right - 10
        if self.high == self.low:
            return (left + right) / 2
        return left + (place - self.low) / (self.high - self.low) * (right - left)


def _labels(moments: Sequence[Moment], across: _Across, box: Box) -> Iterator[Html]:
    """Yield the labels that fit below, the last one first of all."""
    by_place = {across.at(each.at): each.label for each in sorted(moments, key=lambda m: m.at)}
    places = sorted(by_place)
    wanted = [places[-1], *places[:-1]]
    taken: list[tuple[float, float]] = []
    for x in wanted:
        words = by_place[x]
        half = min(width_of(words), 110) / 2
        middle = min(max(x, box.left + half - 20), box.right + 14 - half)
        if all(middle + half + 8 < start or middle - half - 8 > end for start, end in taken):
            taken.append((middle - half, middle + half))
            yield text((middle, box.bottom + 18), words, "middle", room=110)


def _rule(rule: Rule, scale: Scale, box: Box) -> Iterator[Html]:
    if finite(rule.value) is None:
        return
    y = scale.at(rule.value)
    yield line((box.left, y), (box.right, y), "c-rule", "5 4")
    words = f"{rule.label} {written(scale.unit, rule.value)}"
    above = y - 5 if y - 5 > box.top + 8 else y + 14
    yield text((box.right, above), words, "end", class_="c-text c-rule-text", room=box.width / 2)


def _series(
    moments: Sequence[Moment], position: int, places: tuple[_Across, Scale], *, whiskers: bool
) -> Iterator[Html]:
    across, scale = places
    class_ = series_class(position)
    ordered = sorted(moments, key=lambda each: each.at)
    # A value that is missing is a gap, never a line drawn across it.
    for known, group in groupby(ordered, key=lambda each: finite(each.value) is not None):
        run = list(group) if known else []
        points = [(across.at(each.at), scale.at(each.value or 0.0), each) for each in run]
        if not whiskers:
            yield from _band(points, scale, class_)
        drawn = polyline([(x, y) for x, y, _ in points], f"c-line {class_}", dash_of(position))
        if drawn is not None:
            yield drawn
        # Of very many, only those that stand alone or last have a mark.
        for x, y, each in points if whiskers else points[-1:]:
            low, high = finite(each.low), finite(each.high)
            interval = low is not None and high is not None and whiskers
            pieces = [
                element("title", _said(each, scale.unit)),
                whisker((x, scale.at(low or 0.0)), (x, scale.at(high or 0.0)), class_)
                if interval
                else None,
                mark(SHAPES[position % len(SHAPES)], (x, y), class_=class_),
            ]
            yield element("g", *pieces)


def _band(
    points: Sequence[tuple[float, float, Moment]], scale: Scale, class_: str
) -> Iterator[Html]:
    known = [(x, each.low, each.high) for x, _, each in points if finite(each.low) is not None]
    edges = [(x, low, high) for x, low, high in known if low is not None and high is not None]
    if len(edges) > 1:
        upper = [(x, scale.at(high)) for x, _, high in edges]
        lower = [(x, scale.at(low)) for x, low, _ in reversed(edges)]
        outline = path_of([*upper, *lower]) + "Z"
        yield element(
            "path", d=outline, class_=f"c-band {class_}", fill="currentColor", fill_opacity="0.15"
        )


def _thinned(series: tuple[Series, ...]) -> tuple[tuple[Series, ...], int]:
    """Return series that can be drawn, and how many measurements a mark stands for."""
    longest = max((len(one.moments) for one in series), default=0)
    together = -(-longest // _MOST_POINTS)
    if together <= 1:
        return series, 1
    return tuple(
        Series(one.name, tuple(_joined(one.moments, together))) for one in series
    ), together


def _joined(moments: Sequence[Moment], together: int) -> Iterator[Moment]:
    """Yield neighbours as one: their mean, and the widest of what their intervals cover."""
    ordered = sorted(moments, key=lambda each: each.at)
    for start in range(0, len(ordered), together):
        group = ordered[start : start + together]
        values = [value for each in group if (value := finite(each.value)) is not None]
        lows = [low for each in group if (low := finite(each.low)) is not None]
        highs = [high for each in group if (high := finite(each.high)) is not None]
        yield Moment(
            group[-1].at,
            group[-1].label,
            mean_or_none(values),
            min(lows) if lows else None,
            max(highs) if highs else None,
        )


def _said(each: Moment, unit: Unit) -> str:
    interval = interval_written(unit, each.low, each.high)
    bars = "" if finite(each.low) is None else f" ({interval})"
    return f"{each.label}: {written(unit, each.value)}{bars}" + (f", {each.note}" * bool(each.note))


def _told(chart: Trend) -> str:
    """Return in words what the picture shows: where each series began and where it is."""
    sentences = []
    for one in chart.series:
        known = [m for m in sorted(one.moments, key=lambda m: m.at) if finite(m.value) is not None]
        if not known:
            sentences.append(f"{one.name}: no measurements.")
            continue
        last = _said(known[-1], chart.unit)
        first = f"from {_said(known[0], chart.unit)} to " if len(known) > 1 else ""
        sentences.append(f"{one.name}: {counted(len(known), 'measurement')}, {first}{last}.")
    rules = (f"{rule.label} at {written(chart.unit, rule.value)}." for rule in chart.rules)
    return " ".join((*sentences, *rules))


def _table(chart: Trend) -> DataTable:
    several = len(chart.series) > 1
    noted = any(each.note for one in chart.series for each in one.moments)
    columns = (
        *((Column("series"),) if several else ()),
        Column("when"),
        Column(chart.unit.noun, numeric=True),
        Column("95% interval", numeric=True),
        *((Column("note"),) if noted else ()),
    )
    rows = tuple(
        (
            *((one.name,) if several else ()),
            each.label,
            written(chart.unit, each.value),
            interval_written(chart.unit, each.low, each.high),
            *((each.note,) if noted else ()),
        )
        for one in chart.series
        for each in sorted(one.moments, key=lambda m: m.at)
    )
    return DataTable(columns, rows)
