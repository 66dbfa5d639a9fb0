"""Corrections for many comparisons.

In plain Python: every run asks it of its slices, and most runs need nothing else of numpy.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import reaches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edison_ci.stats.arrays import Floats


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
        return tuple(reaches(self.level, p) for p in self.value)


def holm(p_values: Floats, *, alpha: float = 0.05) -> Adjusted:
    """Adjust so that the chance of any false alarm in the family is at most alpha (Holm 1979)."""
    p = _checked(p_values)
    order = _ascending(p)
    scaled = [min(1.0, p[place] * (len(p) - rank)) for rank, place in enumerate(order)]
    return Adjusted(_in_place(accumulate(scaled, max), order), len(p), "Holm", alpha)


def benjamini_hochberg(p_values: Floats, *, rate: float = 0.10) -> Adjusted:
    """Adjust so that at most `rate` of what stands out is false on average (1995).

    For tables that explore, never for a verdict.
    """
    p = _checked(p_values)
    order = _ascending(p)
    scaled = [min(1.0, p[place] * len(p) / (rank + 1)) for rank, place in enumerate(order)]
    lowest = list(accumulate(reversed(scaled), min))[::-1]
    return Adjusted(_in_place(lowest, order), len(p), "Benjamini-Hochberg", rate)


def _ascending(p: Sequence[float]) -> list[int]:
    return sorted(range(len(p)), key=p.__getitem__)


def _in_place(sorted_values: Iterable[float], order: Sequence[int]) -> tuple[float, ...]:
    adjusted = dict(zip(order, sorted_values, strict=True))
    return tuple(adjusted[place] for place in range(len(order)))


def _checked(p_values: Floats) -> list[float]:
    p = [float(value) for value in p_values]
    if not all(0 <= value <= 1 for value in p):  # NaN is not either
        raise ValueError("p-values lie from 0 to 1")
    return p
