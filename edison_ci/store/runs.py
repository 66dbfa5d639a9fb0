"""Runs: the statuses they go through, how one is found, its events, and where it came from.

A run that was made here has no row of its origin. What a row says of who ran it, and where, is what
its bundle says; it is worth as much as the signature. Whether a key is trusted is asked when it
matters, so that a key that is removed from trust.yaml counts no more.

Attempts and human grades that came with a run name it in their column `origin`. The views
`own_attempt` and `counted_grade` leave out what does not count: decisions read the views, and only
views of a run read the tables.
"""

from __future__ import annotations

import json
from dataclasses import field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.documents import secrets
from edison_ci.errors import BusyError, StoreError, UsageError
from edison_ci.records import RunStatus, Verdict
from edison_ci.spelling import did_you_mean
from edison_ci.store.database import marks

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Sequence

    from edison_ci.store.ledger import SpendingCap

MOVES: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus(status): frozenset(map(RunStatus, following.split()))
    for status, following in {
        "PENDING": "EXECUTING CANCELLED",
        "EXECUTING": "JUDGING FAILED PAUSED CANCELLED",
        "JUDGING": "AGGREGATING FAILED PAUSED CANCELLED",
        "AGGREGATING": "EXECUTING REFINING COMPLETED FAILED",
        "REFINING": "REVIEWING COMPLETED FAILED PAUSED CANCELLED",
        "REVIEWING": "EXECUTING COMPLETED FAILED PAUSED CANCELLED",
        "PAUSED": "EXECUTING JUDGING REFINING REVIEWING CANCELLED",
        "FAILED": "EXECUTING",
        "COMPLETED": "",
        "CANCELLED": "",
    }.items()
}
"""The statuses that may follow each status of a run."""
TRIAL = "refine"
"""Trigger of runs that try a suggestion. What they measure is in no commit, so they are neither the
latest run of an experiment nor in its history."""
NO_TRIAL = f"trigger <> '{TRIAL}'"
"""In a query on `run`: only runs of what is written in the files."""
SCHEDULE = "schedule"
LOOP = "loop"
"""Trigger of runs that a schedule started, here or on GitHub."""
IMPORT = "import"
"""Trigger of runs that were imported from another results file."""
OUTPUTS = "outputs"
"""Trigger of runs that grade answers from a file. No model of the project gave these answers, so
the runs are no evidence of its prompts, models and commits."""
PRODUCTION = "production"
"""Trigger of runs that grade a sample of the answers of production."""
IMPORTED_ANSWERS = frozenset({OUTPUTS, PRODUCTION})
NO_OUTPUTS = f"trigger not in ('{OUTPUTS}', '{PRODUCTION}')"
"""In a query on `run`: only runs whose answers are those of the project's models."""
FINAL = frozenset({RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.FAILED})
RESTING = FINAL | {RunStatus.PAUSED}
"""Statuses in which no process works on a run."""


NO_STRANGER = "id not in (select run_id from run_origin where trusted = 0)"
"""In a query on `run`: only runs that were made here, or that came with a trusted signature."""


ANSWERS, JUDGES = "answers", "judges"
"""The parts of a run that models have."""
RunModels: TypeAlias = dict[str, dict[str, bool]]
"""By part and name of a model, whether it is simulated."""


def simulation_label(models: RunModels) -> str:
    """Return which parts are simulated: `simulated`, or `simulated judge`; empty if none is."""
    flags_of_all = [simulated for part in models.values() for simulated in part.values()]
    if models.get(ANSWERS) and all(flags_of_all):
        return "simulated"
    parts = []
    for part, flags in models.items():
        names = [name for name, simulated in flags.items() if simulated]
        if names:
            word = "judge" if part == JUDGES and len(flags) == 1 else part
            who = "" if len(names) == len(flags) else f" of {', '.join(names)}"
            parts.append(f"{word}{who}")
    return f"simulated {' and '.join(parts)}" if parts else ""


def common_simulation(runs: Iterable[Run]) -> str:
    """Return what is simulated in several runs, as a label; empty if nothing is."""
    labels = {run.simulation for run in runs}
    return labels.pop() if len(labels) == 1 else "partly simulated" if labels else ""


