"""Trend charts: a number by run with its interval, and sparklines."""

from __future__ import annotations

from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import counted, mean_or_none
from edison_ci.report.charts.drawing import (
    SHAPES,
    Box,
    Drawing,
    Size,
    Unit,
    dash_of,
    empty,
    finite,
    format_interval,
    format_value,
    frame,
    left_axis,
    legend,
    line,
    mark,
    path_of,
    polyline,
    scale_of,
    series_class,
    text,
    whisker,
    width_of,
)
from edison_ci.report.document import Column, Table
from edison_ci.report.markup import element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markupsafe import Markup

    from edison_ci.report.charts.drawing import Scale


_MOST = 60
_EDGE = 4


@dataclass(frozen=True, slots=True)
class Sparkline:
    """The latest values of a number, oldest first."""

    title: str
    values: tuple[float | None, ...]
    unit: Unit = Unit.POINTS
    width: int = 120
    height: int = 28


def sparkline(chart: Sparkline) -> Drawing:
    """Draw a sparkline; its last value has a mark."""
    size = Size(chart.width, chart.height)
    values = [finite(value) for value in chart.values]
    drawn_values = values[-_MOST:]
    measured = [value for value in drawn_values if value is not None]
    rows = tuple((str(i), format_value(chart.unit, v)) for i, v in enumerate(values, start=1))
    columns = (Column("number", numeric=True), Column(chart.unit.noun, numeric=True))
    table = Table(columns, rows)
    if not measured:
        dash = text(
            (size.width / 2, size.height / 2 + 4), "no data", "middle", class_="c-text c-quiet"
        )
        return Drawing(chart.title, frame(size, chart.title, "No measurements yet.", dash), table)
    scale = scale_of(measured, chart.unit).on(size.height - _EDGE, _EDGE)
    step = (size.width - 2 * _EDGE) / max(len(drawn_values) - 1, 1)
    start = _EDGE if len(drawn_values) > 1 else size.width / 2
    places = [
        None if value is None else (start + i * step, scale.at(value))
        for i, value in enumerate(drawn_values)
    ]
    drawn = []
    for there, group in groupby(places, key=lambda place: place is not None):
        points = [place for place in group if place is not None]
        if there and len(points) > 1:
            drawn.append(polyline(points, "c-line c-s1"))
        elif there:
            drawn.append(mark("circle", points[0], class_="c-s1", r=1.5))
    last = next(place for place in reversed(places) if place is not None)
    drawn.append(mark("circle", last, class_="c-s1", r=2.5))
    last_value, least, greatest = (
        format_value(chart.unit, value) for value in (measured[-1], min(measured), max(measured))
    )
    count = counted(len(measured), "measurement")
    summary = f"{count}, last {last_value}, least {least}, greatest {greatest}."
    return Drawing(chart.title, frame(size, chart.title, summary, *drawn), table)


