"""What do the gates say about a run whose cells are all graded, or as far as they are?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.decide.again import decide_again
from edison_ci.decide.looking import goes_on, unclear_subjects
from edison_ci.decide.stored_base import stored_base
from edison_ci.decide.verdict import Background, RunDecision, decide, doubted
from edison_ci.execute.orders import Conclusion
from edison_ci.results.decisions import decisions_of, write_decisions
from edison_ci.results.samples import TwoSidedSample
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.config.decisions import Gate
    from edison_ci.config.load import Project
    from edison_ci.execute.orders import Question
    from edison_ci.results.decisions import GateRow
    from edison_ci.store.runs import Run


def decided(project: Project, connection: sqlite3.Connection, question: Question) -> Conclusion:
    """Return the decision on a question of a session; a look that was taken stays as it was."""
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
