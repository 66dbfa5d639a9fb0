"""Lower confidence bound of the agreement of a judge with people, over cases.

The agreement is Cohen's kappa with quadratic weights, 1 - D / C: D is the mean squared distance of
judge and people, C that of their scores paired at random. Answers to one case, and cases of one
cluster, move together, so the unit of the bound is the case or the cluster.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import reaches
from edison_ci.stats.arrays import TIE, bounded, dot, grouped, np, special, sum_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.arrays import Array, Floats

BOUND_LEVEL = 0.95
_UNSEEN = 0.6
"""Distance of judge and people in the additional unit, as a share of the range of the scores."""
_MOST_UNITS = 1_000_000


@dataclass(frozen=True, slots=True)
class AgreementBound:
    """How far a judge agrees with people, and how far at least."""

    value: float
    """Kappa of the labels."""
    low: float
    """One-sided lower bound of kappa."""
    units: int
    """Cases, or clusters of cases."""
    level: float
    moments: _Moments

    def units_needed(self, floor: float) -> int | None:
        """Return the units with which the bound reaches a floor if the agreement stays as it is.

        None if no number does.
        """
        low, high = 0, self.units
        while not reaches(_low(self.moments, high / self.units, self.level), floor):
            if high >= _MOST_UNITS or not self.value > floor:
                return None
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if reaches(_low(self.moments, middle / self.units, self.level), floor):
                high = middle
            else:
                low = middle
        return high


def agreement_bound(
    human: Floats, judge: Floats, units: Sequence[str], *, level: float = BOUND_LEVEL
) -> AgreementBound | None:
    """Return kappa with its one-sided lower bound; None if nothing varies or below two units.

    The bound is a t bound of Fisher's z with the linearized standard error over units. One unit on
    which judge and people differ by 60% of the range of the scores is added, in the worse of both
    directions: without it a sample with no disagreement has an error of 0, and one with few of
    them an error that is too small. Like kappa, the bound does not depend on the scale. `units`
    names the unit of each pair of scores.
    """
    a, b = (bounded(x, "scores", low=0, high=1) for x in (human, judge))
    if not a.size == b.size == len(units):
        raise ValueError(f"{a.size} and {b.size} scores of {len(units)} units")
    moments = _Moments.of(a, b, units)
    count = moments.sizes.size
    if count < 2:
        return None
    _, chance, kappa = _kappa(moments, np.ones(count))
    if chance <= TIE:
        return None
    return AgreementBound(kappa, _low(moments, 1.0, level), count, level, moments)


@dataclass(frozen=True, slots=True)
class _Moments:
    """Sums over the answers of each unit."""

    sizes: Array
    human: Array
    judge: Array
    squares: Array
    """Of human and judge."""
    distances: Array
    """Squared, of human and judge."""
    lowest: float
    highest: float

    @classmethod
    def of(cls, a: Array, b: Array, units: Sequence[str]) -> _Moments:
        sizes = grouped(a, units).sizes
        both = np.concatenate((a, b))
        return cls(
            sizes=sizes,
            human=grouped(a, units).sums,
            judge=grouped(b, units).sums,
            squares=grouped(a * a + b * b, units).sums,
            distances=grouped((a - b) ** 2, units).sums,
            lowest=float(both.min(initial=1)),
            highest=float(both.max(initial=0)),
        )

    def with_unit(self, human: float, judge: float) -> _Moments:
        """Add a unit of the size that an answer's unit has on average."""
        size = dot(self.sizes, self.sizes) / sum_of(self.sizes)
        return replace(
            self,
            sizes=np.append(self.sizes, size),
            human=np.append(self.human, size * human),
            judge=np.append(self.judge, size * judge),
            squares=np.append(self.squares, size * (human**2 + judge**2)),
            distances=np.append(self.distances, size * (human - judge) ** 2),
        )


def _kappa(of: _Moments, weights: Array) -> tuple[float, float, float]:
    """Return the number of answers, the distance by chance, and kappa (0 without chance)."""
    n = dot(weights, of.sizes)
    human, judge = dot(weights, of.human) / n, dot(weights, of.judge) / n
    chance = dot(weights, of.squares) / n - 2 * human * judge
    return n, chance, 1 - dot(weights, of.distances) / n / chance if chance > TIE else 0.0


def _low(of: _Moments, times: float, level: float) -> float:
    """Return the lower bound if every unit came `times` as often."""
    n = sum_of(of.sizes)
    middle = (sum_of(of.human) + sum_of(of.judge)) / (2 * n)
    apart = _UNSEEN * (of.highest - of.lowest)
    start = min(max(middle - apart / 2, of.lowest), of.highest - apart)
    ends = (start, start + apart)
    weights = np.append(np.full(of.sizes.size, times), 1.0)
    return min(_low_of(of.with_unit(*pair), weights, level) for pair in (ends, ends[::-1]))


def _low_of(of: _Moments, weights: Array, level: float) -> float:
    n, chance, kappa = _kappa(of, weights)
    human, judge = dot(weights, of.human) / n, dot(weights, of.judge) / n
    # The influence of each unit on D - (1 - kappa) C, which is 0.
    moved = of.distances - (1 - kappa) * (of.squares - 2 * judge * of.human - 2 * human * of.judge)
    moved = moved - of.sizes * dot(weights, moved) / n
    df = sum_of(weights) - 1
    se = math.sqrt((df + 1) / df * dot(weights, moved * moved)) / (n * chance)
    kappa = min(max(kappa, TIE - 1), 1 - TIE)
    reach = float(special.stdtrit(df, level)) * se / (1 - kappa**2)
    return math.tanh(math.atanh(kappa) - reach)
