"""edison trends: score, cost and latency over runs, and drift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.api.trends import experiment_trends
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, GOOD, MOST_BLOCKS, ODD, StyledText, Terminal, sparkline
from edison_ci.decide import recommendation
from edison_ci.numeric import counted, dollars, fixed, milliseconds, points, rate
from edison_ci.results import snapshot
from edison_ci.stats.drift import Alarm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.api.trends import ExperimentTrend
    from edison_ci.results.trends import DriftFinding, TrendRun

_SHOWN = 20
_COLORS = {Alarm.ALERT: BAD, Alarm.WARN: ODD, Alarm.NONE: GOOD}


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
    measured = experiment_trends(project, experiment, days=None if days == "all" else int(days))
    if terminal.json:
        documents = [trend.as_json() for trend in measured]
        terminal.document({"days": days, "experiments": documents})
        return
    if not measured:
        terminal.note("no complete run yet: edison run")
    for index, trend in enumerate(terminal.listed(measured, most=MOST_BLOCKS)):
        if index:
            terminal.result("")
        _show(terminal, trend, days)


def _show(terminal: Terminal, trend: ExperimentTrend, days: str) -> None:
    span = "" if days == "all" else f" in {days} days"
    about = f"  {counted(len(trend.points), 'whole run')}{span}"
    terminal.result(StyledText(trend.experiment, bold=True), about)
    if not trend.points:
        return
    newest = trend.points[-_SHOWN:]
    table: list[tuple[str, ...]] = [
        ("", "time", "score", "passed", "cost", "cost/answer", "latency", "prompt", "commit", "")
    ]
    table += [_row(point) for point in newest]
    terminal.table(table, right=(4, 5), drop=(8, 7))
    if len(trend.points) > len(newest):
        terminal.note(f"{len(trend.points) - len(newest):,} older runs are in the sparklines only")
    if len(trend.points) > 1:
        terminal.table(_lines(trend.points))
    if trend.drift is not None:
        _show_drift(terminal, trend.drift)
    if trend.production is not None:
        _show_production(terminal, trend.production)
    for finding in trend.findings:
        if finding.kind is not recommendation.FindingKind.DECLINE:  # said with the drift
            terminal.result(f"{finding.kind}: {finding.sentence}")


def _row(point: TrendRun) -> tuple[str, ...]:
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
        snapshot.prompt_labels(point.run),
        snapshot.source_of(point.run).words,
        "; ".join(marks),
    )


def _lines(series: Sequence[TrendRun]) -> list[tuple[str, ...]]:
    scores = [None if p.composite is None else 100 * p.composite.estimate for p in series]
    costs = [p.answer_cost_microusd for p in series]
    speeds = [None if p.p50_ms is None else float(p.p50_ms) for p in series]
    return [
        ("score", sparkline(scores), _ends(scores, lambda value: fixed(value, 1))),
        ("cost/answer", sparkline(costs), _ends(costs, dollars)),
        ("latency", sparkline(speeds), _ends(speeds, milliseconds)),
    ]


def _ends(values: Sequence[float | None], say: Any) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "-"
    low, high, last = say(min(numbers)), say(max(numbers)), say(numbers[-1])
    return f"{low} to {high}, now {last}"


def _show_drift(terminal: Terminal, drift: DriftFinding) -> None:
    if drift.report is None:
        terminal.result(drift.sentence)
        return
    alarm = drift.report.alarm
    color = _COLORS[alarm]
    word = "steady" if alarm is Alarm.NONE else alarm.upper()
    terminal.result(StyledText(word, color), f"  {drift.sentence}")


def _show_production(terminal: Terminal, production: Any) -> None:
    composites = [point.composite for point in production.points]
    scores = [None if score is None else 100 * score.estimate for score in composites]
    ends = _ends(scores, lambda value: fixed(value, 1))
    terminal.table([("production", sparkline(scores), ends)])
    alarm, sentence = production.alarm, production.sentence
    if alarm is Alarm.NONE:
        terminal.result(sentence)
    else:
        terminal.result(StyledText(alarm.upper(), _COLORS[alarm]), f"  {sentence}")
