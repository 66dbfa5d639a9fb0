"""Between which values does a score or a pass rate likely lie, when cases are independent?

In plain Python, because every run shows these and most need nothing else of the statistics; numpy
and scipy take longer to load than such a run takes. The unit is the case: draws, judges and
criteria inside a case are averaged before they come here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.stats.quantiles import normal_quantile, t_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable

ALL_EQUAL = 1e-15
"""Scores that vary by less are the same."""
_NOISE = 1e-9


class Range(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the values between which the truth likely lies."""

    estimate: float
    low: float | None
    """None when there are fewer than two cases: no interval is possible."""
    high: float | None
    n: int
    method: str
    level: float = 0.95

    @property
    def value(self) -> float:
        """The estimate, under the name every record has for its number."""
        return self.estimate

    @property
    def interval(self) -> Range | None:
        """Both ends, or None where there is no interval."""
        return None if self.low is None or self.high is None else Range(self.low, self.high)


def mean_interval(case_scores: Iterable[float], *, level: float = 0.95) -> Interval | None:
    """Effective-n Wilson interval with t quantile (STATS 4.1); None without any case.

    It is the score interval of a proportion (Wilson 1927) with the sample size replaced by the one
    at which a yes/no score would have the same standard error, as in survey practice
    (Korn and Graubard 1998). Assumes independent cases with scores in [0, 1].
    """
    scores = _checked(case_scores)
    if not scores:
        return None
    n, mean = len(scores), math.fsum(scores) / len(scores)
    if n < 2:
        return Interval(mean, None, None, n, "no interval from one case", level)
    variance = math.fsum((score - mean) ** 2 for score in scores) / (n - 1)
    if variance < ALL_EQUAL:
        return equal_interval(mean, n, units=n, level=level)
    return score_interval(mean, variance / n, n, df=n - 1, level=level)


def pass_interval(passes: int, n: int, *, level: float = 0.95) -> Interval | None:
    """Wilson interval of a pass rate with one draw per case (STATS 5)."""
    require_counts(passes, n)
    if n == 0:
        return None
    if n == 1:
        return Interval(float(passes), None, None, n, "no interval from one case", level)
    z = normal_quantile(0.5 + level / 2)
    low, high = _wilson(passes / n, n, z)
    return Interval(passes / n, low, high, n, "Wilson", level)


def equal_interval(mean: float, n: int, *, units: int, level: float) -> Interval:
    """Return the interval of scores that are all the same.

    Exact: if a share q of the units differed, seeing none would have a chance below alpha / 2.
    """
    q = 1 - ((1 - level) / 2) ** (1 / units)
    low, high = mean * (1 - q), mean * (1 - q) + q
    return Interval(mean, low, high, n, "all scores equal", level)


def score_interval(mean: float, variance: float, n: int, *, df: int, level: float) -> Interval:
    """Return the effective-n Wilson interval from the variance of a mean."""
    effective = mean * (1 - mean) / variance
    low, high = _wilson(mean, effective, t_quantile(0.5 + level / 2, df))
    return Interval(mean, low, high, n, "effective-n Wilson, t", level)


def _wilson(share: float, n: float, quantile: float) -> tuple[float, float]:
    square = quantile * quantile
    center = (share + square / (2 * n)) / (1 + square / n)
    spread = math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    half = quantile / (1 + square / n) * spread
    return max(0.0, center - half), min(1.0, center + half)


def _checked(case_scores: Iterable[float]) -> list[float]:
    scores = list(map(float, case_scores))
    if scores and (min(scores) < 0 or max(scores) > 1 or any(map(math.isnan, scores))):
        if not all(-_NOISE <= score <= 1 + _NOISE for score in scores):
            raise ValueError("scores are numbers from 0 to 1, one a case")
        return [min(max(score, 0.0), 1.0) for score in scores]
    return scores


def require_counts(passes: int, n: int) -> None:
    """Refuse counts that cannot be."""
    if not 0 <= passes <= n:
        raise ValueError(f"{passes} passes of {n} cases cannot be")
