"""The pages of the project: home, costs, audit and keyboard shortcuts."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import feature, utc
from edison_ci._dataclass import dataclass
from edison_ci.api.costs import BudgetUse, budgets_in_use, site_budgets
from edison_ci.report.charts.bars import Bar, Bars, bars
from edison_ci.report.charts.drawing import Unit
from edison_ci.report.charts.trend import Sparkline, sparkline
from edison_ci.report.components import fluid_figure
from edison_ci.results.history_words import audit_sentence, count_audit, read_audit
from edison_ci.results.run_lists import (
    experiments,
    last_complete,
    last_of,
    open_suggestions,
    recent_ids,
    recent_scores,
)
from edison_ci.results.scores import Totals, totals_of_run
from edison_ci.results.snapshot import objective_of
from edison_ci.results.spending import (
    booked,
    booked_by_day,
    run_spending_by,
    saved_since,
)
from edison_ci.web.formats import status_word
from edison_ci.web.page_context import PER_PAGE, Page, PageContext, Paging, paged, run_results
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from markupsafe import Markup

    from edison_ci.config.load import Project
    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.spending import By


_IN_LINE = 20
_RECENT = 20
DAYS = 30


@dataclass(frozen=True, slots=True)
class ExperimentLine:
    """An experiment on the home page."""

    name: str
    objective: str
    last: RunResult
    totals: Totals | None
    """Totals of the newest completed run."""
    trend: Drawing | None
    """Scores of its latest complete runs; None with fewer than two."""
    cost_microusd: int
    """In the last 30 days."""


NOT_RUN = "not run"
STATUSES = ("", "pass", "fail", "inconclusive", "no gates", "running", "paused", "failed", NOT_RUN)
"""Statuses by which experiments are filtered; the first is all of them."""


class NotRun(NamedTuple):
    """An experiment of the project without a stored run."""

    name: str
    objective: str


def home(context: PageContext) -> Page:
    """Return the experiments with their last run, trend and cost, and the latest runs."""
    text, status = context.args.text("q").casefold(), context.args.choice("status", STATUSES)
    names = experiments(context.connection)
    since = utc.timestamp(context.now - dt.timedelta(days=DAYS - 1))[:10]
    results = _measured(context, names, text, status)
    project = project_of(context)
    not_run = _not_run(project, names)
    unrun = [] if status not in ("", NOT_RUN) else not_run
    unrun = [experiment for experiment in unrun if _matches(text, *experiment)]
    paging = Paging.of(context.args, len(results) + len(unrun))
    start, end = paging.rows.start, paging.rows.stop
    lines = [_line(context, last, since) for last in results[start:end]]
    unrun = unrun[max(start - len(results), 0) : max(end - len(results), 0)]

    def again(**changes: Any) -> str:
        return context.links.to(q=context.args.text("q"), status=status, **changes)

    return Page(
        "home",
        "Experiments",
        {
            "experiments": lines,
            "unrun": unrun,
            "paging": paging,
            "again": again,
            "q": context.args.text("q"),
            "status": status,
            "statuses": STATUSES[1:],
            "ran": bool(names),
            "nothing": not names and not not_run,
            "project": project,
            "recent": run_results(context, recent_ids(context.connection, _RECENT)),
            "days": DAYS,
            "waiting": open_suggestions(context.connection),
            "alerts": feature.ask("alerts", context, default=()),
            "total_cost": booked(context.connection, "project", since),
        },
        area="home",
    )


def _measured(
    context: PageContext, names: Sequence[str], text: str, status: str
) -> list[RunResult]:
    """Return the last runs of the experiments that a filter selects, newest first."""
    results = [
        last
        for last in run_results(context, [last_of(context.connection, name) for name in names])
        if status in ("", status_word(last.run))
        and (not text or _matches(text, last.run.experiment, objective_of(last.run)))
    ]
    return sorted(results, key=lambda last: last.run.created_at, reverse=True)


def _matches(text: str, *parts: str) -> bool:
    return not text or any(text in part.casefold() for part in parts)


def _not_run(project: Project | None, names: list[str]) -> list[NotRun]:
    """Return the experiments in the files of the project that have no stored run."""
    if project is None:
        return []
    ran = set(names)
    return [
        NotRun(experiment.id, experiment.file.objective or "")
        for experiment in project.experiments.values()
        if experiment.id not in ran
    ]


def _line(context: PageContext, last: RunResult, since: str) -> ExperimentLine:
    name = last.run.experiment
    values = recent_scores(context.connection, name, _IN_LINE)
    trend = None
    if len(values) > 1:
        title = f"Score of {name} in its last {len(values)} complete runs"
        trend = sparkline(Sparkline(title, tuple(values)))
    return ExperimentLine(
        name=name,
        objective=objective_of(last.run),
        last=last,
        totals=last.totals or _newest_totals(context.connection, name),
        trend=trend,
        cost_microusd=booked(context.connection, f"experiment:{name}", since),
    )


def _newest_totals(connection: sqlite3.Connection, experiment: str) -> Totals | None:
    run_id = last_complete(connection, experiment)
    return None if run_id is None else totals_of_run(connection, run_id)


BY: tuple[By, ...] = ("model", "phase", "experiment", "day", "month")
COSTS_DAYS = (30, 7, 90, 365)


def costs(context: PageContext) -> Page:
    """Return the spending of the last days, by model, phase, experiment or day."""
    by = context.args.choice("by", BY)
    days = int(context.args.choice("days", [str(choice) for choice in COSTS_DAYS]))
    since = utc.timestamp(context.now - dt.timedelta(days=days - 1))[:10]
    rows = run_spending_by(context.connection, by, since)
    kept: dict[str, Any] = {
        "by": by if by != BY[0] else "",
        "days": days if days != COSTS_DAYS[0] else "",
    }
    spending = paged(context, rows, "costs", **kept)
    limits = paged(context, _limits(context), "costs", turn="budgets", **kept)
    total = booked(context.connection, "project", since)
    in_runs = sum(row.cost_microusd for row in rows)
    return Page(
        "costs",
        f"Costs of the last {days} days",
        {
            "by": by,
            "choices": BY,
            "days": days,
            "spans": COSTS_DAYS,
            "rows": spending,
            "total": total,
            "elsewhere": max(total - in_runs, 0),
            "saved": saved_since(context.connection, since),
            "daily": _daily(context, since, days),
            "tokens": _tokens(context, since),
            "tokens_in": sum(row.tokens_in for row in rows),
            "tokens_out": sum(row.tokens_out for row in rows),
            "limits": limits,
        },
        area="costs",
    )


def _daily(context: PageContext, since: str, days: int) -> Markup | None:
    spent = booked_by_day(context.connection, "project", since)
    if not any(spent.values()):
        return None
    first = min(dt.date.fromisoformat(day) for day in spent)
    span = min((context.now.date() - first).days + 1, days, 60)
    span_days = [context.now.date() - dt.timedelta(days=n) for n in reversed(range(max(span, 1)))]
    drawn = tuple(Bar(f"{day:%d %b}", (float(spent.get(str(day), 0)),)) for day in span_days)
    return fluid_figure(bars, Bars("Cost per day", drawn, Unit.DOLLARS, vertical=True))


_MOST_TOKEN_DAYS = 60


def _tokens(context: PageContext, since: str) -> Markup | None:
    """Draw the tokens of finished runs, in and out, by day; by model where there is one day."""
    rows = [
        row
        for row in run_spending_by(context.connection, "day", since)
        if row.tokens_in or row.tokens_out
    ][:_MOST_TOKEN_DAYS]
    parts = ("in", "out")
    if len(rows) > 1:
        drawn = tuple(
            Bar(f"{dt.date.fromisoformat(row.key):%d %b}", (row.tokens_in, row.tokens_out))
            for row in reversed(rows)
        )
        return fluid_figure(bars, Bars("Tokens per day", drawn, Unit.COUNT, parts, vertical=True))
    models = [
        Bar(row.key, (row.tokens_in, row.tokens_out))
        for row in run_spending_by(context.connection, "model", since)
        if row.tokens_in or row.tokens_out
    ][:PER_PAGE]
    if not models:
        return None
    return fluid_figure(bars, Bars("Tokens by model", tuple(models), Unit.COUNT, parts))


def _limits(context: PageContext) -> list[BudgetUse]:
    """Return the budgets, the most used first; none if the project's files are not accessible."""
    project = project_of(context)
    if project is None:
        return []
    day = f"{context.now:%Y-%m-%d}"
    limits = site_budgets(project, context.now)
    limits += budgets_in_use(context.connection, project, day)
    return sorted(limits, key=lambda limit: (-limit.used, limit.of))


