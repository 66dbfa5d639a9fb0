"""Confidence intervals of scores and pass rates.

The unit is the case: repeats, judges and criteria inside a case are averaged before they come here.
Intervals stay in [0, 1] and never have zero width, however alike the scores are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edison_ci.stats.arrays import grouped, mean_of, np
from edison_ci.stats.paired import mean_error
from edison_ci.stats.scores import (
    ALL_EQUAL,
    Interval,
    equal_interval,
    mean_interval,
    pass_interval,
    score_interval,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from edison_ci.stats.arrays import Floats


_YES_OR_NO = frozenset((0.0, 1.0))


# In plain Python: every run with several repeats asks it.
def pass_at_k(passes: int, runs: int, k: int) -> float | None:
    """Return the chance that at least one of k runs passes (Chen et al. 2021).

    None when there are fewer runs than k. Unbiased, which 1 - (1 - share)^k is not.
    """
    _require(passes, runs, k)
    if k > runs:
        return None
    return 1 - math.comb(runs - passes, k) / math.comb(runs, k)


def pass_all_k(passes: int, runs: int, k: int) -> float | None:
    """Return pass^k, the chance that all of k runs pass; None with fewer runs than k."""
    _require(passes, runs, k)
    if k > runs:
        return None
    return math.comb(passes, k) / math.comb(runs, k)


def _require(passes: int, runs: int, k: int) -> None:
    if not 0 <= passes <= runs or k < 1:
        raise ValueError(f"{passes} passes of {runs} runs, k = {k} cannot be")


__all__ = [
    "Interval",
    "clustered_interval",
    "equal_interval",
    "interval_of_mean",
    "interval_of_rate",
    "mean_interval",
    "pass_interval",
    "score_interval",
]


def interval_of_mean(
    case_scores: Floats, clusters: Sequence[str] | None, *, level: float = 0.95
) -> Interval | None:
    """Return the interval of a mean of scores, of clusters where there are some."""
    if clusters is None:
        return mean_interval(case_scores, level=level)
    return clustered_interval(case_scores, clusters, level=level)


def interval_of_rate(
    passes: Floats, clusters: Sequence[str] | None, *, level: float = 0.95
) -> Interval | None:
    """Return the interval of a pass rate; repeats may have passed in part (STATS 5)."""
    if clusters is None and _YES_OR_NO.issuperset(passes):
        return pass_interval(round(math.fsum(passes)), len(passes), level=level)
    return interval_of_mean(passes, clusters, level=level)


def clustered_interval(
    case_scores: Floats, clusters: Sequence[str], *, level: float = 0.95
) -> Interval | None:
    """Return the interval when cases of one cluster are not independent (STATS 4.2)."""
    scores = _checked(case_scores)
    if scores is None:
        return None
    n, mean = len(scores), mean_of(scores)
    error = mean_error(grouped(scores, clusters))
    if error is None:
        return Interval(mean, None, None, n, "no interval from one cluster", level)
    variance = error.se**2
    if variance < ALL_EQUAL:
        return equal_interval(mean, n, units=error.units, level=level)
    return score_interval(mean, variance, n, df=error.df, level=level)


def _checked(case_scores: Floats) -> NDArray[np.float64] | None:
    scores = np.asarray(case_scores, dtype=np.float64)
    if scores.size == 0:
        return None
    if scores.ndim != 1 or not np.all((scores >= -1e-9) & (scores <= 1 + 1e-9)):
        raise ValueError("scores are numbers from 0 to 1, one a case")
    return np.clip(scores, 0.0, 1.0)
