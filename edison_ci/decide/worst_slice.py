"""A gate on the worst slice: each tag with enough cases is decided, and the worst one is reported.

PASS needs every slice to pass, each without correction: passing all of them wrongly is no more
likely than passing one wrongly (intersection-union). FAIL needs one slice that fails after its
p-value is corrected for all slices and all other gates (Holm), since among many slices some look
bad by chance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edison_ci.decide import wording
from edison_ci.decide.gates import Finding, SliceFinding, unmeasured
from edison_ci.records import Side, Verdict
from edison_ci.results.slices import cases_by_tag
from edison_ci.stats.verdicts import SMALLEST_SLICE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.decide.gates import Question
    from edison_ci.stats.verdicts import GateDecision

_ORDER = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)


def decide_slices(question: Question, decide: Callable[[Question], Finding]) -> Finding:
    """Decide a gate on each slice that is large enough.

    Planned cases count, also those without an answer: a slice does not become too small because
    the head broke it.
    """
    cells = question.cells
    planned = {
        case for variant in question.variants for case in cells.case_ids(variant, Side.HEAD)
    } - cells.left_out
    decided, small = [], []
    for tag, members in cases_by_tag(cells.connection, cells.head.run_id).items():
        inside = sorted(planned & members)
        units = len(set(question.clusters_of(inside) or inside))
        if units < SMALLEST_SLICE:
            small += [(tag, len(inside))] if inside else []
            continue
        others = cells.left_out | (planned - members)
        part = replace(question, cells=replace(cells, left_out=frozenset(others)))
        decided.append(SliceFinding(tag, decide(part)))
    if not decided:
        none = unmeasured(question)
        return Finding(none, lambda _: wording.no_slice(SMALLEST_SLICE), small=tuple(small))
    first = decided[0].finding
    return Finding(first.decision, first.say, first.seed, slices=tuple(decided), small=tuple(small))


def planned_slices(question: Question) -> int:
    """Return the number of slices that will be decided."""
    same = Finding(unmeasured(question), lambda _: "")
    return len(decide_slices(question, lambda _: same).slices)


def worst_of(finding: Finding, decisions: Sequence[GateDecision]) -> tuple[Finding, GateDecision]:
    """Return the worst slice, which stands for all of them, after the correction for all gates."""
    verdict = next(v for v in _ORDER if any(d.verdict is v for d in decisions))
    index = min(
        (i for i, decision in enumerate(decisions) if decision.verdict is verdict),
        key=lambda i: _badness(decisions[i]),
    )
    worst, decision = finding.slices[index], decisions[index]

    def say(said: GateDecision) -> str:
        count = len(finding.slices)
        return wording.worst_slice(worst.finding.say(said), worst.tag, count, finding.small)

    return replace(finding, decision=worst.finding.decision, say=say, seed=worst.finding.seed), (
        decision
    )


def _badness(decision: GateDecision) -> tuple[float, float]:
    """Return a sort key, lowest for the worst: by p-value where it fails, else by its bound."""
    p = decision.p_adjusted if decision.verdict is Verdict.FAIL else None
    worst = decision.worst_plausible if decision.worst_plausible is not None else decision.value
    return (1.0 if p is None else p, 0.0 if worst is None else worst)


def slices_json(finding: Finding, decisions: Sequence[GateDecision]) -> dict[str, Any]:
    """Return all slices of a gate, as they appear in its details."""
    rows = [
        {
            "tag": one.tag,
            "verdict": str(decision.verdict),
            "estimate": decision.value,
            "low": None if decision.interval is None else decision.interval.low,
            "high": None if decision.interval is None else decision.interval.high,
            "worst_plausible": decision.worst_plausible,
            "n": decision.n,
            "p": None if decision.p is None else decision.p.value,
            "p_holm": None if decision.p is None else decision.p_adjusted,
        }
        for one, decision in zip(finding.slices, decisions, strict=True)
    ]
    return {"slices": rows, "small_slices": [{"tag": tag, "n": n} for tag, n in finding.small]}
