"""Paired comparisons: scores of two sides on the same cases, and their mean difference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import (
    TIE,
    Range,
    bounded,
    dot,
    finite,
    grouped,
    mean_of,
    np,
    special,
    sum_of,
    variance_of,
)
from edison_ci.stats.scores import Estimate, clustered_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.stats.arrays import Array, Floats, Groups
    from edison_ci.stats.scores import Unseen


EQUAL_DIFFERENCES = "all differences equal"
"""The method of an interval that no spread could be estimated for."""
_EQUAL_SD = 1e-12
_EQUAL_VARIANCE = 1e-15
MIN_COMMON = 20
"""Fewest common cases on which two different datasets are still compared pairwise."""


@dataclass(frozen=True, slots=True)
class Difference(Estimate):
    """A mean difference; it has no interval with fewer than two cases (or clusters)."""

    value: float
    sd: float | None = None
    """Spread of the differences; None without two of them, or unpaired."""
    se: float | None = None
    p: float | None = None
    """Two-sided p-value of Welch's test; None where paired, which has its own tests."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The scores of the same cases on both sides, repeats kept apart."""

    base: tuple[tuple[float, ...], ...]
    head: tuple[tuple[float, ...], ...]
    clusters: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.base) != len(self.head):
            raise ValueError(f"{len(self.base)} cases of the base but {len(self.head)} of the head")
        if self.clusters is not None and len(self.clusters) != len(self.base):
            raise ValueError(f"{len(self.base)} cases but {len(self.clusters)} clusters")
        if not all(self.base) or not all(self.head):
            raise ValueError("a case without a score on one side leaves the pairing")

    @classmethod
    def of(
        cls, base: Sequence[float], head: Sequence[float], clusters: Sequence[str] | None = None
    ) -> Pairs:
        """Pair one score a case and side."""
        return cls(
            tuple((float(score),) for score in base),
            tuple((float(score),) for score in head),
            None if clusters is None else tuple(clusters),
        )

    @property
    def n(self) -> int:
        """The number of cases, which is the number that counts."""
        return len(self.base)

    @property
    def differences(self) -> Array:
        """Head minus base, one a case, each the mean over the repeats."""
        base, head = self.sides
        return head - base

    @property
    def sides(self) -> tuple[Array, Array]:
        """Base and head, one number a case, the mean over the repeats."""
        return self.means("base"), self.means("head")

    @property
    def equal_repeats(self) -> bool:
        """Whether every case was asked equally often on both sides."""
        return all(len(b) == len(h) for b, h in zip(self.base, self.head, strict=True))

    def means(self, side: Literal["base", "head"]) -> Array:
        """Return the mean over repeats of each case on a side, base or head."""
        cases = self.head if side == "head" else self.base
        means = np.fromiter((math.fsum(case) / len(case) for case in cases), np.float64, len(cases))
        return finite(means, f"scores of the {side}")


class MeanError(NamedTuple):
    """A mean, its standard error and the degrees of freedom of that error."""

    mean: float
    se: float
    df: float
    units: float
    """Cases, or clusters of equal size that would show as much."""

    def lower(self, alpha: float) -> float:
        """Return the one-sided lower t bound at confidence 1 - alpha."""
        return self.mean - float(special.stdtrit(self.df, 1 - alpha)) * self.se

    def upper(self, alpha: float) -> float:
        """Return the one-sided upper t bound at confidence 1 - alpha."""
        return self.mean + float(special.stdtrit(self.df, 1 - alpha)) * self.se


def mean_error(groups: Groups, unseen: Unseen | None = None) -> MeanError | None:
    """Return the mean over cases with the standard error of clusters, else None.

    With one case a group it is the ordinary s / sqrt(n). None below two groups.
    """
    if groups.sums.size < 2:
        return None
    if groups.sizes.max() > 1:
        clustered = clustered_mean(groups.sums.tolist(), groups.sizes.tolist(), unseen)
        return MeanError(
            clustered.mean, math.sqrt(clustered.variance), clustered.df, clustered.units
        )
    count, value = unseen or (0.0, 0.0)
    n = groups.sums.size + count
    mean = (sum_of(groups.sums) + count * value) / n
    away = groups.sums - mean
    squares = dot(away, away) + count * (value - mean) ** 2
    return MeanError(mean, math.sqrt(squares / (n * (n - 1))), n - 1, n)


