"""Spreads, slices, costs and history on the page of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from edison_ci.formatting import NOTHING, dollars, score
from edison_ci.report.charts.bars import Bar, Bars, bars
from edison_ci.report.charts.drawing import Column, DataTable
from edison_ci.report.charts.heatmap import Field, HeatMap, heatmap
from edison_ci.report.charts.histogram import Histogram, histogram, tenths
from edison_ci.report.charts.trend import Moment, Series, Trend, trend
from edison_ci.report.components import data_table, figure, scrolled, section
from edison_ci.report.markup import Html, element
from edison_ci.rounding import TOLERANCE

if TYPE_CHECKING:
    from edison_ci.results.rollups import PartTotal
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.slices import Facet

_WIDTH = 460
"""Of a chart that shares a row with another."""
_HIDDEN = ("safety", "flag")


def spreads(view: RunResult) -> Html | None:
    """Return every part of the grade in a table, and how its scores are spread."""
    shown = [part for part in view.parts if part.graded or part.errors]
    parts = [part for part in shown if part.kind not in _HIDDEN]
    if not parts:
        return None
    columns = (
        Column("part"),
        Column("kind"),
        Column("mean", numeric=True),
        Column("fails", numeric=True),
        Column("answers", numeric=True),
        Column("not graded", numeric=True),
    )
    table = data_table(DataTable(columns, tuple(_part(part) for part in parts)))
    wrapped = element("div", scrolled(table, "Parts of the grade"), class_="data-wrap")
    plots = (
        element(
            "div",
            figure(
                histogram(
                    Histogram(f"{spread.kind} {spread.name}", tenths(spread.counts),
                              mean=spread.mean, width=_WIDTH)
                )
            ),
            class_="panel",
        )
        for spread in view.spreads
    )  # fmt: skip
    drawn = element("div", *plots, class_="columns") if view.spreads else None
    title = "Criteria, checks and graders"
    return section(title, element("div", wrapped, drawn, class_="stack"))


def _part(part: PartTotal) -> tuple[str, ...]:
    fails = NOTHING if part.kind == "criterion" else f"{part.graded - part.passed:,}"
    counts = (f"{part.graded:,}", f"{part.errors:,}")
    return (part.name, part.kind, score(part.mean), fails, *counts)


def kinds_of_cases(view: RunResult) -> Html | None:
    """Return the scores of each kind of case, and which stand out from the others."""
    facets = view.breakdown.facets
    several = sorted({(f.prompt, f.model) for f in facets if f.model})
    columns = several if len(several) > 1 else sorted({(f.prompt, f.model) for f in facets})[-1:]
    found: dict[tuple[str, str], dict[tuple[str, str], Facet]] = {}
    for facet in facets:
        if (facet.prompt, facet.model) in columns:
            found.setdefault((facet.facet, facet.value), {})[facet.prompt, facet.model] = facet
    if not found:
        return None
    prompts = {prompt for prompt, _ in columns}
    rows = tuple(
        (f"{name}: {value}", tuple(_field(by.get(column)) for column in columns))
        for (name, value), by in sorted(found.items())
    )
    names = tuple(
        (model if len(prompts) == 1 else f"{prompt}, {model}") or "all models"
        for prompt, model in columns
    )
    known = [f.composite.estimate for by in found.values() for f in by.values()]
    values = [value for value in known if value is not None] or [0.0, 1.0]
    # Shades are for these scores alone, or all would look alike.
    ends = (
        math.floor(10 * min(values) + TOLERANCE) / 10,
        math.ceil(10 * max(values) - TOLERANCE) / 10,
    )
    chart = HeatMap("Score by kind of case", names, rows, least=ends[0], most=ends[1], width=720)
    return section("Kinds of cases", element("div", figure(heatmap(chart)), class_="panel"))


def _field(facet: Facet | None) -> Field | None:
    if facet is None:
        return None
    side: Literal["", "above", "below"] = ""
    if facet.stands_out and facet.difference is not None:
        side = "above" if facet.difference > 0 else "below"
    return Field(facet.composite.estimate, facet.cases, side)


def costs(view: RunResult) -> Html | None:
    """Return what each model cost, by what it was asked for."""
    if not view.costs:
        return None
    phases = tuple(dict.fromkeys(cost.phase for cost in view.costs))
    models = tuple(dict.fromkeys(cost.model for cost in view.costs))
    spent = {(cost.model, cost.phase): cost.microusd for cost in view.costs}
    shown = tuple(
        Bar(model, tuple(float(spent.get((model, phase), 0)) for phase in phases))
        for model in models
    )
    chart = Bars("Cost by model", shown, parts=phases)
    columns = (
        Column("model"),
        Column("for"),
        *(
            Column(name, numeric=True)
            for name in ("calls", "of unknown fate", "tokens in", "tokens out", "cost")
        ),
    )
    rows = tuple(
        (
            cost.model,
            cost.phase,
            f"{cost.calls:,}",
            f"{cost.unknown:,}",
            f"{cost.tokens_in:,}",
            f"{cost.tokens_out:,}",
            dollars(cost.microusd),
        )
        for cost in view.costs
    )
    table = scrolled(data_table(DataTable(columns, rows)), "Cost by model")
    wrapped = element("div", table, class_="data-wrap")
    plot = None
    if any(cost.microusd for cost in view.costs):
        plot = element("div", figure(bars(chart)), class_="panel")
    return section("Cost", element("div", wrapped, plot, class_="stack"))


def history(view: RunResult) -> Html | None:
    """Return how the experiment did from run to run, up to this one."""
    known = [point for point in view.history if point.composite is not None]
    if len(known) < 2:
        return None
    moments = tuple(
        Moment(
            float(i),
            point.run.created_at[:10],
            point.composite.estimate if point.composite else None,
            point.composite.low if point.composite else None,
            point.composite.high if point.composite else None,
            ", ".join(
                [point.run.id, *(["simulated"] if point.run.simulated else []),
                 *([point.stopped.sentence] if point.stopped is not None else []),
                 *(f"{what} changed" for what in point.changed)]
            ),
        )
        for i, point in enumerate(known)
    )  # fmt: skip
    chart = Trend("Score from run to run", (Series("score", moments),), width=720)
    return section("From run to run", element("div", figure(trend(chart)), class_="panel"))
