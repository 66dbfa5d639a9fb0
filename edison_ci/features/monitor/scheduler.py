"""The scheduler: starts the runs of schedules when they are due, each once on this machine.

Everything it knows is in the results file, so it may be killed at any time. Each time that is due
becomes a row before anything is started for it; the row gets its run in the transaction that
creates the run. A scheduler that starts, or another one that is running, takes over the rows of one
that died: a run that is unfinished is resumed, a time without a run is started if it is not more
than five minutes late, and otherwise recorded as missed.

Runs are processes of their own, so that memory does not grow and files are read anew each time.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import logging
import time
from contextlib import closing
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.access.site import open_site
from edison_ci.api.run_process import RunLaunch, RunProcess
from edison_ci.config.cron import fires, next_fire
from edison_ci.errors import EdisonError, ExitCode, UsageError
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level
from edison_ci.features.monitor.alerts import close_alert, raise_alert
from edison_ci.features.monitor.schedule_rows import (
    Fire,
    FireKey,
    FireState,
    add_fire,
    end_scheduler,
    find_fire,
    forget_watch,
    future_misses,
    open_fires,
    remove_fire,
    set_watch,
    sign_of_life,
    take_over,
    update_fire,
    watches,
)
from edison_ci.features.monitor.schedules import read_schedules, schedulers_folder
from edison_ci.numeric import counted
from edison_ci.records import RunStatus
from edison_ci.results.stored_runs import current_run
from edison_ci.store.database import open_for_change, open_for_reading
from edison_ci.store.liveness import ProcessLock, is_alive
from edison_ci.store.runs import RESTING, Run, find_run, owned_runs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from edison_ci.access.site import Site
    from edison_ci.features.monitor.schedules import Scheduled, ScheduleFiles

logger = logging.getLogger(__name__)

GRACE = dt.timedelta(minutes=5)
"""A time that is this late, or less, is still started."""
BACK = dt.timedelta(minutes=1)
"""A clock that went back by more is taken for one that was wrong before."""
MOST_MISSED = 10_000
"""Missed times that are counted: a clock that is set ahead by years passes millions."""
MOST_AT_ONCE = 4
"""Runs that are at work at the same time; others wait."""
MOST_ATTEMPTS = 8
"""Processes that are started for one time; a week of days without budget, and a few crashes."""
LOOK_S = 20.0
"""Longest time between two looks at the clock and the files."""
_BUSY_S = 1.0
"""The same while runs are at work."""
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


def times_between(cron: str, after: dt.datetime, until: dt.datetime) -> list[dt.datetime]:
    """Return the times from one exclusively to another inclusively; the first MOST_MISSED."""
    passed = itertools.takewhile(lambda due: due <= until, fires(cron, after))
    return [*itertools.islice(passed, MOST_MISSED)]


class Child(Protocol):
    """A process that carries out a run."""

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""

    def stop(self, *, kill: bool = False) -> None:
        """Ask it to pause its run, or kill it."""

    def error(self) -> str:
        """Return what it gave as the reason why it failed, once it has ended."""


def start_process(root: Path, launch: RunLaunch) -> Child:
    """Carry out a run of the project at `root` in a process of its own."""
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
    _site: Site = field(init=False)
    _children: dict[FireKey, Child] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    """The last trouble of each file, so that it is told once."""

    def __post_init__(self) -> None:
        self._site = replace(open_site(self.root), clock=self.clock)
        refuse_network_file_system(self._site)
        self.lock = ProcessLock(schedulers_folder(self._site))

    def close(self) -> None:
        """Write that it has stopped, and release its lock."""
        with contextlib.suppress(EdisonError), open_for_change(self._site.results) as connection:
            end_scheduler(connection, self.lock.id, self._now())
        self.lock.close()

    @property
    def busy(self) -> bool:
        """Whether a run that it started is at work."""
        return bool(self._children)

    def _now(self) -> str:
        return utc.timestamp(self.clock())

    # --- one look ---------------------------------------------------------------------------------

    def look(self) -> float:
        """Do what is to be done now; return the seconds until the next look."""
        self._reopen()
        files = read_schedules(self._site)
        self._tell_broken(files)
        try:
            with open_for_change(self._site.results) as connection:
                sign_of_life(connection, self.lock.id, self._now())
                self._watch(connection, files)
                mine = self._claim_open(connection)
            for fire in mine:
                self._try_to_advance(fire)
        except EdisonError as error:
            self._complain("results", error.message)
            return _TROUBLE_S
        self._said.pop("results", None)
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
        """Read edison.yaml anew; if it is not valid, that of before stays in force."""
        try:
            self._site = replace(open_site(self.root), clock=self.clock)
            self._said.pop("edison.yaml", None)
        except EdisonError as error:
            self._complain("edison.yaml", error.message)

    def _tell_broken(self, files: ScheduleFiles) -> None:
        broken = {path: f"{problem.where}: {problem.message}" for path, problem in files.broken}
        for path, problem_text in broken.items():
            self._complain(path, problem_text)
        for path in [path for path in self._said if path.endswith((".yaml", ".yml"))]:
            if path not in broken and path != "edison.yaml":
                del self._said[path]

    def _complain(self, what: str, reason: str) -> None:
        if self._said.get(what) != reason:
            self._said[what] = reason
            logger.warning(f"{what} stops schedules", extra={"reason": reason})

    # --- what is due ------------------------------------------------------------------------------

    def _watch(self, connection: sqlite3.Connection, files: ScheduleFiles) -> None:
        watched, now = watches(connection), self.clock()
        if any(dt.datetime.fromisoformat(until) - now > BACK for _, until in watched.values()):
            self._clock_went_back(connection, watched)
            watched = watches(connection)
        active = {(s.experiment, s.name): s for s in files.schedules if s.active}
        unreadable = {path.rpartition("/")[2].partition(".")[0] for path, _ in files.broken}
        for (experiment, name), (_, _) in watched.items():
            if (experiment, name) in active:
                continue
            if experiment in unreadable:  # its times are looked at when it is valid again
                self._alert_broken(connection, experiment, files)
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
                reason = "another run of the experiment was still at work when the next was due"
                self._end(connection, other, FireState.MISSED, reason)
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
            run_id=None,
            budget_usd=schedule.entry.budget_usd,
            attempts=0,
            resume_at=None,
            exit_code=None,
            reason="",
            claimed_at=self._now(),
            ended_at=None,
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
            ended_at=self._now(),
        )
        if add_fire(connection, missed):
            self._alert_missed(connection, missed)

    def _clock_went_back(
        self, connection: sqlite3.Connection, watched: dict[tuple[str, str], tuple[str, str]]
    ) -> None:
        """Forget what a clock that was ahead has recorded as missed, and watch from now on.

        Times that were started meanwhile stay: they are not started again.
        """
        now = self._now()
        logger.warning("the clock went back", extra={"to": now})
        self.tell("the clock went back: times that it had passed are watched again")
        for fire in future_misses(connection, now):
            remove_fire(connection, fire.key)
            cron = watched.get((fire.experiment, fire.schedule), ("", ""))[0]
            start = dt.datetime.fromisoformat(fire.due_at) - dt.timedelta(seconds=1)
            if cron and (past := times_between(cron, start, self.clock())):
                last = utc.timestamp(past[-1])
                add_fire(connection, replace(fire, last_due_at=last, fires=len(past)))
        for (experiment, name), (cron, until) in watched.items():
            if until > now:
                set_watch(connection, experiment, name, cron, now)

    # --- what was taken ---------------------------------------------------------------------------

    def _claim_open(self, connection: sqlite3.Connection) -> list[Fire]:
        """Return the open times of this scheduler, with those of schedulers that have died."""
        mine = []
        for fire in open_fires(connection):
            if fire.owner != self.lock.id:
                if self.lock.is_alive(fire.owner) or not take_over(connection, fire, self.lock.id):
                    continue
                if fire.run_id is None and self._too_late(fire):
                    reason = "the scheduler was stopped before its run began"
                    self._end(connection, fire, FireState.MISSED, reason)
                    continue
                fire = replace(fire, owner=self.lock.id)
            mine.append(fire)
        return mine

    def _too_late(self, fire: Fire) -> bool:
        return self.clock() - dt.datetime.fromisoformat(fire.due_at) > GRACE

    def _try_to_advance(self, fire: Fire) -> None:
        """Advance a time; what goes wrong with it does not keep the others from theirs."""
        try:
            self._advance(fire)
            self._said.pop(fire.full_name, None)
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
                self._end(connection, fire, FireState.FAILED, reason)
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
            sentence = f"given up after {fire.attempts} attempts"
            self._end(connection, fire, FireState.FAILED, sentence)
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
            self._end(connection, fire, FireState.SKIPPED, error)
        else:
            reason = error or f"its process ended with exit code {code}"
            self._end(connection, fire, FireState.FAILED, reason)

    def _by_run(self, connection: sqlite3.Connection, fire: Fire, run: Run) -> RunLaunch | None:
        """Conclude a time by its run; return how the run is resumed, if it has to be."""
        if run.moving:
            return None  # it was started by a scheduler that has died, and is at work
        stopped = run.stopped_by or ""
        if run.status is RunStatus.COMPLETED:
            self._end(connection, fire, FireState.DONE, "")
        elif run.status is not RunStatus.PAUSED:
            outcome = "was cancelled" if run.status is RunStatus.CANCELLED else "failed"
            self._end(connection, fire, FireState.FAILED, f"its run {outcome}")
        elif "daily_budget" in stopped or "monthly_budget" in stopped:
            return self._wait_for_budget(connection, fire, run)
        elif stopped in ("killed", "SIGTERM", "SIGINT"):
            return _resumed(run) if self._may_start(connection, fire) else None
        else:
            by = "a person" if stopped == "pause" else stopped
            outcome = f"its run was paused by {by}: edison resume {run.id}"
            self._end(connection, fire, FireState.FAILED, outcome)
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
            reason = f"{run.stopped_by}; it goes on after 00:00 UTC"
            update_fire(
                connection,
                fire.key,
                state=str(FireState.PAUSED),
                resume_at=utc.timestamp(midnight),
                reason=reason,
            )
            self._alert(
                connection,
                Condition.FIRE_SKIPPED,
                fire,
                f"The run of {_when(fire)} by {fire.schedule} is paused: {reason}.",
            )
            self.tell(f"{fire.full_name}: paused, {reason}")
            return None
        at = dt.datetime.fromisoformat(fire.resume_at or fire.due_at)
        # A time more than a day away was written by a clock that was wrong.
        free = self._may_start(connection, fire)
        due = free and not now < at <= now + dt.timedelta(days=1)
        return _resumed(run) if due else None

    # --- endings ----------------------------------------------------------------------------------

    def _end(
        self, connection: sqlite3.Connection, fire: Fire, state: FireState, reason: str
    ) -> None:
        update_fire(
            connection,
            fire.key,
            state=str(state),
            reason=reason,
            resume_at=None,
            ended_at=self._now(),
        )
        self.tell(f"{fire.full_name}: {state}{f', {reason}' if reason else ''}")
        if state is FireState.DONE:
            for condition in (Condition.SCHEDULE_MISSED, Condition.FIRE_SKIPPED):
                why = "a scheduled run is complete"
                close_alert(connection, self._site, condition, fire.experiment, why=why)
        elif state is FireState.SKIPPED:
            sentence = f"The run of {_when(fire)} by {fire.schedule} was skipped: {reason}."
            self._alert(connection, Condition.FIRE_SKIPPED, fire, sentence)
        elif state is FireState.MISSED or fire.run_id is None:
            self._alert_missed(connection, replace(fire, state=state, reason=reason))

    def _alert_missed(self, connection: sqlite3.Connection, fire: Fire) -> None:
        if fire.fires > 1:
            last = _when(replace(fire, due_at=fire.last_due_at))
            what = f"{counted(fire.fires, 'run')} by {fire.schedule} from {_when(fire)} to {last}"
        else:
            what = f"The run of {_when(fire)} by {fire.schedule}"
        verb = "could not start" if fire.state is FireState.FAILED else "missed"
        were = "" if verb == "could not start" else "were " if fire.fires > 1 else "was "
        level = Level.WARN if fire.fires == 1 else Level.ALERT
        sentence = f"{what} {were}{verb}: {fire.reason}."
        self._alert(connection, Condition.SCHEDULE_MISSED, fire, sentence, level)

    def _alert_broken(
        self, connection: sqlite3.Connection, experiment: str, files: ScheduleFiles
    ) -> None:
        for path, problem in files.broken:
            if path.rpartition("/")[2].partition(".")[0] == experiment:
                sentence = (
                    f"{path} is not valid, so its schedules start nothing: {problem.message}."
                )
                finding = Finding(Condition.SCHEDULE_MISSED, Level.ALERT, sentence, experiment)
                raise_alert(connection, self._site, finding)

    def _alert(
        self,
        connection: sqlite3.Connection,
        condition: Condition,
        fire: Fire,
        sentence: str,
        level: Level = Level.WARN,
    ) -> None:
        detail: dict[str, Any] = {"schedule": fire.schedule, "due_at": fire.due_at}
        finding = Finding(condition, level, sentence, fire.experiment, fire.run_id, detail)
        raise_alert(connection, self._site, finding)

    # --- as a process -----------------------------------------------------------------------------

    def run(self, sleep: Callable[[float], bool]) -> None:
        """Look again and again until `sleep` returns True; then have the runs paused."""
        wait_s = 0.0
        while not sleep(wait_s):
            try:
                wait_s = self.look()
            except Exception:
                # A bug, or a machine out of memory: the other schedules are to go on.
                logger.exception("the scheduler had an error, and goes on")
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
        """Start the run of a schedule now, and return what became of it."""
        fire = self.new_fire(schedule, self.clock())
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


def _when(fire: Fire) -> str:
    return f"{fire.due_at[:16].replace('T', ' ')} UTC"
