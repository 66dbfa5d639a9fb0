"""The page of an experiment: latest scores, trends, models and runs."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import feature, utc
from edison_ci.decide.recommendation import advice_on, findings_of
from edison_ci.errors import UsageError
from edison_ci.report.charts.trend import Rule, Trend, TrendPoint, trend
from edison_ci.report.components import fluid_figure
from edison_ci.report.run_charts import score_series, trends_of
from edison_ci.results.live_progress import Trouble, troubles_of
from edison_ci.results.run_lists import count_of, experiments, ids_of, open_suggestions
from edison_ci.results.run_result import RunResult
from edison_ci.results.scores import totals_by_model
from edison_ci.results.snapshot import has_pairwise_judge, objective_of
from edison_ci.results.trends import TrendRun, alarm_rule, drift_of, floor_of, points_of
from edison_ci.spelling import did_you_mean
from edison_ci.web.cache import REFRESH_S
from edison_ci.web.page_context import (
    MOST_CELLS,
    Crumb,
    Page,
    PageContext,
    Paging,
    paged,
    requested_run,
    run_results,
)
from edison_ci.web.pages.run_tabs import judge_findings_of
from edison_ci.web.pages.steering import may_steer
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from edison_ci.decide.recommendation import Finding
    from edison_ci.results.pairwise import HeadToHead
    from edison_ci.results.trends import DriftFinding
    from edison_ci.store.runs import Run


RANGES = ("30", "7", "all")
"""Days that the charts of an experiment show; the first one if none is asked for."""
_IN_TREND = {"7": 60, "30": 60, "all": 80}
"""Most runs that the charts of each range show, the newest ones."""


class WinCard(NamedTuple):
    """The win rate of the newest complete run, by its pairwise judge."""

    match: HeadToHead
    run_id: str


def experiment(context: PageContext) -> Page:
    """Return an experiment: latest scores, trends of the last days, models and runs."""
    name = context.path["experiment"]
    if name not in experiments(context.connection):
        return _not_run(context, name)
    days = context.args.choice("days", RANGES)
    points = points_of(context.connection, name, most=_IN_TREND[days])
    paging = Paging.of(context.args, count_of(context.connection, name))
    listed = ids_of(context.connection, name, most=paging.per_page, offset=paging.offset)
    newest = requested_run(context, name)
    evidence = _evidence(context, name, points) if points else None
    small = bool(points) and points[-1].run.cells_planned <= MOST_CELLS
    return Page(
        "experiment",
        name,
        {
            **_latest(context, name, points, days),
            **_trends(context, points, days, evidence),
            "experiment": name,
            "may_start": may_steer(context),
            "objective": objective_of(newest),
            "newest": newest,
            "troubles": _troubles(context, newest),
            "runs": run_results(context, listed),
            "paging": paging,
            "loops": feature.ask("loops_of", context.connection, name, default=0),
            "waiting": open_suggestions(context.connection).get(name, 0),
            "alerts": feature.ask("alerts", context, name, default=()),
        },
        crumbs=(Crumb("Experiments", context.links.to()),),
        area="home",
        refresh_s=REFRESH_S if evidence is None and small else None,
    )


def _latest(
    context: PageContext, name: str, points: Sequence[TrendRun], days: str
) -> dict[str, Any]:
    """Return the values about the newest complete run."""
    last = points[-1] if points else None
    models = totals_by_model(context.connection, last.run.id) if last else []
    kept_days = days if days != RANGES[0] else ""
    return {
        "last": last,
        "before": points[-2] if len(points) > 1 else None,
        "labels": last.run.labels if last else {},
        "models": paged(context, models, "experiment", name, turn="models", days=kept_days),
        "win": _win_rate(context, last.run) if last else None,
        "screens": RunResult(context.connection, last.run).screens if last else (),
    }


def _trends(
    context: PageContext, points: Sequence[TrendRun], days: str, evidence: Evidence | None
) -> dict[str, Any]:
    """Return the values about the runs of the last days."""
    since = "" if days == "all" else _since(context, int(days))
    recent = [point for point in points if point.run.created_at >= since]
    return {
        "days": days,
        "ranges": sorted(RANGES, key=lambda range_: (range_ == "all", len(range_))),
        "charts": _charts(context, recent, evidence) if len(recent) > 1 else [],
        "evidence": evidence,
        "production": _production_chart(evidence),
        "shown": len(recent),
        "measured": len(points),
        "cut_off": len(recent) == _IN_TREND[days],
        "changes": [point for point in recent if point.changed and not point.only_prompts],
        "versions": [point for point in recent if point.only_prompts],
    }


def _since(context: PageContext, days: int) -> str:
    return utc.timestamp(context.now - dt.timedelta(days=days))


def _not_run(context: PageContext, name: str) -> Page:
    """Return what an experiment of the project would run; raises UsageError if there is none."""
    project = project_of(context)
    unrun = None if project is None else project.experiments.get(name)
    if unrun is None:
        requested_experiment(context)  # raises, with the names that are known
        raise AssertionError("the experiment has a run")
    return Page(
        "not_run",
        name,
        {"experiment": unrun, "may_start": may_steer(context)},
        crumbs=(Crumb("Experiments", context.links.to()),),
        area="home",
    )


def _troubles(context: PageContext, newest: Run) -> tuple[Trouble, ...]:
    return () if newest.moving else troubles_of(RunResult(context.connection, newest))


def _win_rate(context: PageContext, run: Run) -> WinCard | None:
    """Return how often the head, or the first model, wins; None without a pairwise judge."""
    if run.cells_planned > MOST_CELLS or not has_pairwise_judge(run):
        return None
    findings = judge_findings_of(context, run)
    matches = findings.matches if findings is not None else ()
    ordered = sorted(matches, key=lambda match: match.among_models)
    return WinCard(ordered[0], run.id) if ordered else None


def requested_experiment(context: PageContext) -> str:
    """Return the experiment of the address; raises UsageError if it has no run."""
    name, names = context.path["experiment"], experiments(context.connection)
    if name not in names:
        hint = did_you_mean(name, names, label="experiments")
        raise UsageError(f"the experiment {name!r} has no stored run", hint=hint)
    return name


class Evidence(NamedTuple):
    """What the runs of an experiment support."""

    drift: DriftFinding | None
    floor: float | None
    """The score that it is not to fall below."""
    findings: tuple[Finding, ...]
    production: Any


def _evidence(context: PageContext, name: str, points: Sequence[TrendRun]) -> Evidence | None:
    """Return what the runs support; None while it is computed, or for very large runs."""
    newest = points[-1].run
    cells = len(points) * newest.cells_planned
    if newest.cells_planned > MOST_CELLS:
        return None
    project = project_of(context)
    usable = project if project is not None and searchable(project, name) else None
    watched = usable.experiments.get(name) if usable is not None else None
    floor, rule = floor_of(watched), alarm_rule(watched.file.alerts if watched else None)
    out = () if usable is None else tuple(e for e in usable.quarantine if e.experiment == name)

    def work(own: PageContext) -> Evidence:
        drift = drift_of(own.connection, points, threshold=floor, rule=rule)
        findings = findings_of(advice_on(own.connection, usable, name), drift)
        sampled = feature.ask("production_trend", own.connection, name, drift)
        return Evidence(drift, floor, findings, sampled)

    sample = feature.ask("production_sample", context.connection, name)
    state = (newest.id, newest.finished_at, len(points), sample)
    return context.computed(work, "evidence", name, floor, rule, out, *state, cells=cells)


def _production_chart(evidence: Evidence | None) -> Markup | None:
    """Draw the samples of production; None with fewer than two."""
    points = () if evidence is None or evidence.production is None else evidence.production.points
    points = points[-_IN_TREND["all"] :]
    if len(points) < 2:
        return None
    title = "Score of samples of production, with 95% CI"
    return fluid_figure(trend, Trend(title, (score_series("production", points),)))


def _charts(
    context: PageContext, points: Sequence[TrendRun], evidence: Evidence | None
) -> list[Markup]:
    opened = feature.ask("alert_marks", context, points, default=())
    charts = [
        replace(chart, happenings=(*chart.happenings, *opened))
        for chart in trends_of(context.connection, points)
    ]
    if evidence is not None:
        ahead = _ahead(points, evidence.drift)
        rules = () if evidence.floor is None else (Rule("floor", evidence.floor),)
        charts[0] = replace(charts[0], rules=rules, ahead=ahead)
    return [fluid_figure(trend, chart) for chart in charts]


def _ahead(points: Sequence[TrendRun], drift: DriftFinding | None) -> tuple[TrendPoint, ...]:
    """Return the forecast on the axis of the chart, where the next runs would come."""
    path = drift.forecast.path if drift is not None and drift.forecast is not None else ()
    days = points[-1].day - points[0].day
    if not path or days <= 0:
        return ()
    runs_a_day, last = (len(points) - 1) / days, len(points) - 1
    return tuple(
        TrendPoint(
            at=last + max(0.0, place.time - points[-1].day) * runs_a_day,
            label=f"{dt.datetime.fromtimestamp(place.time * 86_400, dt.UTC):%Y-%m-%d}",
            value=place.value,
            low=place.low,
            high=place.high,
        )
        for place in path
    )
