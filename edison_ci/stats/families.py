"""What do several gates say together?

Passing needs every item to pass, each without correction: the chance to pass everything wrongly
is already at most alpha (intersection-union). Failing uses Holm-adjusted p-values, because among
many items some would fail by luck.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.stats.correction import holm
from edison_ci.stats.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.verdicts import GateDecision


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
