"""Runs and their cells."""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import StoreError, UsageError
from edison_ci.store.events import add_event
from edison_ci.store.naming import no_run
from edison_ci.store.opinions import write_opinions
from edison_ci.store.totals import OnTotals

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from edison_ci.store.opinions import OpinionRow
    from edison_ci.store.totals import Totals

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
TRIAL = "refine"
"""Trigger of runs that try a suggestion. Nobody asked for them by name, and what they measure is in
no commit: they are neither the latest run of an experiment nor a part of its history."""
NO_TRIAL = f"trigger <> '{TRIAL}'"
"""In a query on `run`: only runs of what is written in the files."""
IMPORT = "import"
"""Trigger of runs that came in with a file: what started them, as far as we know."""
RESTING = frozenset({"COMPLETED", "CANCELLED", "FAILED", "PAUSED"})
"""Statuses in which no process works on a run."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that is about to start."""

    id: str
    experiment: str
    trigger: str
    plan_hash: str
    snapshot: str
    labels: dict[str, str]
    """Prompt ids and their labels, such as v3."""
    cells_planned: int
    simulated: bool
    partial: bool
    owner: str
    now: str
    base_ref: str | None = None
    base_commit: str | None = None
    commit_id: str | None = None
    """HEAD, if no file of the experiment differs from it."""
    shard: str | None = None
    """I/N, if it is one of N parts."""
    loop: str | None = None
    """The loop that it is for."""


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
    labels: dict[str, str]
    cells_planned: int
    complete: bool
    simulated: bool
    partial: bool
    stopped_by: str | None
    reused: int
    base_ref: str | None
    base_commit: str | None
    owner: str | None
    created_at: str
    finished_at: str | None
    commit_id: str | None = None
    shard: str | None = None
    loop: str | None = None

    @property
    def moving(self) -> bool:
        """Whether a process is, or should be, at work on it."""
        return self.status not in RESTING

    def as_seen(self, *, alive: bool) -> Run:
        """Return the run as it really is: one whose process died is paused.

        One that is reviewed waits for a person, not for a process.
        """
        if alive or not self.moving or self.status == "REVIEWING":
            return self
        return replace(self, status="PAUSED", stopped_by="killed")


COUNTED = frozenset({"check", "rubric", "grader"})
"""Kinds of parts that make composite and pass; others are shown only."""


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
class Judgment:
    """An answer of a judge or grader that a cell rests on."""

    model: str
    address: str
    take: int


class CaseFacts(NamedTuple):
    """What kind of case a cell is of."""

    tags: str
    """A list, as JSON."""
    difficulty: int | None
    kind: str
    words: int


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell that is finished, one way or another."""

    id: str
    """24 hex digits, of which people see and write the first 12."""
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
    case_hash: str | None = None
    cluster: str | None = None
    facts: CaseFacts | None = None
    parts: tuple[Part, ...] = field(default=())
    judgments: tuple[Judgment, ...] = field(default=())
    opinions: tuple[OpinionRow, ...] = field(default=())


_COLUMNS = (
    "id, experiment, trigger, status, verdict, plan_hash, snapshot, labels, cells_planned, "
    "complete, simulated, partial, stopped_by, reused, base_ref, base_commit, owner, created_at, "
    "finished_at, commit_id, shard, loop"
)


def start_run(run: NewRun) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes a new run."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute(
            "insert into run (id, experiment, trigger, status, plan_hash, snapshot, labels, "
            "cells_planned, simulated, partial, owner, base_ref, base_commit, commit_id, "
            "shard, loop, created_at) "
            "values (?, ?, ?, 'PENDING', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                run.id,
                run.experiment,
                run.trigger,
                run.plan_hash,
                run.snapshot,
                json.dumps(run.labels, sort_keys=True),
                run.cells_planned,
                run.simulated,
                run.partial,
                run.owner,
                run.base_ref,
                run.base_commit,
                run.commit_id,
                run.shard,
                run.loop,
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
        values["finished_at"] = now if status in RESTING else None
        values["wanted"] = None
        assignments = ", ".join(f"{name} = ?" for name in values)
        connection.execute(f"update run set {assignments} where id = ?", (*values.values(), run_id))
        data = {"from": current[0], "to": status}
        add_event(connection, run_id, "status:changed", data, now)

    return operation


def finish_cells(cells: Sequence[CellRow]) -> OnTotals[None]:
    """Return the operation that stores finished cells with their parts, over earlier failures."""

    def operation(connection: sqlite3.Connection, _: Totals) -> None:
        # The same graders grade a cell again, so every part of an earlier try is replaced.
        connection.executemany(
            "insert or replace into cell (id, run_id, side, prompt, version, model, case_id, draw, "
            "address, take, status, composite, passed, error, reason, case_hash, cluster) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
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
                    cell.case_hash,
                    cell.cluster,
                )
                for cell in cells
            ],
        )
        connection.executemany(
            "insert or replace into part values (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (cell.id, p.name, p.kind, p.score, p.passed, p.weight, p.status, p.reason)
                for cell in cells
                for p in cell.parts
            ],
        )
        connection.executemany(
            "insert or ignore into judgment values (?, ?, ?, ?)",
            [(cell.id, j.model, j.address, j.take) for cell in cells for j in cell.judgments],
        )
        # A case has a cell for each prompt, model and draw.
        cases = {
            (cell.run_id, cell.case_id): cell.facts for cell in cells if cell.facts is not None
        }
        connection.executemany(
            "insert or ignore into run_case values (?, ?, ?, ?, ?, ?)",
            [(*case, *facts) for case, facts in cases.items()],
        )
        write_opinions(connection, ((cell.id, said) for cell in cells for said in cell.opinions))

    return OnTotals(operation)


def done_trial(
    connection: sqlite3.Connection, experiment: str, plan_hash: str, since: str
) -> str | None:
    """Return the newest trial of exactly this plan that is complete, started since then."""
    row = connection.execute(
        "select id from run where trigger = ? and experiment = ? and plan_hash = ? "
        "and status = 'COMPLETED' and complete = 1 and created_at >= ? "
        "order by created_at desc, rowid desc limit 1",
        (TRIAL, experiment, plan_hash, since),
    ).fetchone()
    return None if row is None else str(row[0])


def find_run(connection: sqlite3.Connection, wanted: str) -> Run:
    """Return a run by id, `latest` or the name of an experiment (its last run), no trials."""
    where, values = f"id = ? or (experiment = ? and {NO_TRIAL})", (wanted, wanted)
    if wanted == "latest":
        where, values = NO_TRIAL, ()  # type: ignore[assignment]  # no values at all
    row = connection.execute(
        f"select {_COLUMNS} from run where {where} order by created_at desc, rowid desc limit 1",
        values,
    ).fetchone()
    if row is None:
        raise no_run(connection, wanted)
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


_DONE = (
    "status <> 'error' and not exists "
    "(select 1 from part where cell_id = cell.id and part.status = 'error')"
)


def done_cells(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, str, str, int]]:
    """Return status, side, model and number of cells that need not be asked or graded again."""
    return connection.execute(
        f"select status, side, model, count(*) from cell where run_id = ? and {_DONE} "
        "group by status, side, model",
        (run_id,),
    ).fetchall()


def is_done(connection: sqlite3.Connection, cell_id: str) -> bool:
    """Whether a cell is finished, with nothing in it that could not be graded."""
    row = connection.execute(f"select 1 from cell where id = ? and {_DONE}", (cell_id,)).fetchone()
    return row is not None


def _run(row: tuple[Any, ...]) -> Run:
    values = list(row)
    values[7] = json.loads(values[7])
    for index in (9, 10, 11):
        values[index] = bool(values[index])
    return Run(*values)


def owned_runs(
    connection: sqlite3.Connection, experiment: str, *, resting: Sequence[str]
) -> list[tuple[str, str]]:
    """Return runs of an experiment with the process that owns each, but those that rest."""
    return connection.execute(
        "select id, owner from run where experiment = ? and owner is not null "
        f"and status not in ({', '.join('?' * len(resting))})",
        (experiment, *resting),
    ).fetchall()


def count_cells(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many cells of a run are stored."""
    row = connection.execute("select count(*) from cell where run_id = ?", (run_id,)).fetchone()
    return int(row[0])