_MOST_POINTS = 200
"""Of more points, several are merged into one."""
_MOST_WHISKERS = 60


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One measurement of a series."""

    at: float
    """Position on the x axis: a time or an index."""
    label: str
    """Label of the x axis, such as a day."""
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    """Note in the tooltip and the table."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a trend chart."""

    name: str
    points: tuple[TrendPoint, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal line at a value, such as a gate."""

    label: str
    value: float


class MarkKind(StrEnum):
    """What happened at a place of the x axis, by the letter that stands there."""

    PROMPT = "P"
    DATA = "D"
    MODEL = "M"
    SUITE = "E"
    ALERT = "!"

    @property
    def words(self) -> str:
        """The meaning of the letter."""
        return {
            MarkKind.PROMPT: "new prompt version",
            MarkKind.DATA: "cases changed",
            MarkKind.MODEL: "model changed",
            MarkKind.SUITE: "eval suite changed",
            MarkKind.ALERT: "alert opened",
        }[self]


@dataclass(frozen=True, slots=True)
class Happening:
    """A vertical line where something changed."""

    at: float
    kind: MarkKind
    label: str


@dataclass(frozen=True, slots=True)
class Trend:
    """A trend chart of one or more series."""

    title: str
    series: tuple[Series, ...]
    unit: Unit = Unit.POINTS
    rules: tuple[Rule, ...] = ()
    happenings: tuple[Happening, ...] = ()
    ahead: tuple[TrendPoint, ...] = ()
    """A forecast from the last measurement on, with its prediction limits."""
    width: int = 640
    height: int = 240


def trend(chart: Trend) -> Drawing:
    """Draw a trend chart."""
    size = Size(chart.width, chart.height)
    series, together = _thin_out(chart.series)
    points = [*(point for line_ in series for point in line_.points), *chart.ahead]
    table = _table(chart)
    if not any(finite(point.value) is not None for point in points):
        return Drawing(chart.title, empty(chart.width, chart.title, "No measurements yet."), table)
    names = [line_.name for line_ in series]
    above, height = legend(names, 52, 14, chart.width - 68) if len(series) > 1 else ([], 0)
    box = Box(52, 28 + height, chart.width - 16, chart.height - 28)
    ends = [value for point in points for value in (point.value, point.low, point.high)]
    ends += [rule.value for rule in chart.rules]
    scale = scale_of(ends, chart.unit).on(box.bottom, box.top)
    across = _Across.of(points, box)
    drawn = [*above, *left_axis(scale, box, chart.unit.noun), *_labels(points, across, box)]
    drawn += [piece for rule in chart.rules for piece in _rule(rule, scale, box)]
    whiskers = len(points) <= _MOST_WHISKERS
    drawn += _happenings(chart.happenings, across, box)
    drawn += _ahead(chart.ahead, across, scale)
    for position, line_ in enumerate(series):
        drawn += _series(line_.points, position, (across, scale), whiskers=whiskers)
    return Drawing(
        chart.title, frame(size, chart.title, _summary(chart), *drawn), table, _key(chart, together)
    )  # fmt: skip


def _key(chart: Trend, together: int) -> str:
    """Return how to read the chart."""
    kinds = [
        kind for kind in MarkKind if any(happening.kind is kind for happening in chart.happenings)
    ]
    sentences = []
    if kinds:
        sentences.append("; ".join(f"{kind.value}: {kind.words}" for kind in kinds))
    if chart.ahead:
        sentences.append("the dashed line with its band: forecast, 95% prediction limits")
    if together > 1:
        sentences.append(f"each point is the mean of up to {together} measurements")
    text = "; ".join(sentences)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _happenings(happenings: Sequence[Happening], across: _Across, box: Box) -> Iterator[Markup]:
    by_place: dict[float, list[Happening]] = {}
    for happening in happenings:
        by_place.setdefault(across.at(happening.at), []).append(happening)
    for x, group in sorted(by_place.items()):
        letters = "".join(dict.fromkeys(happening.kind.value for happening in group))
        alert = any(happening.kind is MarkKind.ALERT for happening in group)
        class_ = "c-event c-event-alert" if alert else "c-event"
        yield element(
            "g",
            element(
                "title",
                "; ".join(f"{happening.kind.words}: {happening.label}" for happening in group),
            ),
            line((x, box.top), (x, box.bottom), class_, "2 4"),
            text((x, box.top - 4), letters, "middle", class_=f"c-text{' c-event-text' * alert}"),
        )


def _ahead(points: Sequence[TrendPoint], across: _Across, scale: Scale) -> Iterator[Markup]:
    """Yield the forecast: a band of prediction limits around a dashed line."""
    placed = [
        (across.at(point.at), scale.at(point.value), point)
        for point in points
        if point.value is not None
    ]
    if len(placed) < 2:
        return
    pieces = [element("title", f"forecast: {_point_label(placed[-1][2], scale.unit)}")]
    pieces += _band(placed, scale, series_class(0))
    drawn = polyline([(x, y) for x, y, _ in placed], f"c-line {series_class(0)}", "2 5")
    yield element("g", *pieces, drawn)


@dataclass(frozen=True, slots=True)
class _Across:
    """The x axis of a trend chart."""

    low: float
    high: float
    box: Box

    @classmethod
    def of(cls, points: Sequence[TrendPoint], box: Box) -> _Across:
        places = [point.at for point in points]
        return cls(min(places), max(places), box)

    def at(self, place: float) -> float:
        left, right = self.box.left + 10, self.box.right - 10
        if self.high == self.low:
            return (left + right) / 2
        return left + (place - self.low) / (self.high - self.low) * (right - left)


def _labels(points: Sequence[TrendPoint], across: _Across, box: Box) -> Iterator[Markup]:
    """Yield the labels of the x axis that fit, the last one first."""
    by_place = {across.at(point.at): point.label for point in sorted(points, key=lambda m: m.at)}
    places = sorted(by_place)
    ordered = [places[-1], *places[:-1]]
    taken: list[tuple[float, float]] = []
    for x in ordered:
        words = by_place[x]
        half = min(width_of(words), 110) / 2
        middle = min(max(x, box.left + half - 20), box.right + 14 - half)
        if all(middle + half + 8 < start or middle - half - 8 > end for start, end in taken):
            taken.append((middle - half, middle + half))
            yield text((middle, box.bottom + 18), words, "middle", room=110)


def _rule(rule: Rule, scale: Scale, box: Box) -> Iterator[Markup]:
    if finite(rule.value) is None:
        return
    y = scale.at(rule.value)
    yield line((box.left, y), (box.right, y), "c-rule", "5 4")
    words = f"{rule.label} {format_value(scale.unit, rule.value)}"
    above = y - 5 if y - 5 > box.top + 8 else y + 14
    yield text((box.right, above), words, "end", class_="c-text c-rule-text", room=box.width / 2)


def _series(
    points: Sequence[TrendPoint], position: int, places: tuple[_Across, Scale], *, whiskers: bool
) -> Iterator[Markup]:
    across, scale = places
    class_ = series_class(position)
    ordered = sorted(points, key=lambda point: point.at)
    # A missing value is a gap in the line.
    for measured, group in groupby(ordered, key=lambda point: finite(point.value) is not None):
        run = list(group) if measured else []
        placed = [(across.at(point.at), scale.at(point.value or 0.0), point) for point in run]
        if not whiskers:
            yield from _band(placed, scale, class_)
        drawn = polyline([(x, y) for x, y, _ in placed], f"c-line {class_}", dash_of(position))
        if drawn is not None:
            yield drawn
        # Of very many points only the last of a segment has a mark.
        for x, y, point in placed if whiskers else placed[-1:]:
            low, high = finite(point.low), finite(point.high)
            interval = low is not None and high is not None and whiskers
            pieces = [
                element("title", _point_label(point, scale.unit)),
                whisker((x, scale.at(low or 0.0)), (x, scale.at(high or 0.0)), class_)
                if interval
                else None,
                mark(SHAPES[position % len(SHAPES)], (x, y), class_=class_),
            ]
            yield element("g", *pieces)


def _band(
    points: Sequence[tuple[float, float, TrendPoint]], scale: Scale, class_: str
) -> Iterator[Markup]:
    limits = [(x, point.low, point.high) for x, _, point in points if finite(point.low) is not None]
    edges = [(x, low, high) for x, low, high in limits if low is not None and high is not None]
    if len(edges) > 1:
        upper = [(x, scale.at(high)) for x, _, high in edges]
        lower = [(x, scale.at(low)) for x, low, _ in reversed(edges)]
        outline = path_of([*upper, *lower]) + "Z"
        yield element(
            "path", d=outline, class_=f"c-band {class_}", fill="currentColor", fill_opacity="0.15"
        )


def _thin_out(series: tuple[Series, ...]) -> tuple[tuple[Series, ...], int]:
    """Return series that can be drawn, and how many measurements are merged per point."""
    longest = max((len(line_.points) for line_ in series), default=0)
    together = -(-longest // _MOST_POINTS)
    if together <= 1:
        return series, 1
    return tuple(
        Series(line_.name, tuple(_merge_points(line_.points, together))) for line_ in series
    ), together


def _merge_points(points: Sequence[TrendPoint], together: int) -> Iterator[TrendPoint]:
    """Yield groups of neighbors as one point: mean, and the range of their intervals."""
    ordered = sorted(points, key=lambda point: point.at)
    for start in range(0, len(ordered), together):
        group = ordered[start : start + together]
        values = [value for point in group if (value := finite(point.value)) is not None]
        lows = [low for point in group if (low := finite(point.low)) is not None]
        highs = [high for point in group if (high := finite(point.high)) is not None]
        yield TrendPoint(
            group[-1].at,
            group[-1].label,
            mean_or_none(values),
            min(lows) if lows else None,
            max(highs) if highs else None,
        )


def _point_label(point: TrendPoint, unit: Unit) -> str:
    interval = format_interval(unit, point.low, point.high)
    bars = "" if finite(point.low) is None else f" ({interval})"
    return f"{point.label}: {format_value(unit, point.value)}{bars}" + (
        f", {point.note}" * bool(point.note)
    )


def _summary(chart: Trend) -> str:
    """Return the description of the chart: first and last value of each series."""
    sentences = []
    for line_ in chart.series:
        measured = [
            m for m in sorted(line_.points, key=lambda m: m.at) if finite(m.value) is not None
        ]
        if not measured:
            sentences.append(f"{line_.name}: no measurements.")
            continue
        last = _point_label(measured[-1], chart.unit)
        first = f"from {_point_label(measured[0], chart.unit)} to " if len(measured) > 1 else ""
        sentences.append(f"{line_.name}: {counted(len(measured), 'measurement')}, {first}{last}.")
    rules = (f"{rule.label} at {format_value(chart.unit, rule.value)}." for rule in chart.rules)
    ahead = [f"Forecast: {_point_label(chart.ahead[-1], chart.unit)}."] if chart.ahead else []
    return " ".join((*sentences, *rules, *ahead))


def _table(chart: Trend) -> Table:
    several = len(chart.series) > 1
    noted = any(point.note for line_ in chart.series for point in line_.points)
    columns = (
        *((Column("series"),) if several else ()),
        Column("when"),
        Column(chart.unit.noun, numeric=True),
        Column("95% CI", numeric=True),
        *((Column("note"),) if noted else ()),
    )
    rows = tuple(
        (
            *((line_.name,) if several else ()),
            point.label,
            format_value(chart.unit, point.value),
            format_interval(chart.unit, point.low, point.high),
            *((point.note,) if noted else ()),
        )
        for line_ in chart.series
        for point in sorted(line_.points, key=lambda m: m.at)
    )
    return Table(columns, rows)
