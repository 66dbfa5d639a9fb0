"""Heat maps: a grid of values, with outliers marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.numeric import TOLERANCE
from edison_ci.report.charts.drawing import (
    Box,
    Drawing,
    Size,
    Unit,
    empty,
    finite,
    format_value,
    frame,
    hatch,
    mark,
    text,
    width_of,
)
from edison_ci.report.document import Column, Table
from edison_ci.report.markup import element

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

_STEPS = 5
_HIGH = 30
_WIDEST_LABEL = 190.0
_LEAST_COLUMN = 62.0
_MOST_ROWS = 60
_OUT = "A triangle marks a value that differs from the rest; it points up or down."


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the grid."""

    value: float | None
    n: int | None = None
    """Number of cases of the mean."""
    stands_out: Literal["", "above", "below"] = ""
    """Its direction if it differs from the rest beyond chance."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A grid of values; every field shows its number, the shade is only a guide."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Field | None, ...]], ...]
    """Name and fields of each row."""
    unit: Unit = Unit.POINTS
    least: float = 0.0
    most: float = 1.0
    """Values of the lightest and the darkest shade."""
    width: int = 640


def heatmap(chart: HeatMap) -> Drawing:
    """Draw a heat map."""
    table = _table(chart)
    drawn_rows = chart.rows[:_MOST_ROWS]
    if not chart.columns or not any(field for _, fields in drawn_rows for field in fields):
        return Drawing(chart.title, empty(chart.width, chart.title, "Nothing measured yet."), table)
    room = max(width_of(name) for name, _ in drawn_rows) + 10
    left = min(room, _WIDEST_LABEL, chart.width * 0.4)
    wide = max((chart.width - left) / len(chart.columns), _LEAST_COLUMN)
    size = Size(max(chart.width, left + wide * len(chart.columns)), 28 + _HIGH * len(drawn_rows))
    drawn: list[Markup] = [
        text((left + wide * (i + 0.5), 16), name, "middle", class_="c-text c-quiet", room=wide - 6)
        for i, name in enumerate(chart.columns)
    ]
    for row, (name, fields) in enumerate(drawn_rows):
        top = 26 + _HIGH * row
        drawn.append(text((left - 8, top + _HIGH / 2 + 3), name, "end", room=left - 10))
        for column, field in enumerate(fields):
            box = Box(left + wide * column, top, left + wide * (column + 1) - 2, top + _HIGH - 2)
            drawn.append(
                element("g", *_field_shapes(chart, field, box, (name, chart.columns[column])))
            )
    left_out = len(chart.rows) - len(drawn_rows)
    note = f"The data table has {left_out:,} more rows." if left_out else ""
    if any(field and field.stands_out for _, fields in drawn_rows for field in fields):
        note = f"{_OUT} {note}".strip()
    svg = frame(size, chart.title, _summary(chart), *drawn)
    return Drawing(chart.title, svg, table, note)


def _field_shapes(
    chart: HeatMap, field: Field | None, box: Box, where: tuple[str, str]
) -> Iterator[Markup | None]:
    middle, base = (box.left + box.right) / 2, (box.top + box.bottom) / 2 + 4
    value = finite(field.value) if field else None
    if field is None or value is None:
        yield element("title", f"{where[0]}, {where[1]}: not measured")
        # Hatching instead of a shade: a missing value is not a low one.
        yield element(
            "path", d=hatch(box, 9), class_="c-missing", fill="none", stroke="currentColor",
            stroke_opacity="0.3",
        )  # fmt: skip
        return
    span = chart.most - chart.least
    position = (value - chart.least) / span if span else 0.5
    step = min(max(int(position * _STEPS + TOLERANCE), 0), _STEPS - 1)
    cases = "" if field.n is None else f", {field.n:,} cases"
    out = f", {field.stands_out} the rest" if field.stands_out else ""
    yield element("title", f"{where[0]}, {where[1]}: {format_value(chart.unit, value)}{cases}{out}")
    yield element(
        "rect", x=box.left, y=box.top, width=box.width, height=box.height,
        class_=f"c-heat c-h{step}", fill="none", stroke="currentColor", stroke_opacity="0.3",
    )  # fmt: skip
    words = format_value(chart.unit, value)
    yield text((middle, base), words, "middle", class_=f"c-text c-number c-on-h{step}")
    if field.stands_out:
        shape = "down" if field.stands_out == "below" else "triangle"
        yield mark(shape, (box.right - 8, base - 4), class_=f"c-on-h{step}", r=3)


def _summary(chart: HeatMap) -> str:
    measured = [
        (value, name, column)
        for name, fields in chart.rows
        for column, field in zip(chart.columns, fields, strict=True)
        if field is not None and (value := finite(field.value)) is not None
    ]
    if not measured:
        return "Nothing measured yet."
    ends = ((word, pick(measured)) for word, pick in (("lowest", min), ("highest", max)))
    summary = "; ".join(
        f"{word} {format_value(chart.unit, value)} at {name}, {column}"
        for word, (value, name, column) in ends
    )
    return f"{len(chart.rows)} rows by {len(chart.columns)} columns; {summary}."


def _table(chart: HeatMap) -> Table:
    columns = (Column(""), *(Column(name, numeric=True) for name in chart.columns))
    rows = tuple(
        (name, *(_cell(chart.unit, field) for field in fields)) for name, fields in chart.rows
    )
    return Table(columns, rows)


def _cell(unit: Unit, field: Field | None) -> str:
    if field is None:
        return format_value(unit, None)
    cases = "" if field.n is None else f" (n {field.n:,})"
    return (
        format_value(unit, field.value)
        + cases
        + (f", {field.stands_out} the rest" if field.stands_out else "")
    )
