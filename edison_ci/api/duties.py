"""Recurring duties of `edison serve` and `edison schedule run`, such as retention and backups.

A duty is done once per period by the processes of a machine together. The process that does it
holds a lock, which ends with the process, and the table `duty` says when it is due. If the process
is killed, the duty is tried again a few minutes later by whichever process is there. A duty that
fails, or that waits for a run to end, is tried again before its period is over, and does not keep
the others from being done.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import feature, utc
from edison_ci._dataclass import dataclass
from edison_ci.access.site import Site, open_site
from edison_ci.errors import BusyError, EdisonError
from edison_ci.numeric import duration
from edison_ci.store.database import open_for_change
from edison_ci.store.duties import (
    DutyEnd,
    DutyState,
    begin_duty,
    end_duty,
    read_duties,
    stored_duties,
)
from edison_ci.store.liveness import try_lock

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from edison_ci.store.duties import Outcome

logger = logging.getLogger(__name__)

DAY_S = 86_400
_RETRY_S = 300
"""A duty that was not done is tried again after this time, or after its period if that is less."""
_LOOK_S = 5.0
"""Time between two looks at what is due."""
_TROUBLE_S = 60.0
"""The same, while the results file or edison.yaml cannot be read."""
_LATE_S = 900
"""A duty is overdue when it was due this long ago."""
_MOST_FAILURES = 3
"""A duty is in trouble when it failed this often in a row."""
_END_S = 2.0
"""Longest wait for a duty that is at work when its process ends."""


@dataclass(frozen=True, slots=True)
class Duty:
    """Something that is done again and again, without anyone asking for it."""

    name: str
    every_s: int
    act: Callable[[Site], str]
    """Does it, and returns what came of it in a few words. Raises BusyError to be called later."""


class DutyHealth(NamedTuple):
    """The state of a duty, and whether it is late or keeps failing."""

    name: str
    state: DutyState
    overdue: bool


def health_of_duties(
    connection: sqlite3.Connection, site: Site, now: dt.datetime
) -> list[DutyHealth]:
    """Return how the duties of a project are, once a process has begun to watch them."""
    states, duties = read_duties(connection), []
    for duty in duties_of(site):
        state = states.get(duty.name)
        if state is not None:
            late_s = (now - dt.datetime.fromisoformat(state.due_at)).total_seconds()
            overdue = late_s > max(_LATE_S, duty.every_s) or state.failures >= _MOST_FAILURES
            duties.append(DutyHealth(duty.name, state, overdue))
    return duties


def duties_of(site: Site) -> tuple[Duty, ...]:
    """Return the duties of a project, as its settings have them."""
    return tuple(duty for of_feature in feature.hooks("duties") for duty in of_feature(site))


def is_due(duty: Duty, state: DutyState | None, now: dt.datetime) -> bool:
    """Whether a duty is to be done now.

    A time further away than a period was written by a clock that was wrong.
    """
    if state is None:
        return True
    due = dt.datetime.fromisoformat(state.due_at)
    return not now < due <= now + dt.timedelta(seconds=duty.every_s)


def run_due(site: Site, duties: Sequence[Duty], now: dt.datetime) -> dict[str, Outcome]:
    """Do the duties that are due and that no other process does; return their outcomes."""
    if not site.results.exists():
        return {}
    states = stored_duties(site.results)
    outcomes: dict[str, Outcome] = {}
    for duty in duties:
        if is_due(duty, states.get(duty.name), now):
            with try_lock(site.locks, f"duty-{duty.name}") as ours:
                # Another process may have done it since.
                if ours and is_due(duty, stored_duties(site.results).get(duty.name), now):
                    outcomes[duty.name] = _do(site, duty, now)
    return outcomes


def _do(site: Site, duty: Duty, now: dt.datetime) -> Outcome:
    soon, later = (
        utc.timestamp(now + dt.timedelta(seconds=s))
        for s in (min(duty.every_s, _RETRY_S), duty.every_s)
    )
    with open_for_change(site.results) as connection:
        at = utc.timestamp(now)
        begin_duty(connection, duty.name, every_s=duty.every_s, at=at, retry_at=soon)
    outcome: Outcome = "failed"
    try:
        detail = duty.act(site)
        outcome = "done"
    except BusyError as busy:
        outcome, detail = "waiting", busy.message
    except EdisonError as error:
        detail = error.message
    except Exception as bug:
        # The process serves pages or starts runs: it must not end with one of its duties.
        detail = f"a bug in edison: {type(bug).__name__}: {bug}"
    if outcome == "failed":
        logger.warning(f"{duty.name} failed", extra={"reason": detail})
    end = DutyEnd(site.now(), later if outcome == "done" else soon, outcome, detail)
    with open_for_change(site.results) as connection:
        end_duty(connection, duty.name, end)
    return outcome


@contextmanager
def duties_in_background(root: Path) -> Iterator[None]:
    """Do the duties of a project in a thread while the block runs."""
    stop = threading.Event()
    thread = threading.Thread(target=_keep_up, args=(root, stop), name="duties", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_END_S)


def _keep_up(root: Path, stop: threading.Event) -> None:
    reason = ""
    while not stop.is_set():
        try:
            site = open_site(root)  # again: its settings may have changed
            run_due(site, duties_of(site), site.clock())
            reason = ""
        except EdisonError as error:
            if error.message != reason:  # once, not every minute
                reason = error.message
                logger.warning("duties are waiting", extra={"reason": reason})
        stop.wait(_TROUBLE_S if reason else _LOOK_S)


class DutyStatus(NamedTuple):
    """A duty of the project, and what is stored of it."""

    duty: Duty
    state: DutyState | None
    """None if it was never begun."""

    @property
    def in_words(self) -> str:
        """The duty with its period and last time: `retention every day (last ...)`."""
        last = "not yet"
        if self.state is not None:
            last = f"last {utc.to_minute(self.state.started_at)}"
            if self.state.outcome in ("waiting", "failed"):
                last += f", {self.state.outcome}: {self.state.detail}"
        return f"{self.duty.name} every {_period(self.duty.every_s)} ({last})"


def duty_statuses(site: Site) -> tuple[DutyStatus, ...]:
    """Return the duties of a project with their last and next times."""
    states = stored_duties(site.results) if site.results.exists() else {}
    return tuple(DutyStatus(duty, states.get(duty.name)) for duty in duties_of(site))


def _period(seconds: int) -> str:
    return "day" if seconds == DAY_S else duration(seconds)
