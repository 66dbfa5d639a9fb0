"""What do the gates say about a run whose cells are all graded?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.decide.verdict import Background, RunDecision, decide

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.execute.orders import Question


def decided(connection: sqlite3.Connection, question: Question) -> RunDecision:
    """Return the decision on a question of a session."""
    background = Background(question.clusters, question.quarantined, question.has_base)
    return decide(connection, question.gates, question.run_id, background)
