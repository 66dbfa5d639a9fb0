"""Charts of runs: score and cost, slices, cost by model, and score by run.

The functions return what is drawn; reports and pages draw it in their own sizes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from edison_ci.numeric import TOLERANCE
from edison_ci.report.charts.bars import Bar, Bars
from edison_ci.report.charts.drawing import Unit
from edison_ci.report.charts.estimates import Pareto, ParetoPoint
from edison_ci.report.charts.heatmap import Field, HeatMap
from edison_ci.report.charts.trend import Happening, MarkKind, Series, Trend, TrendPoint
from edison_ci.results.slices import slice_order
from edison_ci.results.trends import ChangeKind, model_trends

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from edison_ci.results.scores import EstimateWithInterval, Totals
    from edison_ci.results.slices import Slice
    from edison_ci.results.spending import Cost
    from edison_ci.results.trends import TrendRun
    from edison_ci.stats.intervals import Interval

    AnyEstimate = EstimateWithInterval | Interval

SLICE_METRICS = ("score", "pass rate")
_MOST_SLICE_COLUMNS = 20
_MOST_LINES = 6
"""Models that a chart can distinguish."""


def pareto_chart(options: Iterable[tuple[str, float | None, AnyEstimate | None]]) -> Pareto | None:
    """Return score against cost of options with names; None with fewer than two that cost."""
    priced = [
        (name, cost, score)
        for name, cost, score in options
        if score is not None and score.estimate is not None
    ]
    if len(priced) < 2 or not any(cost for _, cost, _ in priced):
        return None
    places = [(cost, score.estimate) for _, cost, score in priced]
    return Pareto(
        "Score and cost per answer",
        tuple(
            ParetoPoint(
                name,
                cost,
                score.estimate,
                score.low,
                score.high,
                front=not any(_dominates(other, (cost, score.estimate)) for other in places),
            )
            for name, cost, score in priced
        ),
    )


def _dominates(
    other: tuple[float | None, float | None], option: tuple[float | None, float | None]
) -> bool:
    """Whether another option is at least as good and as cheap, and better in one of them."""
    if other[0] is None or option[0] is None:
        return False
    return other != option and other[0] <= option[0] and (other[1] or 0.0) >= (option[1] or 0.0)


def slices_chart(slices: Sequence[Slice], metric: str = SLICE_METRICS[0]) -> HeatMap | None:
    """Return scores or pass rates by slice, over all and of each model; None without slices."""
    variants = sorted({(slice_.prompt, slice_.model) for slice_ in slices})
    columns = variants[:_MOST_SLICE_COLUMNS]
    several = len({prompt for prompt, _ in columns if prompt}) > 1
    names = tuple(
        "all" if not model else f"{model} · {prompt}" if several else model
        for prompt, model in columns
    )
    by_place = {(each.dimension, each.value, each.prompt, each.model): each for each in slices}
    places = {(each.dimension, each.value): each for each in sorted(slices, key=slice_order)}
    rows = tuple(
        (
            f"{dimension} {value}",
            tuple(
                _slice_field(by_place.get((dimension, value, *column)), metric)
                for column in columns
            ),
        )
        for dimension, value in places
    )
    if not rows:
        return None
    if names[0] == "all" and any(_shows_all(rows, place) for place in range(1, len(names))):
        names, rows = names[1:], tuple((name, fields[1:]) for name, fields in rows)
    values = [
        f.value for _, fields in rows for f in fields if f is not None and f.value is not None
    ]
    values = values or [0.0, 1.0]
    # The shades cover the range of these values only, or all would look alike.
    least = math.floor(10 * min(values) + TOLERANCE) / 10
    most = math.ceil(10 * max(values) - TOLERANCE) / 10
    title = "Score by slice" if metric == SLICE_METRICS[0] else "Pass rate by slice"
    return HeatMap(title, names, rows, least=least, most=most)


def _shows_all(rows: Sequence[tuple[str, Sequence[Field | None]]], place: int) -> bool:
    """Whether a model has the numbers of the first column, since no other model has answers."""
    pairs = ((fields[0], fields[place]) for _, fields in rows)
    return all(a and b and (a.value, a.n) == (b.value, b.n) for a, b in pairs)


def _slice_field(slice_: Slice | None, metric: str) -> Field | None:
    if slice_ is None:
        return None
    estimate = slice_.composite if metric == SLICE_METRICS[0] else slice_.pass_rate
    side: Literal["", "above", "below"] = ""
    if slice_.stands_out:
        side = "above" if (slice_.difference or 0.0) > 0 else "below"
    return Field(estimate.estimate, estimate.n, side)


def costs_chart(costs: Sequence[Cost]) -> Bars | None:
    """Return the cost of each model by phase; None if nothing was paid."""
    if not any(cost.microusd for cost in costs):
        return None
    phases = tuple(dict.fromkeys(cost.phase for cost in costs))
    spent = {(cost.model, cost.phase): float(cost.microusd) for cost in costs}
    models = dict.fromkeys(cost.model for cost in costs)
    rows = (
        Bar(model, tuple(spent.get((model, phase), 0.0) for phase in phases)) for model in models
    )
    return Bars("Cost by model", tuple(rows), parts=phases)


def trends_of(connection: sqlite3.Connection, points: Sequence[TrendRun]) -> list[Trend]:
    """Return the charts of score, cost, latency and errors by run, a line for each model."""
    lines = model_trends(connection, points)
    prompts = {line.prompt for line in lines}

    def series(value: Callable[[Totals], AnyEstimate | None]) -> list[Series]:
        return [
            Series(
                line.model if len(prompts) == 1 else f"{line.model}, {line.prompt}",
                tuple(
                    trend_point(index, point, None if totals is None else value(totals))
                    for index, (point, totals) in enumerate(zip(points, line.totals, strict=True))
                ),
            )
            for line in lines[:_MOST_LINES]
        ]

    scores = series(lambda totals: totals.composite)
    if len(scores) > 1:  # all models together, as on the card, come last
        scores = [*scores[: _MOST_LINES - 1], score_series("all models", points)]
    marks = _happenings(points)
    others = (
        ("Cost per answer, with 95% CI", lambda totals: totals.answer_cost, Unit.DOLLARS),
        ("Median latency, with 95% CI", lambda totals: totals.median_latency, Unit.MILLISECONDS),
        ("Cells that ended in an error, with 95% CI", lambda t: t.error_rate, Unit.SHARE),
    )
    return [
        Trend("Score of each complete run, with 95% CI", tuple(scores), happenings=marks),
        *(Trend(about, tuple(series(of)), unit, happenings=marks) for about, of, unit in others),
    ]


def score_series(name: str, points: Iterable[TrendRun]) -> Series:
    """Return the score of each run as a line."""
    return Series(
        name,
        tuple(trend_point(index, point, point.composite) for index, point in enumerate(points)),
    )


def history_chart(points: Sequence[TrendRun]) -> Trend | None:
    """Return the score by run, each with its id; None with fewer than two."""
    scored = [point for point in points if point.composite is not None]
    if len(scored) < 2:
        return None
    line = score_series("score", scored)
    named = (
        replace(place, note=", ".join(filter(None, (run.id, run.simulation, place.note))))
        for place, run in zip(line.points, (point.run for point in scored), strict=True)
    )
    return Trend("Score by run", (replace(line, points=tuple(named)),))


def trend_point(index: int, point: TrendRun, estimate: AnyEstimate | None) -> TrendPoint:
    """Return a number of a run on its place in a chart, with what changed since the run before."""
    return TrendPoint(
        at=float(index),  # runs come in bursts, which would overlap on a time axis
        label=point.run.created_at[:10],
        value=None if estimate is None else estimate.estimate,
        low=None if estimate is None else estimate.low,
        high=None if estimate is None else estimate.high,
        note="; ".join(_notes(point)),
    )


def _notes(point: TrendRun) -> Iterator[str]:
    if point.changed:
        word = "new version" if point.only_prompts else "changed"
        yield f"{word}: {', '.join(point.changed)}"
    if point.stopped is not None:
        yield point.stopped.sentence


_KINDS = {
    ChangeKind.PROMPT: MarkKind.PROMPT,
    ChangeKind.DATA: MarkKind.DATA,
    ChangeKind.MODEL: MarkKind.MODEL,
    ChangeKind.SUITE: MarkKind.SUITE,
}


def _happenings(points: Sequence[TrendRun]) -> tuple[Happening, ...]:
    return tuple(
        Happening(float(index), _KINDS[kind], f"{point.run.created_at[:10]}, {', '.join(places)}")
        for index, point in enumerate(points)
        for kind, places in point.changes.items()
    )
