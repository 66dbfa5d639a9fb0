"""Which runs were there, which cells are done, and what did they say?"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edison_ci.errors import StoreError, UsageError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

MOVES: dict[str, frozenset[str]] = {
    "PENDING": frozenset({"EXECUTING", "CANCELLED"}),
    "EXECUTING": frozenset({"JUDGING", "FAILED", "PAUSED", "CANCELLED"}),
    "JUDGING": frozenset({"AGGREGATING", "FAILED", "PAUSED", "CANCELLED"}),
    "AGGREGATING": frozenset({"EXECUTING", "REFINING", "COMPLETED", "FAILED"}),
    "REFINING": frozenset({"REVIEWING", "COMPLETED", "FAILED", "PAUSED", "CANCELLED"}),
    "REVIEWING": frozenset({"EXECUTING", "COMPLETED", "FAILED", "PAUSED", "CANCELLED"}),
    "PAUSED": frozenset({"EXECUTING", "JUDGING", "REFINING", "REVIEWING", "CANCELLED"}),
    "FAILED": frozenset({"EXECUTING"}),
    "COMPLETED": frozenset(),
    "CANCELLED": frozenset(),
}
"""From each status, where a run may go next."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that is about to start."""

    id: str
    experiment: str
    trigger: str
    plan_hash: str
    snapshot: str
    cells_planned: int
    simulated: bool
    partial: bool
    owner: str
    now: str


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is stored."""

    id: str
    experiment: str
    trigger: str
    status: str
    verdict: str | None
    plan_hash: str
    snapshot: str
    cells_planned: int
    complete: bool
    simulated: bool
    partial: bool
    stopped_by: str | None
    created_at: str
    finished_at: str | None


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a cell's grade."""

    name: str
    kind: str
    score: float | None
    passed: bool | None
    weight: float
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell that is finished, one way or another."""

    id: str
    run_id: str
    side: str
    prompt: str
    version: str
    model: str
    case_id: str
    draw: int
    address: str
    take: int | None
    status: str
    composite: float | None = None
    passed: bool | None = None
    error: str | None = None
    reason: str | None = None
    parts: tuple[Part, ...] = field(default=())


_COLUMNS = (
    "id, experiment, trigger, status, verdict, plan_hash, snapshot, cells_planned, complete, "
    "simulated, partial, stopped_by, created_at, finished_at"
)


def start_run(run: NewRun) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes a new run."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute(
            "insert into run (id, experiment, trigger, status, plan_hash, snapshot, cells_planned,"
            " simulated, partial, owner, created_at) "
            "values (?, ?, ?, 'PENDING', ?, ?, ?, ?, ?, ?, ?)",
            (
                run.id,
                run.experiment,
                run.trigger,
                run.plan_hash,
                run.snapshot,
                run.cells_planned,
                run.simulated,
                run.partial,
                run.owner,
                run.now,
            ),
        )
        add_event(connection, run.id, "iteration:started", {"experiment": run.experiment}, run.now)

    return operation


def move_run(
    run_id: str, status: str, now: str, **changes: Any
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that moves a run to another status; an illegal move is refused."""

    def operation(connection: sqlite3.Connection) -> None:
        current = connection.execute("select status from run where id = ?", (run_id,)).fetchone()
        if current is None:
            raise UsageError(f"there is no run {run_id!r}")
        if status not in MOVES[current[0]]:
            raise StoreError(f"a run cannot go from {current[0]} to {status}")
        values = {"status": status, **changes}
        if status in ("COMPLETED", "FAILED", "CANCELLED", "PAUSED"):
            values["finished_at"] = now
        assignments = ", ".join(f"{name} = ?" for name in values)
        connection.execute(f"update run set {assignments} where id = ?", (*values.values(), run_id))
        data = {"from": current[0], "to": status}
        add_event(connection, run_id, "status:changed", data, now)

    return operation


def finish_cell(cell: CellRow) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that stores a finished cell with its parts, over an earlier failure."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute("delete from part where cell_id = ?", (cell.id,))
        connection.execute(
            "insert or replace into cell values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                cell.id,
                cell.run_id,
                cell.side,
                cell.prompt,
                cell.version,
                cell.model,
                cell.case_id,
                cell.draw,
                cell.address,
                cell.take,
                cell.status,
                cell.composite,
                cell.passed,
                cell.error,
                cell.reason,
            ),
        )
        connection.executemany(
            "insert into part values (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (cell.id, p.name, p.kind, p.score, p.passed, p.weight, p.status, p.reason)
                for p in cell.parts
            ],
        )

    return operation


def add_event(
    connection: sqlite3.Connection, run_id: str, kind: str, data: dict[str, Any], now: str
) -> None:
    """Write an event that watchers follow."""
    connection.execute(
        "insert into event (time, run_id, type, data) values (?, ?, ?, ?)",
        (now, run_id, kind, json.dumps(data, sort_keys=True)),
    )


def find_run(connection: sqlite3.Connection, wanted: str) -> Run:
    """Return a run by id, `latest` or the name of an experiment (its last run)."""
    where, values = "id = ? or experiment = ?", (wanted, wanted)
    if wanted == "latest":
        where, values = "1 = 1", ()  # type: ignore[assignment]  # no values at all
    row = connection.execute(
        f"select {_COLUMNS} from run where {where} order by created_at desc, rowid desc limit 1",
        values,
    ).fetchone()
    if row is None:
        raise UsageError(f"there is no run {wanted!r}", hint="see: edison status")
    return _run(row)


def recent_runs(connection: sqlite3.Connection, count: int = 20) -> list[Run]:
    """Return the last runs, newest first."""
    rows = connection.execute(
        f"select {_COLUMNS} from run order by created_at desc, rowid desc limit ?", (count,)
    )
    return [_run(row) for row in rows]


def cell_statuses(connection: sqlite3.Connection, run_id: str) -> dict[str, int]:
    """Return how many cells of a run have each status."""
    rows = connection.execute(
        "select status, count(*) from cell where run_id = ? group by status", (run_id,)
    )
    return dict(rows.fetchall())


def is_done(connection: sqlite3.Connection, cell_id: str) -> bool:
    """Whether a cell is finished and was no error."""
    row = connection.execute("select status from cell where id = ?", (cell_id,)).fetchone()
    return row is not None and row[0] != "error"


def scores(
    connection: sqlite3.Connection, run_id: str
) -> Iterator[tuple[str, str, float | None, int | None]]:
    """Yield prompt, model, composite and pass of every cell of a run."""
    yield from connection.execute(
        "select prompt, model, composite, passed from cell where run_id = ?", (run_id,)
    )


def _run(row: tuple[Any, ...]) -> Run:
    values = list(row)
    for index in (8, 9, 10):
        values[index] = bool(values[index])
    return Run(*values)
