"""Forest plots: what each gate saw, how sure it is, and what was asked for."""

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
    line,
    mark,
    text,
    whisker,
    width_of,
)
from edison_ci.report.charts.scales import Unit, finite, interval_written, scale_of, written
from edison_ci.report.markup import Html, element

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.report.charts.scales import Scale

_HIGH = 30
_WIDEST_LABEL = 0.36
"""Of the width."""
_VERDICTS = {
    "pass": ("circle", False, "c-good"),
    "fail": ("square", False, "c-bad"),
    "inconclusive": ("diamond", True, "c-odd"),
    "skipped": ("cross", True, "c-none"),
}
"""Shape, whether it is hollow, and colour of each verdict."""


@dataclass(frozen=True, slots=True)
class GateLine:
    """One decision of a gate."""

    label: str
    verdict: str
    estimate: float | None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    """What must not be passed: minus the margin, or the level that is asked for."""
    above: bool = True
    """Whether good is above the bound; false for costs and errors."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Decisions on one axis."""

    title: str
    lines: tuple[GateLine, ...]
    unit: Unit = Unit.CHANGE
    width: int = 720


def forest(chart: Forest) -> Drawing:
    """Return the decisions as a drawing."""
    table = _table(chart)
    if not chart.lines:
        return Drawing(
            chart.title, empty(chart.width, chart.title, "No gates were decided."), table
        )
    room = max(width_of(each.label) for each in chart.lines) + 12
    numbers = max(width_of(_numbers(chart, each)) for each in chart.lines) + 12
    words = max(width_of(each.verdict) for each in chart.lines) + 10
    box = Box(
        min(room, _WIDEST_LABEL * chart.width),
        10,
        chart.width - numbers - words,
        14 + _HIGH * len(chart.lines),
    )
    size = Size(chart.width, box.bottom + 42)
    ends = [v for each in chart.lines for v in (each.estimate, each.low, each.high, each.bound)]
    signed = chart.unit in (Unit.CHANGE, Unit.RATIO)
    scale = scale_of(ends, chart.unit, zero=signed, most_ticks=4).on(box.left + 8, box.right - 8)
    drawn = bottom_axis(scale, box, chart.unit.noun)
    if signed:
        zero = scale.at(0.0)
        drawn.append(line((zero, box.top), (zero, box.bottom), "c-axis"))
    for row, each in enumerate(chart.lines):
        top = box.top + 2 + _HIGH * row
        lane = Box(box.left, top, box.right, top + _HIGH)
        drawn.append(element("g", *_line(chart, each, scale, lane)))
        y = top + _HIGH / 2 + 4
        drawn.append(text((box.left - 8, y), each.label, "end", room=box.left - 10))
        column = chart.width - words
        at = column - 6
        drawn.append(text((at, y), _numbers(chart, each), "end", class_="c-text c-number"))
        drawn.append(text((column, y), each.verdict, class_=f"c-text {_verdict(each)[2]}"))
    note = "The strokes mark what a gate does not accept; a line is the 95% interval."
    svg = framed(size, chart.title, _told(chart), *drawn)
    return Drawing(chart.title, svg, table, note)


def _line(chart: Forest, each: GateLine, scale: Scale, lane: Box) -> Iterator[Html]:
    shape, hollow, class_ = _verdict(each)
    yield element("title", f"{each.label}: {each.verdict}, {_numbers(chart, each)}")
    middle = (lane.top + lane.bottom) / 2
    bound = finite(each.bound)
    if bound is not None:
        x = scale.at(bound)
        refused = Box(lane.left + 2, lane.top + 7, x, lane.bottom - 7)
        if not each.above:
            refused = Box(x, refused.top, lane.right - 2, refused.bottom)
        if refused.width > 1:
            yield element(
                "path", d=hatch(refused, 6), class_="c-refused", fill="none",
                stroke="currentColor", stroke_opacity="0.35",
            )  # fmt: skip
        yield line((x, lane.top + 4), (x, lane.bottom - 4), "c-rule")
    low, high, value = finite(each.low), finite(each.high), finite(each.estimate)
    if low is not None and high is not None:
        yield whisker((scale.at(low), middle), (scale.at(high), middle), class_, cap=4)
    if value is not None:
        yield mark(shape, (scale.at(value), middle), class_=class_, r=4.5, hollow=hollow)


def _verdict(each: GateLine) -> tuple[str, bool, str]:
    return _VERDICTS.get(each.verdict, _VERDICTS["skipped"])


def _numbers(chart: Forest, each: GateLine) -> str:
    said = written(chart.unit, each.estimate)
    if finite(each.low) is None or finite(each.high) is None:
        return said
    return f"{said} ({interval_written(chart.unit, each.low, each.high)})"


def _bound(chart: Forest, each: GateLine) -> str:
    if finite(each.bound) is None:
        return written(chart.unit, None)
    return f"{'above' if each.above else 'below'} {written(chart.unit, each.bound)}"


def _told(chart: Forest) -> str:
    said = "; ".join(
        f"{each.label}: {each.verdict}, {_numbers(chart, each)}, asked {_bound(chart, each)}"
        for each in chart.lines
    )
    return f"{said}."


def _table(chart: Forest) -> DataTable:
    columns = (
        Column("gate"),
        Column("verdict"),
        Column(chart.unit.noun, numeric=True),
        Column("95% interval", numeric=True),
        Column("asked", numeric=True),
    )
    rows = tuple(
        (
            each.label,
            each.verdict,
            written(chart.unit, each.estimate),
            interval_written(chart.unit, each.low, each.high),
            _bound(chart, each),
        )
        for each in chart.lines
    )
    return DataTable(columns, rows)
