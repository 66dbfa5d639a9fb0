"""Verdicts of gates, what they rest on, families of them, and corrections for many comparisons.

The corrections are in plain Python: every run asks one of its slices, and most runs need nothing
else of numpy.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.numeric import reaches, significant
from edison_ci.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from edison_ci.stats.arrays import Floats, Range
    from edison_ci.stats.paired import Pairs
    from edison_ci.stats.permutation import PValue


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


# Passing needs every item to pass, each without correction: the chance to pass everything wrongly
# is already at most alpha (intersection-union). Failing uses Holm-adjusted p-values, because among
# many items some would fail by luck.
SMALLEST_SLICE = 10
"""Slices of fewer cases are shown without a verdict."""


@dataclass(frozen=True, slots=True)
class FamilyDecision:
    """What the gates of an experiment say together."""

    verdict: Verdict
    items: tuple[GateDecision, ...]
    """The decisions in their order, after allowing for each other."""
    n: int
    """Items that were tested, and so were allowed for."""
    method: str = "every item passes; Holm-adjusted p-values fail"


def decide_family(
    decisions: Sequence[GateDecision], *, others: Sequence[float] = ()
) -> FamilyDecision:
    """Decide several gates together (STATS 8); the family is fixed before the run.

    `others` are the p-values of members that were decided before, or 1 for those that are not
    decided yet: they count, and are not decided again.
    """
    if not decisions:
        raise ValueError("a family of gates has at least one")
    tested = [item.p.value for item in decisions if item.p is not None]
    family = len(tested) + len(others)
    adjusted = iter(holm([*tested, *others]).value)
    items = tuple(
        item if item.p is None else _allowing_for(item, next(adjusted), family)
        for item in decisions
    )
    verdicts = {item.verdict for item in items}
    worst = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)
    return FamilyDecision(next(v for v in worst if v in verdicts), items, family)


def _allowing_for(item: GateDecision, adjusted: float, family: int) -> GateDecision:
    item = replace(item, p_adjusted=adjusted, family=family)
    if item.verdict is not Verdict.FAIL or adjusted <= item.alpha:
        return item
    more = None if item.n_needed is None else max(1, item.n_needed - item.n)
    note = f"not clear after allowing for {family} comparisons"
    return replace(item, verdict=Verdict.INCONCLUSIVE, n_more=more, notes=(*item.notes, note))


WARN_MISSING, MOST_MISSING = 0.05, 0.20
"""Shares of missing cases above which a gate warns, and above which it never decides."""


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

    def sequential_question(self, share: float | None = None) -> str:
        """Return which drop a sequential test tests; `share` is a margin relative to the base."""
        if self.fail_rule == "beyond_zero":
            return "any drop"
        if share is not None:
            return f"a drop beyond {significant(100 * share, 3)}%"
        return f"a drop beyond {significant(100 * self.margin, 3)} points"


def push_level(alpha: float, push: int) -> float:
    """Return the error at which a push of a pull request may pass, 1 for the first.

    The first has the whole error, the k-th 6/(pi k)^2 of it. The chance that a real drop ever
    passes is at most 1.4 times the error, for any number of pushes (Bonferroni).
    """
    if push < 1:
        raise ValueError(f"pushes are counted from 1, not {push!r}")
    return alpha if push == 1 else 6 * alpha / (math.pi * push) ** 2


@dataclass(frozen=True, slots=True)
class Missing:
    """Cases that were planned but cannot be paired."""

    count: int = 0
    lost: int = 0
    """Cases of the base of which the head has lost an answer."""
    worst: Pairs | None = None
    """All cases that the base has, with lost answers at their worst; None if none is lost."""
    at_base: Callable[[], Pairs] | None = None
    """Returns all planned cases, with missing answers at the base's score."""


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Decision of a gate, with the numbers behind it.

    By `kind`, the numbers are a `change` in points of 0-1 (head minus base), a `relative` change
    (0.1 is 10% more), or the `level` of head alone.
    """

    verdict: Verdict
    value: float | None
    """The change or level that was measured; None without a case."""
    n: int
    method: str
    level: float
    margin: float
    """The change that is tolerated, or the level that is required."""
    interval: Range | None = None
    """Two-sided, for people; the verdict rests on the one-sided bounds below."""
    kind: Literal["change", "relative", "level"] = "change"
    alpha: float = 0.05
    """The one-sided error that the verdict allows, over all looks together."""
    worst_plausible: float | None = None
    """One-sided bound on the bad side; of scores it counts unseen, wholly failed cases."""
    best_plausible: float | None = None
    """One-sided bound on the good side."""
    p: PValue | None = None
    """One-sided, for "the head is worse"; None where nothing is tested."""
    tests: str = ""
    """What a small p shows, such as "any drop"; empty where nothing is tested."""
    p_adjusted: float | None = None
    """After allowing for the other items of the family; the plain p in a family of one."""
    family: int = 1
    n_needed: int | None = None
    """Cases at which an unchanged candidate likely passes."""
    n_more: int | None = None
    """Further cases that would settle it; None unless inconclusive, or if beyond every plan."""
    n_more_range: tuple[int | None, int | None] | None = None
    """The same for the ends of an sd that fewer than 10 cases estimate."""
    clusters: int | None = None
    """Clusters of the cases; None where every case is its own."""
    missing: int = 0
    notes: tuple[str, ...] = ()
