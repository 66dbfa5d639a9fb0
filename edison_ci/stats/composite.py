"""The composite of an answer over several criteria.

Reduce in this order: normalise each criterion, put the judges together (`panel`), weigh the
criteria, average the repeats. What is left is one number a case and side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import reaches
from edison_ci.stats.arrays import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIN_COVERAGE = 0.5
"""Share of the weights that must be scored for a composite to stand."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A criterion as the composite sees it."""

    name: str
    weight: float = 1.0
    required: bool = False
    """Without it there is no composite."""
    minimum: float | None = None
    """Score on 0-1 below which the case fails, regardless of the composite."""

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ValueError(f"a weight is above 0, not {self.weight!r}")


@dataclass(frozen=True, slots=True)
class Composite:
    """The weighted score of one answer."""

    value: float | None
    """None when too little of it was scored, or a required criterion was not."""
    n: int
    """Criteria that were scored."""
    method: str
    coverage: float
    """Share of the weights that were scored."""
    missing: tuple[str, ...]
    below_minimum: tuple[str, ...]
    """Criteria that fail the case on their own."""


@dataclass(frozen=True, slots=True)
class PairedComposite:
    """Both sides of a case, over the criteria that were scored on both."""

    base: Composite
    head: Composite

    @property
    def difference(self) -> float | None:
        """Head minus base; None when the pair cannot be compared."""
        if self.base.value is None or self.head.value is None:
            return None
        return self.head.value - self.base.value


def composite(
    scores: Mapping[str, float | None],
    criteria: Sequence[Weighted],
    *,
    min_coverage: float = MIN_COVERAGE,
) -> Composite:
    """Weigh the normalised scores of one answer (STATS 2)."""
    if not criteria:
        raise ValueError("a composite has at least one criterion")
    present = {c.name: _score(scores.get(c.name), c.name) for c in criteria}
    scored = [c for c in criteria if present[c.name] is not None]
    missing = tuple(c.name for c in criteria if present[c.name] is None)
    total = math.fsum(c.weight for c in criteria)
    weight = math.fsum(c.weight for c in scored)
    coverage = weight / total
    lost = any(c.required for c in criteria if c.name in missing)
    value = None
    if scored and not lost and reaches(coverage, min_coverage):
        value = math.fsum(c.weight * (present[c.name] or 0.0) for c in scored) / weight
    return Composite(
        value=value,
        n=len(scored),
        method="weighted mean of the scored criteria",
        coverage=coverage,
        missing=missing,
        below_minimum=tuple(
            c.name
            for c in scored
            if c.minimum is not None and not reaches(present[c.name] or 0.0, c.minimum)
        ),
    )


def paired_composite(
    base: Mapping[str, float | None],
    head: Mapping[str, float | None],
    criteria: Sequence[Weighted],
    *,
    min_coverage: float = MIN_COVERAGE,
) -> PairedComposite:
    """Weigh both sides over the criteria that both have.

    Otherwise a hard criterion that is missing on one side would look like an improvement.
    """
    shared = {c.name for c in criteria if base.get(c.name) is not None}
    shared &= {c.name for c in criteria if head.get(c.name) is not None}
    sides = [{name: side[name] for name in shared} for side in (base, head)]
    return PairedComposite(
        *(composite(side, criteria, min_coverage=min_coverage) for side in sides)
    )


def _score(score: float | None, name: str) -> float | None:
    if score is not None and not -TOLERANCE <= score <= 1 + TOLERANCE:
        raise ValueError(f"the score of {name!r} is normalised to 0-1 first, not {score!r}")
    return score