def case_ids(connection: sqlite3.Connection, run_id: str) -> list[str]:
    """Return the cases that a run has cells of."""
    rows = connection.execute("select distinct case_id from cell where run_id = ?", (run_id,))
    return [case for (case,) in rows]


def clusters_of(connection: sqlite3.Connection, *run_ids: str) -> dict[str, str]:
    """Return the group of each case that belongs to one."""
    rows = connection.execute(
        "select distinct case_id, cluster from cell where cluster is not null "
        f"and run_id in ({', '.join('?' * len(run_ids))})",
        run_ids,
    )
    return dict(rows.fetchall())


class CellState(NamedTuple):
    """How a cell stands, and the answer that it rests on."""

    address: str
    take: int | None
    status: str
    error: str | None
    reason: str | None
    composite: float | None
    passed: int | None


_STATE = "address, take, status, error, reason, composite, passed"


def cell_state(connection: sqlite3.Connection, cell_id: str) -> CellState | None:
    """Return how a cell stands; None if it is not there."""
    row = connection.execute(f"select {_STATE} from cell where id = ?", (cell_id,)).fetchone()
    return None if row is None else CellState(*row)


def cell_states(connection: sqlite3.Connection, run_id: str) -> dict[str, CellState]:
    """Return how every cell of a run stands, by id."""
    rows = connection.execute(
        f"select id, {_STATE} from cell where run_id = ? order by id", (run_id,)
    )
    return {cell_id: CellState(*rest) for cell_id, *rest in rows}


def count_draws(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how often a run asked each case."""
    row = connection.execute(
        "select coalesce(max(draw) + 1, 1) from cell where run_id = ?", (run_id,)
    ).fetchone()
    return int(row[0])


def run_ids(connection: sqlite3.Connection) -> set[str]:
    """Return every run that is stored."""
    return {run_id for (run_id,) in connection.execute("select id from run")}


def part_names(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, str]]:
    """Return kind and name of every criterion, check and grader of a run."""
    return connection.execute(
        "select distinct p.kind, p.name from cell c join part p on p.cell_id = c.id "
        "where c.run_id = ? and p.kind in ('criterion', 'check', 'grader') order by 1 desc, 2",
        (run_id,),
    ).fetchall()


def statuses_of_side(connection: sqlite3.Connection, run_id: str, side: str) -> dict[str, int]:
    """Return how many cells of one side of a run have each status."""
    rows = connection.execute(
        "select status, count(*) from cell where run_id = ? and side = ? group by status",
        (run_id, side),
    )
    return dict(rows.fetchall())
