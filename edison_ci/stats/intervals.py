"""Between which values does a score or a pass rate likely lie?

The unit is the case: draws, judges and criteria inside a case are averaged before they come here.
Intervals stay in [0, 1] and never have zero width, however alike the scores are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

from edison_ci.stats.arrays import Range, grouped
from edison_ci.stats.paired import mean_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from edison_ci.stats.arrays import Floats

_ALL_EQUAL = 1e-15
FEW_CLUSTERS = 10


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
    if variance < _ALL_EQUAL:
        return equal_interval(mean, n, units=n, level=level)
    return score_interval(mean, variance / n, n, df=n - 1, level=level)


def clustered_interval(
    case_scores: Floats, clusters: Sequence[str], *, level: float = 0.95
) -> Interval | None:
    """Return the interval when cases of one cluster are not independent (STATS 4.2)."""
    scores = _checked(case_scores)
    if scores is None:
        return None
    n, mean = len(scores), float(np.mean(scores))
    error = mean_error(grouped(scores, clusters))
    if error is None:
        return Interval(mean, None, None, n, "no interval from one cluster", level)
    variance = error.se**2
    if variance < _ALL_EQUAL:
        return equal_interval(mean, n, units=error.df + 1, level=level)
    return score_interval(mean, variance, n, df=error.df, level=level)


@dataclass(frozen=True, slots=True)
class DesignEffect:
    """How much less cases are worth because they come in clusters."""

    value: float | None
    """Variance of the mean over what independent cases would give; None when nothing varies."""
    n: int
    clusters: int
    effective_n: float
    """The independent cases that would tell as much; never more than `n`."""
    few_clusters: bool
    """Below 10 clusters the interval is only roughly right."""
    method: str = "clustered over independent variance of the mean"


def design_effect(case_scores: Floats, clusters: Sequence[str]) -> DesignEffect | None:
    """Return what clustered cases are worth (STATS 4.2); None below two clusters."""
    scores = _checked(case_scores)
    error = None if scores is None else mean_error(grouped(scores, clusters))
    if scores is None or error is None:
        return None
    n, groups = len(scores), error.df + 1
    variance = float(np.var(scores, ddof=1)) / n
    if variance * n < _ALL_EQUAL:
        return DesignEffect(None, n, groups, float(groups), groups < FEW_CLUSTERS)
    effect = error.se**2 / variance
    return DesignEffect(effect, n, groups, n / max(1.0, effect), groups < FEW_CLUSTERS)


def repeat_interval(repeats: Sequence[Floats], *, level: float = 0.95) -> Interval | None:
    """Return the interval "on exactly these cases, if run again" (STATS 4.3).

    The cases are fixed, and only the noise between repeats counts. It needs two repeats of every
    case, and never stands in one report with the intervals about cases like these.
    """
    cases = [_checked(case) for case in repeats]
    kept = [case for case in cases if case is not None]
    if not kept:
        return None
    n, mean = len(kept), float(np.mean([case.mean() for case in kept]))
    if any(case.size < 2 for case in kept):
        return Interval(mean, None, None, n, "no interval: a case was run only once", level)
    df = sum(case.size - 1 for case in kept)
    variance = sum(float(case.var(ddof=1)) / case.size for case in kept) / n**2
    if variance < _ALL_EQUAL:
        return equal_interval(mean, n, units=df, level=level)
    reach = float(stdtrit(df, 0.5 + level / 2)) * math.sqrt(variance)
    low, high = max(0.0, mean - reach), min(1.0, mean + reach)
    return Interval(mean, low, high, n, "t over repeats, these cases", level)


def mean_bounds(
    case_scores: Floats, *, clusters: Sequence[str] | None = None, level: float = 0.95
) -> Interval | None:
    """Return the one-sided bounds of a mean score, each at this level (STATS 7b, floors)."""
    two_sided = 2 * level - 1
    if clusters is None:
        found = mean_interval(case_scores, level=two_sided)
    else:
        found = clustered_interval(case_scores, clusters, level=two_sided)
    return None if found is None else replace(found, level=level)


def pass_interval(passes: int, n: int, *, level: float = 0.95) -> Interval | None:
    """Wilson interval of a pass rate with one draw per case (STATS 5)."""
    _require_counts(passes, n)
    if n == 0:
        return None
    if n == 1:
        return Interval(float(passes), None, None, n, "no interval from one case", level)
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
    low, high = _wilson(mean, effective, float(stdtrit(df, 0.5 + level / 2)))
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
