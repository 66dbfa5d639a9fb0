"""Conclusions: what the gates say about a run whose cells are graded, or as far as they are."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from edison_ci.decide.again import decide_again
from edison_ci.decide.looking import goes_on, unclear_subjects
from edison_ci.decide.stored_base import stored_base
from edison_ci.decide.verdict import Background, RunDecision, decide, doubted
from edison_ci.frozen import dataclass
from edison_ci.results.decisions import decisions_of, write_decisions
from edison_ci.results.samples import TwoSidedSample
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.config.decisions import Gate
    from edison_ci.config.load import Project
    from edison_ci.errors import ExitCode
    from edison_ci.plan.baseline import Doubt
    from edison_ci.plan.looks import Look
    from edison_ci.results.decisions import GateRow
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be decided about a run whose cells are all graded."""

    run_id: str
    gates: tuple[Gate, ...]
    clusters: Mapping[str, str]
    quarantined: frozenset[str]
    has_base: bool
    now: str
    look: Look | None = None
    """Which of several looks this is; None for the only one."""
    unlicensed: Mapping[str, str] = field(default_factory=dict)
    """Metrics that judges without a licence would decide, and why they may not."""
    doubts: tuple[Doubt, ...] = ()
    """Why the run is inconclusive at best, whatever its gates find."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the gates say, and the operation that writes it down."""

    verdict: str
    exit_code: ExitCode
    write: Callable[[sqlite3.Connection], None]
    more: bool = False
    """Whether more is to be measured, and looked at again."""
    subjects: frozenset[tuple[str, str]] | None = None
    """The prompts and models that more is measured of; None for all."""
    stored: bool = False
    """Whether this look was taken before, by an earlier session of the run."""


def conclude(project: Project, connection: sqlite3.Connection, question: Question) -> Conclusion:
    """Return what the gates say of a run or of a look at it; a look that was taken stays."""
    look, run_id = question.look, question.run_id
    before: tuple[GateRow, ...] = ()
    if look is not None:
        taken = _gates_said(connection, run_id, look.number - 1)
        if taken:
            return _concluded(RunDecision.of(taken), question, stored=True)
        if look.number > 1:
            before = _gates_said(connection, run_id, look.number - 2)
    background = Background(
        question.clusters,
        question.quarantined,
        question.has_base,
        look,
        before,
        unlicensed=question.unlicensed,
    )
    if look is not None:
        cells = TwoSidedSample.of_run(connection, run_id)
        return _concluded(decide(cells, question.gates, background), question)
    run = find_run(connection, run_id)
    known = base_beside(connection, project, run, question.gates, background)
    return _concluded(decide_again(connection, question.gates, run, known), question)


def base_beside(
    connection: sqlite3.Connection,
    project: Project,
    run: Run,
    gates: Sequence[Gate],
    background: Background,
) -> Background:
    """Return the background with a stored base, where a run has none and gates ask for one."""
    asked = any(gate.no_worse_than is not None for gate in gates)
    if background.has_base or run.base_commit is not None or not asked:
        return replace(background, asked=run.base_ref)
    stored = stored_base(connection, project, run, background.quarantined)
    return replace(background, stored=stored)


def _gates_said(connection: sqlite3.Connection, run_id: str, number: int) -> tuple[GateRow, ...]:
    """Return what the gates said in a round, without what was in doubt."""
    rows = decisions_of(connection, run_id, round=number)
    return tuple(row for row in rows if not row.doubt)


def _concluded(decision: RunDecision, question: Question, *, stored: bool = False) -> Conclusion:
    look, rows = question.look, decision.rows
    decision = doubted(decision, question.doubts)
    return Conclusion(
        decision.verdict,
        decision.exit_code,
        write_decisions(question.run_id, decision.rows, now=question.now),
        more=look is not None and goes_on(rows, look),
        subjects=unclear_subjects(rows, look) if look is not None else None,
        stored=stored,
    )
