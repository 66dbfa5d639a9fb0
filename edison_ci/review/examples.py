"""Which failing answers was the refiner shown?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.report.proposal import MOST_EXAMPLES, Example
from edison_ci.results.weak_answers import shown_answer

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
    found = shown_answer(connection, cell)
    return None if found is None else Example(*found)
