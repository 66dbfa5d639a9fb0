"""Stored suggestions with what belongs to them: comments, approvals and failing examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.records import OPEN_STATUSES, SuggestionStatus
from edison_ci.results.explanation import explain_cell
from edison_ci.store.suggestions import approvals_of, comments_of, find_suggestion, list_suggestions

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.results.explanation import CellExplanation
    from edison_ci.store.suggestions import Suggestion, SuggestionComment

_MOST_EXAMPLES = 10


STATUS_FILTERS = ("open", "all", *map(str, SuggestionStatus))


def suggestions_with(
    connection: sqlite3.Connection, status: str, experiment: str = ""
) -> list[Suggestion]:
    """Return the suggestions that fit a status filter, of one experiment or of all."""
    statuses = {"open": sorted(OPEN_STATUSES), "all": []}.get(status)
    if statuses is None:
        statuses = [SuggestionStatus(status)]
    return list_suggestions(connection, experiment=experiment or None, statuses=statuses)


class SuggestionDetails(NamedTuple):
    """A suggestion, what people said about it, and the answers that it was made from."""

    suggestion: Suggestion
    comments: list[SuggestionComment]
    approvers: list[str]
    examples: list[CellExplanation]
    """Failing answers in the request to the refiner."""

    @classmethod
    def of(cls, connection: sqlite3.Connection, suggestion_id: str) -> SuggestionDetails:
        """Return a suggestion by id."""
        suggestion = find_suggestion(connection, suggestion_id)
        examples = suggestion.evidence.get("examples")
        cells = examples[:_MOST_EXAMPLES] if isinstance(examples, list) else []
        explanations = (explain_cell(connection, str(cell)) for cell in cells)
        return cls(
            suggestion,
            comments_of(connection, suggestion),
            [approval.actor for approval in approvals_of(connection, suggestion)],
            [explanation for explanation in explanations if explanation is not None],
        )
