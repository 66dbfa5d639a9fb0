"""The page of a run: what was decided, and how did every case go?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from edison_ci.report.datasette_plugin import shown
from edison_ci.report.datasette_plugin.grid import Box, grid_of
from edison_ci.report.datasette_plugin.looking import Crumb, Look, Page
from edison_ci.report.datasette_plugin.progress import progress_of
from edison_ci.report.datasette_plugin.runs import run_named
from edison_ci.report.datasette_plugin.wishing import METRICS, SORTS, STATUSES, Wish
from edison_ci.results.decisions import decisions_of
from edison_ci.results.run_result import RunResult

if TYPE_CHECKING:
    from edison_ci.results.totals import Totals
    from edison_ci.store.runs import Run

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
    state = (look.links.database, str(look.root), found.finished_at)
    grid = grid_of(look.connection, found.id, look.args, None if found.moving else state)
    wish = grid.wish
    kept: dict[str, Any] = {
        "side": "" if wish.side == "head" else wish.side,
        "metric": "" if wish.metric == METRICS[0] else wish.metric,
        "sort": "" if wish.sort == SORTS[0] else wish.sort,
        "tag": wish.tag,
        "prompt": wish.prompt,
        "model": wish.model,
        "status": wish.status,
        "failed": wish.failed,
        "flagged": wish.flagged,
        "part": wish.part.key if wish.part else "",
        "q": wish.text,
        "deep": wish.deep,
    }

    def again(**changes: Any) -> str:
        return look.links.to("run", found.id, **{**kept, **changes})

    return Page(
        "run",
        f"{found.experiment}, run {found.id}",
        {
            **head_of(look, found, ""),
            "grid": grid,
            "amount": partial(_amount, wish),
            "total": partial(_total, wish),
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


def _counts(result: RunResult) -> str:
    """Return how many cells ended how."""
    counts = ((name, count) for name, count in result.cells.items() if name != "total" and count)
    return ", ".join(f"{count:,} {name}" for name, count in counts)


def _amount(wish: Wish, box: Box) -> str:
    """Return what stands in a box."""
    if wish.metric == "tokens":
        return shown.tokens(box.mean("tokens"))
    if wish.metric == "cost":
        return shown.dollars(box.mean("cost_microusd"))
    if wish.metric == "latency":
        return shown.milliseconds(box.mean("latency_ms"))
    return shown.points(box.mean("part" if wish.part else "composite"))


def _total(wish: Wish, totals: Totals) -> str:
    """Return what stands below a column."""
    if wish.metric == "tokens":
        return f"{shown.tokens(totals.answer_tokens)} mean"
    if wish.metric == "cost":
        return f"{shown.dollars(totals.answer_cost_microusd)} mean"
    if wish.metric == "latency":
        return f"{shown.milliseconds(totals.p50_ms)} median"
    score, rate = totals.composite, totals.pass_rate
    span = shown.span(score.low, score.high)
    passed = f", {shown.percent(rate.estimate)} passed" if rate.estimate is not None else ""
    return f"{shown.points(score.estimate)}{f' ({span})' if span else ''}{passed}"


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
