"""Win rates of pairwise comparisons, and effects of order and length.

Each case is judged in both orders. Values are those for A: win 1, tie one half, loss 0.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import reaches
from edison_ci.stats.arrays import TIE, Range, bounded, dot, finite, mean_of, np, special
from edison_ci.stats.intervals import interval_of_mean
from edison_ci.stats.paired import paired_difference
from edison_ci.stats.permutation import PValue, sign_flip
from edison_ci.stats.scores import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.arrays import Array, Floats
    from edison_ci.stats.intervals import Interval

_BIASED, _INCONSISTENT = 0.05, 0.70
_EQUIVALENT = Range(0.45, 0.55)


class Preference(StrEnum):
    """Result of a head-to-head comparison."""

    A = "A better"
    B = "B better"
    EQUIVALENT = "equivalent"
    UNCLEAR = "no clear preference"


@dataclass(frozen=True, slots=True)
class BothOrders:
    """The value for A of one case, A shown first and A shown second.

    Each is the mean over judges and repeats in that order, or None when none answered.
    """

    first: float | None
    second: float | None
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class OrderEffect(Estimate):
    """How much the judge follows position: +0.5 always prefers what it reads first."""

    value: float
    p: PValue
    consistency: float
    """Share of cases on which the judge agreed with itself after swapping."""

    @property
    def warn(self) -> bool:
        """Whether the judge should be reviewed."""
        biased = abs(self.value) >= _BIASED - TIE and self.p.value <= 0.05
        return biased or not reaches(self.consistency, _INCONSISTENT)


@dataclass(frozen=True, slots=True)
class LengthEffect(Estimate):
    """How much longer answers are preferred: wins gained per unit of log(len A / len B)."""

    value: float

    @property
    def warn(self) -> bool:
        """Whether the slope is clearly not 0."""
        return self.interval is not None and (self.interval.low > 0 or self.interval.high < 0)


@dataclass(frozen=True, slots=True)
class WinRate(Estimate):
    """How often A is preferred, ties counted half; None without a case in both orders."""

    preference: Preference
    p: PValue | None
    order: OrderEffect | None
    excluded: int
    """Cases that lack an order."""
    wins: tuple[float, ...]
    """w_i of the cases that count, in their order."""


def win_rate(
    cases: Sequence[BothOrders], *, rng: np.random.Generator, level: float = 0.95
) -> WinRate:
    """Return how often A is preferred over B (STATS 11).

    Both orders cancel the judge's preference for a position in the mean, not its noise: a case on
    which it follows position is a tie worth one half.
    """
    kept = [case for case in cases if case.first is not None and case.second is not None]
    first = bounded([case.first or 0.0 for case in kept], "values", low=0, high=1)
    second = bounded([case.second or 0.0 for case in kept], "values", low=0, high=1)
    clusters = _clusters(kept)
    wins, excluded = (first + second) / 2, len(cases) - len(kept)
    interval = interval_of_mean(wins, clusters, level=level)
    if interval is None:
        return WinRate(
            None, 0, "no case in both orders", None, level, Preference.UNCLEAR, None, None,
            excluded, (),
        )  # fmt: skip
    p = sign_flip(wins - 0.5, rng=rng, clusters=clusters)
    return WinRate(
        value=interval.estimate,
        n=len(kept),
        method=interval.method,
        interval=interval.interval,
        level=level,
        preference=_preference(interval, p, interval_of_mean(wins, clusters, level=0.90)),
        p=p,
        order=_order_effect(first, second, clusters, rng=rng),
        excluded=excluded,
        wins=tuple(wins.tolist()),
    )


def length_effect(
    wins: Floats, length_a: Floats, length_b: Floats, *, level: float = 0.95
) -> LengthEffect | None:
    """Return the slope of w - .5 on log(len A / len B); None where lengths do not vary."""
    w = bounded(wins, "wins", low=0, high=1)
    lengths = [finite(side, "lengths") for side in (length_a, length_b)]
    if any(side.size != w.size or np.any(side <= 0) for side in lengths):
        raise ValueError("lengths are above 0, one a case and side")
    x = np.log(lengths[0] / lengths[1])
    n = w.size
    if n < 3:
        return None
    x = x - mean_of(x)
    sxx = dot(x, x)
    if sxx < TIE:
        return None
    y = w - mean_of(w)
    slope = dot(x, y) / sxx
    residual = y - slope * x
    se = math.sqrt(dot(residual, residual) / (n - 2) / sxx)
    interval = None
    if se > TIE:
        reach = float(special.stdtrit(n - 2, 0.5 + level / 2)) * se
        interval = Range(slope - reach, slope + reach)
    return LengthEffect(slope, n, "least squares on the log ratio of lengths", interval, level)


def _order_effect(
    first: Array, second: Array, clusters: Sequence[str] | None, *, rng: np.random.Generator
) -> OrderEffect | None:
    bias = (first + (1 - second)) / 2 - 0.5
    difference = paired_difference(bias, clusters=clusters)
    if difference is None:
        return None
    return OrderEffect(
        value=difference.value,
        n=difference.n,
        method=difference.method,
        interval=difference.interval,
        level=difference.level,
        p=sign_flip(bias, rng=rng, clusters=clusters),
        consistency=float(np.mean(np.abs(first - second) <= TIE)),
    )


def _preference(interval: Interval, p: PValue, narrow: Interval | None) -> Preference:
    # Rounded, because 1 - 0.95 is a little more than 0.05.
    if interval.n >= 2 and p.value <= round(1 - interval.level, 12):
        return Preference.A if interval.estimate > 0.5 else Preference.B
    ends = None if narrow is None else narrow.interval
    if ends and reaches(ends.low, _EQUIVALENT.low) and reaches(_EQUIVALENT.high, ends.high):
        return Preference.EQUIVALENT
    return Preference.UNCLEAR


def _clusters(cases: Sequence[BothOrders]) -> tuple[str, ...] | None:
    """Return a cluster for each case, its own where none is declared; None if none has one."""
    if all(case.cluster is None for case in cases):
        return None
    return tuple(
        f"\0case {index}" if case.cluster is None else case.cluster
        for index, case in enumerate(cases)
    )
