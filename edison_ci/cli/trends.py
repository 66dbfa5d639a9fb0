"""edison trends: score, cost and latency over runs, and drift."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edison_ci import feature, utc
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, MOST_BLOCKS, ODD, StyledText, Terminal, sparkline
from edison_ci.decide import findings as decide_findings
from edison_ci.numeric import counted, dollars, fixed, milliseconds, points, rate
from edison_ci.results import scores as result_scores
from edison_ci.results import trends as result_trends
from edison_ci.stats.drift import Alarm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.decide.findings import Finding
    from edison_ci.stats.drift import Trend

_SHOWN = 20
_COLORS = {Alarm.ALERT: BAD, Alarm.WARN: ODD, Alarm.NONE: GOOD}


class _Trend(NamedTuple):
    experiment: str
    points: list[result_trends.TrendRun]
    drift: result_trends.DriftFinding | None
    findings: tuple[Finding, ...]
    production: Any


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option(
    "--days",
    type=click.Choice(["7", "30", "all"]),
    default="30",
    show_default=True,
    help="Number of days to include.",
)
@click.pass_obj
def trends(state: CliState, experiment: str | None, days: str) -> None:
    """Show score, cost and latency over runs.

    Uses complete runs of all cases; without EXPERIMENT it shows each experiment. A + marks a run in
    which only prompts changed. A * marks a run in which the eval suite or the models changed, so
    that scores before and after it cannot be compared. From the sixth run after such a change, the
    newest runs are tested against those before them. Without a real drop there is a WARN at most
    once a quarter on average, and an ALERT in at most 1 of 20 years, at any schedule. Runs that
    only reuse stored answers do not count. A run that an interim analysis stopped early is marked.

    Examples:
      edison trends
      edison trends support-reply --days 7
      edison trends --days all --json
    """
    terminal = Terminal(state)
    project = lookup.open_readable_project(state, terminal)
    first = "" if days == "all" else utc.timestamp(utc.now() - dt.timedelta(days=int(days)))
    found = []
    with lookup.results_of(project) as connection:
        for name in lookup.measured_names(connection, project, experiment):
            series = result_trends.with_comparability(
                connection, result_trends.points_of(connection, name)
            )
            known = project.experiments.get(name)
            floor, rule = (
                result_trends.floor_of(known),
                result_trends.alarm_rule(known.file.alerts if known else None),
            )
            drift = result_trends.drift_of(connection, series, threshold=floor, rule=rule)
            recent = [point for point in series if point.run.created_at >= first]
            advice = decide_findings.advice_on(connection, project, name)
            samples = feature.ask("production_trend", connection, name, drift)
            found.append(
                _Trend(name, recent, drift, decide_findings.findings_of(advice, drift), samples)
            )
    if terminal.json:
        terminal.document({"days": days, "experiments": [_document(trend) for trend in found]})
        return
    if not found:
        terminal.note("no complete run yet: edison run")
    for index, trend in enumerate(terminal.listed(found, most=MOST_BLOCKS)):
        if index:
            terminal.result("")
        _show(terminal, trend, days)


def _show(terminal: Terminal, trend: _Trend, days: str) -> None:
    span = "" if days == "all" else f" in {days} days"
    about = f"  {counted(len(trend.points), 'whole run')}{span}"
    terminal.result(StyledText(trend.experiment, bold=True), about)
    if not trend.points:
        return
    shown = trend.points[-_SHOWN:]
    table: list[tuple[str, ...]] = [
        ("", "time", "score", "passed", "cost", "cost/answer", "latency", "")
    ]
    table += [_row(point) for point in shown]
    terminal.table(table, right=(4, 5))
    if len(trend.points) > len(shown):
        terminal.note(f"{len(trend.points) - len(shown):,} older runs are in the sparklines only")
    if len(trend.points) > 1:
        terminal.table(_lines(trend.points))
    if trend.drift is not None:
        _show_drift(terminal, trend.drift)
    if trend.production is not None:
        _show_production(terminal, trend.production)
    for finding in trend.findings:
        if finding.kind is not decide_findings.FindingKind.DECLINE:  # said with the drift
            terminal.result(f"{finding.kind}: {finding.sentence}")


def _row(point: result_trends.TrendRun) -> tuple[str, ...]:
    marks = [point.run.simulation] if point.run.simulated else []
    if point.stopped is not None:
        marks.append(point.stopped.sentence)
    if point.changed:
        more = f" and {len(point.changed) - 2} more" if len(point.changed) > 2 else ""
        word = "new version" if point.comparable else "changed"
        marks.append(f"{word}: {', '.join(point.changed[:2])}{more}")
    return (
        ("+" if point.comparable else "*") if point.changed else "",
        point.run.created_at[:16].replace("T", " "),
        points(point.composite),
        rate(point.pass_rate),
        dollars(point.cost_microusd),
        dollars(point.answer_cost_microusd),
        milliseconds(point.p50_ms, point.p95_ms),
        "; ".join(marks),
    )


def _lines(series: Sequence[result_trends.TrendRun]) -> list[tuple[str, ...]]:
    scores = [None if p.composite is None else 100 * p.composite.estimate for p in series]
    costs = [p.answer_cost_microusd for p in series]
    speeds = [None if p.p50_ms is None else float(p.p50_ms) for p in series]
    return [
        ("score", sparkline(scores), _ends(scores, lambda value: fixed(value, 1))),
        ("cost/answer", sparkline(costs), _ends(costs, dollars)),
        ("latency", sparkline(speeds), _ends(speeds, milliseconds)),
    ]


def _ends(values: Sequence[float | None], say: Any) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high, last = say(min(known)), say(max(known)), say(known[-1])
    return f"{low} to {high}, now {last}"


def _show_drift(terminal: Terminal, drift: result_trends.DriftFinding) -> None:
    if drift.report is None:
        terminal.result(drift.sentence)
        return
    alarm = drift.report.alarm
    color = _COLORS[alarm]
    word = "steady" if alarm is Alarm.NONE else alarm.upper()
    terminal.result(StyledText(word, color), f"  {drift.sentence}")


def _show_production(terminal: Terminal, found: Any) -> None:
    scores = [None if p.composite is None else 100 * p.composite.estimate for p in found.points]
    ends = _ends(scores, lambda value: fixed(value, 1))
    terminal.table([("production", sparkline(scores), ends)])
    if found.alarm is Alarm.NONE:
        terminal.result(found.sentence)
    else:
        terminal.result(
            StyledText(found.alarm.upper(), _COLORS[found.alarm]), f"  {found.sentence}"
        )


def _document(trend: _Trend) -> dict[str, Any]:
    return {
        "experiment": trend.experiment,
        "runs": [
            {
                "run_id": point.run.id,
                "time": point.run.created_at,
                "simulated": point.run.simulated,
                "composite": result_scores.interval_json(point.composite),
                "pass_rate": result_scores.interval_json(point.pass_rate),
                "cost_microusd": point.cost_microusd,
                "answer_cost_microusd": point.answer_cost_microusd,
                "latency_ms": {"p50": point.p50_ms, "p95": point.p95_ms},
                "changed": list(point.changed),
                "comparable": point.comparable,
                "stopped_early": None if point.stopped is None else asdict(point.stopped),
            }
            for point in trend.points
        ],
        "drift": None if trend.drift is None else _drift(trend.drift),
        "findings": [finding._asdict() for finding in trend.findings],
        "production": None if trend.production is None else _samples(trend.production),
    }


def _samples(found: Any) -> dict[str, Any]:
    report = found.report
    return {
        "samples": [
            {
                "run_id": point.run.id,
                "time": point.run.created_at,
                "composite": result_scores.interval_json(point.composite),
            }
            for point in found.points
        ],
        "samples_since_change": found.since_change,
        "alarm": None if report is None else report.alarm.value,
        "relative_drop": report and report.drop.value,
        "false_alarm_years": report and report.evidence.value,
        "sentence": found.sentence,
        "traffic": [asdict(shift) for shift in found.shifts],
    }


def _drift(drift: result_trends.DriftFinding) -> dict[str, Any]:
    report, ahead = drift.report, drift.forecast
    return {
        "runs_since_change": drift.runs,
        "runs_reused": drift.reused,
        "alarm": None if report is None else report.alarm.value,
        "sentence": drift.sentence,
        "reference": report and report.drop.reference,
        "current": report and report.drop.current,
        "current_runs": report and report.drop.runs,
        "relative_drop": report and report.drop.value,
        "false_alarm_years": report and report.evidence.value,
        "method": report and report.evidence.method,
        "trend": None if report is None else _line(report.trend),
        "forecast": None if ahead is None else {"day": ahead.value, "reason": ahead.reason},
    }


def _line(trend: Trend) -> dict[str, Any]:
    return {
        "slope_per_day": trend.value,
        "intercept": trend.intercept,
        "p": trend.p,
        "n": trend.n,
        "method": trend.method,
    }
