"""Between which values does a score or a pass rate likely lie?

The unit is the case: draws, judges and criteria inside a case are averaged before they come here.
Intervals stay in [0, 1] and never have zero width, however alike the scores are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64] | Sequence[float]

_ALL_EQUAL = 1e-15


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


def mean_interval(case_scores: Floats, *, level: float = 0.95) -> Interval | None:
    """Effective-n Wilson interval with t quantile (STATS 4.1); None without any case.

    It is the score interval of a proportion (Wilson 1927) with the sample size replaced by the one
    at which a yes/no score would have the same standard error, as in survey practice
    (Korn and Graubard 1998). Assumes independent cases with scores in [0, 1].
    """
    scores = _checked(case_scores)
    if scores is None:
        return None
    n, mean = len(scores), float(np.mean(scores))
    if n < 2:
        return Interval(mean, None, None, n, "no interval from one case", level)
    variance = float(np.var(scores, ddof=1))
    return _score_interval(mean, variance / n, n, n - 1, level)


def clustered_interval(
    case_scores: Floats, clusters: Sequence[str], *, level: float = 0.95
) -> Interval | None:
    """Return the interval when cases of one cluster are not independent (STATS 4.2)."""
    scores = _checked(case_scores)
    if scores is None:
        return None
    if len(clusters) != len(scores):
        raise ValueError(f"{len(scores)} scores but {len(clusters)} clusters")
    n, mean = len(scores), float(np.mean(scores))
    _, index = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    groups = int(index.max()) + 1
    if groups < 2:
        return Interval(mean, None, None, n, "no interval from one cluster", level)
    sums = np.bincount(index, weights=scores - mean)
    variance = groups / (groups - 1) * float(np.sum(sums**2)) / n**2
    return _score_interval(mean, variance, n, groups - 1, level)


def pass_interval(passes: int, n: int, *, level: float = 0.95) -> Interval | None:
    """Wilson interval of a pass rate with one draw per case (STATS 5)."""
    _require_counts(passes, n)
    if n == 0:
        return None
    z = float(ndtri(0.5 + level / 2))
    low, high = _wilson(passes / n, n, z)
    return Interval(passes / n, low, high, n, "Wilson", level)


def exact_pass_bounds(passes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return the one-sided Clopper-Pearson bounds of a pass rate, each at this level."""
    _require_counts(passes, n)
    alpha = 1 - level
    low = 0.0 if passes == 0 else float(betaincinv(passes, n - passes + 1, alpha))
    high = 1.0 if passes == n else float(betaincinv(passes + 1, n - passes, 1 - alpha))
    return low, high


def _score_interval(mean: float, variance: float, n: int, df: int, level: float) -> Interval:
    """Return the interval from the variance of the mean."""
    alpha = 1 - level
    if variance * n < _ALL_EQUAL:
        # Exact: if a share q of cases differed, seeing none in n has a chance below alpha / 2.
        units = df + 1
        q = 1 - (alpha / 2) ** (1 / units)
        low, high = mean * (1 - q), mean * (1 - q) + q
        return Interval(mean, low, high, n, "all scores equal", level)
    effective = mean * (1 - mean) / variance
    low, high = _wilson(mean, effective, float(stdtrit(df, 1 - alpha / 2)))
    return Interval(mean, low, high, n, "effective-n Wilson, t", level)


def _wilson(share: float, n: float, quantile: float) -> tuple[float, float]:
    square = quantile * quantile
    center = (share + square / (2 * n)) / (1 + square / n)
    spread = math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    half = quantile / (1 + square / n) * spread
    return max(0.0, center - half), min(1.0, center + half)


def _checked(case_scores: Floats) -> NDArray[np.float64] | None:
    scores = np.asarray(case_scores, dtype=np.float64)
    if scores.size == 0:
        return None
    if scores.ndim != 1 or not np.all((scores >= -1e-9) & (scores <= 1 + 1e-9)):
        raise ValueError("scores are numbers from 0 to 1, one a case")
    return np.clip(scores, 0.0, 1.0)


def _require_counts(passes: int, n: int) -> None:
    if not 0 <= passes <= n:
        raise ValueError(f"{passes} passes of {n} cases cannot be")
