"""Drift: whether quality fell, with a stated mean time between false alarms.

Each run is compared with those before it by a conformal e-value: if nothing changed, any of the
runs so far was as likely to be the newest one, for each case (or cluster) on its own. So the mean
of the e-value is 1 for any distribution of scores, and no reference has to be known exactly. The
e-values are added up over time (Shiryaev 1963, Roberts 1966; e-detectors: Shin, Ramdas and Rinaldo
2023), with the time between runs as the unit: a quiet series reaches Y years of evidence at most
once in Y years on average, at any schedule.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.stats import arrays, paired
from edison_ci.stats.scores import Estimate, unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.stats.arrays import Array, Floats


FEWEST_RUNS = 8
SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Trend:
    """Whether scores rise or fall with time, and the line that they follow."""

    value: float | None
    """Slope, score per unit of time (Theil-Sen); None below 8 runs."""
    n: int
    method: str
    p: float | None
    """Two-sided Mann-Kendall p-value."""
    s: int | None = None
    """Kendall's S: pairs of runs that rise minus pairs that fall."""
    intercept: float | None = None
    """Score of the line at the first run."""
    equal: bool = False
    """Whether all runs score the same, so that there is nothing to test."""

    @property
    def falling(self) -> bool:
        """Whether the series clearly falls."""
        if self.value is None or self.p is None:
            return False
        return self.value < 0 and self.p <= SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Forecast(Estimate):
    """When a falling series would cross a threshold, if it continued like this.

    The value is None without a forecast, with the `reason`. The interval has the times at which the
    lower and the upper prediction limit cross, and is None if the upper never does.
    """

    reason: str = ""
    path: tuple[ForecastPoint, ...] = ()
    """The line from the last run to the crossing, with its prediction limits."""


class ForecastPoint(NamedTuple):
    """A place on a forecast."""

    time: float
    value: float
    low: float
    high: float


def trend(times: Floats, scores: Floats) -> Trend:
    """Test for a trend with ties allowed (Mann 1945, Kendall 1975; Theil 1950, Sen 1968)."""
    t, x = _series(times, scores)
    n = x.size
    if n < FEWEST_RUNS:
        return Trend(None, n, f"none below {FEWEST_RUNS} runs", None)
    first, second = arrays.np.triu_indices(n, k=1)
    rises = x[second] - x[first]
    signs = arrays.np.where(arrays.np.abs(rises) <= arrays.TIE, 0, arrays.np.sign(rises))
    s = int(signs.sum())
    # Ties are counted among values equal up to rounding noise.
    _, counts = arrays.np.unique(arrays.np.round(x, 12), return_counts=True)
    ties = int((counts * (counts - 1) * (2 * counts + 5)).sum())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    z = (s - arrays.np.sign(s)) / math.sqrt(variance) if variance > 0 else 0.0
    p = min(1.0, 2 * float(arrays.special.ndtr(-abs(z))))
    slope = float(arrays.np.median(rises / (t[second] - t[first])))
    # The median of what is left (Conover 1980), so that half of the runs lie above the line.
    intercept = float(arrays.np.median(x - slope * (t - t[0])))
    equal = not arrays.np.any(signs)
    return Trend(slope, n, "Mann-Kendall, Theil-Sen", p, s, intercept, equal)


def forecast(times: Floats, scores: Floats, *, threshold: float, level: float = 0.95) -> Forecast:
    """Return when a clearly falling series crosses the threshold on a straight line (STATS 17)."""
    t, x = _series(times, scores)
    n = x.size
    if not trend(t, x).falling:
        return _none(n, level, "no clear fall")
    middle = arrays.mean_of(t)
    sxx = arrays.dot(t - middle, t - middle)
    slope = arrays.dot(t - middle, x - arrays.mean_of(x)) / sxx
    if slope >= 0:
        return _none(n, level, "no clear fall")
    start = arrays.mean_of(x) - slope * middle
    crossing = (threshold - start) / slope
    if crossing <= t[-1]:
        return _none(n, level, "already at the threshold")
    if crossing - t[-1] > (t[-1] - t[0]) / 2:
        return _none(n, level, "too far to predict")
    residual = x - start - slope * t
    spread = math.sqrt(arrays.dot(residual, residual) / (n - 2))
    reach = float(arrays.special.stdtrit(n - 2, 0.5 + level / 2)) * spread
    line = _Line(start, slope, middle, sxx, n)
    interval = _limits(line, reach, threshold)
    if interval is not None:
        interval = arrays.Range(max(interval.low, float(t[-1])), interval.high)
    times = [float(t[-1] + (crossing - t[-1]) * step / _STEPS) for step in range(_STEPS + 1)]
    path = tuple(line.at(time, reach) for time in times)
    return Forecast(crossing, n, "straight line, prediction limits", interval, level, path=path)


