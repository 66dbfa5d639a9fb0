"""Charts of estimates with intervals: forest plots of gates, table bars, and Pareto fronts."""

from __future__ import annotations

from itertools import pairwise
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
    format_interval,
    format_value,
    frame,
    hatch,
    left_axis,
    line,
    mark,
    polyline,
    scale_of,
    shorten,
    text,
    whisker,
    width_of,
)
from edison_ci.report.document import Column, Table
from edison_ci.report.markup import element
from edison_ci.results.run_sentences import gate_name, one_prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from markupsafe import Markup

    from edison_ci.results.decisions import GateRow


_TITLES = {
    Unit.CHANGE: "Change from base",
    Unit.RATIO: "Relative change from base",
    Unit.POINTS: "Scores",
    Unit.SHARE: "Shares of answers",
    Unit.DOLLARS: "Cost per answer",
    Unit.MILLISECONDS: "Latency",
    Unit.COUNT: "Counts",
}
_LEVELS = {
    "pass_rate": Unit.SHARE,
    "flips": Unit.SHARE,
    "win_rate": Unit.SHARE,
    "errors": Unit.SHARE,
    "cost_usd.mean": Unit.DOLLARS,
    "latency_ms.p95": Unit.MILLISECONDS,
    "tokens.mean": Unit.COUNT,
}
_MICRO = 1_000_000
_FOREST_WIDTH = 860


def gate_forests(gates: Iterable[GateRow]) -> tuple[Forest, ...]:
    """Return the forest plots of all decisions with a number, one for each unit."""
    gates = tuple(gates)
    short = one_prompt(gates)
    grouped: dict[Unit, list[GateLine]] = {}
    for row in gates:
        if finite(row.estimate) is None:
            continue
        unit = _gate_unit(row)
        grouped.setdefault(unit, []).append(_gate_line(row, unit, short=short))
    return tuple(
        Forest(title, tuple(grouped[unit]), unit, _FOREST_WIDTH)
        for unit, title in _TITLES.items()
        if unit in grouped
    )


def _gate_unit(row: GateRow) -> Unit:
    kind = row.detail.get("kind", "change")
    if kind == "relative":
        return Unit.RATIO
    if kind == "change":
        return Unit.CHANGE
    if row.metric.startswith("safety."):
        return Unit.SHARE
    return _LEVELS.get(row.metric, Unit.POINTS)


def _gate_line(row: GateRow, unit: Unit, *, short: bool) -> GateLine:
    times = _MICRO if unit is Unit.DOLLARS else 1
    low, high = (None if end is None else times * end for end in (row.low, row.high))
    bound, above = _gate_bound(row, unit)
    return GateLine(
        gate_name(row, short=short),
        row.word.lower(),
        times * (row.estimate or 0.0),
        low,
        high,
        None if bound is None else times * bound,
        above,
    )


def _gate_bound(row: GateRow, unit: Unit) -> tuple[float | None, bool]:
    """Return the bound of a gate, and whether good is above it."""
    value = row.detail.get("margin")
    margin = float(value) if isinstance(value, int | float) else None
    if unit is Unit.RATIO:
        return margin, False
    if unit is not Unit.CHANGE:
        return margin, "at_most" not in row.gate
    if row.metric == "errors" or row.metric.startswith("safety."):
        # A margin relative to the base is not a number of points.
        relative = (row.gate.get("margin") or {}).get("relative")
        return None if relative else margin, False
    return None if margin is None else -margin, True


_ROOM = 150.0
_COST, _VALUE = "cost per answer", "score"
"""Names of the axes of a Pareto chart."""


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """An option with its cost and value."""

    label: str
    cost: float | None
    value: float | None
    low: float | None = None
    high: float | None = None
    """Interval of the value."""
    front: bool = False
    """Whether it is on the Pareto front: nothing is both cheaper and better."""


@dataclass(frozen=True, slots=True)
class Pareto:
    """Options by cost (x axis) and value (y axis)."""

    title: str
    points: tuple[ParetoPoint, ...]
    width: int = 640
    height: int = 300


