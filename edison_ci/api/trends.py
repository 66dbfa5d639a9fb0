"""Trends: score, cost and latency of experiments over their runs, with drift and findings."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import feature, utc
from edison_ci.api.rankings import measured_names
from edison_ci.decide import recommendation
from edison_ci.documents.record_json import Document, as_document, fields_of
from edison_ci.results import scores, snapshot, stored_runs
from edison_ci.results import trends as result_trends

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.decide.recommendation import Finding
    from edison_ci.results.trends import DriftFinding, TrendRun


class ExperimentTrend(NamedTuple):
    """The complete runs of an experiment since a time, and what they show."""

    experiment: str
    points: list[TrendRun]
    drift: DriftFinding | None
    findings: tuple[Finding, ...]
    production: Any
    """Samples of production, from a feature; None without any."""

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        production = self.production
        return {
            "experiment": self.experiment,
            "runs": [_run_json(point) for point in self.points],
            "drift": None if self.drift is None else _drift_json(self.drift),
            "findings": as_document(self.findings),
            "production": None if production is None else _samples_json(production),
        }


def experiment_trends(
    project: Project, experiment: str | None, *, days: int | None
) -> list[ExperimentTrend]:
    """Return the trend of an experiment, or of all, in some days; None for all times."""
    first = "" if days is None else utc.timestamp(utc.now() - dt.timedelta(days=days))
    trends = []
    with stored_runs.open_runs(project) as runs:
        reader = runs.connection
        for name in measured_names(reader, project, experiment):
            points = result_trends.points_of(reader, name)
            series = result_trends.with_comparability(reader, points)
            configured = project.experiments.get(name)
            rule = result_trends.alarm_rule(configured.file.alerts if configured else None)
            floor = result_trends.floor_of(configured)
            drift = result_trends.drift_of(reader, series, threshold=floor, rule=rule)
            advice = recommendation.advice_on(reader, project, name)
            trends.append(
                ExperimentTrend(
                    name,
                    [point for point in series if point.run.created_at >= first],
                    drift,
                    recommendation.findings_of(advice, drift),
                    feature.ask("production_trend", reader, name, drift),
                )
            )
    return trends


def _run_json(point: TrendRun) -> Document:
    return {
        **fields_of(point.run, "simulated", run_id="id", time="created_at", prompts="labels"),
        "source": snapshot.source_of(point.run)._asdict(),
        "composite": scores.interval_json(point.composite),
        "pass_rate": scores.interval_json(point.pass_rate),
        **fields_of(point, "cost_microusd", "answer_cost_microusd", "changed", "comparable"),
        "latency_ms": {"p50": point.p50_ms, "p95": point.p95_ms},
        "stopped_early": as_document(point.stopped),
    }


def _samples_json(production: Any) -> Document:
    report = production.report
    samples = [
        {
            **fields_of(point.run, run_id="id", time="created_at"),
            "composite": scores.interval_json(point.composite),
        }
        for point in production.points
    ]
    return {
        "samples": samples,
        "samples_since_change": production.since_change,
        "alarm": None if report is None else report.alarm.value,
        "relative_drop": report and report.drop.value,
        "false_alarm_years": report and report.evidence.value,
        "sentence": production.sentence,
        "traffic": as_document(production.shifts),
    }


def _drift_json(drift: DriftFinding) -> Document:
    report, ahead = drift.report, drift.forecast
    drop, evidence = (None, None) if report is None else (report.drop, report.evidence)
    return {
        "runs_since_change": drift.runs,
        "runs_reused": drift.reused,
        "alarm": None if report is None else report.alarm.value,
        "sentence": drift.sentence,
        "reference": drop and drop.reference,
        "current": drop and drop.current,
        "current_runs": drop and drop.runs,
        "relative_drop": drop and drop.value,
        "false_alarm_years": evidence and evidence.value,
        "method": evidence and evidence.method,
        "trend": report
        and fields_of(report.trend, "intercept", "p", "n", "method", slope_per_day="value"),
        "forecast": ahead and fields_of(ahead, "reason", day="value"),
    }
