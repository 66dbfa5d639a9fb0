"""The page of a run: its numbers, its gates, and its cases in a grid."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from edison_ci.results.case_grid import METRICS, SORTS, Box, CaseQuery, case_grid
from edison_ci.results.decisions import decisions_of
from edison_ci.results.part_scores import PartName
from edison_ci.results.progress import progress_of
from edison_ci.results.run_result import STATUSES, RunResult
from edison_ci.web import formats
from edison_ci.web.cache import remembered
from edison_ci.web.page_context import PER_PAGE, Crumb, Look, Page, Paging, run_named

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from edison_ci.results.totals import Totals
    from edison_ci.store.runs import Run
    from edison_ci.web.page_context import Args


def case_query(args: Args) -> CaseQuery:
    """Read the arguments of an address; an unknown value is as good as none."""
    kind, sign, name = args.text("part").partition(":")
    return CaseQuery(
        side=args.choice("side", ("head", "base")),
        metric=args.choice("metric", METRICS),
        sort=args.choice("sort", SORTS),
        tag=args.text("tag"),
        prompt=args.text("prompt"),
        model=args.text("model"),
        status=args.choice("status", ("", *STATUSES)),
        failed=args.flag("failed"),
        flagged=args.flag("flagged"),
        part=PartName(kind, name) if sign and name else None,
        text=args.text("q"),
        deep=args.flag("deep"),
        offset=(args.whole("page", 1) - 1) * PER_PAGE,
        limit=PER_PAGE,
    )


TABS = (
    ("", "Cases"),
    ("decisions", "Decisions"),
    ("criteria", "Criteria"),
    ("facets", "Kinds of cases"),
    ("judges", "Judges"),
    ("grade", "Grading"),
    ("log", "Log"),
)
"""The pages about a run: what their address ends in, and their names."""


def run(look: Look) -> Page:
    """Return a run: its numbers, what its gates said, and its cases in a grid."""
    found = run_named(look, look.path["run"])
    query = case_query(look.args)
    remember = None if found.moving else partial(_remembered, look, found)
    grid = case_grid(look.connection, found.id, query, remember)
    kept: dict[str, Any] = {
        "side": "" if query.side == "head" else query.side,
        "metric": "" if query.metric == METRICS[0] else query.metric,
        "sort": "" if query.sort == SORTS[0] else query.sort,
        "tag": query.tag,
        "prompt": query.prompt,
        "model": query.model,
        "status": query.status,
        "failed": query.failed,
        "flagged": query.flagged,
        "part": query.part.key if query.part else "",
        "q": query.text,
        "deep": query.deep,
    }

    def again(**changes: Any) -> str:
        return look.links.to("run", found.id, **{**kept, **changes})

    return Page(
        "run",
        f"{found.experiment}, run {found.id}",
        {
            **head_of(look, found, ""),
            "grid": grid,
            "paging": Paging.of(look.args, grid.total),
            "amount": partial(_amount, query),
            "total": partial(_total, query),
            "again": again,
            "kept": kept,
            "metrics": METRICS,
            "sorts": SORTS,
            "statuses": STATUSES,
            "gates": decisions_of(look.connection, found.id),
        },
        crumbs=crumbs_of(look, found),
        area="home",
    )


def _remembered(look: Look, found: Run, key: Hashable, work: Callable[[], int]) -> int:
    """Return a number that was counted before in what the run is by now, or count it."""
    state = (look.links.database, str(look.root), found.finished_at)
    return remembered((state, key), work)


def _counts(result: RunResult) -> str:
    """Return how many cells ended how, once that was added up."""
    if result.totals is None:
        return ""
    counts = ((name, count) for name, count in result.cells.items() if name != "total" and count)
    return ", ".join(f"{count:,} {name}" for name, count in counts)


def _amount(query: CaseQuery, box: Box) -> str:
    """Return what stands in a box."""
    if query.metric == "tokens":
        return formats.tokens(box.mean("tokens"))
    if query.metric == "cost":
        return formats.dollars(box.mean("cost_microusd"))
    if query.metric == "latency":
        return formats.milliseconds(box.mean("latency_ms"))
    return formats.points(box.mean("part" if query.part else "composite"))


def _total(query: CaseQuery, totals: Totals) -> str:
    """Return what stands below a column."""
    if query.metric == "tokens":
        return f"{formats.tokens(totals.answer_tokens)} mean"
    if query.metric == "cost":
        return f"{formats.dollars(totals.answer_cost_microusd)} mean"
    if query.metric == "latency":
        return f"{formats.milliseconds(totals.p50_ms)} median"
    score, rate = totals.composite, totals.pass_rate
    span = formats.span(score.low, score.high)
    passed = f", {formats.percent(rate.estimate)} passed" if rate.estimate is not None else ""
    return f"{formats.points(score.estimate)}{f' ({span})' if span else ''}{passed}"


def head_of(look: Look, found: Run, tab: str) -> dict[str, Any]:
    """Return what stands at the top of every page about a run."""
    result = RunResult(look.connection, found)
    unfinished = result.totals is None or found.moving
    progress = progress_of(look.connection, found) if unfinished else None
    return {
        "run": found,
        "result": result,
        "cell_counts": "" if result.totals is None else _counts(result),
        "progress": progress,
        "tabs": TABS,
        "tab": tab,
    }


def crumbs_of(look: Look, found: Run, *more: Crumb) -> tuple[Crumb, ...]:
    """Return the pages above one about a run."""
    return (
        Crumb("Experiments", look.links.to()),
        Crumb(found.experiment, look.links.to("experiment", found.experiment)),
        *more,
    )
