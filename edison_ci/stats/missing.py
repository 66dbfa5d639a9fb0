"""Missing values, and how much they matter.

Missing is missing: never 0, never clipped, never silently dropped, but counted and shown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.rounding import exceeds
from edison_ci.stats.arrays import Range
from edison_ci.stats.verdicts import MOST_MISSING, WARN_MISSING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Present:
    """The numbers that are there, and how many are not."""

    values: tuple[float, ...]
    missing: int

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.values)

    @property
    def share_missing(self) -> float:
        """The share that is not there; 0 of nothing."""
        return self.missing / (self.n + self.missing) if self.missing else 0.0

    @property
    def warn(self) -> bool:
        """Whether so much is missing that a report says so."""
        return exceeds(self.share_missing, WARN_MISSING)

    @property
    def decidable(self) -> bool:
        """Whether enough is there for a verdict."""
        return self.n > 0 and not exceeds(self.share_missing, MOST_MISSING)


@dataclass(frozen=True, slots=True)
class BothSides:
    """The cases that have a score on both sides, and what became of the others."""

    cases: tuple[str, ...]
    base_only: tuple[str, ...]
    head_only: tuple[str, ...]
    neither: tuple[str, ...]

    @property
    def missing(self) -> int:
        """Cases that leave the pairing."""
        return len(self.base_only) + len(self.head_only) + len(self.neither)


def present(values: Iterable[float | None]) -> Present:
    """Take out None, NaN and infinities at the door, and count them (STATS 19)."""
    everything = list(values)
    kept = tuple(float(x) for x in everything if x is not None and math.isfinite(x))
    return Present(kept, len(everything) - len(kept))


def both_sides(base: Mapping[str, float | None], head: Mapping[str, float | None]) -> BothSides:
    """Sort the cases of two sides by where they have a score."""
    there = [
        {case for case, x in side.items() if x is not None and math.isfinite(x)}
        for side in (base, head)
    ]
    every = base.keys() | head.keys()
    return BothSides(
        cases=tuple(sorted(there[0] & there[1])),
        base_only=tuple(sorted(there[0] - there[1])),
        head_only=tuple(sorted(there[1] - there[0])),
        neither=tuple(sorted(every - there[0] - there[1])),
    )


def mean_range(values: Iterable[float | None]) -> Range | None:
    """Return the mean if every missing score were 0, and if every one were 1.

    These are the worst-case and best-case bounds that are shown beside a score with errors.
    """
    found = present(values)
    total = found.n + found.missing
    if not total:
        return None
    low = math.fsum(found.values) / total
    return Range(low, low + found.missing / total)
