"""The page of costs: what was spent, on what, and how much of each limit is used.

Days come from the totals that every budget is checked against, so they are exact while a run goes
on; models and phases come from the sums of runs that have ended.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import formatting
from edison_ci.execute.budgets import caps_of
from edison_ci.report.charts.bars import Bar, Bars, bars
from edison_ci.report.charts.scales import Unit
from edison_ci.results.spending import (
    booked,
    booked_by_day,
    last_run_of,
    run_spending_by,
    saved_since,
)
from edison_ci.store.ledger import booked as booked_of
from edison_ci.web.page_context import Look, Page
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.spending import By

BY: tuple[By, ...] = ("model", "phase", "experiment", "day")
DAYS = (30, 7, 90, 365)


class Limit(NamedTuple):
    """A budget and how much of it is booked."""

    name: str
    of: str
    spent: float
    limit: float
    money: bool

    @property
    def used(self) -> float:
        """The share that is booked."""
        return self.spent / self.limit if self.limit else 1.0


def costs(look: Look) -> Page:
    """Return what was spent in the last days."""
    by = look.args.choice("by", BY)
    days = int(look.args.choice("days", [str(each) for each in DAYS]))
    since = formatting.stamp(look.now - dt.timedelta(days=days - 1))[:10]
    rows = run_spending_by(look.connection, by, since)
    total = booked(look.connection, "project", since)
    in_runs = sum(row.cost_microusd for row in rows)
    return Page(
        "costs",
        f"Costs of the last {days} days",
        {
            "by": by,
            "ways": BY,
            "days": days,
            "spans": DAYS,
            "rows": rows,
            "total": total,
            "elsewhere": max(total - in_runs, 0),
            "saved": saved_since(look.connection, since),
            "daily": _daily(look, since, days),
            "limits": _limits(look),
        },
        area="costs",
    )


def _daily(look: Look, since: str, days: int) -> Drawing | None:
    spent = booked_by_day(look.connection, "project", since)
    if not any(spent.values()):
        return None
    first = min(dt.date.fromisoformat(day) for day in spent)
    span = min((look.now.date() - first).days + 1, days, 60)
    each = [look.now.date() - dt.timedelta(days=n) for n in reversed(range(max(span, 1)))]
    drawn = tuple(Bar(f"{day:%d %b}", (float(spent.get(str(day), 0)),)) for day in each)
    return bars(Bars("Spent each day", drawn, Unit.DOLLARS, standing=True, width=800))


def _limits(look: Look) -> list[Limit]:
    """Return the budgets of the project, where its files are at hand."""
    project = project_of(look)
    if project is None:
        return []
    today, found = f"{look.now:%Y-%m-%d}", {}
    for experiment in project.experiments.values():
        last = last_run_of(look.connection, experiment.id)
        for cap in caps_of(project, experiment, last or "", None):
            if cap.scope.startswith("run:") and last is None:
                continue
            microusd, tokens = booked_of(look.connection, cap, today)
            of = {30: "the project in 30 days", 1: f"{experiment.id} today"}.get(
                cap.days or 0, f"the last run of {experiment.id}"
            )
            money = cap.microusd is not None
            limit = cap.microusd if cap.microusd is not None else cap.tokens or 0
            found[cap.name, of] = Limit(cap.name, of, microusd if money else tokens, limit, money)
    return sorted(found.values(), key=lambda limit: (-limit.used, limit.of))
