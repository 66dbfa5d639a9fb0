"""Conditions of an experiment that its stored runs show: falls, errors, latency, changed models.

Three sources of noise share what an experiment is promised, `alerts.false_alarm_years` between
ALERTs without a cause and a quarter between WARNs: scores have a half of it, errors, latency and
the judge a sixth each. All of them use evidence in years (`stats.drift`), so the shares add up.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections import Counter
from dataclasses import field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level
from edison_ci.features.monitor.production_trend import newest_sample, production_trend
from edison_ci.numeric import counted, fixed, mean, milliseconds, percent, snap
from edison_ci.results.snapshot import differing_eval_suite
from edison_ci.results.trends import (
    alarm_rule,
    drift_of,
    increasing,
    points_of,
)
from edison_ci.stats import drift as stat_drift
from edison_ci.store.runs import NO_OUTPUTS, NO_TRIAL, find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.config.experiment import Alerts
    from edison_ci.results.trends import DriftFinding, TrendRun
    from edison_ci.stats.drift import DriftReport
    from edison_ci.store.runs import Run

_DAY_S = 86_400
OTHER_SHARE = 1 / 6
"""Share of the false alarms that each source but the scores may raise."""
_QUARTER = 0.25
_MOST_CALLED = 60
"""Newest runs whose calls are looked at; what is older no longer counts as evidence."""
_SERVED = 20
"""Newest runs among which a model that is served under another name is noticed."""
_SLOW_SHARE = 0.05
"""Share of answers that may exceed `latency_ms`: it limits the 95th percentile."""
_MOST_ANCHORS = 100
OF_EXPERIMENT = (
    Condition.DROP,
    Condition.SLOW_FALL,
    Condition.FORECAST,
    Condition.ERROR_RATE,
    Condition.LATENCY,
    Condition.MODEL_DRIFT,
    Condition.JUDGE_DRIFT,
    Condition.PRODUCTION,
)
"""The conditions that are looked for here."""


def warn_years(share: float) -> float:
    """Return the evidence for a WARN of a source with this share of the false alarms."""
    return _QUARTER / share


def findings_of(connection: sqlite3.Connection, experiment: str, alerts: Alerts) -> list[Finding]:
    """Return the conditions that the runs of an experiment show now."""
    points = points_of(connection, experiment)
    served = _served_models(connection, experiment)
    judge = _judge_drift(connection, experiment, alerts)
    findings = [*_falls(connection, points, alerts, _causes(served, judge)), *served]
    if judge.finding is not None:
        findings.append(judge.finding)
    findings += _production(connection, experiment, points)
    return [*findings, *_calls(connection, experiment, alerts)]


def _production(
    connection: sqlite3.Connection, experiment: str, points: Sequence[TrendRun]
) -> list[Finding]:
    """Return that samples of production fall; a WARN at most, as traffic varies for many reasons.

    The evidence has to reach what the other sources need, so WARNs stay as rare as promised.
    """
    if not newest_sample(connection, experiment):
        return []
    trend = production_trend(connection, experiment, drift_of(connection, points))
    if trend is None or trend.report is None or trend.alarm is stat_drift.Alarm.NONE:
        return []
    if trend.report.evidence.value < warn_years(OTHER_SHARE):
        return []
    run, drop = trend.points[-1].run, trend.report.drop
    detail = {"reference": drop.reference, "current": drop.current, "samples": trend.report.n}
    level = Level.WARN
    return [Finding(Condition.PRODUCTION, level, trend.sentence, experiment, run.id, detail)]


def _falls(
    connection: sqlite3.Connection, points: Sequence[TrendRun], alerts: Alerts, causes: str
) -> list[Finding]:
    """Return a drop or a slow fall, never both, and whether the floor is near."""
    floor, rule = alerts.predicted_below, alarm_rule(alerts)
    drift = drift_of(connection, points, threshold=floor, rule=rule)
    if drift is None or drift.report is None or drift.report.alarm is stat_drift.Alarm.NONE:
        return []
    report, run = drift.report, points[-1].run
    condition = Condition.SLOW_FALL if report.gradual else Condition.DROP
    level = Level.ALERT if report.alarm is stat_drift.Alarm.ALERT else Level.WARN
    mark = f" ({run.simulation})" if run.simulated else ""
    sentence = f"{drift.sentence}{mark}{causes}"
    detail = {
        "reference": report.drop.reference,
        "current": report.drop.current,
        "relative_drop": report.drop.value,
        "evidence_years": report.evidence.value,
        "runs": report.n,
        "points_per_week": None if report.trend.value is None else 700 * report.trend.value,
    }
    first = Finding(condition, level, sentence, run.experiment, run.id, detail)
    ahead = _forecast(drift, report, alerts, run)
    return [first] if ahead is None else [first, ahead]


def _forecast(drift: DriftFinding, report: DriftReport, alerts: Alerts, run: Run) -> Finding | None:
    """Return that the floor is predicted to be passed, or is; only for a fall that is shown.

    So a forecast is wrong no more often than the fall that it continues.
    """
    floor, current = alerts.predicted_below, report.drop.current
    if floor is None or current is None:
        return None
    at = f"{fixed(100 * floor, 1)} points"
    detail: dict[str, float | None] = {"floor": floor, "current": current}
    sure = report.evidence.value >= alarm_rule(alerts).alert_years
    level, ahead = Level.ALERT if sure else Level.WARN, drift.forecast
    if current < floor:
        sentence = f"Quality fell to {fixed(100 * current, 1)}, below {at}."
    elif ahead is None or ahead.value is None:
        return None
    else:
        low, high = ahead.interval or (None, None)
        detail |= {"day": ahead.value, "low": low, "high": high}
        span = "it may also level off"
        if low is not None and high is not None:
            span = f"95% interval {_date(low)} to {_date(high)}"
        sentence = f"At this pace quality falls below {at} around {_date(ahead.value)} ({span})."
    return Finding(Condition.FORECAST, level, sentence, run.experiment, run.id, detail)


def _day(stored: str) -> float:
    return dt.datetime.fromisoformat(stored).timestamp() / _DAY_S


def _date(day: float) -> str:
    return f"{dt.datetime.fromtimestamp(day * _DAY_S, dt.UTC):%Y-%m-%d}"


@dataclass(slots=True)
class _CalledRun:
    """The calls for answers that a run made itself, by case or cluster."""

    run_id: str
    day: float
    failed: list[float] = field(default_factory=list)
    """Share of each case or cluster."""
    slow: list[float] = field(default_factory=list)
    calls: int = 0
    answers: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    slow_answers: int = 0


def _calls(connection: sqlite3.Connection, experiment: str, alerts: Alerts) -> list[Finding]:
    """Return whether more calls fail, or are slower, than the limits allow.

    A run within a limit ends the evidence before it, so that mostly only the newest run is read.
    """
    rows = _called_runs(connection, experiment)
    if not rows or (alerts.latency_ms is None and _all_answered(connection, rows[-1][0])):
        return []
    newest = _called(connection, *rows[-1], alerts.latency_ms)
    looks = [(Condition.ERROR_RATE, alerts.error_rate), (Condition.LATENCY, _SLOW_SHARE)]
    above = [(what, limit) for what, limit in looks if _share(newest, what) > limit]
    if not above:
        return []
    runs = [_called(connection, *row, alerts.latency_ms) for row in rows]
    times = increasing([run.day for run in runs])
    findings = []
    for what, limit in above:
        years = stat_drift.evidence_of_rate(
            times, [_shares(run, what) for run in runs], limit=limit
        )[-1]
        if years >= warn_years(OTHER_SHARE):
            level = Level.ALERT if years >= alerts.false_alarm_years / OTHER_SHARE else Level.WARN
            sentence, detail = _sentence_on_calls(newest, what, alerts)
            detail["evidence_years"] = years
            findings.append(Finding(what, level, sentence, experiment, newest.run_id, detail))
    return findings


def _all_answered(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether a run is complete without a cell in error."""
    query = (
        "select r.status = 'COMPLETED' and not exists (select 1 from cell c "
        "where c.run_id = r.id and c.status = 'error') from run r where r.id = ?"
    )
    return bool(connection.execute(query, (run_id,)).fetchone()[0])