class FireTime(NamedTuple):
    """A time at which a schedule of an experiment is due."""

    schedule: str
    due_at: str


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
    """I/N, if it is one of N shards."""
    loop: str | None = None
    """The loop that it is for."""
    models: RunModels = field(default_factory=dict)
    """The models that answer and that judge, and whether each is simulated."""
    fire: FireTime | None = None
    """The time of a schedule that it is started for."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is stored."""

    id: str
    experiment: str
    trigger: str
    status: RunStatus
    verdict: Verdict | None
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
    models: RunModels = field(default_factory=dict)

    @property
    def simulation(self) -> str:
        """Which parts of it are simulated, as a label; empty if none is."""
        return simulation_label(self.models) or "simulated" if self.simulated else ""

    @property
    def simulated_parts(self) -> list[str]:
        """The parts of it that are simulated, some of which may be only in part."""
        return [part for part, models in self.models.items() if any(models.values())]

    @property
    def is_trial(self) -> bool:
        """Whether it tries a suggestion."""
        return self.trigger == TRIAL

    @property
    def grades_imports(self) -> bool:
        """Whether it grades answers that no model of the project gave."""
        return self.trigger in IMPORTED_ANSWERS

    @property
    def scheduled(self) -> bool:
        """Whether a schedule started it."""
        return self.trigger == SCHEDULE

    @property
    def moving(self) -> bool:
        """Whether a process is, or should be, at work on it."""
        return self.status not in RESTING

    def as_seen(self, *, alive: bool) -> Run:
        """Return the run with its real status: PAUSED if its process died.

        A run in REVIEWING waits for a person, not for a process.
        """
        if alive or not self.moving or self.status is RunStatus.REVIEWING:
            return self
        return replace(self, status=RunStatus.PAUSED, stopped_by="killed")


_COLUMNS = (
    "id, experiment, trigger, status, verdict, plan_hash, snapshot, labels, cells_planned, "
    "complete, simulated, partial, stopped_by, reused, base_ref, base_commit, owner, created_at, "
    "finished_at, commit_id, shard, loop, models"
)


def add_doubt(connection: sqlite3.Connection, run_id: str, kind: str, sentence: str) -> None:
    """Add a reason for which a run is inconclusive at best to its snapshot, once."""
    connection.execute(
        "update run set snapshot = json_insert(snapshot, '$.\"command line\".doubts[#]', "
        "json_array(?2, ?3)) where id = ?1 and not exists (select 1 from "
        "json_each(snapshot, '$.\"command line\".doubts') where value ->> 1 = ?3)",
        (run_id, kind, sentence),
    )


def final_runs(connection: sqlite3.Connection, *, after: str = "", most: int = -1) -> list[str]:
    """Return the ids of runs that have ended for good, in their order."""
    rows = connection.execute(
        "select id from run where status in (select value from json_each(?)) and id > ? "
        "order by id limit ?",
        (json.dumps(sorted(FINAL)), after, most),
    )
    return [run_id for (run_id,) in rows]


_NEW = (
    "id, experiment, trigger, plan_hash, snapshot, cells_planned, simulated, partial, owner, "
    "base_ref, base_commit, commit_id, shard, loop"
)
_new_fields = attrgetter(*_NEW.split(", "))


