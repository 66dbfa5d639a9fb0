"""What do the gates say about a run whose cells are all graded, or as far as they are?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.decide.again import decide_again
from edison_ci.decide.decisions import decisions_of, write_decisions
from edison_ci.decide.looking import goes_on, unclear_subjects
from edison_ci.decide.verdict import Background, RunDecision, decide
from edison_ci.execute.orders import Conclusion
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.decide.rows import GateRow
    from edison_ci.execute.orders import Question


def decided(connection: sqlite3.Connection, question: Question) -> Conclusion:
    """Return the decision on a question of a session; a look that was taken stays as it was."""
    look, run_id = question.look, question.run_id
    before: tuple[GateRow, ...] = ()
    if look is not None:
        taken = decisions_of(connection, run_id, round=look.number - 1)
        if taken:
            return _concluded(RunDecision.of(taken), question, stored=True)
        if look.number > 1:
            before = decisions_of(connection, run_id, round=look.number - 2)
    background = Background(
        question.clusters, question.quarantined, question.has_base, look, before
    )
    if look is None:
        run = find_run(connection, run_id)
        return _concluded(decide_again(connection, question.gates, run, background), question)
    return _concluded(decide(connection, question.gates, run_id, background), question)


def _concluded(decision: RunDecision, question: Question, *, stored: bool = False) -> Conclusion:
    look, rows = question.look, decision.rows
    return Conclusion(
        decision.verdict,
        decision.exit_code,
        write_decisions(question.run_id, rows, now=question.now),
        more=look is not None and goes_on(rows, look),
        subjects=unclear_subjects(rows, look) if look is not None else None,
        stored=stored,
    )