def _shares(run: _CalledRun, what: Condition) -> list[float]:
    return run.failed if what is Condition.ERROR_RATE else run.slow


def _share(run: _CalledRun, what: Condition) -> float:
    shares = _shares(run, what)
    return mean(shares) if shares else 0.0


def _sentence_on_calls(
    run: _CalledRun, what: Condition, alerts: Alerts
) -> tuple[str, dict[str, float | None]]:
    if what is Condition.ERROR_RATE:
        failed = run.errors.total()
        kinds = ", ".join(f"{count:,} {name}" for name, count in run.errors.most_common(3))
        sentence = (
            f"{failed:,} of {counted(run.calls, 'call')} failed in the newest run, "
            f"{percent(failed / run.calls)} (limit {percent(alerts.error_rate)}): {kinds}."
        )
        return sentence, {"failed": failed, "calls": run.calls, "limit": alerts.error_rate}
    sentence = (
        f"{percent(run.slow_answers / run.answers)} of {counted(run.answers, 'answer')} of the "
        f"newest run took longer than {milliseconds(alerts.latency_ms)} (at most "
        f"{percent(_SLOW_SHARE)} may)."
    )
    detail = {"slow": run.slow_answers, "answers": run.answers, "limit_ms": alerts.latency_ms}
    return sentence, dict(detail)


