"""The home page: every experiment with its last run, trend and cost."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.report.charts.sparkline import Sparkline, sparkline
from edison_ci.results.run_lists import (
    experiments,
    last_complete,
    last_of,
    recent_ids,
    recent_scores,
)
from edison_ci.results.snapshot import objective_of
from edison_ci.results.spending import booked
from edison_ci.results.totals import Totals, totals_of_run
from edison_ci.store.suggestions import open_suggestions
from edison_ci.web.page_context import Look, Page, run_results

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.run_result import RunResult

_MOST_EXPERIMENTS = 200
_IN_LINE = 20
_RECENT = 20
DAYS = 30


@dataclass(frozen=True, slots=True)
class ExperimentLine:
    """An experiment as the home page shows it."""

    name: str
    objective: str
    last: RunResult
    totals: Totals | None
    """Of the newest run that has ended."""
    trend: Drawing | None
    """Its last whole runs; None with fewer than two."""
    cost_microusd: int
    """In the last 30 days."""


def home(look: Look) -> Page:
    """Return every experiment with its last run, trend and cost, and the last runs of all."""
    names = experiments(look.connection)[:_MOST_EXPERIMENTS]
    since = formatting.stamp(look.now - dt.timedelta(days=DAYS - 1))[:10]
    lines = [_line(look, name, since) for name in names]
    lines.sort(key=lambda line: line.last.run.created_at, reverse=True)
    return Page(
        "home",
        "Experiments",
        {
            "experiments": lines,
            "recent": run_results(look, recent_ids(look.connection, _RECENT)),
            "days": DAYS,
            "waiting": open_suggestions(look.connection),
            "total_cost": booked(look.connection, "project", since),
        },
        area="home",
    )


def _line(look: Look, name: str, since: str) -> ExperimentLine:
    (last,) = run_results(look, [last_of(look.connection, name)])
    values = recent_scores(look.connection, name, _IN_LINE)
    trend = None
    if len(values) > 1:
        title = f"Score of {name} in its last {len(values)} whole runs"
        trend = sparkline(Sparkline(title, tuple(values)))
    return ExperimentLine(
        name=name,
        objective=objective_of(last.run),
        last=last,
        totals=last.totals or _newest_totals(look.connection, name),
        trend=trend,
        cost_microusd=booked(look.connection, f"experiment:{name}", since),
    )


def _newest_totals(connection: sqlite3.Connection, experiment: str) -> Totals | None:
    run_id = last_complete(connection, experiment)
    return None if run_id is None else totals_of_run(connection, run_id)
