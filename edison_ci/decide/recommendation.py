"""Recommendation of a model, and other findings that the runs of an experiment support.

Best value is the cheapest model that is non-inferior to the best one by the gate's rule (STATS 18).
Models for which the cases are too few to decide are reported as such. A finding is stated only
where its test holds: a decline by the evidence that drift needs, a saving by the rule of
non-inferiority. Costs are facts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.numeric import NOISE, counted, dollars, exceeds, fixed, reaches
from edison_ci.records import Side
from edison_ci.results.leaderboard import (
    CaseFilter,
    Contrast,
    Scores,
    case_filter_of,
    contrast_of,
    measurements_of,
    same_content,
)
from edison_ci.results.spending import CurrentPrices
from edison_ci.stats.drift import Alarm
from edison_ci.stats.power import cases_for_margin
from edison_ci.stats.sentences import signed, value_sentence
from edison_ci.stats.value import Contender, Recommendation, recommend
from edison_ci.stats.verdicts import GateRule
from edison_ci.store.runs import common_simulation

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edison_ci.config.load import Project
    from edison_ci.results.leaderboard import LeaderboardRow, Measurements
    from edison_ci.results.trends import DriftFinding


FEW = 10
"""Number of cases below which there is a warning (STATS 19)."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements that a model must meet to be recommended."""

    min_score: float | None = None
    max_cost_microusd: float | None = None
    """Per answer."""
    max_latency_ms: float | None = None
    """Median."""


@dataclass(frozen=True, slots=True)
class RejectedModel:
    """Why a cheaper or faster model is not recommended."""

    name: str
    contrast: Contrast
    """Its score minus that of the best, on the common cases."""
    worse: bool
    """Whether it is significantly worse; otherwise the cases are too few to decide."""
    n_needed: int | None
    """Cases that would likely show non-inferiority, if it is as good."""


@dataclass(frozen=True, slots=True)
class RecommendationResult:
    """The recommendation for an experiment, with its reasons."""

    experiment: str
    rows: Mapping[str, LeaderboardRow]
    """Models that were compared, by name."""
    cases: int
    """Cases that all of them have in common."""
    recommendation: Recommendation | None
    """None with fewer than two cases, or if no model meets the requirements."""
    fastest: str | None
    doubts: tuple[RejectedModel, ...]
    refused: tuple[tuple[str, str], ...]
    """Models that do not meet the requirements, or that have too few cases, with the reason."""
    margin: float
    simulation: str
    """Which parts of the runs are simulated, as a label; empty if none is."""


def advise(
    experiment: str,
    measured: Measurements,
    case_filter: CaseFilter,
    requirements: Requirements | None = None,
) -> RecommendationResult:
    """Recommend a model, by the newest version of each prompt on the cases that all have."""
    rule, requirements = GateRule(), requirements or Requirements()
    rows = _newest(measured)
    refused: list[tuple[str, str]] = []
    _refuse(rows, refused, lambda row: _unmet(row, requirements))
    most = max((len(row.scores.cases) for row in rows.values()), default=0)
    _refuse(rows, refused, lambda row: _short(row, most))
    cases = _common(list(rows.values()))
    recommendation = None
    doubts: tuple[RejectedModel, ...] = ()
    if len(cases) >= 2:
        contenders = [_contender(name, row, cases) for name, row in rows.items()]
        recommendation = recommend(contenders, rule, clusters=case_filter.clusters_of(cases))
        doubts = tuple(_doubts(recommendation, rows, case_filter, rule))
    timed = [(row.p50_ms, name) for name, row in rows.items() if row.p50_ms is not None]
    return RecommendationResult(
        experiment=experiment,
        rows=rows,
        cases=len(cases),
        recommendation=recommendation,
        fastest=min(timed)[1] if timed else None,
        doubts=doubts,
        refused=tuple(refused),
        margin=rule.margin,
        simulation=common_simulation(row.place.run for row in rows.values()),
    )


def _newest(measured: Measurements) -> dict[str, LeaderboardRow]:
    """Return the rows of the version of each prompt that was measured last, by name."""
    versions: dict[str, str] = {}
    order = sorted(
        measured.rows,
        key=lambda row: (row.place.side == Side.HEAD, row.place.run.created_at),
        reverse=True,
    )
    for row in order:
        versions.setdefault(row.place.prompt, row.place.version)
    chosen = [row for row in order if versions[row.place.prompt] == row.place.version]
    several = len(versions) > 1
    named = {
        f"{row.place.prompt} with {row.place.model}" if several else row.place.model: row
        for row in chosen
        if row.composite is not None
    }
    return dict(sorted(named.items()))


def _refuse(
    rows: dict[str, LeaderboardRow],
    refused: list[tuple[str, str]],
    reason: Callable[[LeaderboardRow], str],
) -> None:
    for name in list(rows):
        if why := reason(rows[name]):
            refused.append((name, why))
            del rows[name]


def _unmet(row: LeaderboardRow, requirements: Requirements) -> str:
    """Return which requirements a row does not meet; '' if it meets all."""
    score = 0.0 if row.composite is None else row.composite.estimate
    reasons = []
    if requirements.min_score is not None and not reaches(score, requirements.min_score):
        reasons.append(f"its score is {fixed(100 * score, 1)}")
    cost = row.cost_microusd
    if requirements.max_cost_microusd is not None and (
        cost is None or exceeds(cost, requirements.max_cost_microusd)
    ):
        value = "unknown" if cost is None else f"${fixed(cost / 1e6, 6)}"
        reasons.append(f"an answer costs {value}")
    late = row.p50_ms
    if requirements.max_latency_ms is not None and (
        late is None or late > requirements.max_latency_ms
    ):
        value = "unknown" if late is None else f"{fixed(late, grouped=True)} ms"
        reasons.append(f"its median latency is {value}")
    return ", ".join(reasons)