def start_run(run: NewRun) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes a new run."""

    def operation(connection: sqlite3.Connection) -> None:
        parts = [json.dumps(part, sort_keys=True) for part in (run.labels, run.models)]
        connection.execute(
            f"insert into run ({_NEW}, labels, models, created_at, status) "
            f"values ({marks(_NEW.split(','))}, ?, ?, ?, 'PENDING')",
            (*_new_fields(run), *parts, run.now),
        )
        add_event(connection, run.id, "iteration:started", {"experiment": run.experiment}, run.now)
        if run.fire is not None:
            _give_run(connection, run.experiment, run.fire, run.id)

    return operation


def _give_run(connection: sqlite3.Connection, experiment: str, fire: FireTime, run_id: str) -> None:
    """Write that a time of a schedule has its run; raises BusyError if it has one already.

    In the transaction of the new run, so that no second process starts another.
    """
    updated = connection.execute(
        "update schedule_fire set run_id = ? where experiment = ? and schedule = ? "
        "and due_at = ? and run_id is null and ended_at is null",
        (run_id, experiment, *fire),
    )
    if updated.rowcount != 1:
        raise BusyError(
            f"the run of {experiment}/{fire.schedule} at {fire.due_at} was started already",
            hint="see: edison schedule list",
        )


def move_run(
    run_id: str, status: RunStatus, now: str, **changes: Any
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that moves a run to another status.

    It raises UsageError if there is no such run, StoreError if `MOVES` does not allow the move.
    """

    def operation(connection: sqlite3.Connection) -> None:
        row = connection.execute("select status from run where id = ?", (run_id,)).fetchone()
        if row is None:
            raise UsageError(f"there is no run {run_id!r}")
        current = RunStatus(row[0])
        if status not in MOVES[current]:
            raise StoreError(f"a run cannot go from {current} to {status}")
        values = {"status": status, **changes}
        values["finished_at"] = now if status in RESTING else None
        values["wanted"] = None
        assignments = ", ".join(f"{name} = ?" for name in values)
        connection.execute(f"update run set {assignments} where id = ?", (*values.values(), run_id))
        data = {"from": current, "to": status}
        add_event(connection, run_id, "status:changed", data, now)

    return operation


def done_trial(
    connection: sqlite3.Connection, experiment: str, plan_hash: str, since: str
) -> str | None:
    """Return the newest complete trial of exactly this plan, started at `since` or later."""
    row = connection.execute(
        "select id from run where trigger = ? and experiment = ? and plan_hash = ? "
        "and status = 'COMPLETED' and complete = 1 and created_at >= ? "
        "order by created_at desc, rowid desc limit 1",
        (TRIAL, experiment, plan_hash, since),
    ).fetchone()
    return None if row is None else str(row[0])


def newest_comparisons(
    connection: sqlite3.Connection, experiment: str, *, simulated: bool, count: int = 5
) -> list[str]:
    """Return the newest complete runs of an experiment with a base, newest first."""
    rows = connection.execute(
        f"select id from run where experiment = ? and {NO_TRIAL} and status = 'COMPLETED' "
        f"and {NO_STRANGER} and complete = 1 and base_commit is not null and shard is null "
        "and simulated = ? "
        "order by created_at desc, rowid desc limit ?",
        (experiment, simulated, count),
    )
    return [run_id for (run_id,) in rows]


def find_run(connection: sqlite3.Connection, name: str) -> Run:
    """Return a run by its id, `latest`, or an experiment's name for its last run.

    `latest` and names pass over trials. Raises UsageError if there is none.
    """
    where, values = f"id = ? or (experiment = ? and {NO_TRIAL})", (name, name)
    if name == "latest":
        where, values = NO_TRIAL, ()  # type: ignore[assignment]  # no values at all
    row = connection.execute(
        f"select {_COLUMNS} from run where {where} order by created_at desc, rowid desc limit 1",
        values,
    ).fetchone()
    if row is None:
        raise no_run(connection, name)
    return _run(row)


