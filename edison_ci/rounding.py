"""Sums, comparisons and rounding that come out the same in any order and on any machine.

The last digits of a float sum depend on the order of its terms, on the processor and on the
libraries. Sums are therefore exact before their one rounding, comparisons allow for noise, and a
number is rounded only where it is written, half away from zero.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

NOISE = 1e-12
"""Computed numbers that differ by less are the same number."""
TOLERANCE = 1e-9
"""A score that misses its threshold by less has reached it (STATS 20)."""
_VANISHING = 2e-14


def mean(values: Collection[float]) -> float:
    """Return the mean, whatever the order; there is at least one value."""
    return math.fsum(values) / len(values)


def mean_or_none(values: Collection[float]) -> float | None:
    """Return the mean, whatever the order; None of no values."""
    return mean(values) if values else None


def weighted_mean(weighted: Collection[tuple[float, float]]) -> float | None:
    """Return the mean of (weight, value) pairs, whatever the order; None without any weight."""
    total = math.fsum(weight for weight, _ in weighted)
    return math.fsum(weight * value for weight, value in weighted) / total if total > 0 else None


def reaches(value: float, threshold: float) -> bool:
    """Whether a value is at least the threshold, up to noise; large values have more of it."""
    return value >= threshold - TOLERANCE * max(1.0, abs(threshold))


def exceeds(value: float, limit: float) -> bool:
    """Whether a value is above the limit by more than noise."""
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
    """Return the number with so many decimals, halves away from zero and never as -0."""
    form = f"{'+' if signed else ''}{',' if grouped else ''}.{digits}f"
    text = format(_off_the_edge(value), form)
    if text[0] == "-" and not text.strip("-0."):
        return f"+{text[1:]}" if signed else text[1:]
    return text


def significant(value: float, digits: int, *, grouped: bool = False) -> str:
    """Return the number with at most so many significant digits, halves away from zero."""
    return format(value * (1 + NOISE), f"{',' if grouped else ''}.{digits}g")


def rounded(value: float, digits: int = 0) -> float:
    """Return the number that `fixed` writes."""
    return float(fixed(value, digits))


def whole(value: float) -> int:
    """Return the nearest whole number, halves away from zero."""
    return int(fixed(value))


def _off_the_edge(value: float) -> float:
    """Move a number away from zero by more than its noise, which settles halves."""
    return value + math.copysign(NOISE * max(1.0, abs(value)), value)
