"""Slices: whether a part of the cases stands out from the rest.

In plain Python and from running sums, because every run asks it of every tag, length and
difficulty: nothing is held that grows with the number of cases.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.stats.scores import (
    ALL_EQUAL,
    Interval,
    clustered_mean,
    equal_interval,
    pass_interval,
    score_interval,
    t_tail,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FEWEST = 10
"""Cases, or clusters of them, on either side below which no test is made (STATS 8)."""
_AGAINST = "slice against the other cases"
METHOD = f"{_AGAINST}, t-test"
_NO_SPREAD = 1e-12
_YES_OR_NO = frozenset((0.0, 1.0))


@dataclass(slots=True)
class Moments:
    """Number, mean and spread of scores that come one by one (Welford 1962)."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of the squared distances from the mean."""

    @classmethod
    def of(cls, values: Iterable[float]) -> Moments:
        """Return the moments of these scores."""
        moments = cls()
        moments.extend(values)
        return moments

    def add(self, value: float) -> None:
        """Take a score."""
        self.n += 1
        step = value - self.mean
        self.mean += step / self.n
        self.squares += step * (value - self.mean)

    def extend(self, values: Iterable[float]) -> None:
        """Take scores, one by one."""
        n, mean, squares = self.n, self.mean, self.squares
        for value in values:
            n += 1
            step = value - mean
            mean += step / n
            squares += step * (value - mean)
        self.n, self.mean, self.squares = n, mean, squares

    def merge(self, other: Moments) -> None:
        """Take all scores of another (Chan, Golub and LeVeque 1979)."""
        n = self.n + other.n
        if not other.n:
            return
        step = other.mean - self.mean
        self.squares += other.squares + step * step * self.n * other.n / n
        self.mean += step * other.n / n
        self.n = n

    @property
    def sd(self) -> float | None:
        """Sample standard deviation; None below two scores."""
        return math.sqrt(self.squares / (self.n - 1)) if self.n > 1 else None

    def without(self, part: Moments) -> Moments:
        """Return the moments of the scores that are not in a part of these."""
        n = self.n - part.n
        if n <= 0:
            return Moments()
        mean = (self.n * self.mean - part.n * part.mean) / n
        between = (part.mean - mean) ** 2 * part.n * n / self.n
        return Moments(n, mean, max(0.0, self.squares - part.squares - between))

    def interval(self, *, level: float = 0.95) -> Interval | None:
        """Return the effective-n Wilson interval of the mean (STATS 4.1)."""
        if not self.n:
            return None
        mean = min(max(self.mean, 0.0), 1.0)
        if self.n < 2:
            return Interval(mean, None, None, self.n, "no interval from one case", level)
        variance = self.squares / (self.n - 1)
        if variance < ALL_EQUAL:
            return equal_interval(mean, self.n, units=self.n, level=level)
        return score_interval(mean, variance / self.n, self.n, df=self.n - 1, level=level)


@dataclass(slots=True)
class ClusteredScores:
    """Scores of cases that come in clusters: the sum and the number of each."""

    groups: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, group: str, value: float) -> None:
        """Take the score of a case."""
        total, size = self.groups.get(group, (0.0, 0))
        self.groups[group] = (total + value, size + 1)

    def without(self, part: ClusteredScores) -> ClusteredScores:
        """Return the scores that are not in a part of these."""
        left = {}
        for group, (total, size) in self.groups.items():
            taken, fewer = part.groups.get(group, (0.0, 0))
            if size > fewer:
                left[group] = (total - taken, size - fewer)
        return ClusteredScores(left)

    def units(self) -> Moments:
        """Return the moments of the clusters' means."""
        return Moments.of(total / size for total, size in self.groups.values())

    def interval(self, *, level: float = 0.95) -> Interval | None:
        """Return the interval of the mean over cases (STATS 4.2)."""
        n, units = sum(size for _, size in self.groups.values()), len(self.groups)
        if not n:
            return None
        if units < 2:
            mean = math.fsum(total for total, _ in self.groups.values()) / n
            return Interval(mean, None, None, n, "no interval from one cluster", level)
        clustered = clustered_mean(
            [total for total, _ in self.groups.values()],
            [size for _, size in self.groups.values()],
        )
        mean = min(max(clustered.mean, 0.0), 1.0)
        if clustered.variance < ALL_EQUAL:
            return equal_interval(mean, n, units=clustered.units, level=level)
        return score_interval(mean, clustered.variance, n, df=clustered.df, level=level)