_STEPS = 6
"""Parts that the line of a forecast is drawn in."""


@dataclass(frozen=True, slots=True)
class _Line:
    start: float
    slope: float
    middle: float
    sxx: float
    n: int

    def at(self, time: float, reach: float) -> ForecastPoint:
        """Return the line at a time, with the limits for one more run."""
        value = self.start + self.slope * time
        away = reach * math.sqrt(1 + 1 / self.n + (time - self.middle) ** 2 / self.sxx)
        return ForecastPoint(time, value, max(0.0, value - away), min(1.0, value + away))


def _limits(line: _Line, reach: float, threshold: float) -> arrays.Range | None:
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
    return arrays.Range(line.middle + (-b - root) / (2 * a), line.middle + (-b + root) / (2 * a))


def _series(times: Floats, scores: Floats) -> tuple[Array, Array]:
    t, x = arrays.finite(times, "times"), arrays.finite(scores, "scores")
    if t.size != x.size:
        raise ValueError(f"{t.size} times but {x.size} scores")
    if arrays.np.any(arrays.np.diff(t) <= 0):
        raise ValueError("runs come in the order of their times, no two at the same")
    return t, x


def _none(n: int, level: float, reason: str) -> Forecast:
    return Forecast(None, n, "none", None, level, reason)


REFERENCE_RUNS = 5
DROP, SMALL = 0.10, 0.02
"""The relative drop from which on there is an ALERT, and the points from which on a WARN."""
SCORE_SHARE = 1 / 2
"""Share of the false alarms of an experiment that its scores may raise."""
PROMISED_YEARS = 20.0
"""Mean time between false ALERTs of an experiment, at least."""
WARN_YEARS, ALERT_YEARS = 0.25 / SCORE_SHARE, PROMISED_YEARS / SCORE_SHARE
"""Mean time between false alarms by scores, at least."""
_YEAR_DAYS = 365.25
_LONGEST_DAYS = 7.0
"""Time that counts for one run at most, so that a pause does not count as evidence."""
_SHIFTS = (0.02, 0.05, 0.10, 0.20)
"""Drops that are bet on; their capitals are averaged."""
_MOST_UNITS = 100
"""Units above which cases are added up in groups: as exact, and fast for any number of cases."""
_MOST_YEARS = 1e6


class Alarm(StrEnum):
    """How loudly to say it."""

    NONE = "none"
    WARN = "warn"
    ALERT = "alert"


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """When to speak of a fall."""

    drop: float = DROP
    """Relative drop from which on there is an ALERT."""
    years: float = PROMISED_YEARS
    """Mean time between false ALERTs of an experiment, at least; a half is for its scores."""

    @property
    def alert_years(self) -> float:
        """Evidence by scores from which on there is an ALERT."""
        return self.years / SCORE_SHARE


@dataclass(frozen=True, slots=True)
class Drop(Estimate):
    """The newest runs against the reference, on the cases that both have.

    The value is the relative drop, (reference - current) / reference, None without a reference
    above 0; the interval is that of current minus reference, in points of 0-1.
    """

    reference: float | None
    current: float | None
    runs: int = 1
    """The newest runs that are pooled: those since the fall began, or the last one."""

    @property
    def points(self) -> float:
        """By how much the score is lower; 0 where nothing can be compared."""
        if self.reference is None or self.current is None:
            return 0.0
        return self.reference - self.current

    def reaches(self, share: float) -> bool:
        """Whether the relative drop is this large, noise or not."""
        return self.value is not None and self.value >= share - arrays.TIE