def has_run(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether there is a run of an id."""
    row = connection.execute("select 1 from run where id = ?", (run_id,)).fetchone()
    return row is not None


def recent_runs(
    connection: sqlite3.Connection, count: int = 20, *, trials: bool = True
) -> list[Run]:
    """Return the last runs, newest first; trials of suggestions only if they are wanted."""
    rows = connection.execute(
        f"select {_COLUMNS} from run where ? or trigger <> ? "
        "order by created_at desc, rowid desc limit ?",
        (trials, TRIAL, count),
    )
    return [_run(row) for row in rows]


def _run(row: tuple[Any, ...]) -> Run:
    values = list(row)
    values[3] = RunStatus(values[3])
    values[4] = None if values[4] is None else Verdict(values[4])
    values[7], values[-1] = json.loads(values[7]), json.loads(values[-1])
    for index in (9, 10, 11):
        values[index] = bool(values[index])
    return Run(*values)


def owned_runs(
    connection: sqlite3.Connection, experiment: str, *, resting: Sequence[str]
) -> list[tuple[str, str]]:
    """Return runs of an experiment with the process that owns each, but those that rest."""
    return connection.execute(
        "select id, owner from run where experiment = ? and owner is not null "
        f"and status not in ({marks(resting)})",
        (experiment, *resting),
    ).fetchall()


def run_ids(connection: sqlite3.Connection) -> set[str]:
    """Return every run that is stored."""
    return {run_id for (run_id,) in connection.execute("select id from run")}


def run_experiments(connection: sqlite3.Connection) -> list[str]:
    """Return the experiments that have a run, by name."""
    return [
        name for (name,) in connection.execute("select distinct experiment from run order by 1")
    ]


def newest_run(connection: sqlite3.Connection, experiment: str) -> Run | None:
    """Return the last run of an experiment that counts; no trial, and none of imported outputs."""
    row = connection.execute(
        f"select {_COLUMNS} from run where experiment = ? and {NO_TRIAL} and {NO_OUTPUTS} "
        f"and {NO_STRANGER} order by created_at desc, rowid desc limit 1",
        (experiment,),
    ).fetchone()
    return None if row is None else _run(row)


def newest_complete(connection: sqlite3.Connection, experiment: str) -> str | None:
    """Return when the last complete run of an experiment ended; None without one."""
    row = connection.execute(
        f"select max(finished_at) from run where experiment = ? and {NO_TRIAL} and {NO_OUTPUTS} "
        f"and {NO_STRANGER} and complete = 1 and partial = 0 and status = 'COMPLETED'",
        (experiment,),
    ).fetchone()
    return None if row is None or row[0] is None else str(row[0])


_RECENT_RUNS = 50


def run_names(connection: sqlite3.Connection) -> list[str]:
    """Return the names of runs: `latest`, experiments that have a run, and the newest ids."""
    ids = connection.execute(
        "select id from run order by created_at desc, rowid desc limit ?", (_RECENT_RUNS,)
    )
    return ["latest", *run_experiments(connection), *(name for (name,) in ids)]


def no_run(connection: sqlite3.Connection, name: str) -> UsageError:
    """Return the error that there is no such run, with the nearest name as a hint."""
    near = did_you_mean(name, (other for other in run_names(connection) if other != name))
    hint = near if near.startswith("did you mean") else "see: edison status"
    return UsageError(f"there is no run {name!r}", hint=hint)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run."""

    seq: int
    time: str
    run_id: str
    type: str
    data: dict[str, Any]


def events(connection: sqlite3.Connection, run_id: str, *, after: int = 0) -> list[Event]:
    """Return the events of a run that came after another, oldest first."""
    rows = connection.execute(
        "select seq, time, run_id, type, data from event where run_id = ? and seq > ? order by seq",
        (run_id, after),
    )
    return [_event(row) for row in rows]


def newest_events(
    connection: sqlite3.Connection, run_id: str, *, limit: int, offset: int = 0
) -> list[Event]:
    """Return events of a run, newest first."""
    rows = connection.execute(
        "select seq, time, run_id, type, data from event where run_id = ? order by seq desc "
        "limit ? offset ?",
        (run_id, limit, offset),
    )
    return [_event(row) for row in rows]


def last_event(connection: sqlite3.Connection, run_id: str, *types: str) -> Event | None:
    """Return the newest event of a run that has one of some types."""
    row = connection.execute(
        "select seq, time, run_id, type, data from event where run_id = ? "
        f"and type in ({marks(types)}) order by seq desc limit 1",
        (run_id, *types),
    ).fetchone()
    return None if row is None else _event(row)


def count_events(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many events a run has."""
    row = connection.execute("select count(*) from event where run_id = ?", (run_id,)).fetchone()
    return int(row[0])


def _event(row: tuple[Any, ...]) -> Event:
    seq, time, run_id, kind, data = row
    return Event(seq, time, run_id, kind, json.loads(data))


def was_budget_alerted(
    connection: sqlite3.Connection, run: Run, cap: SpendingCap, *, since: str
) -> bool:
    """Whether a run reported since a time that a budget, which it shares, is nearly used up."""
    row = connection.execute(
        "select 1 from event e join run r on r.id = e.run_id where e.type = 'cost:alert' "
        "and e.time >= ? and json_extract(e.data, '$.budget') = ? "
        "and (r.experiment = ? or ? = 'project') limit 1",
        (since, cap.name, run.experiment, cap.scope),
    ).fetchone()
    return row is not None


def note_event(
    run_id: str, kind: str, data: dict[str, Any], now: str
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes an event."""
    return lambda connection: add_event(connection, run_id, kind, data, now)


def add_event(
    connection: sqlite3.Connection, run_id: str, kind: str, data: dict[str, Any], now: str
) -> None:
    """Write an event that watchers follow."""
    connection.execute(
        "insert into event (time, run_id, type, data) values (?, ?, ?, ?)",
        (now, run_id, kind, json.dumps(secrets.hidden_in(data), sort_keys=True)),
    )


MADE_HERE = "run_id not in (select run_id from run_origin)"
"""In a query on sums of runs: only what runs of this machine did and paid for."""


class RunOrigin(NamedTuple):
    """Where a run came from."""

    run_id: str
    ran_by: str
    """Who ran it, as the bundle says; empty if it does not."""
    ran_on: str
    """The machine, as the bundle says."""
    ran_as: str
    """How it was started there: cli, schedule, replay, ..."""
    way: str
    """import, push, pull or restore."""
    source: str
    """File or address that it came from."""
    brought_by: str
    brought_at: str
    signed_by: str | None
    """Public key of its valid signature; None without one."""
    trusted: bool = False
    """Whether that key was trusted when it came, or at the last run since."""

    def is_trusted(self, keys: Collection[str]) -> bool:
        """Whether it is signed with one of these keys."""
        return self.signed_by is not None and self.signed_by in keys


_ORIGIN = ", ".join(RunOrigin._fields)


def add_origin(connection: sqlite3.Connection, origin: RunOrigin) -> None:
    """Write where a run came from, in the current transaction."""
    connection.execute(f"insert into run_origin ({_ORIGIN}) values ({marks(origin)})", origin)


def refresh_trust(keys: Collection[str]) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes which runs are signed with one of these keys."""

    def operation(connection: sqlite3.Connection) -> None:
        trusted = "coalesce(signed_by in (select value from json_each(?1)), 0)"
        connection.execute(
            f"update run_origin set trusted = {trusted} where trusted <> {trusted}",
            (json.dumps([*keys]),),
        )

    return operation


def trust_for_reading(connection: sqlite3.Connection, keys: Collection[str]) -> None:
    """Let a reader count human grades by these keys, not by those that the last run has noted."""
    columns = _ORIGIN.replace("trusted", "coalesce(signed_by in (select value from key), 0)")
    sql = "select sql from main.sqlite_schema where type = 'view' and sql like '%counted_grade%'"
    counting = [str(row[0]) for row in connection.execute(sql)]
    connection.execute("pragma query_only = 0")  # the file itself is opened for reading only
    connection.execute("create temp table key (value text)")
    connection.executemany("insert into key values (?)", [[key] for key in keys])
    connection.execute(
        f"create temp view run_origin ({_ORIGIN}) as select {columns} from main.run_origin"
    )
    for view in counting:
        connection.execute(view.replace("CREATE VIEW", "create temp view", 1))
    connection.execute("pragma query_only = 1")


def origin_of(connection: sqlite3.Connection, run_id: str) -> RunOrigin | None:
    """Return where a run came from; None if it was made here."""
    row = connection.execute(
        f"select {_ORIGIN} from run_origin where run_id = ?", (run_id,)
    ).fetchone()
    return None if row is None else RunOrigin(*row)


def who_ran(connection: sqlite3.Connection, run_id: str) -> tuple[str, str]:
    """Return who ran a run, and on which machine; empty if it is not known."""
    origin = origin_of(connection, run_id)
    if origin is not None:
        return origin.ran_by, origin.ran_on
    row = connection.execute(
        "select actor, host from audit where run_id = ? order by seq limit 1", (run_id,)
    ).fetchone()
    return ("", "") if row is None else (row[0], row[1])
