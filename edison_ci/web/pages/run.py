"""The page of a run: its header, which every page about it has, what it found, and its cases."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import feature
from edison_ci.access.site import Role
from edison_ci.api.bundles import trusted_keys
from edison_ci.api.reports import prompt_diffs
from edison_ci.documents.secrets import redacted
from edison_ci.records import RunStatus, Side
from edison_ci.report.components import diff_view
from edison_ci.results.case_grid import Box, CellActions, case_grid
from edison_ci.results.case_query import METRICS, SORTS, CaseQuery
from edison_ci.results.components import ComponentName
from edison_ci.results.decisions import decisions_of
from edison_ci.results.history_words import origin_sentence
from edison_ci.results.live_progress import phase_changes, progress_of, troubles_of
from edison_ci.results.run_result import STATUSES, RunResult
from edison_ci.results.run_sentences import cell_counts
from edison_ci.results.triage import changed_lists
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
    requested_run,
)
from edison_ci.web.pages.case_values import values_of_cases
from edison_ci.web.pages.live import live_view
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from markupsafe import Markup

    from edison_ci.config.load import Project
    from edison_ci.results.run_sentences import Headline
    from edison_ci.results.scores import BaseComparison, Totals
    from edison_ci.results.triage import ChangedList
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
        "cell_counts": "" if result.totals is None else cell_counts(result),
        "progress": progress,
        "live": live,
        "may_steer": context.may(Role.EDITOR) and run.status not in _FINAL,
        "origin": origin_sentence(context.connection, run.id, keys),
        "tabs": TABS,
        "tab": tab,
    }


def crumbs_of(context: PageContext, run: Run, *more: Crumb) -> tuple[Crumb, ...]:
    """Return the breadcrumbs of a page about a run."""
    return (
        Crumb("Experiments", context.links.to()),
        Crumb(run.experiment, context.links.to("experiment", run.experiment)),
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


_REFRESH_S = 5
"""Seconds after which the page of an active run is reloaded in a browser without scripts."""
SORT_NAMES = dict(
    zip(
        SORTS,
        ("worst first", "best first", "by name", "most tokens", "most expensive", "slowest"),
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
        shown=tuple(name for part in args.texts("show") for name in part.split(",")),
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
        "show": ",".join(query.shown),
        "q": query.text,
        "deep": query.deep,
    }


LIST_ARGS = frozenset({*list_args(CaseQuery()), "page"})
"""Arguments of an address that lead along a list of cases."""


def count_cache(context: PageContext, run: Run) -> Callable[..., int] | None:
    """Return the cache of the counts of a run; None while they change."""
    return None if run.moving else partial(_cached_count, context, run)


def run(context: PageContext) -> Page:
    """Return a run: its scores, gates, and cases in a grid."""
    current = requested_run(context, context.path["run"])
    query = case_query(context.args)
    grid = case_grid(context.connection, current.id, query, count_cache(context, current))
    kept, paging = list_args(query), Paging.of(context.args, grid.total)
    listed = {**kept, "page": paging.number}
    findings = _findings(context, current)
    values = values_of_cases(context, current, [row.case for row in grid.rows], query.shown)
    small = current.cells_planned <= MOST_CELLS
    waiting = findings is None and small and not current.moving
    reloads = waiting or values.waiting

    def again(**changes: Any) -> str:
        return context.links.to("run", current.id, **{**kept, **changes})

    return Page(
        "run",
        f"{current.experiment}, run {current.id}",
        {
            **head_of(context, current, ""),
            "troubles": troubles_of(RunResult(context.connection, current)),
            **_grid_values(query),
            "grid": grid,
            "values": values,
            "acts": feature.ask("cell_actions", context, grid, default=NO_ACTIONS),
            "findings": findings,
            "waiting": waiting,
            "small": small,
            "paging": paging,
            "again": again,
            "kept": kept,
            "listed": listed,
            "cell_link": _cell_links(context, listed),
            "gates": decisions_of(context.connection, current.id),
        },
        crumbs=crumbs_of(context, current),
        area="home",
        refresh_s=_REFRESH_S if current.moving else REFRESH_S if reloads else None,
    )


def _grid_values(query: CaseQuery) -> dict[str, Any]:
    """Return what the template needs to show and change a selection of cases."""
    return {
        "amount": partial(_amount, query),
        "tokens_of": tokens_of,
        "total": partial(_total, query),
        "metrics": METRICS,
        "usual_metric": _metric_of(query.sort),
        "next_metric": METRICS[(METRICS.index(query.metric) + 1) % len(METRICS)],
        "sorts": SORT_NAMES,
        "statuses": STATUSES,
    }


def _cell_links(context: PageContext, listed: dict[str, Any]) -> Callable[[str], str]:
    """Return the function from a cell to its address; what all addresses share is made once."""
    place = "0" * SHOWN_ID
    before, _, after = context.links.to("cell", place, **listed).partition(place)
    return lambda cell: f"{before}{cell[:SHOWN_ID]}{after}"


NO_ACTIONS = CellActions(frozenset(), {}, frozenset())


class RunFindings(NamedTuple):
    """What a run found, and what changed since its base."""

    headline: Headline
    against: BaseComparison | None
    flips: str
    """How many cases began to fail or to pass, beside what chance gives; empty without a base."""
    changed: tuple[ChangedList, ...]
    diffs: tuple[tuple[str, Markup], ...] = ()
    """Diffs of the prompts since the base, by path."""


_CHANGED, _MOST_CHANGED = 5, 200
"""Changed cases of a kind that are listed, and if all are asked for."""


def _findings(context: PageContext, run: Run) -> RunFindings | None:
    """Return what a run found; None while it is worked out, and for a very large run."""
    if run.moving or run.cells_planned > MOST_CELLS:
        return None
    project = project_of(context)
    most = _MOST_CHANGED if context.args.text("changed") == "all" else _CHANGED
    return context.computed(
        lambda own: _find(RunResult(own.connection, run), most, project),
        *("findings", run.id, run.finished_at, most),
        cells=run.cells_planned,
    )


def _find(result: RunResult, most: int, project: Project | None) -> RunFindings:
    triage = result.triage(most=0)
    flips = "" if triage is None or triage.flips is None else triage.flips.counts
    changed = changed_lists(result, most=most) if result.ended and result.run.base_commit else ()
    diffs = () if project is None or not changed else prompt_diffs(project, [result])
    views = tuple(
        (diff.path, diff_view(redacted(diff.before), redacted(diff.after))) for diff in diffs
    )
    return RunFindings(result.headline, result.against, flips, changed, views)


def _cached_count(context: PageContext, run: Run, key: Hashable, work: Callable[[], int]) -> int:
    """Return a cached count of a run that has ended, or compute it."""
    state = (context.links.database, str(context.root), run.finished_at)
    return context.memory.cached((state, key), work)


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
