"""The scheduler: starts the runs of schedules when they are due, each once on this machine.

Everything it knows is in the results file, so it may be killed at any time. Each time that is due
becomes a row before anything is started for it; the row gets its run in the transaction that
creates the run. A scheduler that starts, or another one that is running, takes over the rows of one
that died: a run that is unfinished is resumed, a time without a run is started if it is not more
than five minutes late, and otherwise recorded as missed.

Each run is a separate process, so that memory does not grow and files are read again each time.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import time
from contextlib import closing
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.access.site import open_site
from edison_ci.api.run_process import RunLaunch, RunProcess
from edison_ci.config.cron import next_fire
from edison_ci.errors import EdisonError, ExitCode, UsageError
from edison_ci.features.monitor.schedule_alerts import alert_paused
from edison_ci.features.monitor.schedule_claims import Claims
from edison_ci.features.monitor.schedule_rows import (
    FireKey,
    FireState,
    add_fire,
    end_scheduler,
    find_fire,
    update_fire,
    write_heartbeat,
)
from edison_ci.features.monitor.schedules import read_schedules, schedulers_folder
from edison_ci.records import RunStatus
from edison_ci.results.stored_runs import current_run
from edison_ci.store.database import open_for_change, open_for_reading
from edison_ci.store.liveness import ProcessLock, is_alive
from edison_ci.store.runs import RESTING, Run, find_run, owned_runs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from edison_ci.access.site import Site
    from edison_ci.features.monitor.schedule_rows import Fire
    from edison_ci.features.monitor.schedules import Scheduled, ScheduleFiles

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 4
"""Runs that are active at the same time; others wait."""
MOST_ATTEMPTS = 8
"""Processes that are started for one time; a week of days without budget, and a few crashes."""
LOOK_S = 20.0
"""Longest time between two looks at the clock and the files."""
_BUSY_S = 1.0
"""The same while runs are active."""
_TROUBLE_S = 30.0
"""The same while the results file cannot be written."""
_DRAIN_LOOK_S = 0.2
DRAIN_S = 30.0
"""How long runs may take to pause when the scheduler is stopped."""
_NETWORKS = frozenset(
    (
        *("nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ncpfs", "davfs"),
        *("ceph", "glusterfs", "lustre", "beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph"),
        *("fuse.davfs2", "fuse.s3fs"),
    )
)


def network_file_system(path: Path, mounts: str) -> str | None:
    """Return the kind of the network file system that a path is on; None if it is on none.

    `mounts` is the text of /proc/self/mountinfo; elsewhere than on Linux it is empty.
    """
    real, best, kind = path.resolve().as_posix(), "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if len(fields) < 5 or not rest:
            continue
        point = fields[4].encode().decode("unicode_escape")  # blanks are written as \\040
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, rest[0]
    return kind if kind in _NETWORKS else None


def refuse_network_file_system(site: Site) -> None:
    """Raise UsageError if the results file cannot be locked reliably where it is."""
    mounts = ""
    with contextlib.suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text("utf-8")
    if (kind := network_file_system(site.results.parent, mounts)) is not None:
        raise UsageError(
            f"{site.file.results} is on a network file system ({kind})",
            hint="SQLite is not shared over a network: keep the results on a disk of one machine, "
            "and run the scheduler there",
        )


class Child(Protocol):
    """A process that carries out a run."""

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""

    def stop(self, *, kill: bool = False) -> None:
        """Ask it to pause its run, or kill it."""

    def error(self) -> str:
        """Return what it gave as the reason why it failed, once it has ended."""


def start_process(root: Path, launch: RunLaunch) -> Child:
    """Carry out a run of the project at `root` in a separate process."""
    return _ScheduledProcess(root, launch)


class _ScheduledProcess(RunProcess):
    def error(self) -> str:
        with closing(self):
            failure = self.failure()
        return "" if failure is None else failure.message


@dataclass(slots=True)
class Scheduler:
    """Starts what is due, and looks after what it has started."""

    root: Path
    clock: Callable[[], dt.datetime] = utc.now
    launch: Callable[[Path, RunLaunch], Child] = start_process
    tell: Callable[[str], None] = lambda _: None
    """Called with what happened, in a sentence."""
    rest: Callable[[float], object] = time.sleep
    """Waits, while runs are paused at the end."""
    offline: bool = False
    lock: ProcessLock = field(init=False)
    claims: Claims = field(init=False)
    _children: dict[FireKey, Child] = field(default_factory=dict)
    _reported: dict[str, str] = field(default_factory=dict)
    """The last trouble of each file, so that it is logged once."""

    def __post_init__(self) -> None:
        site = self._open_site()
        refuse_network_file_system(site)
        self.lock = ProcessLock(schedulers_folder(site))
        self.claims = Claims(site, self.lock, self.tell)

    def _open_site(self) -> Site:
        return replace(open_site(self.root), clock=self.clock)

    @property
    def _site(self) -> Site:
        return self.claims.site

    def close(self) -> None:
        """Write that it has stopped, and release its lock."""
        with contextlib.suppress(EdisonError), open_for_change(self._site.results) as connection:
            end_scheduler(connection, self.lock.id, self._site.now())
        self.lock.close()

    @property
    def busy(self) -> bool:
        """Whether a run that it started is active."""
        return bool(self._children)

    def look(self) -> float:
        """Start, resume and conclude what is due; return the seconds until the next look."""
        self._reopen()
        files = read_schedules(self._site)
        self._tell_broken(files)
        try:
            with open_for_change(self._site.results) as connection:
                write_heartbeat(connection, self.lock.id, self._site.now())
                self.claims.take_due(connection, files)
                mine = self.claims.take_open(connection)
            for fire in mine:
                self._try_to_advance(fire)
        except EdisonError as error:
            self._complain("results", error.message)
            return _TROUBLE_S
        self._reported.pop("results", None)
        return self._pause(files)

    def _pause(self, files: ScheduleFiles) -> float:
        if self._children:
            return _BUSY_S
        now = self.clock()
        coming = [
            next_fire(schedule.entry.cron, now) for schedule in files.schedules if schedule.active
        ]
        first = min((time for time in coming if time is not None), default=None)
        return LOOK_S if first is None else min(LOOK_S, max((first - now).total_seconds(), 0.05))

    def _reopen(self) -> None:
        """Read edison.yaml again; if it is not valid, the previous one stays in force."""
        try:
            self.claims.site = self._open_site()
            self._reported.pop("edison.yaml", None)
        except EdisonError as error:
            self._complain("edison.yaml", error.message)

    def _tell_broken(self, files: ScheduleFiles) -> None:
        broken = {path: f"{problem.where}: {problem.message}" for path, problem in files.broken}
        for path, problem_text in broken.items():
            self._complain(path, problem_text)
        for path in [path for path in self._reported if path.endswith((".yaml", ".yml"))]:
            if path not in broken and path != "edison.yaml":
                del self._reported[path]

    def _complain(self, what: str, reason: str) -> None:
        if self._reported.get(what) != reason:
            self._reported[what] = reason
            logger.warning(f"{what} stops schedules", extra={"reason": reason})

    def _try_to_advance(self, fire: Fire) -> None:
        """Advance a time; what goes wrong with it does not keep the others from theirs."""
        try:
            self._advance(fire)
            self._reported.pop(fire.full_name, None)
        except (EdisonError, OSError) as error:
            self._complain(fire.full_name, str(error))

    def _advance(self, fire: Fire) -> None:
        """Start, resume or conclude a time, as its run and its process are now."""
        code: int | None = None
        error = ""
        if (child := self._children.get(fire.key)) is not None:
            code = child.poll()
            if code is None:
                return
            del self._children[fire.key]
            error = child.error()
        with open_for_change(self._site.results) as connection:
            fire = find_fire(connection, fire.key) or fire
            if fire.state.over:
                return
            if code is not None:
                update_fire(connection, fire.key, exit_code=code)
            launch = self._next_step(connection, fire, code, error)
            if launch is None or not self._note_start(connection, fire):
                return
        # Only now, when the row says that it is started: a crash in between is seen by that.
        self._children[fire.key] = self.launch(self.root, replace(launch, offline=self.offline))
        self.tell(f"{fire.full_name}: {'resumed' if launch.resumes else 'started'}")

    def _next_step(
        self, connection: sqlite3.Connection, fire: Fire, code: int | None, error: str
    ) -> RunLaunch | None:
        """Conclude a time, or return the run to launch for it; None to wait.

        `code` is the exit code of its process, if that has just ended.
        """
        run = None if fire.run_id is None else self._seen(connection, fire.run_id)
        if run is not None:
            if code == ExitCode.INVALID and run.status is RunStatus.PAUSED:
                reason = f"its run {run.id} could not be resumed: {error}"
                self.claims.end(connection, fire, FireState.FAILED, reason)
                return None
            return self._by_run(connection, fire, run)
        if code is not None:
            self._without_run(connection, fire, code, error)
            return None
        if not self._may_start(connection, fire):
            return None
        budget = None if fire.budget_usd is None else round(fire.budget_usd * 1_000_000)
        due = (fire.schedule, fire.due_at)
        return RunLaunch(fire.experiment, budget_microusd=budget, wait=True, fire=due)

    def _seen(self, connection: sqlite3.Connection, run_id: str) -> Run:
        return current_run(self._site.locks, find_run(connection, run_id))

    def _may_start(self, connection: sqlite3.Connection, fire: Fire) -> bool:
        if len(self._children) >= MOST_AT_ONCE:
            return False
        if any(key.experiment == fire.experiment for key in self._children):
            return False
        resting = [*RESTING, RunStatus.REVIEWING]
        others = owned_runs(connection, fire.experiment, resting=resting)
        return not any(is_alive(self._site.locks, owner) for _, owner in others)

    def _note_start(self, connection: sqlite3.Connection, fire: Fire) -> bool:
        """Write that a process is started for a time; False if it is given up instead."""
        if fire.attempts >= MOST_ATTEMPTS:
            reason = f"given up after {fire.attempts} attempts"
            self.claims.end(connection, fire, FireState.FAILED, reason)
            return False
        update_fire(
            connection,
            fire.key,
            state=str(FireState.STARTED),
            attempts=fire.attempts + 1,
            resume_at=None,
            reason="",
        )
        return True

    def _without_run(
        self, connection: sqlite3.Connection, fire: Fire, code: int, error: str
    ) -> None:
        """Conclude a time whose process ended before it had a run."""
        killed = code < 0 or code == ExitCode.PAUSED
        if killed and fire.attempts < MOST_ATTEMPTS:
            update_fire(connection, fire.key, state=str(FireState.WAITING))
        elif code == ExitCode.BUDGET:
            self.claims.end(connection, fire, FireState.SKIPPED, error)
        else:
            reason = error or f"its process ended with exit code {code}"
            self.claims.end(connection, fire, FireState.FAILED, reason)

    def _by_run(self, connection: sqlite3.Connection, fire: Fire, run: Run) -> RunLaunch | None:
        """Conclude a time by its run; return how the run is resumed, if it has to be."""
        if run.moving:
            return None  # it was started by a scheduler that has died, and is running
        stopped = run.stopped_by or ""
        if run.status is RunStatus.COMPLETED:
            self.claims.end(connection, fire, FireState.DONE)
        elif run.status is not RunStatus.PAUSED:
            outcome = "was cancelled" if run.status is RunStatus.CANCELLED else "failed"
            self.claims.end(connection, fire, FireState.FAILED, f"its run {outcome}")
        elif "daily_budget" in stopped or "monthly_budget" in stopped:
            return self._wait_for_budget(connection, fire, run)
        elif stopped in ("killed", "SIGTERM", "SIGINT"):
            return _resumed(run) if self._may_start(connection, fire) else None
        else:
            by = "a person" if stopped == "pause" else stopped
            outcome = f"its run was paused by {by}: edison resume {run.id}"
            self.claims.end(connection, fire, FireState.FAILED, outcome)
        return None

    def _wait_for_budget(
        self, connection: sqlite3.Connection, fire: Fire, run: Run
    ) -> RunLaunch | None:
        """Let a run wait for the next day; return how it is resumed when that has come."""
        now = self.clock()
        midnight = dt.datetime.combine(
            now.astimezone(dt.UTC).date() + dt.timedelta(days=1), dt.time(), dt.UTC
        )
        if fire.state is not FireState.PAUSED:
            reason = f"{run.stopped_by}; it continues after 00:00 UTC"
            update_fire(
                connection,
                fire.key,
                state=str(FireState.PAUSED),
                resume_at=utc.timestamp(midnight),
                reason=reason,
            )
            alert_paused(connection, self._site, fire, reason)
            self.tell(f"{fire.full_name}: paused, {reason}")
            return None
        at = dt.datetime.fromisoformat(fire.resume_at or fire.due_at)
        # A time more than a day away was written by a clock that was wrong.
        free = self._may_start(connection, fire)
        due = free and not now < at <= now + dt.timedelta(days=1)
        return _resumed(run) if due else None

    def run(self, sleep: Callable[[float], bool]) -> None:
        """Look again and again until `sleep` returns True; then have the runs paused."""
        wait_s = 0.0
        while not sleep(wait_s):
            try:
                wait_s = self.look()
            except Exception:
                # A bug, or a machine out of memory: the other schedules still have to run.
                logger.exception("the scheduler had an error, and continues")
                wait_s = _TROUBLE_S
        self.drain()

    def drain(self) -> None:
        """Ask every run to pause, and wait; what is left after a while is killed."""
        for child in self._children.values():
            child.stop()
        waited = 0.0
        while self._children and waited < DRAIN_S:
            for key in [key for key, child in self._children.items() if child.poll() is not None]:
                self._children.pop(key).error()
            if self._children:
                self.rest(_DRAIN_LOOK_S)
                waited += _DRAIN_LOOK_S
        for child in self._children.values():
            child.stop(kill=True)

    def run_once(self, schedule: Scheduled, sleep: Callable[[float], bool]) -> Fire:
        """Start the run of a schedule now, and return how it ended."""
        fire = self.claims.new_fire(schedule, self.clock())
        with open_for_change(self._site.results) as connection:
            if not add_fire(connection, fire):
                raise UsageError(f"{fire.full_name} was started this moment", hint="try again")
        stopped = False
        while not (fire.state.over or fire.state is FireState.PAUSED or stopped):
            self._advance(fire)
            stopped = sleep(_DRAIN_LOOK_S)
            with open_for_reading(self._site.results) as connection:
                fire = find_fire(connection, fire.key) or fire
        self.drain()
        return fire


def _resumed(run: Run) -> RunLaunch:
    return RunLaunch(run.id, resumes=True, wait=True)