@dataclass(frozen=True, slots=True)
class DriftEvidence:
    """Evidence of a fall, in years between false alarms."""

    value: float
    """A quiet series reaches this at most once in this number of years on average."""
    n: int
    method: str
    since: int
    """The run, counted from 0, with which the fall likely began."""


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Findings on the last run of a series."""

    alarm: Alarm
    drop: Drop
    evidence: DriftEvidence
    trend: Trend
    n: int
    """Runs since the last accepted change."""
    gradual: bool = False
    """Whether the scores follow a falling line more closely than a step down."""
    years: float = PROMISED_YEARS
    """Years in which an experiment without a change shows an ALERT at most once, on average."""


def watch(
    times: Floats,
    runs: Sequence[Mapping[str, float]],
    *,
    clusters: Mapping[str, str] | None = None,
    rule: AlarmRule | None = None,
) -> DriftReport:
    """Return the drift of the last of the runs since the last accepted change, with its level.

    `times` are in days, and a run has the scores of its cases. WARN needs evidence that a quiet
    series shows at most twice a year, and a drop of 2 points; ALERT evidence that it shows at most
    once in 40 years, and a drop of 10%, where `rule` says nothing else.
    """
    rule = rule or AlarmRule()
    if not runs:
        raise ValueError("there is no run to watch")
    if not all(runs):
        raise ValueError("a run without a score is an error, not a run")
    means = [math.fsum(run.values()) / len(run) for run in runs]
    slope = trend(times, means)
    evidence = evidence_of_drop(times, runs, clusters=clusters)
    warned = evidence.value >= WARN_YEARS
    newest = runs[evidence.since :] if warned else runs[-1:]
    drop = drop_since(case_means(runs[:REFERENCE_RUNS]), case_means(newest), clusters=clusters)
    drop = replace(drop, runs=len(newest))
    alarm = Alarm.NONE
    if warned and drop.points >= SMALL - arrays.TIE:
        sure = evidence.value >= rule.alert_years and drop.reaches(rule.drop)
        alarm = Alarm.ALERT if sure else Alarm.WARN
    gradual = slope.falling and _is_line(
        arrays.finite(times, "times"), arrays.np.array(means), evidence.since
    )
    return DriftReport(alarm, drop, evidence, slope, len(runs), gradual, rule.years)


def _is_line(times: Array, means: Array, since: int) -> bool:
    """Whether a straight line fits the means better than a step at the run `since`."""
    away = times - arrays.mean_of(times)
    slope = arrays.dot(away, means) / arrays.dot(away, away)
    line = means - arrays.mean_of(means) - slope * away
    steps = arrays.np.concatenate(
        [part - arrays.mean_of(part) for part in (means[:since], means[since:])]
    )
    return arrays.dot(line, line) < arrays.dot(steps, steps)


def case_means(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each case over the runs that have it."""
    scores: dict[str, list[float]] = {}
    for run in runs:
        for case, score in run.items():
            scores.setdefault(case, []).append(score)
    return {case: math.fsum(values) / len(values) for case, values in sorted(scores.items())}


def drop_since(
    reference: Mapping[str, float],
    current: Mapping[str, float],
    *,
    clusters: Mapping[str, str] | None = None,
    level: float = 0.95,
) -> Drop:
    """Compare scores with those of the reference, on the cases that both have."""
    common = sorted(reference.keys() & current.keys())
    old, new = (
        arrays.bounded([side[case] for case in common], "scores", low=0, high=1)
        for side in (reference, current)
    )
    units = [unit_of(case, clusters.get(case)) for case in common] if clusters else None
    difference = paired.paired_difference(new - old, clusters=units, level=level)
    if difference is None:
        return Drop(None, 0, "nothing to compare", None, level, None, None)
    before, after = arrays.mean_of(old), arrays.mean_of(new)
    value = (before - after) / before if before > 0 else None
    return Drop(value, len(common), difference.method, difference.interval, level, before, after)


def evidence_of_drop(
    times: Floats,
    runs: Sequence[Mapping[str, float]],
    *,
    clusters: Mapping[str, str] | None = None,
) -> DriftEvidence:
    """Add up the evidence of a fall since the reference, run by run.

    With e the e-value of a run and g the years since the run before, Q = (Q + g) e. The mean of Q
    grows by g from run to run if nothing changed, so Q reaches Y at most once in Y years. It starts
    again when an alarm is over: Q is below the WARN level again, or the last 3 runs are within 2
    points of the reference.
    """
    path = evidence_path(times, runs, clusters=clusters)
    return DriftEvidence(
        value=path.years[-1],
        n=len(runs),
        method=f"conformal e-values added up over time, {len(_SHIFTS)} drops",
        since=path.since,
    )


class EvidencePath(NamedTuple):
    """Evidence after each run, in years, and the run with which the last fall likely began."""

    years: tuple[float, ...]
    since: int


