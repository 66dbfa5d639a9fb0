"""Schedules of the experiments: read from their files, and edited there with comments kept.

Each experiment file is read alone, so that a broken one does not hide the schedules of the others.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role
from edison_ci.config.cron import in_words, next_fire
from edison_ci.config.project_files import ProjectFiles, only_errors
from edison_ci.documents.files import WorkingTree, read
from edison_ci.documents.marks import Fault
from edison_ci.documents.record_json import fields_of
from edison_ci.documents.yaml_edit import (
    edited,
    not_editable,
    values_of,
    with_entry,
    with_values,
    without_entry,
)
from edison_ci.errors import Location, UsageError
from edison_ci.features.monitor.schedule_rows import (
    FireState,
    forget_watch,
    recent_fires,
    schedulers,
)
from edison_ci.spelling import did_you_mean
from edison_ci.store.database import open_for_change, open_for_reading
from edison_ci.store.liveness import is_alive
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any

    from edison_ci.access.site import Actor, Site
    from edison_ci.config.experiment import ExperimentFile
    from edison_ci.config.sections import Schedule
    from edison_ci.documents.marks import Json
    from edison_ci.errors import Problem
    from edison_ci.features.monitor.schedule_rows import Fire, SchedulerRow

_KEY = "schedule"
MOST = 20
"""The most schedules of one experiment."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule of an experiment."""

    experiment: str
    path: str
    """Of the experiment's file, from the root of the project."""
    index: int
    """Its place in the list there."""
    entry: Schedule
    archived: bool = False
    """Whether its experiment is archived, and so never runs."""

    @property
    def name(self) -> str:
        """The name in its experiment."""
        return self.entry.name

    @property
    def full_name(self) -> str:
        """The name in the project."""
        return f"{self.experiment}/{self.entry.name}"

    @property
    def active(self) -> bool:
        """Whether it starts runs."""
        return self.entry.enabled and not self.archived

    def as_json(self, now: dt.datetime) -> dict[str, Any]:
        """Return it for a document, with its next time."""
        coming = next_fire(self.entry.cron, now) if self.active else None
        return {
            "experiment": self.experiment,
            "name": self.name,
            "file": self.path,
            "cron": self.entry.cron,
            "words": in_words(self.entry.cron),
            "enabled": self.entry.enabled,
            "active": self.active,
            "budget_usd": self.entry.budget_usd,
            "next": None if coming is None else utc.timestamp(coming),
        }


class ScheduleFiles(NamedTuple):
    """The schedules of all experiments that can be read."""

    schedules: tuple[Scheduled, ...] = ()
    experiments: tuple[tuple[str, str], ...] = ()
    """Name and path of every readable experiment."""
    broken: tuple[tuple[str, Problem], ...] = ()
    """Files that cannot be read, each with its first problem."""


def read_schedules(site: Site, *, scheduled_only: bool = False) -> ScheduleFiles:
    """Return the schedules of the project, and the experiment files that are not valid.

    With `scheduled_only` files that do not even name the key are left out: parsing a thousand of
    them takes a second.
    """
    tree = WorkingTree(site.root)
    paths = ProjectFiles(tree).in_folder(site.file.paths.experiments, (".yaml", ".yml"))
    schedules: list[Scheduled] = []
    experiments: list[tuple[str, str]] = []
    broken: list[tuple[str, Problem]] = []
    for path in paths:
        if scheduled_only and not _names_schedule(tree, path):
            continue
        file, problem = read_experiment(tree, path)
        if problem is not None:
            broken.append((path, problem))
        if file is None:
            continue
        experiments.append((file.experiment, path))
        schedules += [
            Scheduled(file.experiment, path, index, entry, file.archived)
            for index, entry in enumerate(file.schedule)
        ]
    return ScheduleFiles(tuple(schedules), tuple(experiments), tuple(broken))