def _short(row: LeaderboardRow, most: int) -> str:
    n = len(row.scores.cases)
    return f"it has {n:,} of {most:,} cases" if 2 * n < most else ""


def _common(rows: Sequence[LeaderboardRow]) -> list[str]:
    """Return the cases that every row has, with the same content."""
    if not rows:
        return []
    first, *others = rows
    contents_by_row = [dict(zip(row.scores.cases, row.contents, strict=True)) for row in others]
    return [
        case
        for case, content in zip(first.scores.cases, first.contents, strict=True)
        if all(
            case in contents and same_content(content, contents[case])
            for contents in contents_by_row
        )
    ]


def _contender(name: str, row: LeaderboardRow, cases: Sequence[str]) -> Contender:
    scores = dict(zip(row.scores.cases, row.scores.values, strict=True))
    return Contender(
        name, [scores[case] for case in cases], row.cost_microusd or 0.0, row.latencies
    )


def _doubts(
    recommendation: Recommendation,
    rows: Mapping[str, LeaderboardRow],
    case_filter: CaseFilter,
    rule: GateRule,
) -> list[RejectedModel]:
    """Return the cheaper or faster models that are not shown to be as good as the best."""
    best = next(model for model in recommendation.models if model.name == recommendation.best)
    rejected = []
    for model in recommendation.models:
        cheaper = model.cost < best.cost
        faster = (model.latency_median or 0.0) < (best.latency_median or 0.0)
        if model.as_good or not (cheaper or faster):
            continue
        contrast = contrast_of(Scores.of(rows[best.name]), Scores.of(rows[model.name]), case_filter)
        if contrast is None:
            continue
        others = max(1, len(recommendation.models) - 1)
        worse = contrast.p * others <= rule.alpha and contrast.difference < -NOISE
        needed = None
        if not worse and contrast.sd is not None:
            needed = cases_for_margin(
                contrast.sd, margin=rule.margin, alpha=rule.alpha / others
            ).value
        rejected.append(RejectedModel(model.name, contrast, worse, needed))
    return rejected


_ANSWERS = 1_000
_FEWEST_CASES = 10


class FindingKind(StrEnum):
    """What a finding is about."""

    DECLINE = "decline"
    SAVING = "saving"
    POSSIBLE_SAVING = "possible saving"
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
        sentence = value_sentence(advice.recommendation, margin=advice.margin)
        sentence += f" It saves {dollars(_ANSWERS * saved)} in {_ANSWERS:,} answers."
        yield Finding(FindingKind.SAVING, sentence)
    possible = [doubt for doubt in advice.doubts if would_save_microusd(advice, doubt)]
    if possible:
        most = max(possible, key=lambda doubt: would_save_microusd(advice, doubt) or 0.0)
        yield Finding(FindingKind.POSSIBLE_SAVING, doubt_sentence(advice, most))
    if costs := _costs_per_point(advice):
        yield Finding(FindingKind.COST, costs)


def saved_microusd(advice: RecommendationResult) -> float | None:
    """Return what the cheaper model that is as good saves in an answer; None without one."""
    recommendation = advice.recommendation
    if recommendation is None or recommendation.value == recommendation.best:
        return None
    best, value = (
        advice.rows[name].cost_microusd or 0.0
        for name in (recommendation.best, recommendation.value)
    )
    return best - value if best > value else None


def would_save_microusd(advice: RecommendationResult, doubt: RejectedModel) -> float | None:
    """Return what an answer of a model would save if it is as good; None if nothing, or worse."""
    if doubt.worse or advice.recommendation is None:
        return None
    costs = (advice.rows[name].cost_microusd for name in (advice.recommendation.value, doubt.name))
    used, instead = (cost or 0.0 for cost in costs)
    return used - instead if used > instead else None


def doubt_sentence(advice: RecommendationResult, doubt: RejectedModel) -> str:
    """Return why a model is not recommended, and what it would save if it is as good."""
    assert advice.recommendation is not None
    contrast, best = doubt.contrast, advice.recommendation.best
    change = f"{signed(contrast.difference)} points"
    if contrast.interval is not None:
        low, high = contrast.interval
        change += f" (likely {signed(low)} to {signed(high)})"
    if doubt.worse:
        return f"{doubt.name} is shown to be worse than {best}: {change}."
    sentence = f"Not enough cases to tell whether {doubt.name} is as good as {best}: {change}"
    sentence += f" on {counted(contrast.n, 'case')}."
    saved = would_save_microusd(advice, doubt)
    if saved is not None:
        money = f"{dollars(_ANSWERS * saved)} in {_ANSWERS:,} answers"
        sentence += f" If it is, it would save {money}."
    if doubt.n_needed is not None:
        condition = "About" if saved is not None else "If it is, about"
        sentence += (
            f" {condition} {doubt.n_needed:,} cases would show that it is within "
            f"{100 * advice.margin:g} points."
        )
    return sentence


def _costs_per_point(advice: RecommendationResult) -> str:
    """Return a sentence on the cost of a point of score with each model; '' if all is free."""
    assert advice.recommendation is not None
    parts = []
    for model in advice.recommendation.models:
        cost = advice.rows[model.name].cost_microusd
        if cost and model.value > 0:
            score = 100 * model.value
            price = dollars(_ANSWERS * cost / score)
            parts.append(f"{model.name} {price} ({fixed(score, 1)} points)")
    if not parts:
        return ""
    return f"A point of score in {_ANSWERS:,} answers costs: {', '.join(parts)}."
