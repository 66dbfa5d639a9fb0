"""The cheapest way to settle a gate: more cases or more repeats."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.stats.power import cases_for_margin
from edison_ci.stats.verdicts import GateRule

if TYPE_CHECKING:
    from edison_ci.stats.power import VarianceSplit

_MOST_REPEATS = 1_000


@dataclass(frozen=True, slots=True)
class Design:
    """What was run, and what more of it costs, both sides together."""

    cases: int
    repeats: int
    cost_case: float
    """Of one more case besides its repeats: writing it, labelling it."""
    cost_repeat: float


@dataclass(frozen=True, slots=True)
class Settling:
    """How an unchanged candidate would come to pass with the least money."""

    value: Literal["cases", "repeats"] | None
    """The cheaper way; None when neither would do within reason."""
    n: int
    method: str
    more_cases: int | None
    """At the repeats there are."""
    repeats: int | None
    """Repeats a case at the cases there are; None when no number would do."""
    cost_cases: float | None
    cost_repeats: float | None


def cheapest_settling(
    split: VarianceSplit, design: Design, rule: GateRule | None = None
) -> Settling:
    """Compare the two ways; `split` is that of the paired differences (STATS 7, 10).

    Repeats help only the noise part: the variance of a case's mean is between + within / k.
    """
    rule = rule or GateRule()
    if design.cases < 1 or design.repeats < 1:
        raise ValueError("a design has at least one case and one repeat")
    cases = _cases(split, design.repeats, rule)
    more = None if cases is None else max(1, cases - design.cases)
    repeats = _repeats(split, design, rule)
    cost_cases = None
    if more is not None:
        cost_cases = more * (design.cost_case + design.repeats * design.cost_repeat)
    cost_repeats = None
    if repeats is not None:
        cost_repeats = design.cases * (repeats - design.repeats) * design.cost_repeat
    way: Literal["cases", "repeats"] | None = None
    if cost_cases is not None:
        way = "cases"
    if cost_repeats is not None and (cost_cases is None or cost_repeats < cost_cases):
        way = "repeats"
    return Settling(
        value=way,
        n=design.cases,
        method="cases for the margin, at between + within / repeats",
        more_cases=more,
        repeats=repeats,
        cost_cases=cost_cases,
        cost_repeats=cost_repeats,
    )


def flip_sd(flip_share: float, mean: float = 0.0) -> float:
    """Return the sd of pass or fail differences when a share of cases flips either way."""
    if not 0 <= flip_share <= 1 or abs(mean) > flip_share:
        raise ValueError(f"{flip_share!r} of cases flip, with mean {mean!r}: that cannot be")
    return math.sqrt(flip_share - mean * mean)


def _cases(split: VarianceSplit, repeats: int, rule: GateRule) -> int | None:
    return cases_for_margin(
        math.sqrt(split.between + split.within / repeats),
        margin=rule.margin,
        alpha=rule.alpha,
        worst_case_drop=rule.worst_case_drop,
        power=rule.power,
    ).value


def _repeats(split: VarianceSplit, design: Design, rule: GateRule) -> int | None:
    """Return the fewest repeats, more than there are, at which the cases there are suffice."""

    def enough(repeats: int) -> bool:
        needed = _cases(split, repeats, rule)
        return needed is not None and needed <= design.cases

    if not enough(_MOST_REPEATS):
        return None
    low, high = design.repeats, _MOST_REPEATS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