def evidence_path(
    times: Floats,
    runs: Sequence[Mapping[str, float]],
    *,
    clusters: Mapping[str, str] | None = None,
) -> EvidencePath:
    """Return the evidence after each run, as it was then."""
    t = arrays.finite(times, "times")
    if t.size != len(runs) or not runs:
        raise ValueError(f"{t.size} times but {len(runs)} runs")
    sums, cases = _units(runs, clusters or {})
    gains, below = _log_e_values(sums, cases), _below(sums, cases)
    gaps = _gap_years(t, t[:1])
    nothing = arrays.np.full(len(_SHIFTS), -arrays.np.inf)
    capital, path = nothing, [0.0] * len(runs)
    start = alarmed = min(REFERENCE_RUNS, len(runs) - 1)
    for index in range(REFERENCE_RUNS, len(runs)):
        capital, path[index] = _accrued(capital, float(arrays.np.log(gaps[index])), gains[index])
        if path[index - 1] < WARN_YEARS:
            alarmed = index
        recent = below[max(alarmed, index - 2) : index + 1]
        over = path[index] < WARN_YEARS or arrays.mean_of(recent) < SMALL - arrays.TIE
        if over and alarmed < index:
            capital, start, path[index] = nothing, min(index + 1, len(runs) - 1), 0.0
    # The fall began where the gains from there on are largest, for the size that fits best. The
    # capital does not show the size: it is limited, and may be at its limit for all of them.
    ahead = arrays.np.cumsum(gains[start:][::-1], axis=0)[::-1]
    size = int(arrays.np.argmax(ahead.max(axis=0)))
    return EvidencePath(tuple(path), start + int(arrays.np.argmax(ahead[:, size])))


def _gap_years(times: Array, start: Array) -> Array:
    """Return the years between runs, the first since a start, within the limits for one run."""
    gaps = arrays.np.diff(times, prepend=start)
    return arrays.np.asarray(arrays.np.clip(gaps, arrays.TIE, _LONGEST_DAYS) / _YEAR_DAYS)


def _accrued(capital: Array, log_gap: float, gains: Array) -> tuple[Array, float]:
    """Return the log capitals after a run, and their mean: evidence in years."""
    grown = arrays.np.logaddexp(capital, log_gap) + gains
    grown = arrays.np.minimum(grown, math.log(_MOST_YEARS))
    return grown, math.exp(float(arrays.np.logaddexp.reduce(grown))) / grown.size


_RATES = (0.03, 0.1, 0.25, 0.5, 0.9)
"""Rates that are bet on, as shares of the way from the limit to 1."""
_LEAST_RATE = 0.001
_FIRST_DAYS = 1.0
"""Time that counts for the first run of a series."""


def evidence_of_rate(
    times: Floats, runs: Sequence[Sequence[float]], *, limit: float
) -> tuple[float, ...]:
    """Return the evidence after each run that a rate is above its limit, in years.

    A run has the share of each case (or cluster), from 0 to 1, such as of its calls that failed. If
    every mean is at most m, the product of 1 + λ (x - m) over cases has mean 1 at most (betting:
    Waudby-Smith and Ramdas 2023); for shares of 0 or 1 it is the likelihood ratio of a higher rate.
    It is added up over time as for drops, and starts again with a run within the limit.
    """
    t = arrays.finite(times, "times")
    if t.size != len(runs):
        raise ValueError(f"{t.size} times but {len(runs)} runs")
    m = max(limit, _LEAST_RATE)
    if m >= 1 - arrays.TIE:
        return (0.0,) * len(runs)
    bets = arrays.np.array([(share * (1 - m)) / (m * (1 - m)) for share in _RATES])
    gaps = _gap_years(t, t[:1] - _FIRST_DAYS)
    nothing = arrays.np.full(len(_RATES), -arrays.np.inf)
    capital, path = nothing, []
    for gap, run in zip(gaps, runs, strict=True):
        x = arrays.bounded(run, "shares", low=0, high=1)
        if x.size == 0 or arrays.mean_of(x) <= m + arrays.TIE:
            capital = nothing
            path.append(0.0)
            continue
        gains = arrays.np.log1p(arrays.np.outer(bets, x - m)).sum(axis=1).round(9)
        capital, years = _accrued(capital, math.log(gap), gains)
        path.append(years)
    return tuple(path)


def _below(sums: Array, cases: int) -> Array:
    """Return by how many points the mean of each run is below that of the reference."""
    means = arrays.np.array([math.fsum(run) for run in sums.tolist()]) / cases
    return arrays.np.asarray(arrays.mean_of(means[:REFERENCE_RUNS]) - means)


