"""Which of many comparisons stand out once their number is allowed for?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edison_ci.stats.arrays import finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edison_ci.stats.arrays import Array, Floats


@dataclass(frozen=True, slots=True)
class Adjusted:
    """P-values after allowing for the size of their family, in the order they came."""

    value: tuple[float, ...]
    n: int
    """The size of the family."""
    method: str
    level: float
    """Highest adjusted p that still stands out."""

    @property
    def stands_out(self) -> tuple[bool, ...]:
        """Whether each comparison stands out."""
        return tuple(p <= self.level for p in self.value)


def holm(p_values: Floats, *, alpha: float = 0.05) -> Adjusted:
    """Adjust so that the chance of any false alarm in the family is at most alpha (Holm 1979)."""
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * (p.size - np.arange(p.size)))
    return Adjusted(_in_place(np.maximum.accumulate(scaled), order), p.size, "Holm", alpha)


def benjamini_hochberg(p_values: Floats, *, rate: float = 0.10) -> Adjusted:
    """Adjust so that at most `rate` of what stands out is false on average (1995).

    For tables that explore, never for a verdict.
    """
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * p.size / np.arange(1, p.size + 1))
    lowest = np.minimum.accumulate(scaled[::-1])[::-1]
    return Adjusted(_in_place(lowest, order), p.size, "Benjamini-Hochberg", rate)


def _in_place(sorted_values: Array, order: NDArray[np.intp]) -> tuple[float, ...]:
    adjusted = np.empty(sorted_values.size)
    adjusted[order] = sorted_values
    return tuple(adjusted.tolist())


def _checked(p_values: Floats) -> Array:
    p = finite(p_values, "p-values")
    if p.size and (p.min() < 0 or p.max() > 1):
        raise ValueError("p-values lie from 0 to 1")
    return p