def _called_runs(connection: sqlite3.Connection, experiment: str) -> list[tuple[str, str]]:
    """Return the newest runs that ended, well or not, with their times, oldest first.

    A run with too many errors is not complete, and shows the errors all the same.
    """
    rows = connection.execute(
        "select id, created_at from run where experiment = ? and partial = 0 and shard is null "
        f"and status in ('COMPLETED', 'FAILED') and {NO_OUTPUTS} and {NO_TRIAL} "
        "and trigger not in ('import', 'replay', 'regrade') "
        "order by created_at desc, rowid desc limit ?",
        (experiment, _MOST_CALLED),
    )
    return rows.fetchall()[::-1]


_UNANSWERED = """
select coalesce(k.cluster, char(0) || k.case_id, t.request_hash), 1,
  substr(t.error, 1, instr(t.error || ':', ':') - 1), null
from attempt t join run r on r.id = t.run_id
left join cell k on k.request_hash = t.request_hash and k.run_id =
  (select n.id from run n where n.experiment = r.experiment and n.complete = 1
   and n.created_at < r.created_at order by n.created_at desc limit 1)
where t.run_id = ?1 and r.status = 'FAILED' and t.phase = 'generate'
  and t.error glob '[A-Z][A-Z]*'
  and t.model in (select m.key from json_each(r.models, '$.answers') m)
  and t.request_hash not in (select request_hash from cell where run_id = ?1)
group by t.request_hash
"""
"""Calls of a run that was given up before their cells were done: nothing could be reached.

The error of one that was not sent, or whose process died, does not begin with a kind of error.
Calls to fallback models are left out: the experiment is not about them.
Their cases and clusters are those of the complete run before, where it made the same calls.
"""


def _called(
    connection: sqlite3.Connection, run_id: str, created_at: str, limit_ms: int | None
) -> _CalledRun:
    called = _CalledRun(run_id, _day(created_at))
    # Answers of earlier runs are no observation of today's provider.
    rows = connection.execute(
        "select coalesce(c.cluster, char(0) || c.case_id), c.status = 'error', "
        "coalesce(c.error, ''), a.latency_ms from cell c left join answer a "
        "on a.request_hash = c.request_hash and a.answer_no = c.answer_no "
        "left join attempt t on t.id = a.attempt where c.run_id = ?1 and c.side = 'head' "
        "and (c.status = 'error' or t.run_id = ?1) order by 1",
        (run_id,),
    )
    # Both are in order, so that the calls of a large run need not be in memory together.
    unanswered = sorted(connection.execute(_UNANSWERED, (run_id,)), key=itemgetter(0))
    calls = heapq.merge(rows, unanswered, key=itemgetter(0))
    for _, cells in groupby(calls, key=itemgetter(0)):
        kept = list(cells)
        called.calls += len(kept)
        called.failed.append(mean([float(cell[1]) for cell in kept]))
        called.errors.update(cell[2] for cell in kept if cell[1])
        waits = [cell[3] for cell in kept if not cell[1] and cell[3] is not None]
        if limit_ms is not None and waits:
            late = sum(wait > limit_ms for wait in waits)
            called.slow.append(late / len(waits))
            called.slow_answers += late
            called.answers += len(waits)
    return called


def _served_models(connection: sqlite3.Connection, experiment: str) -> list[Finding]:
    """Return whether a provider answers under a name that the runs before did not see."""
    runs = _called_runs(connection, experiment)[-_SERVED:]
    if len(runs) < 2:
        return []
    seen = [(run_id, _names(connection, run_id)) for run_id, _ in runs]
    seen = [(run_id, names) for run_id, names in seen if names]
    if len(seen) < 2:
        return []
    newest, now = seen[-1]
    before = seen[: min(stat_drift.REFERENCE_RUNS, len(seen) - 1)]
    changed = {}
    for model, names in now.items():
        seen_names = set().union(*(names_then.get(model, set()) for _, names_then in before))
        if seen_names and names - seen_names:
            changed[model] = (sorted(seen_names), sorted(names - seen_names))
    if not changed:
        return []
    parts = [
        f"{model} is now served as {', '.join(new)}, was {', '.join(old)}"
        for model, (old, new) in sorted(changed.items())
    ]
    sentence = f"{'; '.join(parts)}. Scores before and after may differ."
    detail = {model: {"before": old, "now": new} for model, (old, new) in changed.items()}
    return [Finding(Condition.MODEL_DRIFT, Level.WARN, sentence, experiment, newest, detail)]


