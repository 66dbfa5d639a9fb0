"""The pages of a run: cases, decisions, criteria, slices, judges and log."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role
from edison_ci.api.bundles import trusted_keys
from edison_ci.records import RunStatus, Side
from edison_ci.report.charts.bars import Histogram, histogram, tenths
from edison_ci.report.charts.estimates import forest, gate_forests
from edison_ci.report.charts.heatmap import heatmap
from edison_ci.report.components import fluid_figure
from edison_ci.report.run_charts import SLICE_METRICS, slice_order, slices_chart
from edison_ci.results.case_grid import METRICS, SORTS, Box, CaseQuery, case_grid
from edison_ci.results.decisions import count_rounds, decisions_of
from edison_ci.results.history_words import count_events, event_lines, origin_sentence
from edison_ci.results.judges import JudgeFindings, approval_of, cells_apart, judge_findings
from edison_ci.results.live_progress import phase_changes, progress_of
from edison_ci.results.run_lists import cases_of
from edison_ci.results.run_result import STATUSES, RunResult
from edison_ci.results.score_levels import level_examples
from edison_ci.results.scores import (
    MOST_SEARCHED,
    ComponentName,
    by_component,
    combined_spread,
    examples_of,
)
from edison_ci.results.triage import changed_lists
from edison_ci.results.troubles import troubles_of
from edison_ci.web import formats
from edison_ci.web.cache import REFRESH_S
from edison_ci.web.page_context import (
    MOST_CELLS,
    PER_PAGE,
    SHOWN_ID,
    Crumb,
    Page,
    PageContext,
    Paging,
    grouped,
    paged,
    requested_run,
)
from edison_ci.web.pages.live import live_view

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.comparison import BaseComparison
    from edison_ci.results.headline import Headline
    from edison_ci.results.rollups import Totals
    from edison_ci.results.scores import ComponentSpread, ScoreSpread
    from edison_ci.results.triage import ChangedList
    from edison_ci.store.manual_grades import ManualGrade
    from edison_ci.store.runs import Run
    from edison_ci.web.page_context import Args


TABS = (
    ("", "Cases"),
    ("decisions", "Decisions"),
    ("criteria", "Criteria"),
    ("slices", "Slices"),
    ("judges", "Judges"),
    ("grade", "Grading"),
    ("log", "Log"),
)
"""The tabs of a run: end of the address, which is also the template, and name."""


_FINAL = (RunStatus.COMPLETED, RunStatus.CANCELLED)


def head_of(context: PageContext, run: Run, tab: str) -> dict[str, Any]:
    """Return the values of the header of every page about a run."""
    result = RunResult(context.connection, run)
    unfinished = result.totals is None or run.moving
    progress = progress_of(context.connection, run) if unfinished else None
    live = None
    if progress is not None and run.moving:
        changes = phase_changes(context.connection, run.id)
        live = live_view(context.connection, run, progress, changes, context.links)
    keys = trusted_keys(context.root) if context.root is not None else ()
    return {
        "run": run,
        "result": result,
        "cell_counts": "" if result.totals is None else _counts(result),
        "progress": progress,
        "live": live,
        "may_steer": context.may(Role.EDITOR) and run.status not in _FINAL,
        "origin": origin_sentence(context.connection, run.id, keys),
        "tabs": TABS,
        "tab": tab,
    }


def crumbs_of(context: PageContext, found: Run, *more: Crumb) -> tuple[Crumb, ...]:
    """Return the breadcrumbs of a page about a run."""
    return (
        Crumb("Experiments", context.links.to()),
        Crumb(found.experiment, context.links.to("experiment", found.experiment)),
        *more,
    )


def tab_page(context: PageContext, run: Run, tab: str, title: str, values: dict[str, Any]) -> Page:
    """Return a tab of the page of a run; its template has the name of the tab."""
    return Page(
        tab,
        f"{title} {run.experiment}, run {run.id}",
        {**head_of(context, run, tab), **values},
        crumbs=crumbs_of(context, run, Crumb(f"run {run.id}", context.links.to("run", run.id))),
        area="home",
    )


# --- cases ----------------------------------------------------------------------------------------


_REFRESH_S = 5
"""Seconds after which the page of an active run is reloaded in a browser without scripts."""
SORT_NAMES = dict(
    zip(
        SORTS,
        ("worst first", "best first", "by name", "most tokens", "dearest", "slowest"),
        strict=True,
    )
)


def case_query(args: Args) -> CaseQuery:
    """Return the query in the arguments of an address; unknown values are ignored."""
    kind, sign, name = args.text("component").partition(":")
    sort = args.choice("sort", SORTS)
    return CaseQuery(
        side=args.choice("side", ("head", "base")),
        metric=args.choice("metric", (_metric_of(sort), *METRICS)),
        sort=sort,
        tag=args.text("tag"),
        prompt=args.text("prompt"),
        model=args.text("model"),
        status=args.choice("status", ("", *STATUSES)),
        failed=args.flag("failed"),
        flagged=args.flag("flagged"),
        component=ComponentName(kind, name) if sign and name else None,
        text=args.text("q"),
        deep=args.flag("deep"),
        offset=(args.whole("page", 1) - 1) * PER_PAGE,
        limit=PER_PAGE,
    )


def _metric_of(sort: str) -> str:
    """Return the metric that is shown if none is asked for: that of the order."""
    return sort if sort in METRICS else METRICS[0]


def list_args(query: CaseQuery) -> dict[str, Any]:
    """Return the arguments of an address that select and order the cases of a query."""
    return {
        "side": "" if query.side == Side.HEAD else query.side,
        "metric": "" if query.metric == _metric_of(query.sort) else query.metric,
        "sort": "" if query.sort == SORTS[0] else query.sort,
        "tag": query.tag,
        "prompt": query.prompt,
        "model": query.model,
        "status": query.status,
        "failed": query.failed,
        "flagged": query.flagged,
        "component": query.component.key if query.component else "",
        "q": query.text,
        "deep": query.deep,
    }


LIST_ARGS = frozenset({*list_args(CaseQuery()), "page"})
"""Arguments of an address that lead along a list of cases."""


def count_cache(context: PageContext, found: Run) -> Callable[..., int] | None:
    """Return the cache of the counts of a run; None while they change."""
    return None if found.moving else partial(_cached_count, context, found)


def run(context: PageContext) -> Page:
    """Return a run: its scores, gates, and cases in a grid."""
    found = requested_run(context, context.path["run"])
    query = case_query(context.args)
    grid = case_grid(context.connection, found.id, query, count_cache(context, found))
    kept, paging = list_args(query), Paging.of(context.args, grid.total)
    listed = {**kept, "page": paging.number}
    findings = _findings(context, found)
    small = found.cells_planned <= MOST_CELLS
    waiting = findings is None and small and not found.moving

    def again(**changes: Any) -> str:
        return context.links.to("run", found.id, **{**kept, **changes})

    return Page(
        "run",
        f"{found.experiment}, run {found.id}",
        {
            **head_of(context, found, ""),
            "troubles": troubles_of(RunResult(context.connection, found)),
            "grid": grid,
            "acts": feature.ask("cell_actions", context, grid, default=NO_ACTIONS),
            "findings": findings,
            "waiting": waiting,
            "small": small,
            "paging": paging,
            "amount": partial(_amount, query),
            "tokens_of": tokens_of,
            "total": partial(_total, query),
            "again": again,
            "kept": kept,
            "listed": listed,
            "cell_link": _cell_links(context, listed),
            "metrics": METRICS,
            "usual_metric": _metric_of(query.sort),
            "next_metric": METRICS[(METRICS.index(query.metric) + 1) % len(METRICS)],
            "sorts": SORT_NAMES,
            "statuses": STATUSES,
            "gates": decisions_of(context.connection, found.id),
        },
        crumbs=crumbs_of(context, found),
        area="home",
        refresh_s=_REFRESH_S if found.moving else REFRESH_S if waiting else None,
    )


def _cell_links(context: PageContext, listed: dict[str, Any]) -> Callable[[str], str]:
    """Return the function from a cell to its address; what all addresses share is made once."""
    place = "0" * SHOWN_ID
    before, _, after = context.links.to("cell", place, **listed).partition(place)
    return lambda cell: f"{before}{cell[:SHOWN_ID]}{after}"


class CellActions(NamedTuple):
    """What the visitor can do with the answers of a page of the grid, by cell."""

    gradable: frozenset[str]
    mine: dict[str, ManualGrade]
    """Their last grade of each."""
    judged: frozenset[str]
    """Cells with a reply of a judge or grader."""


NO_ACTIONS = CellActions(frozenset(), {}, frozenset())


class RunFindings(NamedTuple):
    """What a run found, and what changed since its base."""

    headline: Headline
    against: BaseComparison | None
    flips: str
    """How many cases began to fail or to pass, beside what chance gives; empty without a base."""
    changed: tuple[ChangedList, ...]


_CHANGED, _MOST_CHANGED = 5, 200
"""Changed cases of a kind that are listed, and if all are asked for."""


def _findings(context: PageContext, run: Run) -> RunFindings | None:
    """Return what a run found; None while it is worked out, and for a very large run."""
    if run.moving or run.cells_planned > MOST_CELLS:
        return None
    most = _MOST_CHANGED if context.args.text("changed") == "all" else _CHANGED
    return context.computed(
        lambda own: _find(RunResult(own.connection, run), most),
        *("findings", run.id, run.finished_at, most),
        cells=run.cells_planned,
    )


def _find(result: RunResult, most: int) -> RunFindings:
    triage = result.triage(most=0)
    flips = "" if triage is None or triage.flips is None else triage.flips.words
    changed = changed_lists(result, most=most) if result.ended and result.run.base_commit else ()
    return RunFindings(result.headline, result.against, flips, changed)


def _cached_count(context: PageContext, found: Run, key: Hashable, work: Callable[[], int]) -> int:
    """Return a cached count of a run that has ended, or compute it."""
    state = (context.links.database, str(context.root), found.finished_at)
    return context.memory.cached((state, key), work)


def _counts(result: RunResult) -> str:
    """Return the number of cells by status, as text; empty until they are added up."""
    if result.totals is None:
        return ""
    counts = ((name, count) for name, count in result.cells.items() if name != "total" and count)
    said = [f"{count:,} {name}" for name, count in counts]
    if result.cut_off_count:
        said.append(f"{result.cut_off_count:,} cut off at max_tokens")
    return ", ".join(said)


def _amount(query: CaseQuery, box: Box) -> str:
    """Return the number in a box of the grid."""
    if query.metric == "tokens":
        return tokens_of(box)
    if query.metric == "cost":
        return formats.dollars(box.mean("cost_microusd"))
    if query.metric == "latency":
        return formats.milliseconds(box.mean("latency_ms"))
    return formats.points(box.mean("component" if query.component else "composite"))


def tokens_of(box: Box) -> str:
    """Return the tokens of a box, in and out."""
    return formats.tokens_in_out(box.mean("tokens_in"), box.mean("tokens_out"))


def _total(query: CaseQuery, totals: Totals) -> str:
    """Return the total of a column of the grid."""
    if query.metric == "tokens":
        answers = max(totals.answers, 1)
        means = totals.tokens_in / answers, totals.tokens_out / answers
        return f"{formats.tokens_in_out(*means)} mean"
    if query.metric == "cost":
        return f"{formats.dollars(totals.answer_cost_microusd)} mean"
    if query.metric == "latency":
        return f"{formats.milliseconds(totals.p50_ms)} median"
    score, rate = totals.composite, totals.pass_rate
    span = formats.span(score.low, score.high)
    passed = f", {formats.percent(rate.estimate)} passed" if rate.estimate is not None else ""
    return f"{formats.points(score.estimate)}{f' ({span})' if span else ''}{passed}"


# --- decisions ------------------------------------------------------------------------------------


def decisions(context: PageContext) -> Page:
    """Return the decisions of the gates on a run, by round."""
    run = requested_run(context, context.path["run"])
    rounds = count_rounds(context.connection, run.id)
    number = context.args.whole("round", rounds or 1, most=rounds or 1)
    chosen = None if number == rounds else number - 1
    gates = decisions_of(context.connection, run.id, round=chosen)
    kept: dict[str, Any] = {"round": number if chosen is not None else None}
    shown = paged(context, gates, "run", run.id, "decisions", **kept)
    values = {
        "gates": shown.rows,
        "shown": shown,
        "forests": [fluid_figure(forest, chart) for chart in gate_forests(shown.rows)],
        "rounds": rounds,
        "round": number,
    }
    return tab_page(context, run, "decisions", "Decisions on", values)


# --- criteria -------------------------------------------------------------------------------------


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
        (each for each in components if each.component == ComponentName(kind, name)), None
    )
    chosen = chosen or (components[0] if components else None)
    lines = [(each, line) for each in components for line in each.lines]
    shown = paged(
        context, lines, "run", run.id, "criteria", component=context.args.text("component")
    )
    examples = partial(examples_of, context.connection, run.id, limit=_EXAMPLES)
    return tab_page(
        context,
        run,
        "criteria",
        "Criteria of",
        {
            "components": grouped(shown.rows),
            "shown": shown,
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
    found = [
        ComponentPanel(component, lines, _drawing(combined_spread(component, lines)))
        for component, lines in by_component(result.breakdown.components).items()
        if component.kind in KINDS
    ]
    found.sort(key=lambda each: (KINDS.index(each.component.kind), each.component.name))
    return found


def _drawing(spread: ScoreSpread) -> Drawing:
    title = f"{spread.name}: distribution of scores"
    return histogram(Histogram(title, tenths(spread.counts), mean=spread.mean))


# --- slices ---------------------------------------------------------------------------------------


_MOST_OUT = 10
"""Slices that stand out and are named above the map."""


def slices(context: PageContext) -> Page:
    """Return scores by slice (tag, length, difficulty, kind), for each model and overall."""
    run = requested_run(context, context.path["run"])
    result = RunResult(context.connection, run)
    found, metric = result.breakdown, context.args.choice("metric", SLICE_METRICS)
    compared = [each for each in found.slices if each.model]
    compared.sort(key=lambda each: (each.prompt, each.model, slice_order(each)))
    repeated = [each for each in found.reliability if each.k > 1]
    address = ("run", run.id, "slices")
    kept: dict[str, Any] = {"metric": metric if metric != SLICE_METRICS[0] else None}
    outstanding, chart = result.outstanding, slices_chart(found.slices, metric)
    return tab_page(
        context,
        run,
        "slices",
        "Slices of",
        {
            "slices": paged(context, compared, *address, turn="slices", **kept),
            "several": len({(each.prompt, each.model) for each in compared}) > 1,
            "out": outstanding[:_MOST_OUT],
            "out_count": len(outstanding),
            "family": max((each.family for each in found.slices), default=0),
            "map": None if chart is None else fluid_figure(heatmap, chart),
            "metric": metric,
            "metrics": SLICE_METRICS,
            "reliability": paged(context, repeated, *address, turn="repeats", **kept),
        },
    )


# --- judges ---------------------------------------------------------------------------------------


_MOST_APART = 20
"""Answers with large disagreement that are linked."""


def judges(context: PageContext) -> Page:
    """Return the agreement of the judges of a run, with each other and with people."""
    run = requested_run(context, context.path["run"])
    small = run.cells_planned <= MOST_CELLS
    wanted = small and not run.moving
    findings = judge_findings_of(context, run) if wanted else None
    waiting = wanted and findings is None
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
    found = cells_apart(context.connection, run.id, apart[:_MOST_APART])
    return {key: cell[:SHOWN_ID] for key, cell in found.items()}


# --- log ------------------------------------------------------------------------------------------


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
