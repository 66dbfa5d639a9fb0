"""What can a gate say, and what does it have to be told?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from edison_ci.stats.arrays import Range
    from edison_ci.stats.permutation import PValue


WARN_MISSING, MOST_MISSING = 0.05, 0.20
"""Shares of missing cases above which a gate warns, and above which it never decides."""


class Verdict(StrEnum):
    """What a gate says."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class GateRule:
    """What a gate tolerates and how sure it must be; the defaults are those of STATS 21."""

    margin: float = 0.05
    confidence: float = 0.95
    worst_case_drop: float = 1.0
    """By how much a case that was not seen may drop; lower only if it cannot lose everything."""
    power: float = 0.8
    fail_rule: Literal["beyond_zero", "beyond_margin"] = "beyond_zero"
    guarantee: Literal["exact", "strict"] = "exact"

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise ValueError(f"margin must be between 0 and 1, not {self.margin!r}")
        if not 0.5 < self.confidence < 1:
            raise ValueError(f"confidence must be between 0.5 and 1, not {self.confidence!r}")
        if not 0 <= self.worst_case_drop <= 1:
            raise ValueError(f"worst_case_drop is from 0 to 1, not {self.worst_case_drop!r}")

    @property
    def alpha(self) -> float:
        """The error that is allowed: 1 - confidence."""
        # Rounded, because 1 - 0.95 is a little more than 0.05 and p-values can equal 0.05.
        return round(1 - self.confidence, 12)


@dataclass(frozen=True, slots=True)
class Missing:
    """Cases that were planned but cannot be paired."""

    count: int = 0
    base_only: tuple[float, ...] = ()
    """Base scores of the cases whose head is missing."""


@dataclass(frozen=True, slots=True)
class GateDecision:
    """What a gate says, with everything that led to it.

    By `kind`, the numbers are a `change` in points of 0-1 (head minus base), a `relative` change
    (0.1 is 10% more), or the `level` of head alone.
    """

    verdict: Verdict
    value: float | None
    """The change or level that was measured; None without a case."""
    n: int
    method: str
    interval: Range | None
    """Two-sided, for people; the verdict rests on the one-sided bounds below."""
    level: float
    margin: float
    """The change that is tolerated, or the level that is asked for."""
    kind: Literal["change", "relative", "level"] = "change"
    alpha: float = 0.05
    """The one-sided error that the verdict allows; smaller than 1 - level at an early look."""
    worst_plausible: float | None = None
    """One-sided bound on the bad side; of scores it counts one more, wholly failed case."""
    best_plausible: float | None = None
    """One-sided bound on the good side."""
    p: PValue | None = None
    """One-sided, for "the head is worse"; None where nothing is tested."""
    p_adjusted: float | None = None
    """After allowing for the other items of the family; the plain p in a family of one."""
    family: int = 1
    drop_shown: bool = False
    """Whether the drop meets the conditions of FAIL other than the p-value."""
    n_needed: int | None = None
    """Cases at which an unchanged candidate likely passes."""
    n_more: int | None = None
    """Further cases that would settle it; None unless inconclusive, or if beyond every plan."""
    n_more_range: tuple[int | None, int | None] | None = None
    """The same for the ends of an sd that fewer than 10 cases estimate."""
    missing: int = 0
    notes: tuple[str, ...] = ()
