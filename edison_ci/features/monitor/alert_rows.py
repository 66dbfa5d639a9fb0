"""Alerts as they are stored: conditions that were found, while they are open and after, and mutes.

There is at most one open alert of a condition and an experiment. Its level is the highest since it
was opened, so that a figure near a limit does not notify people again and again.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.errors import StoreError
from edison_ci.records import RunStatus
from edison_ci.store.ledger import calls_made
from edison_ci.store.liveness import is_alive
from edison_ci.store.runs import NO_TRIAL, RESTING, newest_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path


class Condition(StrEnum):
    """What an alert is about."""

    DROP = "drop"
    SLOW_FALL = "slow_fall"
    FORECAST = "forecast"
    ERROR_RATE = "error_rate"
    LATENCY = "latency"
    MODEL_DRIFT = "model_drift"
    JUDGE_DRIFT = "judge_drift"
    PRODUCTION = "production"
    BUDGET = "budget"
    SCHEDULE_MISSED = "schedule_missed"
    FIRE_SKIPPED = "fire_skipped"
    STUCK_RUN = "stuck_run"
    DISK = "disk"
    DATABASE = "database"

    @property
    def words(self) -> str:
        """The condition as a table or a heading names it."""
        return _WORDS[self]


_WORDS = {
    Condition.DROP: "drop",
    Condition.SLOW_FALL: "slow fall",
    Condition.FORECAST: "predicted fall",
    Condition.ERROR_RATE: "error rate",
    Condition.LATENCY: "latency",
    Condition.MODEL_DRIFT: "model changed",
    Condition.JUDGE_DRIFT: "judge changed",
    Condition.PRODUCTION: "production falls",
    Condition.BUDGET: "budget",
    Condition.SCHEDULE_MISSED: "schedule missed",
    Condition.FIRE_SKIPPED: "run skipped",
    Condition.STUCK_RUN: "stuck run",
    Condition.DISK: "disk",
    Condition.DATABASE: "database",
}


class Level(StrEnum):
    """How serious an alert is."""

    WARN = "warn"
    ALERT = "alert"

    @property
    def rank(self) -> int:
        """A number that is higher for the more serious."""
        return 2 if self is Level.ALERT else 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition that a check found."""

    condition: Condition
    level: Level
    sentence: str
    experiment: str = ""
    """Empty for a condition of the machine."""
    run_id: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    """The figures behind the sentence, as JSON."""


