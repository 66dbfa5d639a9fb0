"""Sparklines: how a number moved, at the size of a word."""

from __future__ import annotations

from itertools import groupby

from edison_ci._dataclass import dataclass
from edison_ci.formatting import counted
from edison_ci.report.charts.drawing import (
    Column,
    DataTable,
    Drawing,
    Size,
    framed,
    mark,
    polyline,
    text,
)
from edison_ci.report.charts.scales import Unit, finite, scale_of, written

_MOST = 60
_EDGE = 4


@dataclass(frozen=True, slots=True)
class Sparkline:
    """The last values of a number, oldest first."""

    title: str
    values: tuple[float | None, ...]
    unit: Unit = Unit.POINTS
    width: int = 120
    height: int = 28


def sparkline(chart: Sparkline) -> Drawing:
    """Return the line as a drawing; its last value has a mark."""
    size = Size(chart.width, chart.height)
    values = [finite(value) for value in chart.values]
    shown = values[-_MOST:]
    known = [value for value in shown if value is not None]
    rows = tuple((str(i), written(chart.unit, v)) for i, v in enumerate(values, start=1))
    columns = (Column("number", numeric=True), Column(chart.unit.noun, numeric=True))
    table = DataTable(columns, rows)
    if not known:
        dash = text(
            (size.width / 2, size.height / 2 + 4), "no data", "middle", class_="c-text c-quiet"
        )
        return Drawing(chart.title, framed(size, chart.title, "No measurements yet.", dash), table)
    scale = scale_of(known, chart.unit).on(size.height - _EDGE, _EDGE)
    step = (size.width - 2 * _EDGE) / max(len(shown) - 1, 1)
    start = _EDGE if len(shown) > 1 else size.width / 2
    places = [
        None if value is None else (start + i * step, scale.at(value))
        for i, value in enumerate(shown)
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
    told = (
        f"{counted(len(known), 'measurement')}, last {written(chart.unit, known[-1])}, "
        f"least {written(chart.unit, min(known))}, greatest {written(chart.unit, max(known))}."
    )
    return Drawing(chart.title, framed(size, chart.title, told, *drawn), table)
