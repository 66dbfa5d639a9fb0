"""Trends of a series of runs: its slope, and when it would cross a threshold.

Times are numbers on any scale (days, say); the runs come in the order of their times.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import TIE, Range, dot, finite, mean_of
from edison_ci.stats.libraries import np, special

if TYPE_CHECKING:
    from edison_ci.stats.arrays import Array, Floats

FEWEST_RUNS = 8
_SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Trend:
    """Whether scores rise or fall with time."""

    value: float | None
    """Slope, score per unit of time (Theil-Sen); None below 8 runs."""
    n: int
    method: str
    p: float | None
    """Two-sided Mann-Kendall p-value."""
    s: int | None = None
    """Kendall's S: pairs of runs that rise minus pairs that fall."""

    @property
    def falling(self) -> bool:
        """Whether the series clearly falls."""
        if self.value is None or self.p is None:
            return False
        return self.value < 0 and self.p <= _SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a falling series would cross a threshold, if it went on like this."""

    value: float | None
    """The time at which the line crosses; None when no forecast is made, `reason` says why."""
    n: int
    method: str
    interval: Range | None
    """When the lower and the upper prediction limit cross; None if the upper never does."""
    level: float
    reason: str = ""


def trend(times: Floats, scores: Floats) -> Trend:
    """Test for a trend with ties allowed (Mann 1945, Kendall 1975; Theil 1950, Sen 1968)."""
    t, x = _series(times, scores)
    n = x.size
    if n < FEWEST_RUNS:
        return Trend(None, n, f"none below {FEWEST_RUNS} runs", None)
    first, second = np.triu_indices(n, k=1)
    rises = x[second] - x[first]
    signs = np.where(np.abs(rises) <= TIE, 0, np.sign(rises))
    s = int(signs.sum())
    # Ties are counted among values equal up to rounding noise.
    _, counts = np.unique(np.round(x, 12), return_counts=True)
    ties = int((counts * (counts - 1) * (2 * counts + 5)).sum())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    z = (s - np.sign(s)) / math.sqrt(variance) if variance > 0 else 0.0
    p = min(1.0, 2 * float(special.ndtr(-abs(z))))
    slope = float(np.median(rises / (t[second] - t[first])))
    return Trend(slope, n, "Mann-Kendall, Theil-Sen", p, s)


def forecast(times: Floats, scores: Floats, *, threshold: float, level: float = 0.95) -> Forecast:
    """Return when a clearly falling series crosses the threshold on a straight line (STATS 17)."""
    t, x = _series(times, scores)
    n = x.size
    if not trend(t, x).falling:
        return _none(n, level, "no clear fall")
    middle = mean_of(t)
    sxx = dot(t - middle, t - middle)
    slope = dot(t - middle, x - mean_of(x)) / sxx
    if slope >= 0:
        return _none(n, level, "no clear fall")
    start = mean_of(x) - slope * middle
    crossing = (threshold - start) / slope
    if crossing <= t[-1]:
        return _none(n, level, "already at the threshold")
    if crossing - t[-1] > (t[-1] - t[0]) / 2:
        return _none(n, level, "too far to predict")
    residual = x - start - slope * t
    spread = math.sqrt(dot(residual, residual) / (n - 2))
    reach = float(special.stdtrit(n - 2, 0.5 + level / 2)) * spread
    interval = _limits(_Line(start, slope, middle, sxx, n), reach, threshold)
    if interval is not None:
        interval = Range(max(interval.low, float(t[-1])), interval.high)
    return Forecast(crossing, n, "straight line, prediction limits", interval, level)


@dataclass(frozen=True, slots=True)
class _Line:
    start: float
    slope: float
    middle: float
    sxx: float
    n: int


def _limits(line: _Line, reach: float, threshold: float) -> Range | None:
    """Return the times at which the prediction limits cross: roots of one quadratic.

    (threshold - line(t))^2 = reach^2 (1 + 1/n + (t - middle)^2 / sxx); the earlier root belongs
    to the lower limit, the later to the upper, which never crosses when the slope is too unsure.
    """
    # In u = t - middle: threshold - line = gap - slope u.
    gap = threshold - line.start - line.slope * line.middle
    a = line.slope**2 - reach**2 / line.sxx
    b = -2 * gap * line.slope
    c = gap**2 - reach**2 * (1 + 1 / line.n)
    discriminant = b * b - 4 * a * c
    if a <= 0 or discriminant < 0:
        return None
    root = math.sqrt(discriminant)
    return Range(line.middle + (-b - root) / (2 * a), line.middle + (-b + root) / (2 * a))


def _series(times: Floats, scores: Floats) -> tuple[Array, Array]:
    t, x = finite(times, "times"), finite(scores, "scores")
    if t.size != x.size:
        raise ValueError(f"{t.size} times but {x.size} scores")
    if np.any(np.diff(t) <= 0):
        raise ValueError("runs come in the order of their times, no two at the same")
    return t, x


def _none(n: int, level: float, reason: str) -> Forecast:
    return Forecast(None, n, "none", None, level, reason)
