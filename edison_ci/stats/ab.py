"""A/B comparison: which of two prompts is better, or whether they are practically the same."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.records import Move
from edison_ci.stats.arrays import TIE, Range, np
from edison_ci.stats.gates import worst_plausible_change
from edison_ci.stats.paired import paired_difference
from edison_ci.stats.pairwise import Preference
from edison_ci.stats.permutation import PValue, paired_p
from edison_ci.stats.power import DEFAULT_SD, cases_for_margin
from edison_ci.stats.scores import Estimate
from edison_ci.stats.verdicts import GateRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.paired import Difference, Pairs
    from edison_ci.stats.pairwise import WinRate

CLEAR = 0.25
"""Change of a score from which a case is listed."""
DISAGREE = "judges' scores and head-to-head disagree: look at the listed cases"


class Outcome(StrEnum):
    """Outcome of a comparison of prompts A and B."""

    A = "A better"
    B = "B better"
    SAME = "practically the same"
    UNCLEAR = "not enough data"


@dataclass(frozen=True, slots=True)
class Comparison(Estimate):
    """Prompt B against prompt A on the same cases: the mean difference, B minus A."""

    outcome: Outcome
    margin: float
    p: PValue | None
    """Two-sided."""
    same_within: Range | None
    """The 90% interval with one unseen case at its worst either way."""
    moved: dict[Move, tuple[int, ...]]
    """The cases that changed, by position."""
    n_needed: int | None
    """Cases that would likely show that they are the same, if they are."""
    n_more: int | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeadToHead:
    """A pairwise judge beside the scores, and which of the two was declared to decide."""

    wins: WinRate
    """Of B, so that above one half is better."""
    primary: Literal["score", "pairwise"] = "score"


def compare(
    pairs: Pairs,
    rule: GateRule | None = None,
    *,
    rng: np.random.Generator,
    passed: Sequence[tuple[bool, bool]] | None = None,
    head_to_head: HeadToHead | None = None,
) -> Comparison:
    """Compare B (head) with A (base) on the same cases and judges (STATS 15).

    `passed` has for each case whether A and B passed it.
    """
    rule = rule or GateRule()
    if passed is not None and len(passed) != pairs.n:
        raise ValueError(f"{pairs.n} cases but {len(passed)} pass marks")
    d = pairs.differences
    difference = paired_difference(d, clusters=pairs.clusters, level=rule.confidence)
    p = paired_p(pairs, rng=rng) if pairs.n else None
    within = _same_within(pairs, rule)
    outcome = _outcome(difference, p, within, rule)
    notes: tuple[str, ...] = ()
    if head_to_head is not None:
        outcome, notes = _with_head_to_head(outcome, head_to_head)
    needed = _needed(difference, rule)
    unclear = outcome is Outcome.UNCLEAR and needed is not None
    return Comparison(
        outcome=outcome,
        value=None if difference is None else difference.value,
        n=pairs.n,
        method="none: no case"
        if difference is None or p is None
        else f"{difference.method}; {p.method}",
        interval=None if difference is None else difference.interval,
        level=rule.confidence,
        margin=rule.margin,
        p=p,
        same_within=within,
        moved=moves_of(d.tolist(), passed),
        n_needed=needed,
        n_more=max(1, (needed or 0) - pairs.n) if unclear else None,
        notes=notes,
    )


def _same_within(pairs: Pairs, rule: GateRule) -> Range | None:
    """Return the one-sided bounds of both ends, each with its own unseen worst case."""
    d = pairs.differences
    low = worst_plausible_change(d, rule, clusters=pairs.clusters)
    high = worst_plausible_change(-d, rule, clusters=pairs.clusters)
    return None if low is None or high is None else Range(low, -high)


def _outcome(
    difference: Difference | None, p: PValue | None, within: Range | None, rule: GateRule
) -> Outcome:
    if difference is None or difference.interval is None or p is None or within is None:
        return Outcome.UNCLEAR
    if p.value <= rule.alpha and (difference.interval.low > 0 or difference.interval.high < 0):
        return Outcome.B if difference.value > 0 else Outcome.A
    if within.low > -rule.margin and within.high < rule.margin:
        return Outcome.SAME
    return Outcome.UNCLEAR


def _with_head_to_head(outcome: Outcome, other: HeadToHead) -> tuple[Outcome, tuple[str, ...]]:
    # The win rate is B's: its "A" is our B.
    seen = {
        Preference.A: Outcome.B,
        Preference.B: Outcome.A,
        Preference.EQUIVALENT: Outcome.SAME,
        Preference.UNCLEAR: Outcome.UNCLEAR,
    }[other.wins.preference]
    opposed = {outcome, seen} == {Outcome.A, Outcome.B}
    return (seen if other.primary == "pairwise" else outcome), ((DISAGREE,) if opposed else ())


def _needed(difference: Difference | None, rule: GateRule) -> int | None:
    if difference is None or difference.sd is None or difference.se is None:
        sd = DEFAULT_SD
    else:
        # With clusters the standard error is that of fewer cases than there are.
        sd = max(difference.sd, difference.se * float(np.sqrt(difference.n)))
    # Both ends must hold, so each gets half of what may be missed.
    power = (1 + rule.power) / 2
    return cases_for_margin(
        sd,
        margin=rule.margin,
        alpha=rule.alpha,
        worst_case_drop=rule.worst_case_drop,
        power=power,
    ).value


def moves_of(
    d: Sequence[float], passed: Sequence[tuple[bool, bool]] | None = None
) -> dict[Move, tuple[int, ...]]:
    """Return the cases that changed, by position: passes, and scores by 25 points (STATS 15).

    A case whose pass changed is not listed by its score as well.
    """
    positions_by_move: dict[Move, list[int]] = {move: [] for move in Move}
    for index, change in enumerate(d):
        a, b = (True, True) if passed is None else passed[index]
        if a != b:
            positions_by_move[Move.FIXED if b else Move.NEWLY_FAILING].append(index)
        elif abs(change) >= CLEAR - TIE:
            positions_by_move[Move.HIGHER if change > 0 else Move.LOWER].append(index)
    return {move: tuple(positions) for move, positions in positions_by_move.items()}