def pareto(chart: Pareto) -> Drawing:
    """Draw a Pareto chart; the front is a line of filled diamonds."""
    size, table = Size(chart.width, chart.height), _pareto_table(chart)
    spots = [spot for spot in chart.points if _is_drawable(spot)]
    if not spots:
        return Drawing(chart.title, empty(chart.width, chart.title, "No measurements yet."), table)
    box = Box(52, 28, chart.width - 20, chart.height - 44)
    right = scale_of([s.cost for s in spots], Unit.DOLLARS, zero=True).on(box.left, box.right)
    ends = [value for s in spots for value in (s.value, s.low, s.high)]
    up = scale_of(ends, Unit.POINTS).on(box.bottom, box.top)
    worth = f"{_VALUE}, {Unit.POINTS.noun}"
    drawn = [*left_axis(up, box, worth), *bottom_axis(right, box, _COST)]
    placed = [(right.at(s.cost or 0.0), up.at(s.value or 0.0), s) for s in spots]
    front = sorted((p for p in placed if p[2].front), key=lambda p: (p[0], -p[1]))
    stairs: list[tuple[float, float]] = []
    for x, y, _ in front:  # a step: there is no option in between
        stairs += [(x, stairs[-1][1]), (x, y)] if stairs else [(x, y)]
    line = polyline(stairs, "c-line c-front", "6 3")
    drawn += [line] if line is not None else []
    whiskers: list[Box] = []
    for x, y, spot in placed:
        pieces: list[Markup] = [element("title", _point_label(spot))]
        if finite(spot.low) is not None and finite(spot.high) is not None:
            lower, upper = up.at(spot.low or 0.0), up.at(spot.high or 0.0)
            pieces.append(whisker((x, lower), (x, upper), "c-s1" if spot.front else "c-s2"))
            whiskers.append(Box(x - 3, upper, x + 3, lower))
        pieces.append(_mark(spot, x, y))
        drawn.append(element("g", *pieces))
    drawn += _names(placed, box, [*_segments(stairs), *whiskers])
    svg = frame(size, chart.title, _pareto_summary(spots), *drawn)
    note = "Filled diamonds are on the Pareto front: no option is both cheaper and better."
    return Drawing(chart.title, svg, table, note)


def _is_drawable(spot: ParetoPoint) -> bool:
    return finite(spot.cost) is not None and finite(spot.value) is not None


def _mark(spot: ParetoPoint, x: float, y: float) -> Markup:
    if spot.front:
        return mark("diamond", (x, y), class_="c-s1", r=5)
    return mark("circle", (x, y), class_="c-s2", r=4.5, hollow=True)


def _segments(stairs: Sequence[tuple[float, float]]) -> Iterator[Box]:
    for (x1, y1), (x2, y2) in pairwise(stairs):
        yield Box(min(x1, x2) - 1, min(y1, y2) - 1, max(x1, x2) + 1, max(y1, y2) + 1)


def _names(
    placed: Sequence[tuple[float, float, ParetoPoint]], box: Box, lines: Sequence[Box]
) -> Iterator[Markup]:
    """Yield the labels of points at free positions beside, above or below their marks."""
    taken = [*lines, *(Box(x - 6, y - 6, x + 6, y + 6) for x, y, _ in placed)]
    # The front first: readers look for these.
    for x, y, spot in sorted(placed, key=lambda p: (not p[2].front, p[0], p[1])):
        wide = width_of(shorten(spot.label, _ROOM))
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


def _point_label(spot: ParetoPoint) -> str:
    worth = format_value(Unit.POINTS, spot.value)
    if finite(spot.low) is not None:
        worth += f" ({format_interval(Unit.POINTS, spot.low, spot.high)})"
    return f"{spot.label}: {worth}, {_COST} {format_value(Unit.DOLLARS, spot.cost)}"


def _pareto_summary(spots: Sequence[ParetoPoint]) -> str:
    front = "; ".join(_point_label(spot) for spot in spots if spot.front) or "none"
    return f"{len(spots)} options. Pareto front: {front}."


