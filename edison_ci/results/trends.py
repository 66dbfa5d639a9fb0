"""Trends: the scores of an experiment from run to run, drift alarms, and models over experiments.

Only whole, complete runs count. When the variant or its grading changes, a new series starts; drift
is searched within a series. Changes of prices or gates start none. Scores before and after a new
version of a prompt are comparable.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from enum import StrEnum
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from edison_ci._dataclass import dataclass
from edison_ci.numeric import mean, mean_or_none, snap
from edison_ci.results.scores import totals_by_model, totals_of_run
from edison_ci.results.snapshot import complete_runs, snapshot_of
from edison_ci.results.spending import run_cost
from edison_ci.stats import drift, sentences

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.config.experiment import Alerts
    from edison_ci.config.load import Experiment
    from edison_ci.results.scores import Totals
    from edison_ci.stats.drift import DriftReport, Forecast
    from edison_ci.stats.scores import Interval
    from edison_ci.store.runs import Run


MOST_RUNS = 500
_DAY_S = 86_400
_NO_CHANGE = ("gates", "max_errors", "stop", "refine", "split")
"""Keys of an experiment that change neither answers nor grades."""
_CASES, _PRICE = "the cases", "the price of "


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """How far a run came that a planned look ended: what it measured was clear already."""

    kind: str
    """cases or repeats: what the looks were taken after more and more of."""
    at: int
    most: int

    @property
    def sentence(self) -> str:
        """Say it in a few words."""
        return f"stopped early: {self.at:,} of {self.most:,} {self.kind}"


class ChangeKind(StrEnum):
    """What changed between two runs."""

    PROMPT = "prompt"
    DATA = "data"
    MODEL = "model"
    SUITE = "eval suite"


@dataclass(frozen=True, slots=True)
class TrendRun:
    """The numbers of one run, over all prompts and models."""

    run: Run
    composite: Interval | None
    pass_rate: Interval | None
    cost_microusd: int
    """All that the run has booked, judges included."""
    answer_cost_microusd: float | None
    """Mean cost of an answer, reused ones included."""
    p50_ms: int | None
    p95_ms: int | None
    changed: tuple[str, ...]
    """What is other than in the run before; empty if nothing that matters."""
    comparable: bool = True
    """Whether its score compares with the run before: if anything changed, then prompts only."""
    only_prompts: bool = False
    """Whether of all that is written down only prompts changed; the cases may have, too."""
    stopped: EarlyStop | None = None
    """None for a run that measured all it might have."""

    @property
    def changes(self) -> dict[ChangeKind, list[str]]:
        """What changed, by its kind."""
        changes: dict[ChangeKind, list[str]] = {}
        if not self.changed:
            return changes
        prompts, models = _prompts(self.run), _models(self.run)
        for place in self.changed:
            if place in prompts:
                kind = ChangeKind.PROMPT
            elif place == _CASES:
                kind = ChangeKind.DATA
            else:
                kind = ChangeKind.MODEL if place in models else ChangeKind.SUITE
            changes.setdefault(kind, []).append(place)
        return changes

    @property
    def changes_besides_cases(self) -> bool:
        """Whether anything but the cases changed."""
        return bool(self.changes.keys() - {ChangeKind.DATA})

    @property
    def day(self) -> float:
        """When it was, in days."""
        return dt.datetime.fromisoformat(self.run.created_at).timestamp() / _DAY_S


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """What the runs since the last change say about the newest one."""

    runs: int
    """Since the last change, with their own answers."""
    reused: int
    """Runs since then that only reused stored answers; they add nothing."""
    report: DriftReport | None
    """None with too few runs."""
    forecast: Forecast | None
    sentence: str


def points_of(
    connection: sqlite3.Connection, experiment: str, *, most: int = MOST_RUNS
) -> list[TrendRun]:
    """Return the newest whole, complete runs of an experiment that count, oldest first."""
    runs = complete_runs(connection, experiment, most, strangers=False)
    return points_of_runs(connection, [run for run in runs if not run.partial])


def points_of_runs(connection: sqlite3.Connection, runs: Sequence[Run]) -> list[TrendRun]:
    """Return the numbers of runs, newest first, as points in the order of time."""
    points: list[TrendRun] = []
    before: Run | None = None
    for run in reversed(runs):
        changed = () if before is None else _changes(before, run)
        if (point := _point(connection, run, changed)) is not None:
            only = before is not None and set(changed) <= _prompts(before) & _prompts(run)
            points.append(replace(point, only_prompts=only) if changed else point)
            before = run
    return points


@dataclass(frozen=True, slots=True)
class ModelTrend:
    """A prompt with a model from run to run; None where a run did not have it."""

    prompt: str
    model: str
    totals: tuple[Totals | None, ...]


def model_trends(connection: sqlite3.Connection, points: Sequence[TrendRun]) -> list[ModelTrend]:
    """Return the totals of each prompt with each model in these runs, the newest names first."""
    by_run = [
        {(row.prompt, row.model): row for row in totals_by_model(connection, point.run.id)}
        for point in points
    ]
    names = dict.fromkeys(name for rows in reversed(by_run) for name in rows)
    return [ModelTrend(*name, tuple(rows.get(name) for rows in by_run)) for name in names]


def with_comparability(
    connection: sqlite3.Connection, points: Sequence[TrendRun]
) -> list[TrendRun]:
    """Return points marked as comparable with the one before or not; reads their cells."""
    marked = list(points[:1])
    for before, now in pairwise(points):
        # A trend is there to show this: only prompts changed, on the same cases.
        same = not now.changed or (now.only_prompts and _same_cases(connection, before, now))
        marked.append(replace(now, comparable=same))
    return marked


def _point(connection: sqlite3.Connection, run: Run, changed: tuple[str, ...]) -> TrendRun | None:
    totals = totals_of_run(connection, run.id)
    if totals is None:
        return None
    return TrendRun(
        run=run,
        composite=totals.composite.as_interval(),
        pass_rate=totals.pass_rate.as_interval(),
        cost_microusd=run_cost(connection, run.id),
        answer_cost_microusd=totals.answer_cost_microusd,
        p50_ms=totals.p50_ms,
        p95_ms=totals.p95_ms,
        changed=changed,
        stopped=_stopped(connection, run.id),
    )


def _stopped(connection: sqlite3.Connection, run_id: str) -> EarlyStop | None:
    """Return the last interim analysis of a run, if it ended the run early."""
    row = connection.execute(
        "select json_extract(detail, '$.interim.kind'), json_extract(detail, '$.interim.at') as "
        "at, json_extract(detail, '$.interim.most') from decision where run_id = ? "
        "and json_valid(detail) and at is not null order by round desc, at desc limit 1",
        (run_id,),
    ).fetchone()
    if row is None or not row[1] < row[2]:
        return None
    return EarlyStop(*row)


def _changes(before: Run, now: Run) -> tuple[str, ...]:
    """Return the places in which two runs differ, as far as it matters."""
    if before.plan_hash == now.plan_hash:
        return ()
    old, new = (_basis(run) for run in (before, now))
    places = tuple(sorted(place for place in {**old, **new} if old.get(place) != new.get(place)))
    if places:
        return places
    # Everything that was written down is the same, so what differs is the data.
    return (_CASES,) if _snapshot(before) == _snapshot(now) else ()


def _same_cases(connection: sqlite3.Connection, before: TrendRun, now: TrendRun) -> bool:
    return _case_contents(connection, before.run.id) == _case_contents(connection, now.run.id)


def _prompts(run: Run) -> set[str]:
    """Return the paths of the prompts of a run."""
    parts = [part for part in _snapshot(run).values() if _is_experiment(part)]
    return {path for part in parts for path in part.get("prompts", ())}


def _models(run: Run) -> set[str]:
    """Return the places of the models of a run."""
    places = _snapshot(run)
    names = [place.removeprefix(_PRICE) for place in places if place.startswith(_PRICE)]
    return {place for place in places for name in names if place.endswith(f": {name}")}


def _case_contents(connection: sqlite3.Connection, run_id: str) -> set[tuple[str, str | None]]:
    rows = connection.execute(
        "select distinct case_id, case_hash from cell where run_id = ? and side = 'head'", (run_id,)
    )
    return set(rows.fetchall())


def _snapshot(run: Run) -> dict[str, Any]:
    return {place: part for place, part in snapshot_of(run).items() if place != "command line"}


def _basis(run: Run) -> dict[str, Any]:
    basis = {}
    for place, part in _snapshot(run).items():
        if place.startswith((_PRICE, "base: ")):
            continue
        if _is_experiment(part):
            basis[place] = {key: value for key, value in part.items() if key not in _NO_CHANGE}
        else:
            basis[place] = part
    return basis


def _is_experiment(part: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(part, dict) and {"objective", "checks", "gates"} <= part.keys()


def drift_of(
    connection: sqlite3.Connection,
    points: Sequence[TrendRun],
    *,
    threshold: float | None = None,
    rule: drift.AlarmRule | None = None,
) -> DriftFinding | None:
    """Say whether the runs since the last change show a fall (STATS 17).

    A run that only reuses answers of runs before it is no new observation, and is left out.
    """
    series = since_change([point for point in points if point.composite is not None])
    if not series:
        return None
    seen = _observations(connection, series)
    reused = len(series) - len(seen.points)
    note = f" {_counted_runs(reused)} reused stored answers, which adds nothing." if reused else ""
    if len(seen.points) <= drift.REFERENCE_RUNS:
        need = f"it takes {drift.REFERENCE_RUNS + 1} to detect drift"
        sentence = f"{_counted_runs(len(seen.points))} since the last change; {need}.{note}"
        return DriftFinding(len(seen.points), reused, None, None, sentence)
    times = days_of(seen.points)
    means = [point.composite.estimate for point in seen.points if point.composite is not None]
    report = drift.watch(times, seen.scores, clusters=seen.clusters, rule=rule)
    ahead = None if threshold is None else drift.forecast(times, means, threshold=threshold)
    sentence = sentences.drift_sentence(report, ahead, when=_date, threshold=threshold)
    return DriftFinding(len(seen.points), reused, report, ahead, f"{sentence}{note}")


def floor_of(experiment: Experiment | None) -> float | None:
    """Return the score that an experiment is not to fall below: of its alerts, or of a gate."""
    if experiment is None:
        return None
    if experiment.file.alerts.predicted_below is not None:
        return experiment.file.alerts.predicted_below
    floors = [gate.at_least for gate in experiment.file.gates if gate.metric == "composite"]
    return next((floor for floor in floors if floor is not None), None)


def alarm_rule(alerts: Alerts | None) -> drift.AlarmRule:
    """Return when to speak of a fall, as the alerts of an experiment have it."""
    if alerts is None:
        return drift.AlarmRule()
    return drift.AlarmRule(alerts.drop, alerts.false_alarm_years)


def _counted_runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"


def since_change(points: Sequence[TrendRun]) -> list[TrendRun]:
    """Return the points from the last one on that something changed at."""
    starts = [index for index, point in enumerate(points) if point.changed]
    return list(points[starts[-1] if starts else 0 :])


class _Observations(NamedTuple):
    """Runs with their own answers, and the scores of the cases that have new ones."""

    points: list[TrendRun]
    scores: list[dict[str, float]]
    clusters: dict[str, str]


def _observations(connection: sqlite3.Connection, series: Sequence[TrendRun]) -> _Observations:
    """Return what is observed; without the scores where there are too few runs to judge.

    Of a single run at most one answer is read.
    """
    observed, scored = _Observations([], [], {}), len(series) > drift.REFERENCE_RUNS
    names: dict[str, str] = {}
    earlier_answers: set[int] = set()
    for point in series:
        rows = connection.execute(
            "select case_id, cluster, composite, request_hash, answer_no from cell "
            "where run_id = ? and side = 'head' and status in ('ok', 'malformed') "
            "and composite is not null order by case_id",
            (point.run.id,),
        )
        scores: dict[str, float] = {}
        used: set[int] = set()
        fresh = False
        for case, cells in groupby(rows, key=itemgetter(0)):
            kept = list(cells)
            answers = {hash(cell[3:]) for cell in kept}
            new = not answers <= earlier_answers
            fresh = fresh or new
            if new and scored:
                scores[names.setdefault(case, case)] = snap(mean([cell[2] for cell in kept]))
            if (cluster := kept[0][1]) is not None:
                observed.clusters[case] = cluster
            if point is not series[-1]:
                used |= answers
            elif fresh and not scored:
                break
        earlier_answers |= used
        if fresh:
            observed.points.append(point)
            observed.scores.append(scores)
    return observed


def days_of(points: Sequence[TrendRun]) -> list[float]:
    """Return the times of runs, no two the same, as a series needs them."""
    return increasing([point.day for point in points])


def increasing(times: Sequence[float]) -> list[float]:
    """Return times of which no two are the same."""
    distinct: list[float] = []
    for time in times:
        distinct.append(time if not distinct or time > distinct[-1] else distinct[-1] + 1e-6)
    return distinct


def _date(day: float) -> str:
    return f"{dt.datetime.fromtimestamp(day * _DAY_S, dt.UTC):%Y-%m-%d}"


@dataclass(frozen=True, slots=True)
class ModelOverview:
    """A model in the newest complete run of each experiment; None where it was not measured."""

    model: str
    totals: tuple[Totals | None, ...]
    """Of its best prompt, in the order of the experiments."""
    score: float | None
    """Mean of its scores, each experiment weighted alike; None unless all have one."""
    pass_rate: float | None
    cost_microusd: float | None
    """Mean cost of an answer, over the experiments that it was measured in."""
    p50_ms: float | None

    @property
    def measured(self) -> int:
        """Number of experiments that it was measured in."""
        return sum(totals is not None for totals in self.totals)


@dataclass(frozen=True, slots=True)
class Overview:
    """Models by experiments, those that were measured in most first, then the best."""

    runs: tuple[Run, ...]
    """The newest complete run of each experiment."""
    models: tuple[ModelOverview, ...]

    @property
    def simulations(self) -> tuple[str, ...]:
        """Which parts of the runs are simulated, as labels, each once."""
        return tuple(dict.fromkeys(run.simulation for run in self.runs if run.simulated))


def overview_of(connection: sqlite3.Connection, experiments: Sequence[str]) -> Overview:
    """Return the models of the newest complete runs of experiments, side by side."""
    runs = [run for name in experiments for run in complete_runs(connection, name, 1)]
    best: list[dict[str, Totals]] = []
    for run in runs:
        best_totals: dict[str, Totals] = {}
        for row in totals_by_model(connection, run.id):
            other = best_totals.get(row.model)
            if other is None or _score(row) > _score(other):
                best_totals[row.model] = row
        best.append(best_totals)
    names = dict.fromkeys(name for best_totals in best for name in best_totals)
    models = [
        _overview(name, tuple(best_totals.get(name) for best_totals in best)) for name in names
    ]
    models.sort(key=lambda model: (-model.measured, -snap(model.score or 0.0), model.model))
    return Overview(tuple(runs), tuple(models))


def _score(row: Totals) -> float:
    return -1.0 if row.composite.estimate is None else row.composite.estimate


def _overview(model: str, totals: tuple[Totals | None, ...]) -> ModelOverview:
    measured = [one_total for one_total in totals if one_total is not None]
    scores = [one_total.composite.estimate for one_total in totals if one_total is not None]
    rates = [one_total.pass_rate.estimate for one_total in totals if one_total is not None]
    everywhere = len(measured) == len(totals)
    return ModelOverview(
        model,
        totals,
        mean_or_none(_whole(scores)) if everywhere else None,
        mean_or_none(_whole(rates)) if everywhere else None,
        mean_or_none(
            [c for one_total in measured if (c := one_total.answer_cost_microusd) is not None]
        ),
        mean_or_none(
            [float(one_total.p50_ms) for one_total in measured if one_total.p50_ms is not None]
        ),
    )


def _whole(values: Sequence[float | None]) -> list[float]:
    """Return values of which none is missing, else none of them."""
    present = [value for value in values if value is not None]
    return present if len(present) == len(values) else []
