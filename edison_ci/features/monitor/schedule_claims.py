"""Claims of a scheduler: the times that are due, those of schedulers that have died, and ends.

A schedule is watched from when it is first seen active. Of the times that pass while no scheduler
runs, those that are not more than five minutes late are started, and the others are recorded as
missed in one row.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.config.cron import fires
from edison_ci.features.monitor import schedule_alerts
from edison_ci.features.monitor.schedule_rows import (
    Fire,
    FireState,
    add_fire,
    forget_watch,
    future_misses,
    open_fires,
    remove_fire,
    set_watch,
    take_over,
    update_fire,
    watches,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from edison_ci.access.site import Site
    from edison_ci.features.monitor.schedules import Scheduled, ScheduleFiles
    from edison_ci.store.liveness import ProcessLock

logger = logging.getLogger(__name__)

GRACE = dt.timedelta(minutes=5)
"""A time that is this late, or less, is still started."""
BACK = dt.timedelta(minutes=1)
"""A clock that went back by more is taken for one that was wrong before."""
MOST_MISSED = 10_000
"""Missed times that are counted: a clock that is set ahead by years passes millions."""


def times_between(cron: str, after: dt.datetime, until: dt.datetime) -> list[dt.datetime]:
    """Return the times from one exclusively to another inclusively; the first MOST_MISSED."""
    passed = itertools.takewhile(lambda due: due <= until, fires(cron, after))
    return [*itertools.islice(passed, MOST_MISSED)]


@dataclass(slots=True)
class Claims:
    """The times that a scheduler takes, each for one process of this machine."""

    site: Site
    lock: ProcessLock
    tell: Callable[[str], None]

    def take_due(self, connection: sqlite3.Connection, files: ScheduleFiles) -> None:
        """Take the times that are due by now; record those that were missed."""
        watched, now = watches(connection), self.site.clock()
        if any(dt.datetime.fromisoformat(until) - now > BACK for _, until in watched.values()):
            self._clock_went_back(connection, watched)
            watched = watches(connection)
        active = {(s.experiment, s.name): s for s in files.schedules if s.active}
        unreadable = {path.rpartition("/")[2].partition(".")[0] for path, _ in files.broken}
        for experiment, name in watched:
            if (experiment, name) in active:
                continue
            if experiment in unreadable:  # its times are looked at when it is valid again
                schedule_alerts.alert_broken(connection, self.site, experiment, files)
            else:
                forget_watch(connection, experiment, name)
        for key, schedule in active.items():
            cron, until = watched.get(key, ("", ""))
            if cron == schedule.entry.cron:
                self._find_due(connection, schedule, dt.datetime.fromisoformat(until), now)
            set_watch(connection, *key, schedule.entry.cron, utc.timestamp(now))

    def _find_due(
        self,
        connection: sqlite3.Connection,
        schedule: Scheduled,
        until: dt.datetime,
        now: dt.datetime,
    ) -> None:
        in_time = now - GRACE - dt.timedelta.resolution
        for due in times_between(schedule.entry.cron, max(until, in_time), now):
            self._claim(connection, schedule, due)
        if late := times_between(schedule.entry.cron, until, in_time):
            reason = "no scheduler was running then, or the clock was changed"
            self._miss(connection, schedule, (late[0], late[-1], len(late)), reason)

    def _claim(self, connection: sqlite3.Connection, schedule: Scheduled, due: dt.datetime) -> None:
        """Take a time that is due; an earlier one that has not been started is given up for it."""
        for other in open_fires(connection):
            same = (other.experiment, other.schedule) == (schedule.experiment, schedule.name)
            if same and other.state is FireState.WAITING and other.due_at < utc.timestamp(due):
                reason = "another run of the experiment was still active when the next was due"
                self.end(connection, other, FireState.MISSED, reason)
        add_fire(connection, self.new_fire(schedule, due))

    def new_fire(self, schedule: Scheduled, due: dt.datetime) -> Fire:
        """Return the row of a time that this scheduler takes."""
        at = utc.timestamp(due)
        return Fire(
            schedule.experiment,
            schedule.name,
            due_at=at,
            last_due_at=at,
            fires=1,
            state=FireState.WAITING,
            owner=self.lock.id,
            budget_usd=schedule.entry.budget_usd,
            claimed_at=self.site.now(),
        )

    def _miss(
        self,
        connection: sqlite3.Connection,
        schedule: Scheduled,
        late: tuple[dt.datetime, dt.datetime, int],
        reason: str,
    ) -> None:
        first, last, count = late
        missed = replace(
            self.new_fire(schedule, first),
            last_due_at=utc.timestamp(last),
            fires=count,
            state=FireState.MISSED,
            reason=reason,
            ended_at=self.site.now(),
        )
        if add_fire(connection, missed):
            schedule_alerts.alert_missed(connection, self.site, missed)

    def _clock_went_back(
        self, connection: sqlite3.Connection, watched: dict[tuple[str, str], tuple[str, str]]
    ) -> None:
        """Forget what a clock that was ahead has recorded as missed, and watch from now on.

        Times that were started meanwhile stay: they are not started again.
        """
        now = self.site.now()
        logger.warning("the clock went back", extra={"to": now})
        self.tell("the clock went back: times that it had passed are watched again")
        for fire in future_misses(connection, now):
            remove_fire(connection, fire.key)
            cron = watched.get((fire.experiment, fire.schedule), ("", ""))[0]
            start = dt.datetime.fromisoformat(fire.due_at) - dt.timedelta(seconds=1)
            if cron and (past := times_between(cron, start, self.site.clock())):
                last = utc.timestamp(past[-1])
                add_fire(connection, replace(fire, last_due_at=last, fires=len(past)))
        for (experiment, name), (cron, until) in watched.items():
            if until > now:
                set_watch(connection, experiment, name, cron, now)

    def take_open(self, connection: sqlite3.Connection) -> list[Fire]:
        """Return the open times of this scheduler, with those of schedulers that have died."""
        mine = []
        for fire in open_fires(connection):
            if fire.owner != self.lock.id:
                if self.lock.is_alive(fire.owner) or not take_over(connection, fire, self.lock.id):
                    continue
                if fire.run_id is None and self._too_late(fire):
                    reason = "the scheduler was stopped before its run began"
                    self.end(connection, fire, FireState.MISSED, reason)
                    continue
                fire = replace(fire, owner=self.lock.id)
            mine.append(fire)
        return mine

    def _too_late(self, fire: Fire) -> bool:
        return self.site.clock() - dt.datetime.fromisoformat(fire.due_at) > GRACE

    def end(
        self, connection: sqlite3.Connection, fire: Fire, state: FireState, reason: str = ""
    ) -> None:
        """Write how a time ended, and raise or close the alerts about it."""
        update_fire(
            connection,
            fire.key,
            state=str(state),
            reason=reason,
            resume_at=None,
            ended_at=self.site.now(),
        )
        self.tell(f"{fire.full_name}: {state}{f', {reason}' if reason else ''}")
        schedule_alerts.alert_end(connection, self.site, replace(fire, state=state, reason=reason))
