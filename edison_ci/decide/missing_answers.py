"""Gates with missing answers: PASS counts them at their worst, FAIL at their best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.numeric import exceeds
from edison_ci.records import Verdict
from edison_ci.stats.gates import HOLDS, lost_words
from edison_ci.stats.verdicts import MOST_MISSING, WARN_MISSING

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.results.samples import Paired
    from edison_ci.stats.verdicts import GateDecision


def hold_at_worst(
    decision: GateDecision, lost: int, passes_at_worst: Callable[[], bool]
) -> GateDecision:
    """Keep a gate from passing if it would not with lost answers at their worst."""
    if not lost or decision.verdict is not Verdict.PASS or passes_at_worst():
        return decision
    notes = (*decision.notes, lost_words(lost))
    return replace(decision, verdict=Verdict.INCONCLUSIVE, n_more=None, notes=notes)


def allow_for_missing(
    decision: GateDecision, missing: int, at_best: Callable[[], GateDecision] | None = None
) -> GateDecision:
    """Apply the rule for missing cases (STATS 7) to a decision that does not include it.

    `at_best` decides again with all planned cases and the missing answers as good as they may have
    been: at the base's score, or at the best score of a level. A gate that fails even so has failed
    however many are missing.
    """
    total = decision.n + missing
    decision = replace(decision, missing=missing)
    if not decision.n or not exceeds(missing, WARN_MISSING * total):
        return decision
    note = f"{missing:,} of {total:,} cases are missing"
    if not exceeds(missing, MOST_MISSING * total):
        return replace(decision, notes=(*decision.notes, note))
    if decision.verdict is Verdict.FAIL and at_best is not None:
        again = at_best()
        if again.verdict is Verdict.FAIL:
            notes = (*decision.notes, f"{note}: {HOLDS}")
            return replace(decision, p=again.p, p_adjusted=again.p_adjusted, notes=notes)
    notes = (*decision.notes, f"{note}: too many to decide")
    return replace(decision, verdict=Verdict.INCONCLUSIVE, n_more=None, notes=notes)


def as_planned(held: Paired) -> Paired:
    """Return all planned cases of both sides: those that still lack a side do not differ."""
    same = [(0.0,)] * held.missing
    cases = [*held.cases, *(f"\0missing {number}" for number in range(held.missing))]
    return replace(held, cases=cases, base=[*held.base, *same], head=[*held.head, *same])