@dataclass(slots=True)
class Scores:
    """Scores of some cases; clusters are kept apart where there are any."""

    moments: Moments
    grouped: ClusteredScores | None
    yes_or_no: bool = True
    """Whether every score is 0 or 1."""

    @classmethod
    def empty(cls, *, clustered: bool) -> Scores:
        """Return what has no score yet."""
        return cls(Moments(), ClusteredScores() if clustered else None)

    def add(self, value: float | None, group: str) -> None:
        """Take the score of a case; None is missing."""
        if value is None:
            return
        self.moments.add(value)
        self.yes_or_no = self.yes_or_no and value in (0.0, 1.0)
        if self.grouped is not None:
            self.grouped.add(group, value)

    def extend(self, values: Sequence[float], groups: Iterable[str]) -> None:
        """Take the scores of cases, each with its cluster."""
        self.moments.extend(values)
        self.yes_or_no = self.yes_or_no and _YES_OR_NO.issuperset(values)
        if self.grouped is not None:
            for group, value in zip(groups, values, strict=True):
                self.grouped.add(group, value)

    def interval(self) -> Interval | None:
        """Return the mean with its interval."""
        return self.moments.interval() if self.grouped is None else self.grouped.interval()

    def rate(self) -> Interval | None:
        """Return the pass rate with its interval (STATS 5)."""
        if self.grouped is None and self.yes_or_no:
            return pass_interval(round(self.moments.mean * self.moments.n), self.moments.n)
        return self.interval()

    def apart_from(self, whole: Scores) -> tuple[Moments, Moments]:
        """Return this part of the cases and the rest, in independent units."""
        if self.grouped is not None and whole.grouped is not None:
            return self.grouped.units(), whole.grouped.without(self.grouped).units()
        return self.moments, whole.moments.without(self.moments)


@dataclass(frozen=True, slots=True)
class AgainstRest:
    """Difference of a slice from the other cases, with its p-value."""

    difference: float
    """Mean of the part minus mean of the rest."""
    p: float
    """Two-sided."""
    n: int
    """Units in the part."""
    n_rest: int
    method: str = METHOD


def against_rest(part: Moments, rest: Moments) -> AgainstRest | None:
    """Test that a part is like the rest; None with fewer than ten units on either side.

    Student's t with pooled variance, the approximation of a permutation of who belongs to the part
    (Pitman 1937). Welch's is not used: a part that is all right has no variance, and
    ten cases at 100 beside fifty at 90 would pass for a finding at p = .02, where a permutation
    has .58. Declared clusters come in as one unit each.
    """
    if part.n < FEWEST or rest.n < FEWEST:
        return None
    difference = part.mean - rest.mean
    spread = (part.squares + rest.squares) / (part.n + rest.n - 2)
    if spread < _NO_SPREAD:
        p = 1.0 if abs(difference) < _NO_SPREAD else _separated(part.n, rest.n)
        return AgainstRest(difference, p, part.n, rest.n, f"{_AGAINST}, exact permutation test")
    error = math.sqrt(spread * (1 / part.n + 1 / rest.n))
    p = 2 * t_tail(abs(difference) / error, part.n + rest.n - 2)
    return AgainstRest(difference, min(1.0, p), part.n, rest.n)


def _separated(n: int, rest: int) -> float:
    """Return the chance that all of one score fall into the part and none into the rest."""
    return min(1.0, 2 / math.comb(n + rest, n))
