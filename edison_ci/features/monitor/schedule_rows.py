"""Times of schedules as they are stored, and the heartbeats of schedulers.

A row is written before anything is started for it, and the run that is started for it is written
into the row in the transaction that creates the run. So after any crash it is known which times
were taken, and which of them have a run.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import redacted

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_KEPT_SCHEDULERS = 20


class FireState(StrEnum):
    """The state of a time at which a schedule was due."""

    WAITING = "waiting"
    STARTED = "started"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    MISSED = "missed"
    SKIPPED = "skipped"

    @property
    def over(self) -> bool:
        """Whether nothing more is done for it."""
        return self not in (FireState.WAITING, FireState.STARTED, FireState.PAUSED)


class FireKey(NamedTuple):
    """What names a time of a schedule."""

    experiment: str
    schedule: str
    due_at: str


@dataclass(frozen=True, slots=True)
class Fire:
    """A time of a schedule as it is stored; one row may cover several that were missed."""

    experiment: str
    schedule: str
    due_at: str
    last_due_at: str
    fires: int
    state: FireState
    owner: str
    run_id: str | None = None
    budget_usd: float | None = None
    attempts: int = 0
    resume_at: str | None = None
    exit_code: int | None = None
    reason: str = ""
    claimed_at: str = ""
    ended_at: str | None = None

    @property
    def key(self) -> FireKey:
        """What names it."""
        return FireKey(self.experiment, self.schedule, self.due_at)

    @property
    def full_name(self) -> str:
        """The name of the schedule in the project."""
        return f"{self.experiment}/{self.schedule}"


_COLUMNS = (
    "experiment, schedule, due_at, last_due_at, fires, state, owner, run_id, budget_usd, "
    "attempts, resume_at, exit_code, reason, claimed_at, ended_at"
)
_OF_KEY = "experiment = ? and schedule = ? and due_at = ?"


def _fire(row: Sequence[Any]) -> Fire:
    values = list(row)
    values[5] = FireState(values[5])
    return Fire(*values)


def add_fire(connection: sqlite3.Connection, fire: Fire) -> bool:
    """Write a time that is due; return False if it is stored already."""
    names = _COLUMNS.split(", ")
    row = replace(fire, reason=redacted(fire.reason))
    added = connection.execute(
        f"insert or ignore into schedule_fire ({_COLUMNS}) "
        f"values ({', '.join('?' for _ in names)})",
        [getattr(row, name) for name in names],
    )
    return added.rowcount == 1


def update_fire(connection: sqlite3.Connection, key: FireKey, **changes: Any) -> None:
    """Change columns of a stored time."""
    if "reason" in changes:
        changes["reason"] = redacted(changes["reason"])
    assignments = ", ".join(f"{name} = ?" for name in changes)
    connection.execute(
        f"update schedule_fire set {assignments} where {_OF_KEY}", (*changes.values(), *key)
    )


def take_over(connection: sqlite3.Connection, fire: Fire, owner: str) -> bool:
    """Make another scheduler the owner of a time; False if someone was faster."""
    taken = connection.execute(
        f"update schedule_fire set owner = ? where {_OF_KEY} and owner = ? and ended_at is null",
        (owner, *fire.key, fire.owner),
    )
    return taken.rowcount == 1


def find_fire(connection: sqlite3.Connection, key: FireKey) -> Fire | None:
    """Return a stored time."""
    row = connection.execute(
        f"select {_COLUMNS} from schedule_fire where {_OF_KEY}", key
    ).fetchone()
    return None if row is None else _fire(row)


def open_fires(connection: sqlite3.Connection) -> list[Fire]:
    """Return the times that are not over, the earliest first."""
    rows = connection.execute(
        f"select {_COLUMNS} from schedule_fire where ended_at is null "
        "order by due_at, experiment, schedule"
    )
    return [_fire(row) for row in rows]


def recent_fires(
    connection: sqlite3.Connection, experiment: str, schedule: str, *, most: int = 1
) -> list[Fire]:
    """Return the newest times of a schedule, the newest first."""
    rows = connection.execute(
        f"select {_COLUMNS} from schedule_fire where experiment = ? and schedule = ? "
        "order by due_at desc limit ?",
        (experiment, schedule, most),
    )
    return [_fire(row) for row in rows]


def future_misses(connection: sqlite3.Connection, now: str) -> list[Fire]:
    """Return missed times that are still to come: a clock that was wrong wrote them."""
    rows = connection.execute(
        f"select {_COLUMNS} from schedule_fire where state = 'missed' and last_due_at > ?", (now,)
    )
    return [_fire(row) for row in rows]


def remove_fire(connection: sqlite3.Connection, key: FireKey) -> None:
    """Remove a time that has not come yet."""
    connection.execute(f"delete from schedule_fire where {_OF_KEY}", key)


def watches(connection: sqlite3.Connection) -> dict[tuple[str, str], tuple[str, str]]:
    """Return cron and time up to which each watched schedule is accounted for."""
    rows = connection.execute(
        "select experiment, schedule, cron, watched_until from schedule_watch"
    )
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def set_watch(
    connection: sqlite3.Connection, experiment: str, schedule: str, cron: str, until: str
) -> None:
    """Write up to when the times of a schedule are accounted for."""
    connection.execute(
        "insert into schedule_watch (experiment, schedule, cron, watched_until) "
        "values (?, ?, ?, ?) on conflict (experiment, schedule) do update set "
        "cron = excluded.cron, watched_until = excluded.watched_until",
        (experiment, schedule, cron, until),
    )


def forget_watch(connection: sqlite3.Connection, experiment: str, schedule: str) -> None:
    """Watch a schedule no more; when it is enabled again, it is watched from then on."""
    connection.execute(
        "delete from schedule_watch where experiment = ? and schedule = ?", (experiment, schedule)
    )


@dataclass(frozen=True, slots=True)
class SchedulerRow:
    """A process of `edison schedule run`, by its last heartbeat."""

    owner: str
    host: str
    started_at: str
    seen_at: str
    stopped_at: str | None


def write_heartbeat(connection: sqlite3.Connection, owner: str, now: str) -> None:
    """Write that a scheduler is alive; the rows of long gone ones are removed."""
    updated = connection.execute(
        "update scheduler set seen_at = ?, stopped_at = null where owner = ?", (now, owner)
    )
    if updated.rowcount:
        return
    connection.execute(
        "insert into scheduler (owner, host, started_at, seen_at) values (?, ?, ?, ?)",
        (owner, socket.gethostname(), now, now),
    )
    connection.execute(
        "delete from scheduler where owner not in "
        "(select owner from scheduler order by seen_at desc limit ?)",
        (_KEPT_SCHEDULERS,),
    )


def end_scheduler(connection: sqlite3.Connection, owner: str, now: str) -> None:
    """Write that a scheduler was stopped."""
    connection.execute(
        "update scheduler set seen_at = ?, stopped_at = ? where owner = ?", (now, now, owner)
    )


def schedulers(connection: sqlite3.Connection) -> list[SchedulerRow]:
    """Return the schedulers, the one that was seen last first."""
    rows = connection.execute(
        "select owner, host, started_at, seen_at, stopped_at from scheduler "
        "order by seen_at desc, owner"
    )
    return [SchedulerRow(*row) for row in rows]
