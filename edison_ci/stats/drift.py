"""Drift: whether quality fell since the reference, beyond noise."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import (
    TIE,
    Range,
    bounded,
    dot,
    finite,
    mean_of,
    np,
    special,
    variance_of,
)
from edison_ci.stats.paired import paired_difference, unpaired_difference, welch_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """The time at which the line crosses; None without a forecast, with the `reason`."""
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


REFERENCE_RUNS = 5
DROP = 0.10
SURE = 0.001
_ALLOWANCE, _LIMIT, _LEAST_SD, _FIRST = 0.5, 4.0, 0.005, 4


class Alarm(StrEnum):
    """How loudly to say it."""

    NONE = "none"
    WARN = "warn"
    ALERT = "alert"


@dataclass(frozen=True, slots=True)
class Drop:
    """The current run against the reference."""

    value: float | None
    """Relative drop, (reference - current) / reference; None without a reference above 0."""
    n: int
    method: str
    interval: Range | None
    """Of current minus reference, in points of 0-1."""
    level: float
    reference: float | None
    current: float | None
    p: float | None
    """One-sided t p-value for a fall; None below two cases."""

    @property
    def large(self) -> bool:
        """Whether the drop is 10% or more, noise or not."""
        return self.value is not None and self.value >= DROP - TIE

    @property
    def sure(self) -> bool:
        """Whether noise hardly explains it."""
        return self.p is not None and self.p <= SURE


@dataclass(frozen=True, slots=True)
class Cusum:
    """A self-starting CUSUM over a series of runs."""

    value: float
    """The sum after the last run, before a restart."""
    n: int
    method: str
    warnings: tuple[int, ...]
    """Runs, counted from 0, at which it warned and restarted."""

    @property
    def warns_now(self) -> bool:
        """Whether the last run is one of them."""
        return bool(self.warnings) and self.warnings[-1] == self.n - 1


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Findings on the last run of a series."""

    alarm: Alarm
    drop: Drop
    cusum: Cusum
    trend: Trend
    reasons: tuple[str, ...]
    n: int
    """Runs since the last accepted change."""


def reference_scores(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each case over the first 5 runs since the last accepted change."""
    first = runs[:REFERENCE_RUNS]
    cases = sorted({case for run in first for case in run})
    return {
        case: math.fsum(run[case] for run in first if case in run)
        / sum(case in run for run in first)
        for case in cases
    }


def drop_since(
    reference: Mapping[str, float], current: Mapping[str, float], *, level: float = 0.95
) -> Drop:
    """Compare a run with its reference, in pairs if half of either is common, else by Welch."""
    common = sorted(reference.keys() & current.keys())
    paired = len(common) >= 2 and 2 * len(common) >= max(len(reference), len(current))
    old, new = (
        bounded(
            [side[case] for case in (common if paired else sorted(side))], "scores", low=0, high=1
        )
        for side in (reference, current)
    )
    if not old.size or not new.size:
        return Drop(None, 0, "nothing to compare", None, level, None, None, None)
    before, after = mean_of(old), mean_of(new)
    if paired:
        found, p = paired_difference(new - old, level=level), _paired_t(new - old)
    else:
        found, p = unpaired_difference(old, new, level=level), _welch_t(old, new)
    return Drop(
        value=(before - after) / before if before > 0 else None,
        n=min(old.size, new.size),
        method="paired t, one-sided" if paired else "Welch t, one-sided",
        interval=None if found is None else found.interval,
        level=level,
        reference=before,
        current=after,
        p=p,
    )


def cusum(scores: Floats) -> Cusum:
    """Add up how far each run falls below all before it (Hawkins 1987).

    No mean need be known: without drift each u is exactly standard normal, because it comes from
    the t statistic of a run against those before it. After a warning the sum restarts.
    """
    x = finite(scores, "scores")
    total = last = 0.0
    warnings = []
    for index in range(_FIRST - 1, x.size):
        total = last = max(0.0, total - _normal_score(x[: index + 1]) - _ALLOWANCE)
        if total > _LIMIT:
            warnings.append(index)
            total = 0.0
    return Cusum(last, x.size, "self-starting CUSUM, k 0.5, h 4", tuple(warnings))


def watch(times: Floats, runs: Sequence[Mapping[str, float]]) -> DriftReport:
    """Say how loudly to speak about the last of the runs since the last accepted change.

    ALERT needs a drop that is large and sure. Each alone, the CUSUM and a falling trend warn:
    alone the 10% rule rings falsely in most years at 20 cases.
    """
    if not runs:
        raise ValueError("there is no run to watch")
    means = [math.fsum(run.values()) / len(run) for run in runs if run]
    if len(means) != len(runs):
        raise ValueError("a run without a score is an error, not a run")
    drop = drop_since(reference_scores(runs), runs[-1])
    summed, slope = cusum(means), trend(times, means)
    said = {
        "10% below the reference": drop.large,
        "lower than noise explains": drop.sure,
        "several low runs in a row": summed.warns_now,
        "falling over time": slope.falling,
    }
    reasons = tuple(reason for reason, holds in said.items() if holds)
    alarm = Alarm.WARN if reasons else Alarm.NONE
    if drop.large and drop.sure:
        alarm = Alarm.ALERT
    return DriftReport(alarm, drop, summed, slope, reasons, len(runs))


def _normal_score(series: Array) -> float:
    before, n = series[:-1], series.size
    spread = max(math.sqrt(variance_of(before)), _LEAST_SD)
    t = math.sqrt((n - 1) / n) * (float(series[-1]) - mean_of(before)) / spread
    share = float(special.stdtr(n - 2, t))
    # Beyond the range of floats: a normal score of 37 either way is enough.
    return float(special.ndtri(min(max(share, 1e-300), 1 - 1e-16)))


def _paired_t(d: Array) -> float | None:
    if d.size < 2:
        return None
    se = math.sqrt(variance_of(d) / d.size)
    if se < TIE:
        # All cases fell alike: as sure as that many coins falling on one side.
        return 0.5**d.size if mean_of(d) < -TIE else 1.0
    return float(special.stdtr(d.size - 1, mean_of(d) / se))


def _welch_t(old: Array, new: Array) -> float | None:
    error = welch_error(old, new)
    if error is None:
        return None
    if error.se == 0:
        separated = 1 / math.comb(old.size + new.size, old.size)
        return separated if error.mean < -TIE else 1.0
    return float(special.stdtr(error.df, error.mean / error.se))