@dataclass(frozen=True, slots=True)
class Mute:
    """A time without notifications of a condition, or of all conditions of an experiment."""

    id: int
    experiment: str
    condition: Condition | None
    """None for every condition of the experiment."""
    until: str
    reason: str
    actor: str
    made_at: str

    def covers(self, alert: Alert) -> bool:
        """Whether it is about this alert."""
        return self.experiment == alert.experiment and self.condition in (None, alert.condition)


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert as it is stored."""

    id: int
    condition: Condition
    experiment: str
    level: Level
    sentence: str
    detail: dict[str, Any]
    run_id: str | None
    opened_at: str
    seen_at: str
    closed_at: str | None
    closed_why: str
    acknowledged_by: str | None
    acknowledged_at: str | None
    note: str
    told_level: Level | None
    """None until people were notified."""
    told_at: str | None
    told_end: bool

    @property
    def open(self) -> bool:
        """Whether the condition was there at the last check."""
        return self.closed_at is None


_COLUMNS = (
    "id, condition, experiment, level, sentence, detail, run_id, opened_at, seen_at, closed_at, "
    "closed_why, acknowledged_by, acknowledged_at, note, told_level, told_at, told_end"
)


def open_alert(connection: sqlite3.Connection, finding: Finding, now: str) -> int:
    """Store a new alert; return its number."""
    made = connection.execute(
        "insert into alert (condition, experiment, level, sentence, detail, run_id, opened_at, "
        "seen_at) values (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            finding.condition,
            finding.experiment,
            finding.level,
            finding.sentence,
            json.dumps(finding.detail, sort_keys=True),
            finding.run_id,
            now,
            now,
        ),
    )
    return int(made.lastrowid or 0)


def update_alert(connection: sqlite3.Connection, number: int, **values: Any) -> None:
    """Change columns of an alert."""
    assignments = ", ".join(f"{name} = ?" for name in values)
    connection.execute(f"update alert set {assignments} where id = ?", (*values.values(), number))


def see_again(
    connection: sqlite3.Connection, number: int, finding: Finding, level: Level, now: str
) -> None:
    """Store what a check found of an alert that is open."""
    update_alert(
        connection,
        number,
        level=level,
        sentence=finding.sentence,
        detail=json.dumps(finding.detail, sort_keys=True),
        run_id=finding.run_id,
        seen_at=now,
    )


def open_alerts(connection: sqlite3.Connection, experiment: str | None = None) -> list[Alert]:
    """Return the open alerts, the most serious and newest first; of one experiment if named."""
    rows = connection.execute(
        f"select {_COLUMNS} from alert where closed_at is null and (?1 is null or experiment = ?1) "
        "order by level, opened_at desc, id desc",
        (experiment,),
    )
    return [_alert(row) for row in rows]


def has_news(connection: sqlite3.Connection, experiment: str) -> bool:
    """Whether a check may change something: the last run called a model, or an alert is open."""
    run = newest_run(connection, experiment)
    if run is None:
        return False
    return calls_made(connection, run.id) or bool(open_alerts(connection, experiment))


def shows_more(connection: sqlite3.Connection, experiment: str) -> bool:
    """Whether the runs of an experiment show more than that one went well: a trend, or errors."""
    query = (
        "select count(*) > 1 or max(status != 'COMPLETED') or exists (select 1 from cell c "
        "join run o on o.id = c.run_id where o.experiment = ?1 and c.status = 'error') "
        "from run where experiment = ?1"
    )
    return bool(connection.execute(query, (experiment,)).fetchone()[0])


def has_alerts(connection: sqlite3.Connection) -> bool:
    """Whether there is any alert, open or closed."""
    return connection.execute("select 1 from alert limit 1").fetchone() is not None


def find_open(
    connection: sqlite3.Connection, condition: Condition, experiment: str
) -> Alert | None:
    """Return the open alert of a condition and an experiment."""
    row = connection.execute(
        f"select {_COLUMNS} from alert where condition = ? and experiment = ? "
        "and closed_at is null",
        (condition, experiment),
    ).fetchone()
    return None if row is None else _alert(row)


def find_alert(connection: sqlite3.Connection, number: int) -> Alert | None:
    """Return an alert by its number."""
    row = connection.execute(f"select {_COLUMNS} from alert where id = ?", (number,)).fetchone()
    return None if row is None else _alert(row)


def past_alerts(
    connection: sqlite3.Connection, experiment: str | None = None, *, limit: int, offset: int = 0
) -> list[Alert]:
    """Return alerts that are closed, newest first; of one experiment if named."""
    rows = connection.execute(
        f"select {_COLUMNS} from alert where closed_at is not null "
        "and (?1 is null or experiment = ?1) order by closed_at desc, id desc limit ?2 offset ?3",
        (experiment, limit, offset),
    )
    return [_alert(row) for row in rows]


def count_past_alerts(connection: sqlite3.Connection, experiment: str | None = None) -> int:
    """Return the number of alerts that are closed."""
    sql = (
        "select count(*) from alert where closed_at is not null and (?1 is null or experiment = ?1)"
    )
    return int(connection.execute(sql, (experiment,)).fetchone()[0])


def untold_alerts(connection: sqlite3.Connection, *, remind_before: str) -> list[Alert]:
    """Return alerts whose current state people were not notified of, oldest first.

    These are open at a level without a notification, open and not acknowledged since
    `remind_before`, or closed after a notification.
    """
    rows = connection.execute(
        f"select {_COLUMNS} from alert where (closed_at is null and (told_level <> level or "
        "(acknowledged_by is null and told_at < ?1))) or "
        "(closed_at is not null and told_level <> '' and told_end = 0) order by id",
        (remind_before,),
    )
    return [_alert(row) for row in rows]


def _alert(row: tuple[Any, ...]) -> Alert:
    """Return an alert; raises StoreError if no check can have written it."""
    values = list(row)
    try:
        values[1], values[3] = Condition(values[1]), Level(values[3])
        values[5] = json.loads(values[5])
        values[14] = Level(values[14]) if values[14] else None
        values[16] = bool(values[16])
        alert = Alert(*values)
        for time in filter(None, (alert.opened_at, alert.seen_at, alert.closed_at)):
            dt.datetime.fromisoformat(time)
    except ValueError:
        raise StoreError(
            f"alert {row[0]} of the results file cannot be read",
            hint="the file was changed by hand, or comes from elsewhere: restore a backup",
        ) from None
    return alert


def add_mute(connection: sqlite3.Connection, mute: Mute) -> None:
    """Store a mute; its number is made here."""
    connection.execute(
        "insert into alert_mute (experiment, condition, until, reason, actor, made_at) "
        "values (?, ?, ?, ?, ?, ?)",
        (
            mute.experiment,
            mute.condition or "",
            mute.until,
            mute.reason,
            mute.actor,
            mute.made_at,
        ),
    )


def end_mute(connection: sqlite3.Connection, number: int, now: str) -> None:
    """End a mute now."""
    connection.execute("update alert_mute set until = ? where id = ?", (now, number))


def current_mutes(connection: sqlite3.Connection, now: str) -> list[Mute]:
    """Return the mutes that have not ended, the one that ends last first."""
    rows = connection.execute(
        "select id, experiment, condition, until, reason, actor, made_at from alert_mute "
        "where until > ? order by until desc, id desc",
        (now,),
    )
    return [
        Mute(number, experiment, Condition(condition) if condition else None, *rest)
        for number, experiment, condition, *rest in rows
    ]


@dataclass(frozen=True, slots=True)
class AlertEntry:
    """An alert, and the mute that it is under."""

    alert: Alert
    mute: Mute | None
    """None if it is not muted."""

    @property
    def about(self) -> str:
        """The experiment that it is about, or the machine."""
        if self.alert.experiment:
            return self.alert.experiment
        return "this project" if self.alert.condition is Condition.BUDGET else "this machine"

    @property
    def state(self) -> str:
        """Open, acknowledged, muted or closed."""
        if not self.alert.open:
            return "closed"
        if self.mute is not None:
            return "muted"
        return "acknowledged" if self.alert.acknowledged_by is not None else "open"

    def duration_s(self, now: str) -> float:
        """Return for how long it is, or was, open."""
        begin, end = (
            dt.datetime.fromisoformat(time)
            for time in (self.alert.opened_at, self.alert.closed_at or now)
        )
        return max(0.0, (end - begin).total_seconds())


@dataclass(frozen=True, slots=True)
class AlertOverview:
    """The alerts of a project, or of one of its experiments."""

    open: tuple[AlertEntry, ...]
    """The most serious first, then the newest."""
    past: tuple[AlertEntry, ...]
    """Closed ones, newest first: a page of them."""
    past_total: int
    mutes: tuple[Mute, ...]
    """Mutes that have not ended."""

    def count(self, level: Level) -> int:
        """Return the number of open alerts of a level, muted ones included."""
        return sum(entry.alert.level is level for entry in self.open)

    @property
    def worst(self) -> Level | None:
        """The highest level of those that are open and not muted, for a banner."""
        entries = [entry.alert.level for entry in self.open if entry.mute is None]
        return max(entries, key=lambda level: level.rank, default=None)


def alert_overview(
    connection: sqlite3.Connection,
    now: str,
    experiment: str | None = None,
    *,
    past: int = 20,
    offset: int = 0,
) -> AlertOverview:
    """Return open alerts, a page of closed ones, and mutes; of one experiment if it is named."""
    mutes = [
        mute for mute in current_mutes(connection, now) if experiment in (None, mute.experiment)
    ]
    return AlertOverview(
        open=tuple(_entry(alert, mutes) for alert in open_alerts(connection, experiment)),
        past=tuple(
            AlertEntry(alert, None)
            for alert in past_alerts(connection, experiment, limit=past, offset=offset)
        ),
        past_total=count_past_alerts(connection, experiment),
        mutes=tuple(mutes),
    )


def alerted_experiments(connection: sqlite3.Connection) -> list[str]:
    """Return the experiments that ever had an alert, by name; '' is the machine."""
    rows = connection.execute("select distinct experiment from alert order by experiment")
    return [name for (name,) in rows]


def _entry(alert: Alert, mutes: Sequence[Mute]) -> AlertEntry:
    return AlertEntry(alert, next((mute for mute in mutes if mute.covers(alert)), None))


DEAD_S = 10 * 60
"""Time after which a run whose process died is stuck: a person may be about to resume it."""
SILENT_S = 60 * 60
"""Time without an event after which a run is stuck though its process is alive."""


@dataclass(frozen=True, slots=True)
class StuckRun:
    """A run that makes no progress."""

    run_id: str
    experiment: str
    alive: bool
    """Whether its process still runs."""
    silent_s: float
    """Time since its last event."""


def stuck_runs(connection: sqlite3.Connection, now: str, locks: Path) -> list[StuckRun]:
    """Return the stuck runs, at most one of an experiment: the one that is silent for longest.

    A run that a newer complete run of the experiment has replaced is left out, and so is one that
    waits for a person.
    """
    resting = (*RESTING, RunStatus.REVIEWING)
    rows = connection.execute(
        "select id, experiment, owner, coalesce((select time from event where run_id = r.id "
        f"order by seq desc limit 1), created_at) from run r where {NO_TRIAL} "
        f"and status not in ({', '.join('?' * len(resting))}) and not exists (select 1 from run n "
        "where n.experiment = r.experiment and n.created_at > r.created_at and n.complete = 1)",
        resting,
    )
    by_experiment: dict[str, StuckRun] = {}
    for run_id, experiment, owner, last in rows.fetchall():
        silent_s = _seconds(last, now)
        alive = owner is not None and is_alive(locks, owner)
        if silent_s < (SILENT_S if alive else DEAD_S):
            continue
        earlier = by_experiment.get(experiment)
        if earlier is None or silent_s > earlier.silent_s:
            by_experiment[experiment] = StuckRun(run_id, experiment, alive, silent_s)
    return [by_experiment[name] for name in sorted(by_experiment)]


def _seconds(begin: str, end: str) -> float:
    first, last = (dt.datetime.fromisoformat(time) for time in (begin, end))
    return (last - first).total_seconds()
