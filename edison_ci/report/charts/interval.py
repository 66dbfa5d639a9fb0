"""An estimate on its whole scale, at the size of a word."""

from __future__ import annotations

from edison_ci._dataclass import dataclass
from edison_ci.report.charts.drawing import (
    Column,
    DataTable,
    Drawing,
    Size,
    framed,
    line,
    mark,
    whisker,
)
from edison_ci.report.charts.scales import Scale, Unit, finite, interval_written, written

_EDGE = 5


@dataclass(frozen=True, slots=True)
class Range:
    """An estimate with its interval on a scale that all rows of a table share."""

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
    """Return the estimate as a mark with its interval as a drawing."""
    size, middle = Size(chart.width, chart.height), chart.height / 2
    columns = (Column(chart.unit.noun, numeric=True), Column("95% interval", numeric=True))
    row = (
        written(chart.unit, chart.estimate),
        interval_written(chart.unit, chart.low, chart.high),
    )
    table = DataTable(columns, (row,))
    start, end = _EDGE, chart.width - _EDGE
    drawn = [line((start, middle), (end, middle), "c-grid")]
    value, low, high = (finite(each) for each in (chart.estimate, chart.low, chart.high))
    if value is None:
        return Drawing(chart.title, framed(size, chart.title, "Not measured.", *drawn), table)
    scale = Scale(chart.least, max(chart.most, chart.least + 1e-9), start, end, chart.unit, 1.0)
    drawn += [line((x, middle - 4), (x, middle + 4), "c-grid") for x in (start, end)]
    if low is not None and high is not None:
        drawn.append(whisker((scale.at(low), middle), (scale.at(high), middle), "c-s1"))
    drawn.append(mark("circle", (scale.at(value), middle), class_="c-s1", r=3.5))
    told = row[0] if low is None else f"{row[0]}, 95% interval {row[1]}"
    return Drawing(chart.title, framed(size, chart.title, f"{told}.", *drawn), table)
