"""The home page: how does every experiment stand?"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from edison_ci import times
from edison_ci.frozen import dataclass
from edison_ci.report.charts.sparkline import Sparkline, sparkline
from edison_ci.report.datasette_plugin.looking import Look, Page
from edison_ci.report.datasette_plugin.pages.suggestions import open_suggestions
from edison_ci.report.datasette_plugin.runs import RunLine, experiments, last_of, run_lines
from edison_ci.report.datasette_plugin.sums import Sums, booked, objective_of, sums_of_run
from edison_ci.store.runs import NO_TRIAL

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.report.charts.drawing import Drawing

_MOST_EXPERIMENTS = 200
_IN_LINE = 20
_RECENT = 20
DAYS = 30


@dataclass(frozen=True, slots=True)
class ExperimentLine:
    """An experiment as the home page shows it."""

    name: str
    objective: str
    last: RunLine
    sums: Sums | None
    """Of the newest run that has ended."""
    trend: Drawing | None
    """Its last whole runs; None with fewer than two."""
    cost_microusd: int
    """In the last 30 days."""


def home(look: Look) -> Page:
    """Return every experiment with its last run, trend and cost, and the last runs of all."""
    names = experiments(look.connection)[:_MOST_EXPERIMENTS]
    since = times.stamp(look.now - dt.timedelta(days=DAYS - 1))[:10]
    lines = [_line(look, name, since) for name in names]
    lines.sort(key=lambda line: line.last.run.created_at, reverse=True)
    rows = look.connection.execute(
        "select id from run order by created_at desc, rowid desc limit ?", (_RECENT,)
    )
    return Page(
        "home",
        "Experiments",
        {
            "experiments": lines,
            "recent": run_lines(look, [run_id for (run_id,) in rows.fetchall()]),
            "days": DAYS,
            "waiting": open_suggestions(look.connection),
            "total_cost": booked(look.connection, "project", since),
        },
        area="home",
    )


def _line(look: Look, name: str, since: str) -> ExperimentLine:
    (last,) = run_lines(look, [last_of(look.connection, name)])
    values = recent_scores(look.connection, name)
    trend = None
    if len(values) > 1:
        title = f"Score of {name} in its last {len(values)} whole runs"
        trend = sparkline(Sparkline(title, tuple(values)))
    return ExperimentLine(
        name=name,
        objective=objective_of(last.run.snapshot, name),
        last=last,
        sums=last.sums or _newest_sums(look.connection, name),
        trend=trend,
        cost_microusd=booked(look.connection, f"experiment:{name}", since),
    )


def _newest_sums(connection: sqlite3.Connection, experiment: str) -> Sums | None:
    row = connection.execute(
        f"select id from run where experiment = ? and complete = 1 and {NO_TRIAL} "
        "order by created_at desc, rowid desc limit 1",
        (experiment,),
    ).fetchone()
    return None if row is None else sums_of_run(connection, row[0])


def recent_scores(connection: sqlite3.Connection, experiment: str) -> list[float | None]:
    """Return the scores of the last whole, complete runs, oldest first."""
    rows = connection.execute(
        "select s.composite from run r join rollup_run s on s.run_id = r.id and s.side = 'head' "
        f"where r.experiment = ? and r.complete = 1 and r.partial = 0 and {NO_TRIAL} "
        "order by r.created_at desc, r.rowid desc limit ?",
        (experiment, _IN_LINE),
    )
    return [score for (score,) in rows.fetchall()[::-1]]