def _names(connection: sqlite3.Connection, run_id: str) -> dict[str, set[str]]:
    """Return the names under which each model answered in a run."""
    rows = connection.execute(
        "select distinct c.model, a.served_model from cell c join answer a "
        "on a.request_hash = c.request_hash and a.answer_no = c.answer_no "
        "join attempt t on t.id = a.attempt where c.run_id = ?1 and t.run_id = ?1 "
        "and c.side = 'head' and a.served_model <> ''",
        (run_id,),
    )
    served: dict[str, set[str]] = {}
    for model, name in rows:
        served.setdefault(model, set()).add(name)
    return served


@dataclass(frozen=True, slots=True)
class _JudgeDrift:
    """What the anchor answers say: frozen outputs that the judges graded again."""

    runs: int
    """How often they were graded, the first time included."""
    finding: Finding | None = None


def _judge_drift(connection: sqlite3.Connection, experiment: str, alerts: Alerts) -> _JudgeDrift:
    """Compare grades of the same answers over time: what moves there is the judge.

    The anchor is the run that `regrade --no-cache` graded again last. Its answers are frozen, and
    its checks give the same scores, so a rise or a fall is that of the judges.
    """
    series = _anchor_runs(connection, experiment)
    if len(series) <= stat_drift.REFERENCE_RUNS:
        return _JudgeDrift(len(series))
    newest = series[-1]
    scores = [_case_scores(connection, run.id) for run in series]
    times = increasing(
        [dt.datetime.fromisoformat(r.created_at).timestamp() / _DAY_S for r in series]
    )
    clusters = _clusters(connection, newest.id)
    # Either direction is a change, and has half of the judge's share.
    falls = stat_drift.evidence_path(times, scores, clusters=clusters)
    mirrored = [{case: 1 - score for case, score in run.items()} for run in scores]
    rises = stat_drift.evidence_path(times, mirrored, clusters=clusters)
    years = max(falls.years[-1], rises.years[-1])
    if years < 2 * warn_years(OTHER_SHARE):
        return _JudgeDrift(len(series))
    before = mean([mean([*run.values()]) for run in scores[: stat_drift.REFERENCE_RUNS]])
    now = mean([*scores[-1].values()])
    sentence = (
        f"The judges grade the {counted(len(scores[-1]), 'case')} of run {series[0].id} "
        f"{fixed(100 * now, 1)} on average, {fixed(100 * before, 1)} before, though the answers "
        "are the same: the judge changed."
    )
    sure = years >= 2 * alerts.false_alarm_years / OTHER_SHARE
    detail = {"before": before, "now": now, "evidence_years": years, "runs": len(series)}
    level = Level.ALERT if sure else Level.WARN
    finding = Finding(Condition.JUDGE_DRIFT, level, sentence, experiment, newest.id, detail)
    return _JudgeDrift(len(series), finding)


def _anchor_runs(connection: sqlite3.Connection, experiment: str) -> list[Run]:
    """Return an anchor run and the runs that graded its answers again, in order of time."""
    of = """json_extract(snapshot, '$."command line".regrade')"""
    rows = connection.execute(
        f"select id, {of} from run where experiment = ? and trigger = 'regrade' and complete = 1 "
        "and status = 'COMPLETED' and json_valid(snapshot) and not "
        """json_extract(snapshot, '$."command line".reuse') """
        "order by created_at desc, rowid desc limit ?",
        (experiment, _MOST_ANCHORS),
    ).fetchall()
    if not rows:
        return []
    anchor = rows[0][1]
    newest = find_run(connection, rows[0][0])
    runs = [find_run(connection, run_id) for run_id, of in reversed(rows) if of == anchor]
    anchor_row = connection.execute("select 1 from run where id = ?", (anchor,)).fetchone()
    if anchor_row is not None:
        runs.insert(0, find_run(connection, anchor))
    return [run for run in runs if not differing_eval_suite(run, newest)]


def _case_scores(connection: sqlite3.Connection, run_id: str) -> dict[str, float]:
    rows = connection.execute(
        "select case_id, composite from cell where run_id = ? and side = 'head' "
        "and composite is not null order by case_id",
        (run_id,),
    )
    return {
        case: snap(mean([cell[1] for cell in cells]))
        for case, cells in groupby(rows.fetchall(), key=itemgetter(0))
    }


def _clusters(connection: sqlite3.Connection, run_id: str) -> dict[str, str]:
    rows = connection.execute(
        "select distinct case_id, cluster from cell where run_id = ? and cluster is not null",
        (run_id,),
    )
    return dict(rows.fetchall())


def _causes(served: Sequence[Finding], judge: _JudgeDrift) -> str:
    """Return what may have caused a fall, as sentences with a space before."""
    sentences = "".join(f" {finding.sentence}" for finding in served)
    if judge.finding is not None:
        return f"{sentences} {judge.finding.sentence}"
    if judge.runs > stat_drift.REFERENCE_RUNS:
        sentences += " The judges grade anchor answers as before: the model changed, not the judge."
    return sentences
