"""Alerts for screens: what is open, what was, and what is muted."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.features.monitor.alert_rows import (
    Condition,
    Level,
    count_past_alerts,
    current_mutes,
    open_alerts,
    past_alerts,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.features.monitor.alert_rows import Alert, Mute


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
