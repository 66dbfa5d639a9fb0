"""Panels: several judges on one case.

Judges are not independent evidence: three judges on fifty cases are fifty cases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.rounding import exceeds, reaches
from edison_ci.stats.arrays import bounded, mean_of, variance_of
from edison_ci.stats.libraries import np

if TYPE_CHECKING:
    from edison_ci.stats.arrays import Array

Row: TypeAlias = Sequence[float | None]
Method: TypeAlias = Literal["mean", "median", "trimmed"]

TRIM = 0.2
_FLAG_RANGE, _FLAG_SD = 0.5, 0.25
FEW_MISSING = 0.05
"""Up to this share of missing judgments the present ones are averaged as they are."""


@dataclass(frozen=True, slots=True)
class PanelScore:
    """What the judges of one case say together."""

    value: float | None
    """None when no judge answered."""
    n: int
    """Judges that answered."""
    method: str
    sd: float | None
    """Disagreement on 0-1; None below two judges."""
    spread: float | None
    """Highest minus lowest; None below two judges."""
    flagged: bool
    """Whether they differ by 50 points, or have an sd of 25."""


@dataclass(frozen=True, slots=True)
class Panel:
    """What a panel says about all cases."""

    cases: tuple[PanelScore, ...]
    n: int
    """Cases with a score."""
    method: str
    severity: tuple[float | None, ...]
    """How far each judge is above (generous) or below (strict) the panel; None if unknown."""
    missing: int
    adjusted: bool
    """Whether severity was taken off before averaging, because many judgments are missing."""

    @property
    def flagged(self) -> tuple[int, ...]:
        """The cases, by position, on which the judges disagree."""
        return tuple(index for index, case in enumerate(self.cases) if case.flagged)


def panel_score(row: Row, *, method: Method = "mean") -> PanelScore:
    """Put the judges of one case together (STATS 3); with 3 or 4 judges prefer the median."""
    scores = np.sort(bounded([x for x in row if x is not None], "scores", low=0, high=1))
    if not scores.size:
        return PanelScore(None, 0, method, None, None, False)
    sd = spread = None
    if scores.size >= 2:
        sd, spread = math.sqrt(variance_of(scores)), float(scores[-1] - scores[0])
    flagged = reaches(spread or 0.0, _FLAG_RANGE) or reaches(sd or 0.0, _FLAG_SD)
    return PanelScore(_together(scores, method), scores.size, method, sd, spread, flagged)


def panel(table: Sequence[Row], *, method: Method = "mean") -> Panel:
    """Put the judges together, a row a case, a column a judge.

    When more than 5% of judgments are missing, each judge's severity is taken off first, or the
    outage of a lenient judge would move the score.
    """
    rows = [list(row) for row in table]
    judges = max((len(row) for row in rows), default=0)
    if any(len(row) != judges for row in rows):
        raise ValueError("every case has one entry a judge, None where it is missing")
    missing = sum(x is None for row in rows for x in row)
    severity = severity_of(rows, judges)
    adjusted = exceeds(missing, FEW_MISSING * judges * len(rows)) and None not in severity
    cases = []
    for row in rows:
        found = panel_score(row, method=method)
        if adjusted and found.n:
            # An estimate, not a raw score: it may leave 0-1 by a hair, and is put back.
            fair = [x - (severity[j] or 0.0) for j, x in enumerate(row) if x is not None]
            value = min(1.0, max(0.0, _together(np.sort(np.array(fair)), method)))
            found = PanelScore(value, found.n, method, found.sd, found.spread, found.flagged)
        cases.append(found)
    name = f"{method}, severity taken off" if adjusted else method
    scored = sum(case.value is not None for case in cases)
    return Panel(tuple(cases), scored, name, severity, missing, adjusted)


def shared_judges(base: Row, head: Row) -> tuple[Row, Row]:
    """Return both sides of a case with only the judges that answered on both."""
    if len(base) != len(head):
        raise ValueError(f"{len(base)} judges of the base but {len(head)} of the head")
    kept = [b is not None and h is not None for b, h in zip(base, head, strict=True)]
    first, second = (
        [x if keep else None for x, keep in zip(side, kept, strict=True)] for side in (base, head)
    )
    return first, second


def _together(scores: Array, method: Method) -> float:
    """Return the ensemble of sorted scores."""
    if method == "median":
        return float(np.median(scores))
    cut = int(TRIM * scores.size) if method == "trimmed" else 0
    kept = scores[cut : scores.size - cut]
    return mean_of(kept)


def severity_of(table: Sequence[Row], judges: int) -> tuple[float | None, ...]:
    """Return how far each judge is above or below the panel; all together are 0.

    Fits score = case + judge by least squares, with the cases eliminated: there are few judges.
    None for all where the judges are not tied together by common cases: then a difference of
    judges cannot be told from one of cases.
    """
    left, right = np.zeros((judges, judges)), np.zeros(judges)
    for row in table:
        present = [j for j, x in enumerate(row) if x is not None]
        if not present:
            continue
        scores = np.array([x for x in row if x is not None], dtype=np.float64)
        left[present, present] += 1
        left[np.ix_(present, present)] -= 1 / len(present)
        right[present] += scores - mean_of(scores)
    # One condition too few, that they add up to 0, is what the shortest solution keeps.
    found, _, rank, _ = np.linalg.lstsq(left, right, rcond=None)
    if rank < judges - 1 or not any(x is not None for row in table for x in row):
        return (None,) * judges
    return tuple(found.tolist())
