"""Runs as a page names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.results.run_result import RunResult
from edison_ci.store.owners import is_alive
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from edison_ci.report.datasette_plugin.looking import Look
    from edison_ci.store.runs import Run

MOST_CELLS = 20_000
"""What takes a look at every answer is not worked out for more than this."""
AT_ONCE = 1_000
"""Cells for which it is worked out at once; for more, aside."""


def run_named(look: Look, wanted: str) -> Run:
    """Return a run by id, `latest` or experiment; one whose process died is paused."""
    return seen(look, find_run(look.connection, wanted))


def seen(look: Look, run: Run) -> Run:
    """Return a run as it really is, as far as the locks of its project are at hand."""
    if look.root is None:
        return run
    locks = look.root / ".edison" / "locks"
    return run.as_seen(alive=run.owner is not None and is_alive(locks, run.owner))


def run_results(look: Look, ids: list[str]) -> list[RunResult]:
    """Return what runs found."""
    connection = look.connection
    return [RunResult(connection, seen(look, find_run(connection, run_id))) for run_id in ids]