def _units(runs: Sequence[Mapping[str, float]], clusters: Mapping[str, str]) -> tuple[Array, int]:
    """Return scores added up by unit, a row a run, and the number of cases.

    A score that a run does not have is put at the mean of its case, where it says nothing.
    """
    means = case_means(runs)
    cases = sorted(means, key=lambda case: (unit_of(case, clusters.get(case)), case))
    names = [unit_of(case, clusters.get(case)) for case in cases]
    number = {name: i % _MOST_UNITS for i, name in enumerate(dict.fromkeys(names))}
    scores = arrays.np.array([[run.get(case, means[case]) for case in cases] for run in runs])
    sums = arrays.np.zeros((max(number.values()) + 1, len(runs)))
    arrays.np.add.at(sums, [number[name] for name in names], scores.T)
    return sums.T, len(cases)


def _log_e_values(sums: Array, cases: int) -> Array:
    """Return the log e-value of each run against those before it, for each drop that is bet on.

    The bet is the likelihood ratio of a drop under normal noise, of which the size comes from all
    runs so far in any order. Its mean over which of them was the newest is 1 in every unit.
    """
    log_e = arrays.np.zeros((len(sums), len(_SHIFTS)))
    for index in range(REFERENCE_RUNS, len(sums)):
        away = sums[: index + 1] - sums[: index + 1].mean(axis=0)
        noise = float((away * away).sum()) / index
        if noise < arrays.TIE * arrays.TIE:
            continue
        bet = -0.01 * cases / noise * away
        bet -= bet.max(axis=0)
        # A drop of 2, 5, 10 or 20 points is a power of one point: four times as fast as four exps.
        one = arrays.np.exp(bet)
        two = one * one
        five = two * two * one
        ten = five * five
        for place, power in enumerate((two, five, ten, ten * ten)):
            gains = 100 * _SHIFTS[place] * bet[-1] - arrays.np.log(power.mean(axis=0))
            # Rounded, because sums of arrays depend on the processor in the last digits.
            log_e[index, place] = round(math.fsum(gains.tolist()), 9)
    return log_e


_SIZES = (1.0, 2.0, 3.0)
"""Drops that are bet on, in standard deviations of the means."""
_FARTHEST = 2.5
"""Standard deviations that one sample counts at most: means of few scores are not quite normal."""
_LEAST_SD = 0.005


def watch_means(times: Floats, means: Floats) -> DriftReport:
    """Return the drift of the last of some samples, by their means, with its level (STATS 17).

    Each mean is compared with all before it by the self-starting t of Hawkins (1987), which is
    exactly standard normal without a change if the means are normal. Its likelihood ratios are
    added up over time as those of `watch` are, so the alarms have the same meaning.
    """
    t, x = _series(times, means)
    arrays.bounded(x, "means", low=0, high=1)
    slope = trend(t, x)
    years, since = _means_path(t, x)
    warned = years >= WARN_YEARS
    newest = x[since:] if warned else x[-1:]
    before, after = arrays.mean_of(x[:REFERENCE_RUNS]), arrays.mean_of(newest)
    value = (before - after) / before if before > 0 else None
    method = "means of samples"
    drop = Drop(value, x.size, method, None, 0.95, before, after, len(newest))
    alarm = Alarm.NONE
    if warned and drop.points >= SMALL - arrays.TIE:
        alarm = Alarm.ALERT if years >= ALERT_YEARS and drop.reaches(DROP) else Alarm.WARN
    evidence = DriftEvidence(years, x.size, "self-starting t, added up over time", since)
    return DriftReport(alarm, drop, evidence, slope, x.size)


def _means_path(t: Array, x: Array) -> tuple[float, int]:
    """Return the evidence after the last sample, in years, and where the fall likely began."""
    sizes = arrays.np.array(_SIZES)
    gains = arrays.np.zeros((x.size, sizes.size))
    gaps = _gap_years(t, t[:1])
    capital, years = arrays.np.full(sizes.size, -arrays.np.inf), 0.0
    for index in range(REFERENCE_RUNS, x.size):
        earlier = x[:index]
        away = earlier - arrays.mean_of(earlier)
        sd = max(math.sqrt(arrays.dot(away, away) / (index - 1)), _LEAST_SD)
        t_value = math.sqrt(index / (index + 1)) * (float(x[index]) - arrays.mean_of(earlier)) / sd
        share = float(arrays.special.stdtr(index - 1, t_value))
        u = max(-_FARTHEST, float(arrays.special.ndtri(min(max(share, 1e-300), 1 - 1e-16))))
        gains[index] = -sizes * u - sizes**2 / 2
        capital, years = _accrued(capital, math.log(gaps[index]), gains[index])
    start = min(REFERENCE_RUNS, x.size - 1)
    ahead = arrays.np.cumsum(gains[start:, int(arrays.np.argmax(capital))][::-1])[::-1]
    return years, start + int(arrays.np.argmax(ahead))
