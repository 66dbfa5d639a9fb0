"""Samples of production over time: changes of the traffic apart from those of the model.

Samples have other cases each time, so a sample counts by its mean. Where the dataset is steady and
production falls, users ask for something else; where both fall, the model or the prompt answers
worse.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import percent, score
from edison_ci.results.snapshot import outputs_of, production_runs
from edison_ci.results.trends import days_of, points_of_runs
from edison_ci.stats import drift, permutation, sentences

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from edison_ci.results.trends import DriftFinding, TrendRun
    from edison_ci.stats.drift import DriftReport
    from edison_ci.stats.permutation import MixShift

MOST_SAMPLES = 200
_SURE = 0.001
"""p-value at which a change of the mix is reported; it is looked at with every sample."""
_KINDS = ("length", "language")


@dataclass(frozen=True, slots=True)
class ProductionTrend:
    """The samples of production of an experiment."""

    points: tuple[TrendRun, ...]
    since_change: int
    """Samples since a prompt, a model or the grading changed."""
    report: DriftReport | None
    """None with too few samples."""
    shifts: tuple[MixShift, ...]
    """Changes of the traffic that are more than chance."""
    sentence: str

    @property
    def alarm(self) -> drift.Alarm:
        """How loudly to speak of a fall in production."""
        return drift.Alarm.NONE if self.report is None else self.report.alarm


def last_sample(connection: sqlite3.Connection, experiment: str) -> tuple[str, frozenset[str]]:
    """Return up to when answers were sampled, and the cases of all samples."""
    until = ""
    for run in production_runs(connection, experiment, 1):
        until = str((outputs_of(run) or {}).get("until", ""))
    rows = connection.execute(
        "select distinct c.case_id from run_case c join run r on r.id = c.run_id "
        "where r.experiment = ? and r.trigger = 'production'",
        (experiment,),
    )
    return until, frozenset(case for (case,) in rows)


def newest_sample(connection: sqlite3.Connection, experiment: str) -> str:
    """Return the id of the newest sample; empty without one."""
    return next((run.id for run in production_runs(connection, experiment, 1)), "")


def production_trend(
    connection: sqlite3.Connection, experiment: str, golden: DriftFinding | None
) -> ProductionTrend | None:
    """Return what the samples of production show beside the dataset; None without a sample."""
    points = points_of_runs(connection, production_runs(connection, experiment, MOST_SAMPLES))
    if not points:
        return None
    starts = [n for n, point in enumerate(points) if point.changes_besides_cases]
    series = [point for point in points[starts[-1] if starts else 0 :] if point.composite]
    if len(series) <= drift.REFERENCE_RUNS:
        count = f"{len(series):,} sample{'' if len(series) == 1 else 's'}"
        need = f"it takes {drift.REFERENCE_RUNS + 1} to detect drift"
        sentence = f"{count} of production since the last change; {need}."
        return ProductionTrend(tuple(points), len(series), None, (), sentence)
    means = [point.composite.estimate for point in series if point.composite is not None]
    report = drift.watch_means(days_of(series), means)
    newest = series[-report.drop.runs :]
    shifts = tuple(_shifts(connection, series[: drift.REFERENCE_RUNS], newest))
    sentence = f"{_level(report)} {_told_apart(golden, report, shifts)}".strip()
    return ProductionTrend(tuple(points), len(series), report, shifts, sentence)


def _level(report: DriftReport) -> str:
    """Describe how the newest samples score against the first ones."""
    drop = report.drop
    if drop.current is None or drop.reference is None:
        return "Production has nothing to compare with."
    over = "" if drop.runs == 1 else f" over the last {drop.runs:,} samples"
    level = f"Production scores {score(drop.current)}{over}, was {score(drop.reference)}"
    if report.alarm is drift.Alarm.NONE:
        return f"{level}: no fall that {report.n:,} samples are sure of."
    return f"{level}. {_RARITY[report.alarm]}"


_RARITY = {
    "warn": "Without a change, seen at most once a quarter on average.",
    "alert": "Without a change, seen at most once in 20 years on average.",
}
"""Sentences by the value of an alarm."""


def _shifts(
    connection: sqlite3.Connection, before: Sequence[TrendRun], now: Sequence[TrendRun]
) -> Iterable[MixShift]:
    old, new = _mixes(connection, before), _mixes(connection, now)
    for kind in _KINDS:
        shift = permutation.mix_shift(old[kind], new[kind])
        if shift is not None and shift.p <= _SURE:
            yield shift


def _mixes(connection: sqlite3.Connection, points: Iterable[TrendRun]) -> dict[str, Counter[str]]:
    """Return how many questions have each length and language."""
    mixes: dict[str, Counter[str]] = {kind: Counter() for kind in _KINDS}
    for point in points:
        query = "select tags from run_case where run_id = ?"
        for (tags,) in connection.execute(query, (point.run.id,)):
            for tag in json.loads(tags):
                kind, _, value = str(tag).partition(":")
                if kind in mixes and value:
                    mixes[kind][f"{kind} {value}"] += 1
    return mixes


def _told_apart(
    golden: DriftFinding | None, report: DriftReport, shifts: Sequence[MixShift]
) -> str:
    """Return a sentence on whether the traffic or the model changed."""
    dataset = golden.report if golden is not None else None
    falls = dataset is not None and dataset.alarm is not drift.Alarm.NONE
    parts = []
    if report.alarm is not drift.Alarm.NONE:
        if dataset is None:
            parts.append("The dataset has too few runs to distinguish the traffic from the model.")
        elif falls:
            parts.append("The dataset falls too: the model or the prompt answers worse.")
        else:
            parts.append("The dataset is steady: the traffic changed, not the model.")
    elif falls and report.drop.points < drift.SMALL:
        parts.append("Production holds: what falls in the dataset is rare in the traffic.")
    for shift in shifts:
        parts.append(
            f"Of the questions, {shift.category} went from {percent(shift.before)} to "
            f"{percent(shift.now)} ({sentences.p_words(shift.p)} for any change of the mix)."
        )
    if report.alarm is not drift.Alarm.NONE and not shifts:
        parts.append("Lengths and languages of the questions are as before.")
    return " ".join(parts)
