"""Which failing answers was the refiner shown?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.report.proposal import MOST_EXAMPLES, Example

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.store.suggestions import Suggestion


def examples_of(connection: sqlite3.Connection, suggestion: Suggestion) -> tuple[Example, ...]:
    """Return the examples of a suggestion as far as they are still stored."""
    told = suggestion.evidence.get("examples")
    wanted = [str(cell) for cell in told] if isinstance(told, list) else []
    found = (_example(connection, cell) for cell in wanted[:MOST_EXAMPLES])
    return tuple(example for example in found if example is not None)


def _example(connection: sqlite3.Connection, cell: str) -> Example | None:
    row = connection.execute(
        "select c.case_id, c.model, c.composite, t.text from cell c left join answer_text t "
        "on t.address = c.address and t.take = c.take where c.id = ?",
        (cell,),
    ).fetchone()
    if row is None:
        return None
    failed = connection.execute(
        "select name, reason from part where cell_id = ? and passed = 0 order by kind, name",
        (cell,),
    )
    case, model, score, output = row
    return Example(case, model, score, tuple((name, reason) for name, reason in failed), output)
