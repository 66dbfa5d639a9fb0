"""Loops: their iterations, and the point at which each continues.

Every step of a loop can be repeated: a loop that was stopped or killed, or that waits for a person,
continues at the point that is stored here.
"""

from __future__ import annotations

import json
from dataclasses import field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import StoreError
from edison_ci.numeric import snap
from edison_ci.records import canonical_json
from edison_ci.store.runs import LOOP

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence


class LoopState(StrEnum):
    """The step at which a loop continues."""

    MEASURING = "measuring"
    """The run of the iteration has to be started or finished."""
    DECIDING = "deciding"
    """The iteration is measured: the stop rules are evaluated."""
    REFINING = "refining"
    """A better prompt is requested and tried."""
    REVIEWING = "reviewing"
    """A suggestion waits for a person, or for automatic approval."""
    COMMITTING = "committing"
    """The suggestion has to be committed to the branch of the loop."""
    CONFIRMING = "confirming"
    """The best prompt is compared with the first one."""
    REPORTING = "reporting"
    """The final report has to be written."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Loop:
    """Prompts that are measured and refined in iterations."""

    id: str
    experiment: str
    prompt: str
    """Its name; several are separated by a comma."""
    mode: Literal["review", "auto"]
    point: LoopState
    max_iterations: int
    budget_microusd: int
    started_at: str
    branch: str | None = None
    base_commit: str | None = None
    stopped_by: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """First against best; empty if there is no better one. With several prompts that is the best of
    them, and `others` has the rest by name."""
    simulated: bool = False
    finished_at: str | None = None

    @property
    def scope(self) -> str:
        """The scope on which its calls are booked."""
        return f"loop:{self.id}"

    @property
    def prompts(self) -> tuple[str, ...]:
        """The names of its prompts."""
        return tuple(self.prompt.split(", "))


class Outcome(StrEnum):
    """What refining a version came to."""

    SUGGESTED = "suggested"
    NOTHING = "nothing"
    """No suggestion is shown to help."""
    NO_WEAKNESS = "no_weakness"
    SETTLED = "settled"
    """It was not refined: its last iterations gained almost nothing."""


class Iteration(NamedTuple):
    """A version of a prompt that a loop measures."""

    number: int
    prompt: str
    path: str
    version: str
    text: str
    run_id: str | None = None
    score: float | None = None
    cases: int | None = None
    suggestion: str | None = None
    """What made this version."""
    dropped: str | None = None
    """Why the prompt is not measured again; None while it is in play."""
    outcome: str | None = None
    pending: str | None = None
    """The suggestion that waits for a decision, or for its commit."""


class PhaseSpending(NamedTuple):
    """What the calls of a phase cost in a loop."""

    phase: str
    calls: int
    microusd: int
    """Calls of unknown fate are counted at the most they can cost."""
    tokens_in: int
    tokens_out: int
    call_s: float
    """Sum over the calls, of which many are made at a time."""


_COLUMNS = tuple(one.name for one in fields(Loop))
_LIST = ", ".join(_COLUMNS)


def write_loop(connection: sqlite3.Connection, loop: Loop) -> Loop:
    """Store a loop in the current transaction."""
    values = [_stored(getattr(loop, column)) for column in _COLUMNS]
    updated = ", ".join(f"{column} = excluded.{column}" for column in _COLUMNS)
    connection.execute(
        f"insert into loop ({_LIST}) values ({', '.join('?' * len(_COLUMNS))}) "
        f"on conflict (id) do update set {updated}",
        values,
    )
    return loop


def move_loop(connection: sqlite3.Connection, loop: Loop, to: LoopState, **changes: Any) -> Loop:
    """Move a loop to another point; raises StoreError if another process moved it meanwhile."""
    row = connection.execute("select point from loop where id = ?", (loop.id,)).fetchone()
    if row is None or row[0] != loop.point:
        raise StoreError(
            f"loop {loop.id} was continued by another process",
            hint=f"see its state: edison loop {loop.experiment}",
        )
    return write_loop(connection, replace(loop, point=to, **changes))


def write_iteration(connection: sqlite3.Connection, loop: Loop, iteration: Iteration) -> None:
    """Store an iteration of a loop in the current transaction."""
    connection.execute(
        "insert or replace into loop_iteration "
        f"(loop, {', '.join(Iteration._fields)}) values (?{', ?' * len(iteration)})",
        (loop.id, *iteration),
    )


def _stored(value: Any) -> Any:
    return canonical_json(value) if isinstance(value, dict) else value


def last_loop(connection: sqlite3.Connection, experiment: str) -> Loop | None:
    """Return the newest loop of an experiment."""
    return next(iter(list_loops(connection, experiment, most=1)), None)


def list_loops(
    connection: sqlite3.Connection, experiment: str = "", *, most: int = -1, offset: int = 0
) -> list[Loop]:
    """Return the loops of an experiment, or all of them, newest first."""
    rows = connection.execute(
        f"select {_LIST} from loop where ? in ('', experiment) "
        "order by started_at desc, rowid desc limit ? offset ?",
        (experiment, most, offset),
    )
    return [_loop(row) for row in rows]


def find_loop(connection: sqlite3.Connection, loop_id: str) -> Loop | None:
    """Return the loop with an id."""
    row = connection.execute(f"select {_LIST} from loop where id = ?", (loop_id,)).fetchone()
    return None if row is None else _loop(row)


def loops_by_experiment(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many loops there were, by experiment."""
    rows = connection.execute("select experiment, count(*) from loop group by 1")
    return dict(rows.fetchall())