def _names_schedule(tree: WorkingTree, path: str) -> bool:
    try:
        return b"schedule" in read(tree, path)
    except Fault:
        return True  # it is read again, and reported


def read_experiment(tree: WorkingTree, path: str) -> tuple[ExperimentFile | None, Problem | None]:
    """Return an experiment file without the files that it names, and its first error."""
    files = ProjectFiles(tree)
    experiment = files.experiment(path)
    errors = only_errors(files.problems)
    if experiment is None or errors:
        return None, errors[0]
    return experiment[0], None


def find_schedule(files: ScheduleFiles, experiment: str | None, name: str) -> Scheduled:
    """Return the schedule of a name; raises UsageError that names those there are."""
    if experiment is None and "/" in name:
        experiment, _, name = name.partition("/")
    same = [s for s in files.schedules if experiment in (None, s.experiment) and s.name == name]
    if len(same) > 1:
        hint = f"name one: {', '.join(schedule.full_name for schedule in same)}"
        raise UsageError(f"several experiments have a schedule {name!r}", hint=hint)
    if same:
        return same[0]
    if experiment is not None and experiment not in dict(files.experiments):
        raise _no_experiment(files, experiment)
    there = [s for s in files.schedules if experiment in (None, s.experiment)]
    names = [schedule.name if experiment else schedule.full_name for schedule in there]
    whose = f" of {experiment}" if experiment else ""
    hint = did_you_mean(name, names, label="schedules") if names else "add one: schedule add"
    raise UsageError(f"there is no schedule {name!r}{whose}", hint=hint)


def _no_experiment(files: ScheduleFiles, name: str) -> UsageError:
    names = [experiment for experiment, _ in files.experiments]
    hint = did_you_mean(name, names, label="experiments")
    for path, problem in files.broken:
        if path.rpartition("/")[2].partition(".")[0] == name:
            return UsageError(
                f"{path} is not valid: {problem.message}",
                hint="fix the file first; see: edison validate",
                where=problem.where,
            )
    return UsageError(f"there is no experiment {name!r}", hint=hint)


def find_file(files: ScheduleFiles, experiment: str | None) -> tuple[str, str]:
    """Return name and path of an experiment, or of the only one; raises UsageError."""
    paths = dict(files.experiments)
    if experiment is None:
        if len(paths) != 1:
            hint = f"name one: {', '.join(paths)}" if paths else "see: edison validate"
            raise UsageError(f"which experiment? The project has {len(paths)}", hint=hint)
        experiment = next(iter(paths))
    if experiment not in paths:
        raise _no_experiment(files, experiment)
    return experiment, paths[experiment]


