"""Confidence intervals of scores and pass rates.

The unit is the case: repeats, judges and criteria inside a case are averaged before they come here.
Intervals stay in [0, 1] and never have zero width, however alike the scores are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import grouped, mean_of, np, special, variance_of
from edison_ci.stats.paired import mean_error
from edison_ci.stats.scores import (
    ALL_EQUAL,
    Interval,
    equal_interval,
    mean_interval,
    pass_interval,
    require_counts,
    score_interval,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from edison_ci.stats.arrays import Floats


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


def exact_pass_interval(passes: int, n: int, *, level: float = 0.95) -> Interval | None:
    """Return the two-sided Clopper-Pearson interval, which never covers too rarely."""
    found = pass_interval(passes, n, level=level)
    if found is None or found.low is None:
        return found
    tail = (1 - level) / 2
    low = float(special.betaincinv(passes, n - passes + 1, tail)) if passes else 0.0
    high = float(special.betaincinv(passes + 1, n - passes, 1 - tail)) if passes < n else 1.0
    return replace(found, low=low, high=high, method="Clopper-Pearson")


def jeffreys_interval(passes: int, n: int, *, level: float = 0.95) -> Interval | None:
    """Return the Jeffreys interval: the middle of a Beta(k + 1/2, n - k + 1/2) (Brown 2001)."""
    found = pass_interval(passes, n, level=level)
    if found is None or found.low is None:
        return found
    a, b, tail = passes + 0.5, n - passes + 0.5, (1 - level) / 2
    low = float(special.betaincinv(a, b, tail)) if passes else 0.0
    high = float(special.betaincinv(a, b, 1 - tail)) if passes < n else 1.0
    return replace(found, low=low, high=high, method="Jeffreys")


__all__ = [
    "FEW_CLUSTERS",
    "DesignEffect",
    "Interval",
    "clustered_interval",
    "design_effect",
    "equal_interval",
    "exact_pass_bounds",
    "mean_bounds",
    "mean_interval",
    "pass_interval",
    "repeat_interval",
    "score_interval",
]

FEW_CLUSTERS = 10


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
        return equal_interval(mean, n, units=error.df + 1, level=level)
    return score_interval(mean, variance, n, df=error.df, level=level)


@dataclass(frozen=True, slots=True)
class DesignEffect:
    """Loss of effective cases because they come in clusters."""

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
    """Return the effective number of clustered cases (STATS 4.2); None below two clusters."""
    scores = _checked(case_scores)
    error = None if scores is None else mean_error(grouped(scores, clusters))
    if scores is None or error is None:
        return None
    n, groups = len(scores), error.df + 1
    variance = variance_of(scores) / n
    if variance * n < ALL_EQUAL:
        return DesignEffect(None, n, groups, float(groups), groups < FEW_CLUSTERS)
    effect = error.se**2 / variance
    return DesignEffect(effect, n, groups, n / max(1.0, effect), groups < FEW_CLUSTERS)


def repeat_interval(repeats: Sequence[Floats], *, level: float = 0.95) -> Interval | None:
    """Return the interval "on exactly these cases, if run again" (STATS 4.3).

    The cases are fixed, and only the noise between repeats counts. It needs two repeats of every
    case, and is never reported together with the intervals about cases like these.
    """
    cases = [_checked(case) for case in repeats]
    kept = [case for case in cases if case is not None]
    if not kept:
        return None
    n = len(kept)
    mean = math.fsum(mean_of(case) for case in kept) / n
    if any(case.size < 2 for case in kept):
        return Interval(mean, None, None, n, "no interval: a case was run only once", level)
    df = sum(case.size - 1 for case in kept)
    variance = math.fsum(variance_of(case) / case.size for case in kept) / n**2
    if variance < ALL_EQUAL:
        return equal_interval(mean, n, units=df, level=level)
    reach = float(special.stdtrit(df, 0.5 + level / 2)) * math.sqrt(variance)
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


def exact_pass_bounds(passes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return the one-sided Clopper-Pearson bounds of a pass rate, each at this level."""
    require_counts(passes, n)
    alpha = 1 - level
    low = 0.0 if passes == 0 else float(special.betaincinv(passes, n - passes + 1, alpha))
    high = 1.0 if passes == n else float(special.betaincinv(passes + 1, n - passes, 1 - alpha))
    return low, high


def _checked(case_scores: Floats) -> NDArray[np.float64] | None:
    scores = np.asarray(case_scores, dtype=np.float64)
    if scores.size == 0:
        return None
    if scores.ndim != 1 or not np.all((scores >= -1e-9) & (scores <= 1 + 1e-9)):
        raise ValueError("scores are numbers from 0 to 1, one a case")
    return np.clip(scores, 0.0, 1.0)