def _pareto_table(chart: Pareto) -> Table:
    columns = (
        Column("name"),
        Column(_COST, numeric=True),
        Column(_VALUE, numeric=True),
        Column("95% CI", numeric=True),
        Column("front"),
    )
    rows = tuple(
        (
            spot.label,
            format_value(Unit.DOLLARS, spot.cost),
            format_value(Unit.POINTS, spot.value),
            format_interval(Unit.POINTS, spot.low, spot.high),
            "yes" if spot.front else "no",
        )
        for spot in chart.points
    )
    return Table(columns, rows)


_EDGE = 5


@dataclass(frozen=True, slots=True)
class Range:
    """An estimate with its interval on the shared scale of a table."""

    title: str
    estimate: float | None
    low: float | None = None
    high: float | None = None
    unit: Unit = Unit.POINTS
    least: float = 0.0
    most: float = 1.0
    width: int = 120
    height: int = 16


def interval(chart: Range) -> Drawing:
    """Draw an estimate as a mark with its interval."""
    size, middle = Size(chart.width, chart.height), chart.height / 2
    columns = (Column(chart.unit.noun, numeric=True), Column("95% CI", numeric=True))
    row = (
        format_value(chart.unit, chart.estimate),
        format_interval(chart.unit, chart.low, chart.high),
    )
    table = Table(columns, (row,))
    start, end = _EDGE, chart.width - _EDGE
    drawn = [line((start, middle), (end, middle), "c-grid")]
    value, low, high = (finite(number_) for number_ in (chart.estimate, chart.low, chart.high))
    if value is None:
        return Drawing(chart.title, frame(size, chart.title, "Not measured.", *drawn), table)
    scale = Scale(chart.least, max(chart.most, chart.least + 1e-9), start, end, chart.unit, 1.0)
    drawn += [line((x, middle - 4), (x, middle + 4), "c-grid") for x in (start, end)]
    if low is not None and high is not None:
        drawn.append(whisker((scale.at(low), middle), (scale.at(high), middle), "c-s1"))
    drawn.append(mark("circle", (scale.at(value), middle), class_="c-s1", r=3.5))
    summary = row[0] if low is None else f"{row[0]}, 95% CI {row[1]}"
    return Drawing(chart.title, frame(size, chart.title, f"{summary}.", *drawn), table)


_HIGH = 30
_WIDEST_LABEL = 0.36
"""Share of the width."""
_VERDICTS = {
    "pass": ("circle", False, "c-good"),
    "fail": ("square", False, "c-bad"),
    "inconclusive": ("diamond", True, "c-odd"),
    "skipped": ("cross", True, "c-none"),
}
"""Shape, hollowness and color class of each verdict."""


@dataclass(frozen=True, slots=True)
class GateLine:
    """One decision of a gate."""

    label: str
    verdict: str
    estimate: float | None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    """The bound of the gate: minus the margin, or the required level."""
    above: bool = True
    """Whether good is above the bound; false for costs and errors."""


@dataclass(frozen=True, slots=True)
class Forest:
    """A forest plot: decisions on one axis."""

    title: str
    lines: tuple[GateLine, ...]
    unit: Unit = Unit.CHANGE
    width: int = 720