def audit(context: PageContext) -> Page:
    """Return the audit entries, newest first."""
    paging = Paging.of(context.args, count_audit(context.connection))
    rows = read_audit(context.connection, limit=paging.per_page, offset=paging.offset)

    def again(**changes: Any) -> str:
        return context.links.to("audit", **changes)

    return Page(
        "audit",
        "Audit",
        {
            "rows": rows,
            "sentence": audit_sentence,
            "value": _value,
            "paging": paging,
            "again": again,
        },
        area="audit",
    )


def _value(stored: Any) -> str:
    """Return a stored value as text."""
    if stored is None:
        return ""
    return stored if isinstance(stored, str) else json.dumps(stored, ensure_ascii=False, indent=1)


KEYS = (
    ("?", "Show this list"),
    ("g h", "Go to the experiments"),
    ("Ctrl+K", "Search experiments, prompts, cases and runs"),
    ("/", "Go to the search field"),
    ("j, k", "Next, previous row of the table"),
    ("Enter", "Open the row, or press the focused button"),
    ("n, p", "Next, previous page or case"),
    ("u", "Go up one level"),
    ("Esc", "Leave a field, so that shortcuts work"),
)
"""Shortcuts of every page."""
SUGGESTION_KEYS = (
    (".", "Approve: focuses the button, press Enter"),
    (",", "Reject: focuses the reason"),
    ("e", "Edit"),
    ("c", "Write a comment"),
)
GRADING_KEYS = (
    ("1 ... 5", "Grade, and go to the next answer"),
    ("+, -", "Pass, fail, on that scale"),
    ("g", "Enter a number, on the scale 0 to 1"),
    ("c", "Write a note"),
    ("f", "Flag for review, and go to the next answer"),
    ("s", "Skip"),
    ("b", "Back to the previous answer"),
)
RUN_KEYS = (("m", "Show the next metric: grade, tokens, cost, latency"),)
EDITOR_KEYS = (
    ("e", "Go to the text"),
    ("t", "Try it"),
    ("s", "Save: shows the changes"),
)
GROUPS = (
    ("On every page", KEYS),
    ("On a run", RUN_KEYS),
    ("On a suggestion", SUGGESTION_KEYS),
    ("In the editor of a prompt", EDITOR_KEYS),
    ("While grading", GRADING_KEYS),
)
"""Shortcuts, by page."""


def keys(context: PageContext) -> Page:
    """Return the keyboard shortcuts."""
    del context
    return Page("help", "Keyboard shortcuts", {"groups": GROUPS}, area="help")
