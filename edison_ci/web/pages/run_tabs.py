"""The tabs of a run: decisions, criteria, slices, judges and log."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.report.charts.bars import Histogram, histogram, tenths
from edison_ci.report.charts.estimates import forest, gate_forests
from edison_ci.report.charts.heatmap import heatmap
from edison_ci.report.components import fluid_figure
from edison_ci.report.run_charts import SLICE_METRICS, slices_chart
from edison_ci.results.components import ComponentName, by_component, combined_spread
from edison_ci.results.decisions import count_rounds, decisions_of
from edison_ci.results.history_words import count_events, event_lines
from edison_ci.results.judges import JudgeFindings, approval_of, cells_apart, judge_findings
from edison_ci.results.run_lists import cases_of
from edison_ci.results.run_result import RunResult
from edison_ci.results.score_levels import MOST_SEARCHED, examples_of, level_examples
from edison_ci.results.slices import slice_order
from edison_ci.web.cache import REFRESH_S
from edison_ci.web.page_context import (
    MOST_CELLS,
    SHOWN_ID,
    Page,
    PageContext,
    Paging,
    grouped,
    paged,
    requested_run,
)
from edison_ci.web.pages.run import tab_page

if TYPE_CHECKING:
    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.components import ComponentSpread, ScoreSpread
    from edison_ci.store.runs import Run


def decisions(context: PageContext) -> Page:
    """Return the decisions of the gates on a run, by round."""
    run = requested_run(context, context.path["run"])
    rounds = count_rounds(context.connection, run.id)
    number = context.args.whole("round", rounds or 1, most=rounds or 1)
    chosen = None if number == rounds else number - 1
    gates = decisions_of(context.connection, run.id, round=chosen)
    kept: dict[str, Any] = {"round": number if chosen is not None else None}
    gates_page = paged(context, gates, "run", run.id, "decisions", **kept)
    values = {
        "gates": gates_page.rows,
        "shown": gates_page,
        "forests": [fluid_figure(forest, chart) for chart in gate_forests(gates_page.rows)],
        "rounds": rounds,
        "round": number,
    }
    return tab_page(context, run, "decisions", "Decisions on", values)


KINDS = ("criterion", "rubric", "grader", "check")
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class ComponentPanel:
    """A component of the grade, with its scores by prompt and model."""

    component: ComponentName
    lines: tuple[ComponentSpread, ...]
    drawing: Drawing


def criteria(context: PageContext) -> Page:
    """Return the distribution of each component, and the best and worst answers of one."""
    run = requested_run(context, context.path["run"])
    components = component_panels(RunResult(context.connection, run))
    kind, _, name = context.args.text("component").partition(":")
    chosen = next(
        (panel for panel in components if panel.component == ComponentName(kind, name)), None
    )
    chosen = chosen or (components[0] if components else None)
    lines = [(panel, line) for panel in components for line in panel.lines]
    lines_page = paged(
        context, lines, "run", run.id, "criteria", component=context.args.text("component")
    )
    examples = partial(examples_of, context.connection, run.id, limit=_EXAMPLES)
    return tab_page(
        context,
        run,
        "criteria",
        "Criteria of",
        {
            "components": grouped(lines_page.rows),
            "shown": lines_page,
            "chosen": chosen,
            "worst": examples(chosen.component, worst=True) if chosen is not None else [],
            "best": examples(chosen.component, worst=False) if chosen is not None else [],
            "examples": level_examples(context.connection, run, chosen.component)
            if chosen is not None
            else None,
            "every": cases_of(context.connection, run.id) <= MOST_SEARCHED,
            "searched": MOST_SEARCHED,
        },
    )


def component_panels(result: RunResult) -> list[ComponentPanel]:
    """Return the components of the grade of a run, criteria first."""
    panels = [
        ComponentPanel(component, lines, _drawing(combined_spread(component, lines)))
        for component, lines in by_component(result.breakdown.components).items()
        if component.kind in KINDS
    ]
    panels.sort(key=lambda panel: (KINDS.index(panel.component.kind), panel.component.name))
    return panels


def _drawing(spread: ScoreSpread) -> Drawing:
    title = f"{spread.name}: distribution of scores"
    return histogram(Histogram(title, tenths(spread.counts), mean=spread.mean))


_MOST_OUT = 10
"""Slices that stand out and are named above the map."""


def slices(context: PageContext) -> Page:
    """Return scores by slice (tag, length, difficulty, kind), for each model and overall."""
    run = requested_run(context, context.path["run"])
    result = RunResult(context.connection, run)
    breakdown, metric = result.breakdown, context.args.choice("metric", SLICE_METRICS)
    compared = [slice_ for slice_ in breakdown.slices if slice_.model]
    compared.sort(key=lambda slice_: (slice_.prompt, slice_.model, slice_order(slice_)))
    repeated = [slice_ for slice_ in breakdown.reliability if slice_.k > 1]
    address = ("run", run.id, "slices")
    kept: dict[str, Any] = {"metric": metric if metric != SLICE_METRICS[0] else None}
    outstanding, chart = result.outstanding, slices_chart(breakdown.slices, metric)
    return tab_page(
        context,
        run,
        "slices",
        "Slices of",
        {
            "slices": paged(context, compared, *address, turn="slices", **kept),
            "several": len({(slice_.prompt, slice_.model) for slice_ in compared}) > 1,
            "out": outstanding[:_MOST_OUT],
            "out_count": len(outstanding),
            "family": max((slice_.family for slice_ in breakdown.slices), default=0),
            "map": None if chart is None else fluid_figure(heatmap, chart),
            "metric": metric,
            "metrics": SLICE_METRICS,
            "reliability": paged(context, repeated, *address, turn="repeats", **kept),
        },
    )


_MOST_APART = 20
"""Answers with large disagreement that are linked."""


def judges(context: PageContext) -> Page:
    """Return the agreement of the judges of a run, with each other and with people."""
    run = requested_run(context, context.path["run"])
    small = run.cells_planned <= MOST_CELLS
    computable = small and not run.moving
    findings = judge_findings_of(context, run) if computable else None
    waiting = computable and findings is None
    matches = () if findings is None else findings.matches
    page = tab_page(
        context,
        run,
        "judges",
        "Judges of",
        {
            "findings": findings,
            "small": small,
            "waiting": waiting,
            "matches": paged(context, matches, "run", run.id, "judges"),
            "approval": approval_of(context.connection, run.id),
            "cells": _cells(context, run, findings),
        },
    )
    return replace(page, refresh_s=REFRESH_S if waiting else None)


def judge_findings_of(context: PageContext, run: Run) -> JudgeFindings | None:
    """Return what the judges of a run say beside its scores; None while it is computed."""
    return context.computed(
        lambda own: judge_findings(own.connection, run.id),
        *("judges", run.id, run.finished_at),  # which a regrade changes
        cells=run.cells_planned,
    )


def _cells(
    context: PageContext, run: Run, findings: JudgeFindings | None
) -> dict[tuple[str, str, str, int], str]:
    """Return the short cell ids of the answers with the largest disagreement of judges."""
    agreement = None if findings is None else findings.agreement
    apart = () if agreement is None else agreement.apart
    apart_cells = cells_apart(context.connection, run.id, apart[:_MOST_APART])
    return {key: cell[:SHOWN_ID] for key, cell in apart_cells.items()}


def log(context: PageContext) -> Page:
    """Return the events of a run, newest first."""
    run = requested_run(context, context.path["run"])
    paging = Paging.of(context.args, count_events(context.connection, run.id))
    lines = event_lines(context.connection, run.id, limit=paging.per_page, offset=paging.offset)

    def again(**changes: Any) -> str:
        return context.links.to("run", run.id, "log", **changes)

    values = {"events": lines, "paging": paging, "again": again}
    page = tab_page(context, run, "log", "Log of", values)
    return replace(page, refresh_s=5 if run.moving else None)
