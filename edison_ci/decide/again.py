"""What do gates say of a run that was looked at several times, when they are asked once more?

The looks were declared before the first of them, so they are gone through again, on the cells that
each of them saw. Nothing is read but stored cells, and nothing is written.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edison_ci.decide.looking import goes_on
from edison_ci.decide.verdict import Background, RunDecision, decide
from edison_ci.plan.looks import Look, batch_size, batches_of, draws_look
from edison_ci.results.decisions import stored_looks
from edison_ci.results.samples import TwoSidedSample
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.config.decisions import Gate
    from edison_ci.store.runs import CellRow, Run


def last_look(connection: sqlite3.Connection, run: Run) -> Look | None:
    """Return the last look that was taken at a run, or at the one whose answers it grades anew."""
    graded = _graded(run)
    if graded is not None:
        return last_look(connection, find_run(connection, graded))
    looks = stored_looks(connection, run.id)
    if not looks:
        return None
    known: dict[str, Any] = max(looks, key=lambda look: int(look["number"]))
    names = ("kind", "number", "of", "at", "most")
    return Look(**{name: known[name] for name in names}, seed=run.plan_hash)


def decide_again(
    connection: sqlite3.Connection,
    gates: Sequence[Gate],
    run: Run,
    background: Background,
) -> RunDecision:
    """Decide a run by its cells, looking as often as was looked."""
    cells = TwoSidedSample.of_run(connection, run.id)
    last = last_look(connection, run) if background.has_base else None
    if last is None:
        return decide(cells, gates, background)
    if last.kind == "cases":
        look = replace(last, final=True)
        return decide(cells, gates, replace(background, look=look))
    decided = RunDecision.of(())
    for number in range(1, last.number + 1):
        look = draws_look(number, last.at // last.number)
        now = replace(background, look=look, before=decided.rows)
        decided = decide(cells, gates, now)
        if not goes_on(decided.rows, look):
            break
    return decided


def look_of_cell(connection: sqlite3.Connection, run: Run, cell: CellRow) -> Look | None:
    """Return the look before which a cell was asked for; None if the run was looked at once."""
    last = last_look(connection, run)
    if last is None:
        return None
    if last.kind == "draws":
        draws = last.at // last.number
        return draws_look(cell.draw // draws + 1, draws)
    cases = TwoSidedSample.of_run(connection, run.id).cases()
    batches = batches_of(cases, seed=last.seed, size=batch_size(last.most))
    done = 0
    for number, batch in enumerate(batches, 1):
        done += len(batch)
        if cell.case_id in batch:
            return replace(last, number=number, at=done)
    return None


def _graded(run: Run) -> str | None:
    """Return the run whose answers a run grades anew."""
    try:
        return json.loads(run.snapshot).get("command line", {}).get("regrade")  # type: ignore[no-any-return]  # written by a session
    except (ValueError, AttributeError):
        return None