def paired_difference(
    differences: Floats, *, clusters: Sequence[str] | None = None, level: float = 0.95
) -> Difference | None:
    """Return the mean difference with its t interval (STATS 6); None without any case.

    Differences lie in [-1, 1], so does the interval, and it never has zero width: identical
    differences are weak evidence that no case differs.
    """
    d = bounded(differences, "differences", low=-1, high=1)
    if not d.size:
        return None
    mean, alpha = mean_of(d), 1 - level
    error = mean_error(grouped(d, clusters))
    if error is None:
        what = "one case" if clusters is None or d.size < 2 else "one cluster"
        return Difference(mean, d.size, f"no interval from {what}", None, level)
    sd = math.sqrt(variance_of(d))
    equal = sd < _EQUAL_SD if clusters is None else error.se**2 < _EQUAL_VARIANCE
    if equal:
        q = 1 - (alpha / 2) ** (1 / error.units)
        interval = Range((1 - q) * mean - q, (1 - q) * mean + q)
        return Difference(mean, d.size, EQUAL_DIFFERENCES, interval, level, sd, error.se)
    interval = Range(max(-1.0, error.lower(alpha / 2)), min(1.0, error.upper(alpha / 2)))
    method = "paired t" if clusters is None else "paired t, clustered"
    return Difference(mean, d.size, method, interval, level, sd, error.se)


class WelchError(NamedTuple):
    """Difference of two unpaired means with its standard error."""

    mean: float
    se: float
    df: float

    @property
    def p(self) -> float:
        """The two-sided p-value, which needs a standard error above 0."""
        return min(1.0, 2 * float(special.stdtr(self.df, -abs(self.mean) / self.se)))


def welch_error(base: Array, head: Array) -> WelchError | None:
    """Return head minus base with Welch's standard error and degrees of freedom."""
    if min(base.size, head.size) < 2:
        return None
    parts = [variance_of(side) / side.size for side in (base, head)]
    total = parts[0] + parts[1]
    mean = mean_of(head) - mean_of(base)
    if total < _EQUAL_SD**2:
        return WelchError(mean, 0.0, float(min(base.size, head.size) - 1))
    df = total**2 / sum(
        part**2 / (side.size - 1) for part, side in zip(parts, (base, head), strict=True)
    )
    return WelchError(mean, math.sqrt(total), df)


def unpaired_difference(base: Floats, head: Floats, *, level: float = 0.95) -> Difference | None:
    """Return head minus base for different cases (Welch 1947); None with an empty side.

    It is the fallback: pairing is typically 3 to 10 times more sensitive. `n` is the number of
    cases on the smaller side.
    """
    first, second = (bounded(side, "scores", low=0, high=1) for side in (base, head))
    n, alpha = min(first.size, second.size), 1 - level
    if not n:
        return None
    error = welch_error(first, second)
    if error is None:
        mean = mean_of(second) - mean_of(first)
        return Difference(mean, n, "no interval from one case", None, level)
    if error.se == 0:
        # Each side's zero-variance line at half the error, so that both hold together.
        spans = [1 - (alpha / 4) ** (1 / side.size) for side in (first, second)]
        (b, h), (qb, qh) = (float(first[0]), float(second[0])), spans
        low = h * (1 - qh) - (b * (1 - qb) + qb)
        interval = Range(low, h * (1 - qh) + qh - b * (1 - qb))
        # As likely as all scores of one kind falling on one side, by permutation (Pitman 1937).
        apart = abs(error.mean) > TIE
        p = min(1.0, 2 / math.comb(first.size + second.size, n)) if apart else 1.0
        method = "unpaired, all scores of a side equal"
        return Difference(error.mean, n, method, interval, level, None, 0.0, p)
    reach = float(special.stdtrit(error.df, 1 - alpha / 2)) * error.se
    interval = Range(max(-1.0, error.mean - reach), min(1.0, error.mean + reach))
    method = "unpaired t (Welch)"
    return Difference(error.mean, n, method, interval, level, None, error.se, error.p)


@dataclass(frozen=True, slots=True)
class Matching:
    """Which cases two runs have in common, and whether they are compared on those."""

    common: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    """Same id, other content: they count on neither side of the pairing."""
    paired: bool
    n: int
    method: str


def match_cases(base: Mapping[str, str], head: Mapping[str, str]) -> Matching:
    """Match case ids by the hash of their content, and decide whether to compare in pairs.

    The same dataset is always paired. Different ones are when at least 20 cases, and half of
    either side, are common (STATS 6).
    """
    both = base.keys() & head.keys()
    common = sorted(case for case in both if base[case] == head[case])
    same = len(common) == len(base) == len(head)
    enough = len(common) >= MIN_COMMON and 2 * len(common) >= max(len(base), len(head))
    paired = bool(common) and (same or enough)
    return Matching(
        common=tuple(common),
        added=tuple(sorted(head.keys() - base.keys())),
        removed=tuple(sorted(base.keys() - head.keys())),
        changed=tuple(sorted(both - set(common))),
        paired=paired,
        n=len(common),
        method="paired" if paired else "unpaired: about 3-10x less sensitive",
    )
