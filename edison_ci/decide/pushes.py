"""Repeated pushes of one pull request: each is another chance to pass by luck.

From the second push on, PASS is decided at a smaller error, so that a head with a real drop does
not pass because its author pushed until it did. FAIL is decided as always.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.decide import wording
from edison_ci.decide.interim import decide_interim
from edison_ci.plan.interim_analysis import is_inferred
from edison_ci.records import Verdict
from edison_ci.stats.verdicts import push_level

if TYPE_CHECKING:
    from edison_ci.decide.gates import Finding, Question
    from edison_ci.plan.interim_analysis import InterimAnalysis
    from edison_ci.stats.verdicts import GateDecision


def decide_at_push(
    question: Question, interim: InterimAnalysis | None, push: int | None
) -> Finding:
    """Decide a gate at a push of its pull request, 1 for the first; None is an unknown number."""
    found = decide_interim(question, interim)
    decision = found.decision
    inferred = is_inferred(question.gate) and wording.IDENTICAL not in decision.notes
    if decision.verdict is not Verdict.PASS or push == 1 or not inferred:
        return found
    if push is None:
        return _with_note(found, decision, wording.PUSH_UNKNOWN)
    alpha = push_level(round(1 - question.confidence, 12), push)
    again = decide_interim(replace(question, level=1 - alpha), interim)
    # The interval is for people, and keeps the confidence of the gate.
    decision = replace(again.decision, interval=decision.interval, level=decision.level)
    return _with_note(again, decision, wording.push_note(push, alpha))


def _with_note(found: Finding, decision: GateDecision, note: str) -> Finding:
    return replace(
        found,
        decision=replace(decision, notes=(*decision.notes, note)),
        say=lambda said: wording.at_push(found.say(said), note),
    )