_SILENT = dt.timedelta(minutes=2)
"""A scheduler without a heartbeat for longer hangs; it sends one at least every 30 s."""


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """Whether a scheduler is running on this machine."""

    running: bool
    sentence: str
    seen_at: str | None = None
    """Its last heartbeat; None if there never was one."""
    missing: bool = False
    """Whether none is running, though one was and there are schedules."""


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule with its last and next time."""

    schedule: Scheduled
    coming: dt.datetime | None
    """None while it is disabled."""
    fires: tuple[Fire, ...] = ()
    """Its last times, the newest first."""
    verdict: str | None = None
    """Of the run of its last time."""

    @property
    def last(self) -> Fire | None:
        """Its last time; None if there was none."""
        return self.fires[0] if self.fires else None

    @property
    def outcome(self) -> str:
        """The result of its last time, in a few words."""
        return "" if self.last is None else fire_words(self.last, self.verdict)

    def as_json(self, now: dt.datetime) -> dict[str, Any]:
        """Return it for a document, with its last time."""
        last = None
        if self.last is not None:
            last = {**fire_json(self.last), "verdict": self.verdict, "text": self.outcome}
        return {**self.schedule.as_json(now), "last": last}


def fire_json(fire: Fire) -> dict[str, Any]:
    """Return how a time of a schedule ended, for a document."""
    return fields_of(
        fire,
        *("experiment", "schedule", "due_at", "last_due_at", "fires", "state"),
        *("run_id", "reason", "exit_code", "ended_at"),
    )


def fire_words(fire: Fire, verdict: str | None = None) -> str:
    """Return the result of a time of a schedule, in a few words."""
    what = f"{fire.fires} {fire.state}" if fire.fires > 1 else str(fire.state)
    if fire.state is FireState.DONE and verdict:
        what = f"done, {verdict}"
    if fire.state is FireState.STARTED:
        what = "at work"
    return f"{what}: {fire.reason}" if fire.reason else what


@dataclass(frozen=True, slots=True)
class ScheduleOverview:
    """The schedules of a project with their results."""

    schedules: tuple[ScheduleStatus, ...]
    broken: tuple[tuple[str, Problem], ...]


def schedule_overview(site: Site, *, history: int = 1) -> ScheduleOverview:
    """Return the schedules with their last and next times."""
    files, now = read_schedules(site, scheduled_only=True), site.clock()
    if not site.results.exists():
        plain = tuple(
            ScheduleStatus(schedule, _coming(schedule, now)) for schedule in files.schedules
        )
        return ScheduleOverview(plain, files.broken)
    with open_for_reading(site.results) as connection:
        statuses = []
        for schedule in files.schedules:
            past = recent_fires(connection, schedule.experiment, schedule.name, most=history)
            verdict = None
            if past and past[0].run_id is not None:
                verdict = find_run(connection, past[0].run_id).verdict
            statuses.append(ScheduleStatus(schedule, _coming(schedule, now), tuple(past), verdict))
    return ScheduleOverview(tuple(statuses), files.broken)


def _coming(schedule: Scheduled, now: dt.datetime) -> dt.datetime | None:
    return next_fire(schedule.entry.cron, now) if schedule.active else None


def scheduler_status(site: Site, schedules: Sequence[Scheduled] | None = None) -> SchedulerStatus:
    """Return whether a scheduler is running; `schedules` may be passed where they were read."""
    if schedules is None:
        schedules = read_schedules(site, scheduled_only=True).schedules
    watched = any(schedule.active for schedule in schedules)
    if not site.results.exists():
        return _scheduler(site, [], watched=watched)
    with open_for_reading(site.results) as connection:
        return _scheduler(site, schedulers(connection), watched=watched)


def _scheduler(site: Site, rows: list[SchedulerRow], *, watched: bool) -> SchedulerStatus:
    if not rows:
        sentence = "none runs here; start one with: edison schedule run"
        return SchedulerStatus(False, sentence)
    alive = [row for row in rows if is_alive(schedulers_folder(site), row.owner)]
    if not alive:
        last = rows[0]
        how = "stopped" if last.stopped_at else "killed"
        sentence = (
            f"{how}, last seen {utc.to_minute(last.seen_at)}; start it with: edison schedule run"
        )
        return SchedulerStatus(False, sentence, last.seen_at, missing=watched)
    row = alive[0]
    silent = site.clock() - dt.datetime.fromisoformat(row.seen_at)
    if silent > _SILENT:
        sentence = f"hangs: no heartbeat since {utc.to_minute(row.seen_at)}"
        return SchedulerStatus(False, sentence, row.seen_at, missing=watched)
    more = f", {len(alive)} of them" if len(alive) > 1 else ""
    sentence = f"running since {utc.to_minute(row.started_at)}{more}"
    return SchedulerStatus(True, sentence, row.seen_at)


def schedulers_folder(site: Site) -> Path:
    """Return the folder with the locks of schedulers.

    It is not that of runs: a scheduler at rest must not keep housekeeping from its work.
    """
    return site.locks / "schedulers"


def add_schedule(site: Site, experiment: str | None, entry: Schedule) -> Scheduled:
    """Add a schedule to the file of an experiment, with an audit row."""
    files = read_schedules(site)
    experiment, path = find_file(files, experiment)
    own_schedules = [schedule for schedule in files.schedules if schedule.experiment == experiment]
    if any(schedule.name == entry.name for schedule in own_schedules):
        raise UsageError(
            f"{experiment} has a schedule {entry.name!r} already",
            hint="give another name with --name, or remove that one first",
        )
    if len(own_schedules) >= MOST:
        raise UsageError(f"{experiment} has {MOST} schedules already", hint="remove one first")
    fields = _written(entry)
    added = Scheduled(experiment, path, len(own_schedules), entry)

    def edit(text: str) -> str:
        return with_entry(text, _KEY, fields)

    def expected(before: list[Json]) -> list[Json]:
        return [*before, fields]

    change = _Change("schedule add", added.full_name, path, after=fields)
    _apply(site, None, change, edit, expected)
    return added


def remove_schedule(site: Site, schedule: Scheduled) -> None:
    """Remove a schedule from its file, with an audit row."""

    def edit(text: str) -> str:
        return without_entry(text, _KEY, schedule.index)

    def expected(before: list[Json]) -> list[Json]:
        return [listed for place, listed in enumerate(before) if place != schedule.index]

    before = _written(schedule.entry)
    change = _Change("schedule remove", schedule.full_name, schedule.path, before=before)
    _apply(site, None, change, edit, expected)


def enable_schedule(
    site: Site, schedule: Scheduled, *, to: bool, actor: Actor | None = None
) -> bool:
    """Enable or disable a schedule in its file; return whether that changed anything."""
    action = "schedule enable" if to else "schedule disable"

    def edit(text: str) -> str:
        return with_values(text, _KEY, schedule.index, {"enabled": to})

    def expected(before: list[Json]) -> list[Json]:
        changed = list(before)
        entry = changed[schedule.index]
        assert isinstance(entry, dict), "an entry that was read is a map"
        changed[schedule.index] = {**entry, "enabled": to}
        return changed

    if schedule.entry.enabled == to:
        _admit(site, actor, action, schedule.full_name)
        return False
    change = _Change(action, schedule.full_name, schedule.path)
    _apply(site, actor, change, edit, expected)
    with open_for_change(site.results) as connection:
        # It is watched from now on, also if no scheduler saw that it was disabled.
        forget_watch(connection, schedule.experiment, schedule.name)
    return True


def _written(entry: Schedule) -> dict[str, Any]:
    fields: dict[str, Any] = entry.model_dump(mode="json", exclude_defaults=True)
    if entry.budget_usd is not None and entry.budget_usd.is_integer():
        fields["budget_usd"] = int(entry.budget_usd)
    return fields


@dataclass(frozen=True, slots=True)
class _Change:
    """A change as the audit records it, and the file that it is made in."""

    action: str
    entity: str
    path: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


def _admit(site: Site, actor: Actor | None, action: str, entity: str) -> Actor:
    return site.admit(site.actor() if actor is None else actor, Role.EDITOR, action, entity)


def _apply(
    site: Site,
    actor: Actor | None,
    change: _Change,
    edit: Callable[[str], str],
    expected: Callable[[list[Json]], list[Json]],
) -> None:
    """Write the edited file if exactly the list has changed as wanted; raises UsageError."""
    actor = _admit(site, actor, change.action, change.entity)
    text = read(WorkingTree(site.root), change.path).decode("utf-8-sig")
    before = values_of(text, change.path)
    listed = before.get(_KEY)
    goal = {**before, _KEY: expected(listed if isinstance(listed, list) else [])}
    hint = "edit it by hand; `edison admin schema experiment` shows its format"
    refusal = not_editable(change.path, hint=hint, where=Location(change.path))
    changed = edited(text, edit, goal, refusal)
    row = site.entry(actor, change.action, change.entity, before=change.before, after=change.after)
    site.replace(change.path, changed, row)
