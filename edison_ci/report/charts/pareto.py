"""Pareto charts: choices that are not beaten on both counts."""

from __future__ import annotations

from itertools import pairwise
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
    mark,
    polyline,
    shortened,
    text,
    whisker,
    width_of,
)
from edison_ci.report.charts.scales import Unit, finite, interval_written, scale_of, written
from edison_ci.report.markup import Html, element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROOM = 150.0


@dataclass(frozen=True, slots=True)
class Spot:
    """A choice: what it costs, and what it is worth."""

    label: str
    cost: float | None
    worth: float | None
    low: float | None = None
    high: float | None = None
    """Where its worth may lie."""
    front: bool = False
    """Whether nothing is both cheaper and better."""


@dataclass(frozen=True, slots=True)
class Pareto:
    """Choices by what they cost, to the right, and what they are worth, upwards."""

    title: str
    spots: tuple[Spot, ...]
    cost: str = "cost per answer"
    worth: str = "score"
    cost_unit: Unit = Unit.DOLLARS
    worth_unit: Unit = Unit.POINTS
    width: int = 640
    height: int = 300


def pareto(chart: Pareto) -> Drawing:
    """Return the choices as a drawing; the front is a line of filled diamonds."""
    size, table = Size(chart.width, chart.height), _table(chart)
    known = [spot for spot in chart.spots if _drawn(spot)]
    if not known:
        return Drawing(chart.title, empty(chart.width, chart.title, "Nothing measured yet."), table)
    box = Box(52, 28, chart.width - 20, chart.height - 44)
    right = scale_of([s.cost for s in known], chart.cost_unit, zero=True).on(box.left, box.right)
    ends = [value for s in known for value in (s.worth, s.low, s.high)]
    up = scale_of(ends, chart.worth_unit).on(box.bottom, box.top)
    worth = f"{chart.worth}, {chart.worth_unit.noun}"
    drawn = [*left_axis(up, box, worth), *bottom_axis(right, box, f"{chart.cost}")]
    placed = [(right.at(s.cost or 0.0), up.at(s.worth or 0.0), s) for s in known]
    front = sorted((p for p in placed if p[2].front), key=lambda p: (p[0], -p[1]))
    stairs: list[tuple[float, float]] = []
    for x, y, _ in front:  # a step: between two choices nothing better is to be had
        stairs += [(x, stairs[-1][1]), (x, y)] if stairs else [(x, y)]
    line = polyline(stairs, "c-line c-front", "6 3")
    drawn += [line] if line is not None else []
    whiskers: list[Box] = []
    for x, y, spot in placed:
        pieces: list[Html] = [element("title", _said(chart, spot))]
        if finite(spot.low) is not None and finite(spot.high) is not None:
            lower, upper = up.at(spot.low or 0.0), up.at(spot.high or 0.0)
            pieces.append(whisker((x, lower), (x, upper), "c-s1" if spot.front else "c-s2"))
            whiskers.append(Box(x - 3, upper, x + 3, lower))
        pieces.append(_mark(spot, x, y))
        drawn.append(element("g", *pieces))
    drawn += _names(placed, box, [*_segments(stairs), *whiskers])
    svg = framed(size, chart.title, _told(chart, known), *drawn)
    note = "Filled diamonds are not beaten on both counts; hollow circles are."
    return Drawing(chart.title, svg, table, note)


def _drawn(spot: Spot) -> bool:
    return finite(spot.cost) is not None and finite(spot.worth) is not None


def _mark(spot: Spot, x: float, y: float) -> Html:
    if spot.front:
        return mark("diamond", (x, y), class_="c-s1", r=5)
    return mark("circle", (x, y), class_="c-s2", r=4.5, hollow=True)


def _segments(stairs: Sequence[tuple[float, float]]) -> Iterator[Box]:
    for (x1, y1), (x2, y2) in pairwise(stairs):
        yield Box(min(x1, x2) - 1, min(y1, y2) - 1, max(x1, x2) + 1, max(y1, y2) + 1)


def _names(
    placed: Sequence[tuple[float, float, Spot]], box: Box, lines: Sequence[Box]
) -> Iterator[Html]:
    """Yield the names where there is room: beside a mark, or beside and above or below it."""
    taken = [*lines, *(Box(x - 6, y - 6, x + 6, y + 6) for x, y, _ in placed)]
    # Those of the front first: they are the ones that a reader looks for.
    for x, y, spot in sorted(placed, key=lambda p: (not p[2].front, p[0], p[1])):
        wide = width_of(shortened(spot.label, _ROOM))
        tries = [
            (Box(left, y + down - 7, left + wide, y + down + 7), anchor)
            for down in (0, -12, 13, -26, 27, -40, 41)
            for left, anchor in ((x + 9, "start"), (x - 9 - wide, "end"))
        ]
        inside = [t for t in tries if t[0].left > box.left and t[0].right < box.right + 18]
        free = [t for t in inside if not any(_overlap(t[0], other) for other in taken)]
        area, anchor = (free or inside or tries)[0]
        taken.append(area)
        at = area.left if anchor == "start" else area.right
        yield text((at, area.bottom - 3), spot.label, anchor, room=_ROOM)


def _overlap(a: Box, b: Box) -> bool:
    return a.left < b.right and b.left < a.right and a.top < b.bottom and b.top < a.bottom


def _said(chart: Pareto, spot: Spot) -> str:
    worth = written(chart.worth_unit, spot.worth)
    if finite(spot.low) is not None:
        worth += f" ({interval_written(chart.worth_unit, spot.low, spot.high)})"
    return f"{spot.label}: {worth}, {chart.cost} {written(chart.cost_unit, spot.cost)}"


def _told(chart: Pareto, known: Sequence[Spot]) -> str:
    front = "; ".join(_said(chart, spot) for spot in known if spot.front) or "none"
    return f"{len(known)} choices. Not beaten on both counts: {front}."


def _table(chart: Pareto) -> DataTable:
    columns = (
        Column("name"),
        Column(chart.cost, numeric=True),
        Column(chart.worth, numeric=True),
        Column("95% interval", numeric=True),
        Column("front"),
    )
    rows = tuple(
        (
            spot.label,
            written(chart.cost_unit, spot.cost),
            written(chart.worth_unit, spot.worth),
            interval_written(chart.worth_unit, spot.low, spot.high),
            "yes" if spot.front else "no",
        )
        for spot in chart.spots
    )
    return DataTable(columns, rows)
