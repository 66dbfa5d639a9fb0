"""Confidence intervals of scores of independent cases, in plain Python.

In plain Python, because every run shows these and most need nothing else of the statistics; numpy
and scipy take longer to load than such a run takes. The unit is the case: repeats, judges and
criteria inside a case are averaged before they come here.
"""

from __future__ import annotations

import math
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


# In plain Python: numpy and scipy take longer to load than a run of a thousand stored answers
# takes altogether. The tests hold these to scipy.
_TINY = 1e-300
_ENOUGH = 1e-15
_STEPS = 500
_NEARLY_NORMAL = 2_000


@lru_cache(maxsize=256)
def normal_quantile(p: float) -> float:
    """Return the value below which a standard normal lies with probability `p`.

    Newton's method on the error function, from the approximation of Hastings (1955).
    """
    if not 0 < p < 1:
        raise ValueError(f"{p} is not between 0 and 1")
    tail = min(p, 1 - p)
    s = math.sqrt(-2 * math.log(tail))
    x = s - (2.515517 + s * (0.802853 + s * 0.010328)) / (
        1 + s * (1.432788 + s * (0.189269 + s * 0.001308))
    )
    for _ in range(_STEPS):
        density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        step = (tail - math.erfc(x / math.sqrt(2)) / 2) / density
        x -= step
        if abs(step) < _ENOUGH * max(1.0, abs(x)):
            break
    return x if p > 0.5 else -x


@lru_cache(maxsize=256)
def t_quantile(p: float, df: float) -> float:
    """Return the value below which Student's t lies with probability `p`.

    Bisection on the distribution function: it is monotone, and a run needs a handful of these.
    """
    if not 0 < p < 1 or df <= 0:
        raise ValueError(f"no quantile {p} of t with {df} degrees of freedom")
    if df > _NEARLY_NORMAL:
        return _expanded(normal_quantile(p), df)
    tail, low, high = min(p, 1 - p), 0.0, 1.0
    while t_tail(high, df) > tail:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_tail(middle, df) > tail:
            low = middle
        else:
            high = middle
    return math.copysign((low + high) / 2, p - 0.5) if p != 0.5 else 0.0


def _expanded(z: float, df: float) -> float:
    """Return t from the normal quantile by powers of 1/df (Cornish and Fisher 1938)."""
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / df + second / df**2 + third / df**3


def t_tail(t: float, df: float) -> float:
    """Return the probability that t is larger than a value that is not negative."""
    if df > _NEARLY_NORMAL:  # Wallace (1959), to the fourth digit
        z = t * (1 - 1 / (4 * df)) / math.sqrt(1 + t * t / (2 * df))
        return math.erfc(z / math.sqrt(2)) / 2
    return _beta_share(df / (df + t * t), df / 2, 0.5) / 2


def _beta_share(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function by its continued fraction (Lentz 1976)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # the other end converges faster
        return 1 - _beta_share(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + numerator * d)
            c = _away(1 + numerator / c)
            value *= c * d
        if abs(c * d - 1) < _ENOUGH:
            break
    return value


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def units_of(cases: Sequence[str], clusters: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the unit of each case: its cluster, or itself; None if no case has a cluster."""
    if not any(case in clusters for case in cases):
        return None
    return tuple(unit_of(case, clusters.get(case)) for case in cases)


def unit_of(case: str, cluster: str | None) -> str:
    """Return what is independent of all others: the cluster, or the case without one."""
    return f"case {case}" if cluster is None else f"cluster {cluster}"


FEW_CLUSTERS = 8
"""Clusters below which their spread is hardly known: what rests on fewer says so."""


class Unseen(NamedTuple):
    """Units that were not seen and are assumed to be there: how many, and their score.

    Each is a cluster of the size that a random case finds itself in.
    """

    number: float
    value: float


class Clustered(NamedTuple):
    """Mean over cases in clusters, with the variance of that mean."""

    mean: float
    variance: float
    df: float
    units: float
    """Clusters of equal size that would show as much, if sizes were all that differs."""


def clustered_mean(
    sums: Sequence[float], sizes: Sequence[float], unseen: Unseen | None = None
) -> Clustered:
    """Return the mean of cases in at least two clusters (Bell and McCaffrey 2002).

    The variance is CR2, unbiased for independent cases; its degrees of freedom are Satterthwaite's,
    which count a cluster that has most of the cases as hardly more than one.
    """
    total = math.fsum(sizes)
    weights = [1.0] * len(sizes)
    if unseen is not None:
        size = math.fsum(n * n for n in sizes) / total
        sums, sizes = [*sums, unseen.value * size], [*sizes, size]
        weights.append(unseen.number)
        total += unseen.number * size
    rows = list(zip(weights, sums, sizes, strict=True))
    mean = math.fsum(w * s for w, s, _ in rows) / total
    scale = [1 / (1 - n / total) for n in sizes]
    squares = math.fsum(
        w * c * (s - n * mean) ** 2 for (w, s, n), c in zip(rows, scale, strict=True)
    )
    spread = math.fsum(w * n * n for w, _, n in rows)
    lost = math.fsum(w * c * n * n for (w, _, n), c in zip(rows, scale, strict=True)) ** 2
    lost -= math.fsum(w * (c * n * n) ** 2 for (w, _, n), c in zip(rows, scale, strict=True))
    df = total**2 / (spread + lost / total**2)
    return Clustered(mean, squares / total**2, df, total**2 / spread)


ALL_EQUAL = 1e-15
"""Scores that vary by less are the same."""
_NOISE = 1e-9


class Range(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, and what it rests on; records that are based on it say of what."""

    value: float | None
    """None if it cannot be computed."""
    n: int
    """Cases, if the record says nothing else."""
    method: str
    interval: Range | None
    """The values between which the truth likely lies; None if no interval is possible."""
    level: float
    """Confidence of the interval."""


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
    """Wilson interval of a pass rate with one repeat per case (STATS 5)."""
    require_counts(passes, n)
    if n == 0:
        return None
    if n == 1:
        return Interval(float(passes), None, None, n, "no interval from one case", level)
    z = normal_quantile(0.5 + level / 2)
    low, high = _wilson(passes / n, n, z)
    return Interval(passes / n, low, high, n, "Wilson", level)


def equal_interval(mean: float, n: int, *, units: float, level: float) -> Interval:
    """Return the interval of scores that are all the same.

    Exact: if a share q of the units differed, seeing none would have a chance below alpha / 2.
    """
    q = 1 - ((1 - level) / 2) ** (1 / units)
    low, high = mean * (1 - q), mean * (1 - q) + q
    return Interval(mean, low, high, n, "all scores equal", level)


def score_interval(mean: float, variance: float, n: int, *, df: float, level: float) -> Interval:
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


def _checked(case_scores: Iterable[float]) -> array[float]:
    scores = array("d", case_scores)
    if scores and (min(scores) < 0 or max(scores) > 1 or any(map(math.isnan, scores))):
        if not all(-_NOISE <= score <= 1 + _NOISE for score in scores):
            raise ValueError("scores are numbers from 0 to 1, one a case")
        return array("d", (min(max(score, 0.0), 1.0) for score in scores))
    return scores


def require_counts(passes: int, n: int) -> None:
    """Refuse counts that cannot be."""
    if not 0 <= passes <= n:
        raise ValueError(f"{passes} passes of {n} cases cannot be")
