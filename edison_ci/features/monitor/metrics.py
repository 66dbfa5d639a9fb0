"""Metrics of a project in the text format of Prometheus.

Labels are bounded: of more models or experiments than `MOST_VALUES`, the others are left out or
added up as `(other)`.
"""

from __future__ import annotations

import datetime as dt
import shutil
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.execute.budgets import caps_of
from edison_ci.features.monitor.alert_rows import open_alerts
from edison_ci.numeric import significant
from edison_ci.results.live_progress import progress_of
from edison_ci.results.run_lists import experiments, last_of, runs_by_status
from edison_ci.results.scores import totals_of_run
from edison_ci.results.spending import WITHIN_MS, booked, run_cost
from edison_ci.sanitize import line
from edison_ci.store.duties import read_duties
from edison_ci.store.ledger import booked as booked_in
from edison_ci.store.runs import MADE_HERE, RESTING, find_run
from edison_ci.store.suggestions import open_suggestions
from edison_ci.web.databases import BOUNDS_S

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.web.databases import Traffic

MOST_VALUES = 100
"""Models and experiments that have their own labels."""
OTHER = "(other)"


class Metric(NamedTuple):
    """A metric, as dashboards and rules name it."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    about: str
    labels: tuple[str, ...] = ()


RUNS = Metric("edison_runs", "gauge", "Stored runs by status.", ("experiment", "status"))
SUGGESTIONS = Metric("edison_suggestions", "gauge", "Suggestions by status.", ("status",))
OPEN_SUGGESTIONS = Metric(
    "edison_open_suggestions", "gauge", "Suggestions that wait for a decision.", ("experiment",)
)
_NEWEST = ("experiment", "simulated")
SCORE = Metric("edison_last_run_score", "gauge", "Score of the newest run, 0 to 1.", _NEWEST)
PASS_RATE = Metric(
    "edison_last_run_pass_rate", "gauge", "Pass rate of the newest run, 0 to 1.", _NEWEST
)
ERRORS = Metric(
    "edison_last_run_errors", "gauge", "Cells of the newest run that ended in an error.", _NEWEST
)
COST = Metric(
    "edison_last_run_cost_usd", "gauge", "Cost of the newest run, including judges.", _NEWEST
)
STARTED = Metric(
    "edison_last_run_timestamp_seconds", "gauge", "Start time of the newest run.", _NEWEST
)
VERDICT = Metric(
    "edison_last_run_verdict", "gauge", "1 for the verdict of the newest run.",
    ("experiment", "verdict"),
)  # fmt: skip
TOTAL_COST = Metric("edison_cost_usd_total", "counter", "Total booked cost.")
CALLS = Metric("edison_calls_total", "counter", "Answered calls of ended runs.", ("model", "phase"))
CALL_ERRORS = Metric(
    "edison_call_errors_total", "counter",
    "Calls of ended runs without an answer: failed, or unknown whether charged.",
    ("model", "phase", "outcome"),
)  # fmt: skip
TOKENS = Metric(
    "edison_tokens_total", "counter", "Tokens of ended runs.", ("model", "phase", "direction")
)
DURATION = Metric(
    "edison_call_duration_seconds", "histogram", "Latency of answered calls of ended runs.",
    ("model", "phase"),
)  # fmt: skip
CACHE_HITS = Metric(
    "edison_cache_hits_total", "counter", "Answers that ended runs used and did not buy."
)
BUDGET = Metric(
    "edison_budget_left_usd", "gauge", "What a daily or monthly budget has left.",
    ("experiment", "budget"),
)  # fmt: skip
QUEUE = Metric(
    "edison_queue_cells", "gauge", "Cells of runs under way that are not done.", ("experiment",)
)
OLDEST = Metric(
    "edison_oldest_unfinished_run_seconds", "gauge",
    "Age of the oldest run that is under way; 0 if none is.",
)  # fmt: skip
ALERTS = Metric("edison_alerts_open", "gauge", "Open alerts.", ("experiment", "condition", "level"))
DUTY_DONE = Metric(
    "edison_duty_done_timestamp_seconds", "gauge", "When a duty was done last.", ("duty",)
)
DUTY_FAILURES = Metric(
    "edison_duty_failures", "gauge", "Failures of a duty since it was done last.", ("duty",)
)
RESULTS_BYTES = Metric("edison_results_bytes", "gauge", "Size of the results file.")
DISK_FREE = Metric("edison_disk_free_bytes", "gauge", "Free space on the disk of the results.")
REQUESTS = Metric(
    "edison_http_requests_total", "counter", "Requests to the pages.", ("page", "method", "status")
)
REQUEST_DURATION = Metric(
    "edison_http_request_duration_seconds", "histogram",
    "Time until the response to a request begins.", ("page",),
)  # fmt: skip
SIGN_INS = Metric("edison_sign_ins_total", "counter", "Attempts to sign in.", ("outcome",))
SESSIONS = Metric("edison_sessions", "gauge", "Sessions of people who are signed in.")

OF_PROJECT = (
    RUNS, SUGGESTIONS, OPEN_SUGGESTIONS, SCORE, PASS_RATE, ERRORS, COST, STARTED, VERDICT,
    TOTAL_COST, CALLS, CALL_ERRORS, TOKENS, DURATION, CACHE_HITS, BUDGET, QUEUE, OLDEST, ALERTS,
    DUTY_DONE, DUTY_FAILURES, RESULTS_BYTES, DISK_FREE,
)  # fmt: skip
"""Metrics of a results file and its project, in their order."""
OF_SERVER = (REQUESTS, REQUEST_DURATION, SIGN_INS, SESSIONS)
"""Metrics of `edison serve` alone."""


class Sample(NamedTuple):
    """A value of a metric."""

    metric: Metric
    value: float
    labels: Mapping[str, str]
    suffix: str = ""
    """Of a histogram: _bucket, _sum or _count."""


def histogram(
    metric: Metric, bounds_s: Sequence[float], counts: Sequence[int], total_s: float,
    labels: Mapping[str, str],
) -> Iterator[Sample]:  # fmt: skip
    """Yield the samples of a histogram; `counts` are cumulative, the last one is of all."""
    for bound, count in zip((*(f"{b:g}" for b in bounds_s), "+Inf"), counts, strict=True):
        yield Sample(metric, count, {**labels, "le": bound}, "_bucket")
    yield Sample(metric, total_s, labels, "_sum")
    yield Sample(metric, counts[-1], labels, "_count")


def render(metrics: Iterable[Metric], samples: Iterable[Sample]) -> str:
    """Return samples in the text format, those of a metric together."""
    lines_of: dict[str, list[str]] = {metric.name: [] for metric in metrics}
    about = {metric.name: metric for metric in metrics}
    for sample in samples:
        lines_of[sample.metric.name].append(_line(sample))
    lines = []
    for name, listed in lines_of.items():
        if listed:
            lines += [f"# HELP {name} {about[name].about}", f"# TYPE {name} {about[name].kind}"]
            lines += listed
    return "".join(f"{text}\n" for text in lines)


def _line(sample: Sample) -> str:
    escaped = (
        (key, line(text).replace("\\", "\\\\").replace('"', '\\"'))
        for key, text in sample.labels.items()
    )
    listed = ",".join(f'{key}="{text}"' for key, text in escaped)
    name = f"{sample.metric.name}{sample.suffix}"
    number = sample.value
    value = str(number) if isinstance(number, int) else significant(number, 10)
    return f"{name}{{{listed}}} {value}" if listed else f"{name} {value}"


@dataclass(frozen=True, slots=True)
class MetricSource:
    """What the metrics of a project are read from."""

    connection: sqlite3.Connection
    file: Path | None
    """The results file."""
    project: Project | None
    """None if its files are not there, or not valid: then there are no budgets."""
    now: dt.datetime


def project_samples(source: MetricSource) -> list[Sample]:
    """Return the metrics of a results file and its project."""
    return [
        *_runs(source),
        *_newest(source),
        *_calls(source),
        *_budgets(source),
        *_watching(source),
        *_disk(source),
    ]


def _runs(source: MetricSource) -> Iterator[Sample]:
    connection = source.connection
    named = set(experiments(connection)[:MOST_VALUES])
    for experiment, status, count in runs_by_status(connection):
        if experiment in named:
            yield Sample(RUNS, count, {"experiment": experiment, "status": status.lower()})
    for status, count in suggestions_by_status(connection).items():
        yield Sample(SUGGESTIONS, count, {"status": status})
    for experiment, count in sorted(open_suggestions(connection).items())[:MOST_VALUES]:
        yield Sample(OPEN_SUGGESTIONS, count, {"experiment": experiment})


def _newest(source: MetricSource) -> Iterator[Sample]:
    connection = source.connection
    for experiment in experiments(connection)[:MOST_VALUES]:
        run = find_run(connection, last_of(connection, experiment))
        sums = totals_of_run(connection, run.id)
        labels = {"experiment": experiment, "simulated": "true" if run.simulated else "false"}
        values = {
            SCORE: sums.composite.estimate if sums else None,
            PASS_RATE: sums.pass_rate.estimate if sums else None,
            ERRORS: sums.error if sums else None,
            COST: run_cost(connection, run.id) / 1e6,
            STARTED: _seconds(run.created_at),
        }
        for metric, value in values.items():
            if value is not None:
                yield Sample(metric, value, labels)
        yield Sample(VERDICT, 1, {"experiment": experiment, "verdict": run.verdict or "none"})


def _calls(source: MetricSource) -> Iterator[Sample]:
    yield Sample(TOTAL_COST, booked(source.connection, "project") / 1e6, {})
    yield Sample(CACHE_HITS, reused_total(source.connection), {})
    bounds = [ms / 1000 for ms in WITHIN_MS]
    for row in _bounded(calls_by_model(source.connection)):
        labels = {"model": row.model, "phase": row.phase}
        yield Sample(CALLS, row.calls, labels)
        yield Sample(CALL_ERRORS, row.failed, {**labels, "outcome": "failed"})
        yield Sample(CALL_ERRORS, row.unknown, {**labels, "outcome": "unknown"})
        yield Sample(TOKENS, row.tokens_in, {**labels, "direction": "in"})
        yield Sample(TOKENS, row.tokens_out, {**labels, "direction": "out"})
        counts = (*row.within, row.calls)
        yield from histogram(DURATION, bounds, counts, row.latency_ms / 1000, labels)


def _bounded(rows: list[ModelCalls]) -> list[ModelCalls]:
    """Return the rows, with those of rare models added up by phase."""
    named = list(dict.fromkeys(row.model for row in rows))[:MOST_VALUES]
    frequent = [row for row in rows if row.model in named]
    rest: dict[str, ModelCalls] = {}
    for row in rows:
        if row.model in named:
            continue
        other = rest.get(row.phase)
        if other is None:
            rest[row.phase] = row._replace(model=OTHER)
        else:
            sums = (a + b for a, b in zip(other[2:9], row[2:9], strict=True))
            within = tuple(a + b for a, b in zip(other.within, row.within, strict=True))
            rest[row.phase] = ModelCalls._make((OTHER, row.phase, *sums, within))
    return [*frequent, *rest.values()]


def _budgets(source: MetricSource) -> Iterator[Sample]:
    """Yield what is left of the budgets of a time; that of a run is full when a run begins."""
    project, today = source.project, source.now.date().isoformat()
    if project is None:
        return
    listed = list(project.experiments.values())[:MOST_VALUES]
    caps = {
        (cap.scope, cap.name): cap
        for experiment in (None, *listed)
        for cap in caps_of(project, experiment, "", None)
        if cap.days is not None and cap.microusd is not None
    }
    for cap in caps.values():
        kind, _, experiment = cap.scope.partition(":")
        left = (cap.microusd or 0) - booked_in(source.connection, cap, today)[0]
        labels = {"experiment": experiment if kind == "experiment" else "", "budget": cap.name}
        yield Sample(BUDGET, left / 1e6, labels)


def _watching(source: MetricSource) -> Iterator[Sample]:
    connection, now = source.connection, source.now.timestamp()
    queue: dict[str, int] = {}
    oldest = 0.0
    for run in unfinished_runs(connection):
        queue[run.experiment] = queue.get(run.experiment, 0) + run.waiting
        oldest = max(oldest, now - _seconds(run.created_at))
    for experiment, waiting in sorted(queue.items()):
        yield Sample(QUEUE, waiting, {"experiment": experiment})
    yield Sample(OLDEST, oldest, {})
    for alert in open_alerts(connection)[:MOST_VALUES]:
        level = {"condition": alert.condition, "level": alert.level}
        yield Sample(ALERTS, 1, {"experiment": alert.experiment, **level})
    for name, state in read_duties(connection).items():
        if state.done_at is not None:
            yield Sample(DUTY_DONE, _seconds(state.done_at), {"duty": name})
        yield Sample(DUTY_FAILURES, state.failures, {"duty": name})


def _disk(source: MetricSource) -> Iterator[Sample]:
    if source.file is not None:
        yield Sample(RESULTS_BYTES, source.file.stat().st_size, {})
        yield Sample(DISK_FREE, shutil.disk_usage(source.file.parent).free, {})


def _seconds(time: str) -> float:
    return dt.datetime.fromisoformat(time).timestamp()


def server_metrics(traffic: Traffic, sessions: int | None) -> str:
    """Return the metrics of the server; `sessions` is None without sign-in."""
    samples = [
        Sample(REQUESTS, count, {"page": page, "method": method, "status": str(status)})
        for (page, method, status), count in sorted(traffic.requests.items())
    ]
    for page, (counts, total) in sorted(traffic.times.items()):
        summed = list(accumulate(counts))
        samples += histogram(REQUEST_DURATION, BOUNDS_S, summed, total, {"page": page})
    if sessions is not None:
        samples.append(Sample(SESSIONS, sessions, {}))
        samples += [
            Sample(SIGN_INS, count, {"outcome": outcome})
            for outcome, count in traffic.sign_ins.items()
        ]
    return render(OF_SERVER, samples)


_MOST_RUNS = 50


class ModelCalls(NamedTuple):
    """The calls of a model in a phase, in runs that have ended."""

    model: str
    phase: str
    calls: int
    """Answered."""
    failed: int
    """Not charged."""
    unknown: int
    """Perhaps charged."""
    tokens_in: int
    tokens_out: int
    cost_microusd: int
    latency_ms: int
    """Of all answers together."""
    within: tuple[int, ...]
    """Answers that took at most each of `WITHIN_MS`."""


def calls_by_model(connection: sqlite3.Connection) -> list[ModelCalls]:
    """Return the calls of all ended runs, the model with most calls first; no recordings."""
    within = ", ".join(f"sum(within_{ms}_ms)" for ms in WITHIN_MS)
    rows = connection.execute(
        "select model, phase, sum(calls), sum(released), sum(unknown), sum(tokens_in), "
        f"sum(tokens_out), sum(cost_microusd), sum(latency_ms), {within} "
        f"from rollup_spending where phase <> 'replay' and {MADE_HERE} group by 1, 2 "
        "order by 3 desc, 1, 2"
    )
    return [ModelCalls._make((*row[:9], tuple(row[9:]))) for row in rows]


def reused_total(connection: sqlite3.Connection) -> int:
    """Return how many answers ended runs used that they did not buy."""
    row = connection.execute(
        f"select coalesce(sum(reused), 0) from rollup_calls where {MADE_HERE}"
    ).fetchone()
    return int(row[0])


class UnfinishedRun(NamedTuple):
    """A run that has not ended, whether or not its process is alive."""

    run_id: str
    experiment: str
    status: str
    created_at: str
    waiting: int
    """Cells that are not done."""


def unfinished_runs(connection: sqlite3.Connection) -> list[UnfinishedRun]:
    """Return the runs that are under way, oldest first, at most 50."""
    rows = connection.execute(
        f"select id from run where status not in ({', '.join('?' * len(RESTING))}) "
        "order by created_at, id limit ?",
        (*sorted(RESTING), _MOST_RUNS),
    )
    unfinished = []
    for (run_id,) in rows.fetchall():
        run = find_run(connection, run_id)
        progress = progress_of(connection, run)
        waiting = max(0, progress.total - progress.done)
        unfinished.append(
            UnfinishedRun(run.id, run.experiment, run.status, run.created_at, waiting)
        )
    return unfinished


def suggestions_by_status(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many suggestions have each status."""
    rows = connection.execute("select status, count(*) from suggestion group by 1 order by 1")
    return dict(rows.fetchall())
