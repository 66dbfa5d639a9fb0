"""Findings: what the runs of an experiment support, in sentences.

A finding is stated only where its test holds: a decline by the evidence that drift needs, a saving
by the rule of non-inferiority. Costs are facts. Nothing is found where nothing is sure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.decide.recommendation import advise
from edison_ci.numeric import dollars, fixed
from edison_ci.results.current_prices import CurrentPrices
from edison_ci.results.leaderboard import measurements_of
from edison_ci.results.samples import CaseFilter, case_filter_of
from edison_ci.stats.drift import Alarm
from edison_ci.stats.sentences import value_sentence

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from edison_ci.config.load import Project
    from edison_ci.decide.recommendation import RecommendationResult
    from edison_ci.results.trends import DriftFinding

_ANSWERS = 1_000
_FEWEST_CASES = 10


class FindingKind(StrEnum):
    """What a finding is about."""

    DECLINE = "decline"
    SAVING = "saving"
    COST = "cost per point"


class Finding(NamedTuple):
    """One sentence, and what it is about."""

    kind: FindingKind
    sentence: str


def advice_on(
    connection: sqlite3.Connection, project: Project | None, experiment: str
) -> RecommendationResult | None:
    """Return which model to use in an experiment; None without a complete run.

    Without the files of the project no case is left out, and costs are those that were paid.
    """
    if project is None or experiment not in project.experiments:
        case_filter, prices = CaseFilter(), None
    else:
        case_filter = case_filter_of(project, experiment, connection)
        prices = CurrentPrices(project)
    measured = measurements_of(connection, experiment, case_filter, prices)
    return None if measured is None else advise(experiment, measured, case_filter)


def findings_of(
    advice: RecommendationResult | None, drift: DriftFinding | None
) -> tuple[Finding, ...]:
    """Return what the runs support, the most urgent first."""
    return tuple(_found(advice, drift))


def _found(advice: RecommendationResult | None, drift: DriftFinding | None) -> Iterator[Finding]:
    if drift is not None and drift.report is not None and drift.report.alarm is not Alarm.NONE:
        yield Finding(FindingKind.DECLINE, drift.sentence)
    if advice is None or advice.recommendation is None or advice.cases < _FEWEST_CASES:
        return
    if (saved := saved_microusd(advice)) is not None:
        said = value_sentence(advice.recommendation, margin=advice.margin)
        said += f" It saves {dollars(_ANSWERS * saved)} in {_ANSWERS:,} answers."
        yield Finding(FindingKind.SAVING, said)
    if costs := _costs_per_point(advice):
        yield Finding(FindingKind.COST, costs)


def saved_microusd(advice: RecommendationResult) -> float | None:
    """Return what the cheaper model that is as good saves in an answer; None without one."""
    found = advice.recommendation
    if found is None or found.value == found.best:
        return None
    best, value = (advice.rows[name].cost_microusd or 0.0 for name in (found.best, found.value))
    return best - value if best > value else None


def _costs_per_point(advice: RecommendationResult) -> str:
    """Say what a point of score costs with each model; '' if nothing costs anything."""
    assert advice.recommendation is not None
    parts = []
    for model in advice.recommendation.models:
        cost = advice.rows[model.name].cost_microusd
        if cost and model.value > 0:
            score = 100 * model.value
            each = dollars(_ANSWERS * cost / score)
            parts.append(f"{model.name} {each} ({fixed(score, 1)} points)")
    if not parts:
        return ""
    return f"A point of score in {_ANSWERS:,} answers costs: {', '.join(parts)}."