def forest(chart: Forest) -> Drawing:
    """Draw a forest plot."""
    table = _table(chart)
    if not chart.lines:
        return Drawing(chart.title, empty(chart.width, chart.title, "No gates."), table)
    room = max(width_of(gate.label) for gate in chart.lines) + 12
    numbers = max(width_of(_numbers(chart, gate)) for gate in chart.lines) + 12
    words = max(width_of(gate.verdict) for gate in chart.lines) + 10
    box = Box(
        min(room, _WIDEST_LABEL * chart.width),
        10,
        chart.width - numbers - words,
        14 + _HIGH * len(chart.lines),
    )
    size = Size(chart.width, box.bottom + 42)
    ends = [v for gate in chart.lines for v in (gate.estimate, gate.low, gate.high, gate.bound)]
    signed = chart.unit in (Unit.CHANGE, Unit.RATIO)
    scale = scale_of(ends, chart.unit, zero=signed, most_ticks=4).on(box.left + 8, box.right - 8)
    drawn = bottom_axis(scale, box, chart.unit.noun)
    if signed:
        zero = scale.at(0.0)
        drawn.append(line((zero, box.top), (zero, box.bottom), "c-axis"))
    for row, gate in enumerate(chart.lines):
        top = box.top + 2 + _HIGH * row
        row_box = Box(box.left, top, box.right, top + _HIGH)
        drawn.append(element("g", *_gate_shapes(chart, gate, scale, row_box)))
        y = top + _HIGH / 2 + 4
        drawn.append(text((box.left - 8, y), gate.label, "end", room=box.left - 10))
        column = chart.width - words
        at = column - 6
        drawn.append(text((at, y), _numbers(chart, gate), "end", class_="c-text c-number"))
        drawn.append(text((column, y), gate.verdict, class_=f"c-text {_verdict(gate)[2]}"))
    note = "Hatching marks values that a gate rejects; a line is the 95% confidence interval."
    svg = frame(size, chart.title, _forest_summary(chart), *drawn)
    return Drawing(chart.title, svg, table, note)


def _gate_shapes(chart: Forest, gate: GateLine, scale: Scale, box: Box) -> Iterator[Markup]:
    shape, hollow, class_ = _verdict(gate)
    yield element("title", f"{gate.label}: {gate.verdict}, {_numbers(chart, gate)}")
    middle = (box.top + box.bottom) / 2
    bound = finite(gate.bound)
    if bound is not None:
        x = scale.at(bound)
        refused = Box(box.left + 2, box.top + 7, x, box.bottom - 7)
        if not gate.above:
            refused = Box(x, refused.top, box.right - 2, refused.bottom)
        if refused.width > 1:
            yield element(
                "path", d=hatch(refused, 6), class_="c-refused", fill="none",
                stroke="currentColor", stroke_opacity="0.35",
            )  # fmt: skip
        yield line((x, box.top + 4), (x, box.bottom - 4), "c-rule")
    low, high, value = finite(gate.low), finite(gate.high), finite(gate.estimate)
    if low is not None and high is not None:
        yield whisker((scale.at(low), middle), (scale.at(high), middle), class_, cap=4)
    if value is not None:
        yield mark(shape, (scale.at(value), middle), class_=class_, r=4.5, hollow=hollow)


def _verdict(gate: GateLine) -> tuple[str, bool, str]:
    return _VERDICTS.get(gate.verdict, _VERDICTS["skipped"])


def _numbers(chart: Forest, gate: GateLine) -> str:
    summary = format_value(chart.unit, gate.estimate)
    if finite(gate.low) is None or finite(gate.high) is None:
        return summary
    return f"{summary} ({format_interval(chart.unit, gate.low, gate.high)})"


def _bound(chart: Forest, gate: GateLine) -> str:
    if finite(gate.bound) is None:
        return format_value(chart.unit, None)
    return f"{'above' if gate.above else 'below'} {format_value(chart.unit, gate.bound)}"


def _forest_summary(chart: Forest) -> str:
    summary = "; ".join(
        f"{gate.label}: {gate.verdict}, {_numbers(chart, gate)}, bound {_bound(chart, gate)}"
        for gate in chart.lines
    )
    return f"{summary}."


def _table(chart: Forest) -> Table:
    columns = (
        Column("gate"),
        Column("verdict"),
        Column(chart.unit.noun, numeric=True),
        Column("95% CI", numeric=True),
        Column("bound", numeric=True),
    )
    rows = tuple(
        (
            gate.label,
            gate.verdict,
            format_value(chart.unit, gate.estimate),
            format_interval(chart.unit, gate.low, gate.high),
            _bound(chart, gate),
        )
        for gate in chart.lines
    )
    return Table(columns, rows)
