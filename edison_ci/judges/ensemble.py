"""Several judges combined into one.

STATS.md sections 2 and 3, in this order: scores are normalised to 0-1, judges become one score per
criterion, criteria become the composite. What is missing is left out and shown, never taken for a
zero, and the pass is decided here, from numbers, never by a judge.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.marks import shortened
from edison_ci.rounding import fixed, mean, reaches, weighted_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.config.rubric import Criterion, RubricFile
    from edison_ci.judges.pointwise import Opinion

Combine = Literal["mean", "median", "trimmed"]

MIN_COVERAGE = 0.5
TRIM = 0.2
_MAX_REASON = 1_000


class Spread(NamedTuple):
    """How far judges are apart, on 0-1."""

    range: float
    sd: float
    """Sample standard deviation."""


@dataclass(frozen=True, slots=True)
class Dispute:
    """From where on judges disagree."""

    range: float = 0.5
    sd: float = 0.25

    def between(self, spread: Spread | None) -> bool:
        """Return whether judges are so far apart; one judge never is."""
        if spread is None:
            return False
        return reaches(spread.range, self.range) or reaches(spread.sd, self.sd)


@dataclass(frozen=True, slots=True)
class CriterionGrade:
    """What all judges together say on one criterion."""

    name: str
    score: float | None
    """0-1; None if no judge scored it."""
    weight: float
    """Share of the rubric."""
    passed: bool | None
    """Whether it reaches its `min`; None if nobody knows."""
    reason: str
    by_judge: Mapping[str, float]
    spread: Spread | None = None
    """None with fewer than two judges."""
    disputed: bool = False


@dataclass(frozen=True, slots=True)
class RubricGrade:
    """What a rubric comes to for one answer."""

    composite: float | None
    passed: bool | None
    coverage: float
    """Share of the weights that was scored."""
    criteria: tuple[CriterionGrade, ...]
    flags: tuple[str, ...] = ()
    reason: str = ""
    """Why there is no composite."""

    @property
    def disputed(self) -> bool:
        """Whether the judges disagree on a criterion."""
        return any(criterion.disputed for criterion in self.criteria)


def combined(scores: Sequence[float], how: Combine) -> float | None:
    """Return one score for the scores of several judges; None if there is none."""
    if not scores:
        return None
    if how == "median":
        return statistics.median(scores)
    kept = sorted(scores)
    if how == "trimmed":
        dropped = int(TRIM * len(kept))
        kept = kept[dropped : len(kept) - dropped]
    return mean(kept)


def spread_of(scores: Sequence[float]) -> Spread | None:
    """Return how far the scores are apart; None if there are fewer than two."""
    if len(scores) < 2:
        return None
    return Spread(max(scores) - min(scores), statistics.stdev(scores))


def grade(
    rubric: RubricFile,
    opinions: Sequence[Opinion],
    combine: Combine = "mean",
    dispute: Dispute | None = None,
) -> RubricGrade:
    """Return the grade that a rubric and the opinions of its judges come to."""
    weights, dispute = rubric.weights(), dispute or Dispute()
    criteria = tuple(
        _criterion(criterion, weights[criterion.name], opinions, combine, dispute)
        for criterion in rubric.criteria
    )
    said = {flag for o in opinions if o.verdict is not None for flag in o.verdict.flags}
    coverage, composite = _composite(criteria)
    reason = _why_missing(rubric, criteria, coverage)
    if reason:
        return RubricGrade(None, None, coverage, criteria, tuple(sorted(said)), reason)
    passed = _passed(rubric, criteria)
    return RubricGrade(composite, passed, coverage, criteria, tuple(sorted(said)))


def _criterion(
    criterion: Criterion,
    weight: float,
    opinions: Sequence[Opinion],
    combine: Combine,
    dispute: Dispute,
) -> CriterionGrade:
    by_judge: dict[str, float] = {}
    reasons: list[tuple[str, str]] = []
    for opinion in opinions:
        found = opinion.verdict.scores.get(criterion.name) if opinion.verdict else None
        if found is not None:
            by_judge[opinion.judge] = found.share
            reasons.append((opinion.judge, found.reason))
        elif failure := opinion.missing(criterion.name):
            reasons.append((opinion.judge, f"{failure.kind}: {failure.reason}"))
    scores = list(by_judge.values())
    score, spread = combined(scores, combine), spread_of(scores)
    return CriterionGrade(
        name=criterion.name,
        score=score,
        weight=weight,
        passed=_reaches_min(criterion, score),
        reason=_joined(reasons, alone=len(opinions) == 1),
        by_judge=by_judge,
        spread=spread,
        disputed=dispute.between(spread),
    )


def _reaches_min(criterion: Criterion, score: float | None) -> bool | None:
    if criterion.min is None:
        return True
    return None if score is None else reaches(score, criterion.min)


def _joined(reasons: Iterable[tuple[str, str]], *, alone: bool) -> str:
    parts = [text if alone else f"{judge}: {text}" for judge, text in reasons if text]
    return shortened("; ".join(parts), _MAX_REASON)


def _composite(criteria: Sequence[CriterionGrade]) -> tuple[float, float | None]:
    scored = [(c.weight, c.score) for c in criteria if c.score is not None]
    return math.fsum(weight for weight, _ in scored), weighted_mean(scored)


def _why_missing(rubric: RubricFile, criteria: Sequence[CriterionGrade], coverage: float) -> str:
    """Return why there is no composite, or ''."""
    lost = [grade for grade in criteria if grade.score is None]
    required = {criterion.name for criterion in rubric.criteria if criterion.required}
    for criterion in lost:
        if criterion.name in required:
            return f"required criterion {criterion.name} has no score: {criterion.reason}"
    if not reaches(coverage, MIN_COVERAGE):
        why = lost[0].reason if lost else "no criteria"
        return f"only {fixed(100 * coverage)}% of the rubric was scored: {why}"
    return ""


def _passed(rubric: RubricFile, criteria: Sequence[CriterionGrade]) -> bool | None:
    """Return the pass. A missing score decides only if it could not change anything.

    Otherwise a judge that fails on the hardest criterion would turn a failing answer into a pass.
    """
    if any(criterion.passed is False for criterion in criteria):
        return False
    scored = math.fsum(c.weight * c.score for c in criteria if c.score is not None)
    unknown = math.fsum(c.weight for c in criteria if c.score is None)
    if rubric.pass_at is not None:
        if not reaches(scored + unknown, rubric.pass_at):
            return False
        if not reaches(scored, rubric.pass_at):
            return None if unknown else False
    return None if any(criterion.passed is None for criterion in criteria) else True
