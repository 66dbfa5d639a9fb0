"""Names of cells, and what a name that fits none could have meant."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.names import did_you_mean

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_REMEMBERED = 10_000
_RECENT_RUNS = 50
_LISTED = 10


def run_names(connection: sqlite3.Connection) -> list[str]:
    """Return what a run can be called by: `latest`, experiments that have one, ids of late."""
    experiments = connection.execute("select distinct experiment from run order by 1")
    ids = connection.execute(
        "select id from run order by created_at desc, rowid desc limit ?", (_RECENT_RUNS,)
    )
    return ["latest", *(name for (name,) in experiments), *(name for (name,) in ids)]


def cell_id(run_id: str, *cell: str | int) -> str:
    """Return the id of a cell in a run, given its side, prompt, model, case and draw."""
    parts = (run_id, *map(str, cell))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def no_run(connection: sqlite3.Connection, wanted: str) -> UsageError:
    """Return the error that there is no such run, with the nearest there is."""
    near = did_you_mean(wanted, (name for name in run_names(connection) if name != wanted))
    hint = near if near.startswith("did you mean") else "see: edison status"
    return UsageError(f"there is no run {wanted!r}", hint=hint)


def no_cell(connection: sqlite3.Connection, run_id: str, wanted: str) -> UsageError:
    """Return the error that a run has no such cell, saying which part of the name is wrong."""
    said = f"run {run_id} has no cell {wanted!r}"
    case, sign, rest = wanted.rpartition("@")
    if not sign:
        return UsageError(
            said, hint=f"write 12 hex digits, or CASE@MODEL#DRAW{_such_as(connection, run_id)}"
        )
    model, _, _ = rest.partition("#")
    cases = _names(connection, run_id, "case_id")
    if case not in cases:
        hint = did_you_mean(case, cases, label="cases") or f"the first are: {_first(cases)}"
        return UsageError(f"run {run_id} has no case {case!r}", hint=hint)
    models = _names(connection, run_id, "model")
    if model not in models:
        hint = did_you_mean(model, models, label="models")
        return UsageError(f"run {run_id} has no model {model!r}", hint=hint)
    draws = connection.execute(
        "select distinct draw from cell where run_id = ? and case_id = ? and model = ? order by 1",
        (run_id, case, model),
    )
    listed = ", ".join(f"#{draw}" for (draw,) in draws)
    return UsageError(said, hint=f"draws: {listed}" if listed else "it was not asked")


def _such_as(connection: sqlite3.Connection, run_id: str) -> str:
    """Return a cell to look at: one that failed, if there is one."""
    row = connection.execute(
        "select case_id || '@' || model from cell where run_id = ? and side = 'head' "
        "order by coalesce(passed, 1), coalesce(composite, 1), case_id limit 1",
        (run_id,),
    ).fetchone()
    return "" if row is None else f", such as {row[0]}"


def which_cell(wanted: str, found: Sequence[tuple[str, str]]) -> UsageError:
    """Return the question which prompt's cell is meant; `found` are prompts and ids."""
    listed = ", ".join(f"{cell[:12]} ({prompt})" for prompt, cell in found[:_LISTED])
    more = ", ..." if len(found) > _LISTED else ""
    return UsageError(
        f"{wanted} is a cell of {len(found)} prompts; which one?", hint=f"name it: {listed}{more}"
    )


def _names(connection: sqlite3.Connection, run_id: str, column: str) -> list[str]:
    rows = connection.execute(
        f"select distinct {column} from cell where run_id = ? limit {_REMEMBERED}", (run_id,)
    )
    return [name for (name,) in rows]


def _first(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:3]) or "none"
