"""Numbers: sums and comparisons that do not depend on the machine, and their one form as text.

The last digits of a float sum depend on the order of its terms, on the processor and on the
libraries. Sums are therefore exact before their one rounding, comparisons allow for noise, and a
number is rounded only where it is written, half away from zero. Every report, page and terminal
writes scores, shares, money and durations with the functions below.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

NOISE = 1e-12
"""Computed numbers that differ by less are the same number."""
TOLERANCE = 1e-9
"""A score that misses its threshold by less has reached it (STATS 20)."""
_VANISHING = 2e-14
NOTHING = "-"
"""Shown for a number that is not known."""
NO_SPAN = "1 case: no error bar"
"""Shown for an interval that one case does not have."""


def mean(values: Collection[float]) -> float:
    """Return the mean of at least one value, independent of their order."""
    return math.fsum(values) / len(values)


def mean_or_none(values: Collection[float]) -> float | None:
    """Return the mean, independent of the order; None without values."""
    return mean(values) if values else None


def weighted_mean(weighted: Collection[tuple[float, float]]) -> float | None:
    """Return the mean of (weight, value) pairs, independent of their order; None without weight."""
    total = math.fsum(weight for weight, _ in weighted)
    return math.fsum(weight * value for weight, value in weighted) / total if total > 0 else None


def reaches(value: float, threshold: float) -> bool:
    """Whether a value is at least the threshold; the tolerance grows with large thresholds."""
    return value >= threshold - TOLERANCE * max(1.0, abs(threshold))


def exceeds(value: float, limit: float) -> bool:
    """Whether a value is above the limit by more than the tolerance."""
    return value > limit + TOLERANCE * max(1.0, abs(limit))


def snap(value: float) -> float:
    """Return the number without the digits that are noise: equal numbers become identical.

    Twelve digits stay, counted from the first one or from the point, whichever are fewer; numbers
    below a billionth, such as small p-values, keep three.
    """
    size = abs(value)
    if size >= 1:
        return float(f"{value:.12g}")
    if size >= TOLERANCE:
        return round(value, 12)
    return 0.0 if size < _VANISHING else float(f"{value:.3g}")


def fixed(value: float, digits: int = 0, *, signed: bool = False, grouped: bool = False) -> str:
    """Return the number with `digits` decimals, halves away from zero and never as -0."""
    form = f"{'+' if signed else ''}{',' if grouped else ''}.{digits}f"
    return _without_minus_zero(format(_off_the_edge(value), form), "+" if signed else "")


def significant(value: float, digits: int, *, grouped: bool = False) -> str:
    """Return the number with at most `digits` significant digits, halves away from zero."""
    text = format(value * (1 + NOISE), f"{',' if grouped else ''}.{digits}g")
    return _without_minus_zero(text)


def _without_minus_zero(text: str, sign: str = "") -> str:
    return f"{sign}{text[1:]}" if text[0] == "-" and not text.strip("-0.") else text


def rounded(value: float, digits: int = 0) -> float:
    """Return the number that `fixed` writes."""
    return float(fixed(value, digits))


def whole(value: float) -> int:
    """Return the nearest whole number, halves away from zero."""
    return int(fixed(value))


def _off_the_edge(value: float) -> float:
    """Move a number away from zero by more than its noise, so that halves always round alike."""
    return value + math.copysign(NOISE * max(1.0, abs(value)), value)


class Estimate(Protocol):
    """A number with its confidence interval, which needs at least two cases."""

    @property
    def estimate(self) -> float:
        """The number."""

    @property
    def low(self) -> float | None:
        """Lower end of the interval; None without one."""

    @property
    def high(self) -> float | None:
        """Upper end of the interval; None without one."""

    @property
    def n(self) -> int:
        """Number of cases."""


def score(value: float | None) -> str:
    """Return a score in points out of 100: 72.6."""
    return NOTHING if value is None else fixed(100 * value, 1)


def signed_score(value: float) -> str:
    """Return a change of a score in points, with its sign: +3.1."""
    return fixed(100 * value, 1, signed=True)


def points(estimate: Estimate | None) -> str:
    """Return a score with its interval: 72.6 (66.6 to 77.9)."""
    if estimate is None:
        return NOTHING
    if estimate.low is None or estimate.high is None:
        return f"{score(estimate.estimate)} ({NO_SPAN})"
    return f"{score(estimate.estimate)} ({score_span(estimate.low, estimate.high)})"


def score_span(low: float, high: float) -> str:
    """Return the interval of a score, in points: 66.6 to 77.9."""
    return f"{score(low)} to {score(high)}"


def change(estimate: float | None, low: float | None, high: float | None) -> str:
    """Return a change in points with its interval: +3.1 points (+0.4 to +5.8)."""
    if estimate is None:
        return NOTHING
    text = f"{signed_score(estimate)} points"
    return text if low is None or high is None else f"{text} ({signed_span(low, high)})"


def signed_span(low: float, high: float) -> str:
    """Return the interval of a change, in points: +0.4 to +5.8."""
    return f"{signed_score(low)} to {signed_score(high)}"


def percent(share: float | None, digits: int = 0) -> str:
    """Return a share: 60%."""
    return NOTHING if share is None else f"{fixed(100 * share, digits)}%"


def percent_span(low: float, high: float) -> str:
    """Return the interval of a share, in percent: 53 to 67."""
    return f"{fixed(100 * low)} to {fixed(100 * high)}"


def rate(estimate: Estimate | None) -> str:
    """Return a pass rate with its interval: 60% of 200 (53 to 67)."""
    if estimate is None:
        return NOTHING
    share = f"{percent(estimate.estimate)} of {estimate.n:,}"
    if estimate.low is None or estimate.high is None:
        return share
    return f"{share} ({percent_span(estimate.low, estimate.high)})"


def dollars(microusd: float | None) -> str:
    """Return an amount of money with at least two significant digits: $1.25, $0.0016, $0.000440."""
    if microusd is None:
        return NOTHING
    if microusd == 0:
        return "$0"
    return f"${fixed(microusd / 1e6, _decimals(microusd), grouped=True)}"


def in_cents(microusd: int) -> str:
    """Return an amount as a value of --budget, rounded up to a cent."""
    return fixed(max(-(-microusd // 10_000), 1) / 100, 2)


def dollar_range(low: float, high: float) -> str:
    """Return a range of money: $0.0012-0.0340, or `free`."""
    if high == 0:
        return "free"
    digits = 4 if high < 100_000 else 2
    return f"${fixed(low / 1e6, digits)}-{fixed(high / 1e6, digits)}"


def _decimals(microusd: float) -> int:
    size = abs(microusd)
    return 2 if size >= 100_000 else 4 if size >= 1_000 else 6


def milliseconds(p50: float | None, p95: float | None = None) -> str:
    """Return a latency, with its 95th percentile where there is one: 840 ms, p95 1,900 ms."""
    if p50 is None:
        return NOTHING
    late = "" if p95 is None else f", p95 {_latency(p95)}"
    return f"{_latency(p50)}{late}"


def _latency(ms: float) -> str:
    if ms < 10_000:
        return f"{fixed(ms, grouped=True)} ms"
    return f"{fixed(ms / 1000, 1, grouped=True)} s"


def duration(seconds: float) -> str:
    """Return a length of time in a suitable unit: 1.4 s, 45 s, 12 min, 2.5 h, 3 days."""
    if seconds < 90:
        return f"{fixed(seconds, 1 if seconds < 10 else 0)} s"
    if seconds < 5400:
        return f"{fixed(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{fixed(seconds / 3600, 1)} h"
    return f"{fixed(seconds / 86_400, grouped=True)} days"


def duration_range(low_s: float, high_s: float) -> str:
    """Return a range of time: 20-45 s, 1.5-4.0 min."""
    if high_s < 1:
        return "<1 s"
    if high_s < 120:
        return f"{fixed(low_s)}-{fixed(high_s)} s"
    return f"{fixed(low_s / 60, 1)}-{fixed(high_s / 60, 1)} min"


def count_range(low: float, high: float) -> str:
    """Return a range of counts, in thousands where they are large: 800-1,200, 12k-15k."""
    if high == 0:
        return "0"
    if high < 10_000:
        return f"{fixed(low, grouped=True)}-{fixed(high, grouped=True)}"
    return f"{fixed(low / 1000, grouped=True)}k-{fixed(high / 1000, grouped=True)}k"


def counted(number: int, word: str) -> str:
    """Return a number with its noun: 1 case, 1,200 cases."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def probability(p: float | None) -> str:
    """Return a p-value: 0.042, < 0.001."""
    if p is None:
        return NOTHING
    return "< 0.001" if p < 0.001 else fixed(p, 3)