def loops_waiting_for(connection: sqlite3.Connection, suggestion: str) -> list[str]:
    """Return the loops that wait for a decision about a suggestion, by id, oldest first."""
    rows = connection.execute(
        "select l.id from loop_iteration i join loop l on l.id = i.loop where i.pending = ? "
        "and l.point = ? and i.number = (select max(number) from loop_iteration where loop = l.id) "
        "order by l.started_at",
        (suggestion, LoopState.REVIEWING),
    )
    return [loop for (loop,) in rows]


def _loop(row: Sequence[Any]) -> Loop:
    values = dict(zip(_COLUMNS, row, strict=True))
    values |= {"point": LoopState(values["point"]), "evidence": json.loads(values["evidence"])}
    return Loop(**{**values, "simulated": bool(values["simulated"])})


def iterations_of(connection: sqlite3.Connection, loop: Loop) -> list[Iteration]:
    """Return what a loop measured, the first iteration first, its prompts in their order."""
    rows = connection.execute(
        f"select {', '.join(Iteration._fields)} from loop_iteration where loop = ? "
        "order by number, instr(? || ',', prompt || ',')",
        (loop.id, loop.prompt),
    )
    return [Iteration(*row) for row in rows]


def course_of(iterations: Sequence[Iteration], prompt: str) -> list[Iteration]:
    """Return the versions of one prompt, the first one first."""
    return [iteration for iteration in iterations if iteration.prompt == prompt]


def current_rows(iterations: Sequence[Iteration]) -> list[Iteration]:
    """Return the prompts of the last iteration that are in play."""
    last = iterations[-1].number
    return [
        iteration
        for iteration in iterations
        if iteration.number == last and iteration.dropped is None
    ]


def unfinished_run(connection: sqlite3.Connection, loop: Loop) -> str | None:
    """Return the run of the current iteration, if it was started; cancelled ones do not count."""
    row = connection.execute(
        "select id from run where loop = ? and trigger = ? and status <> 'CANCELLED' and id not in "
        "(select run_id from loop_iteration where loop = ? and run_id is not null) "
        "order by created_at desc, rowid desc limit 1",
        (loop.id, LOOP, loop.id),
    ).fetchone()
    return None if row is None else str(row[0])


def mean_score(
    connection: sqlite3.Connection, run_id: str, prompt: str, cases: frozenset[str]
) -> tuple[float | None, int]:
    """Return the mean composite of a prompt of a run over some cases, and how many have one."""
    score, count = connection.execute(
        "select avg(mean), count(mean) from (select round(avg(composite), 12) as mean "
        "from cell where run_id = ? and side = 'head' and prompt = ? and composite is not null "
        "and case_id in (select value from json_each(?)) group by case_id order by case_id)",
        (run_id, prompt, json.dumps(sorted(cases))),
    ).fetchone()
    return None if score is None else snap(score), int(count)


def loop_spending(connection: sqlite3.Connection, loop: Loop) -> list[PhaseSpending]:
    """Return what a loop spent, by phase."""
    rows = connection.execute(
        "select t.phase, count(*), "
        "sum(case when t.state = 'settled' then t.cost_microusd else t.est_microusd end), "
        "coalesce(sum(a.tokens_in), 0), coalesce(sum(a.tokens_out), 0), "
        "coalesce(sum(86400 * (julianday(t.done_at) - julianday(t.sent_at))), 0) "
        "from own_attempt t left join answer a on a.attempt = t.id "
        "where t.loop = ? and t.state <> 'released' group by t.phase order by t.phase",
        (loop.id,),
    )
    return [PhaseSpending(*row) for row in rows]


def leave_loop(connection: sqlite3.Connection, loop: Loop, *, now: str) -> None:
    """Mark a loop as left behind for a new one."""
    connection.execute(
        "update loop set point = ?, stopped_by = 'restarted', finished_at = ? where id = ?",
        (LoopState.DONE, now, loop.id),
    )


def busy_spans(connection: sqlite3.Connection, loop: Loop) -> list[tuple[str, str]]:
    """Return from when to when each run of a loop was at work, by its events."""
    return connection.execute(
        "select min(e.time), max(e.time) from event e join run r on r.id = e.run_id "
        "where r.loop = ? and e.type <> 'status:changed' group by r.id",
        (loop.id,),
    ).fetchall()


def loops_of(connection: sqlite3.Connection, experiment: str) -> int:
    """Return how many loops an experiment had."""
    return loops_by_experiment(connection).get(experiment, 0)
