"""Why a run has no answers: kinds of errors, an example of each, and what to check."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.contracts import WHAT_TO_CHECK
from edison_ci.results.live_progress import progress_of
from edison_ci.store.runs import last_event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.results.run_result import RunResult

_CHECKS = {
    **WHAT_TO_CHECK,
    "CONTEXT_LENGTH": "the prompt with its case is too long for the model: shorten it, or use a "
    "model with a larger context",
    "CONTENT_FILTER": "the provider refused the content: look at the prompt and the cases",
    "BAD_REQUEST": "the provider refused the request: compare params with what the model accepts "
    "(`edison models list --json`)",
    "PROVIDER_ERROR": "the service failed: see the status page of the provider, and resume later",
    "BAD_RESPONSE": "the reply was not what the protocol says: check provider and base_url",
}
SEEN = 2_000
"""Cells in error that are read."""
_NO_ANSWER = ("error", "skipped")
_ELSE = "test the model by itself: `edison models test`"


class Trouble(NamedTuple):
    """A kind of error of a run."""

    kind: str
    cells: int
    """Cells that ended in it, of the first ones; 0 if a model was stopped before it filled one."""
    model: str
    """Empty if several had it."""
    example: str
    """The message of one of them."""
    check: str
    """What to check."""


def troubles_of(result: RunResult) -> tuple[Trouble, ...]:
    """Return the errors of a run in which no cell has an answer; none for any other run."""
    if result.run.moving:
        return ()
    totals = result.totals
    if totals is not None:
        answered, errors = totals.ok + totals.malformed + totals.blocked, totals.error
    else:  # it stopped before its sums were written
        cells = progress_of(result.connection, result.run).cells
        answered = sum(count for status, count in cells.items() if status not in _NO_ANSWER)
        errors = cells.get("error", 0)
    if answered:
        return ()
    found = _in_cells(result) if errors else _stopped(result)
    return tuple(sorted(found, key=lambda trouble: -trouble.cells))


def _in_cells(result: RunResult) -> Iterator[Trouble]:
    """Yield the kinds of errors of the first cells; of a run without answers these tell enough."""
    rows = result.connection.execute(
        "select coalesce(error, 'ERROR'), model, coalesce(reason, '') from cell where run_id = ? "
        "and status = 'error' limit ?",
        (result.run.id, SEEN),
    )
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for kind, model, reason in rows:
        by_kind.setdefault(kind, []).append((model, reason))
    for kind, seen in by_kind.items():
        models = {model for model, _ in seen}
        model = models.pop() if len(models) == 1 else ""
        yield Trouble(kind, len(seen), model, seen[0][1], _CHECKS.get(kind, _ELSE))


def _stopped(result: RunResult) -> Iterator[Trouble]:
    """Yield the models that were stopped before they answered."""
    event = last_event(result.connection, result.run.id, "error")
    if event is None:
        return
    kind, sign, message = str(event.data.get("message", "")).partition(": ")
    known = bool(sign) and kind.isupper()
    yield Trouble(
        kind if known else "ERROR",
        0,
        str(event.data.get("model", "")),
        message if known else f"{kind}{sign}{message}",
        _CHECKS.get(kind, _ELSE),
    )
