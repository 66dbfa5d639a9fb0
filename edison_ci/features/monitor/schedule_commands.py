"""edison schedule: schedules of runs, listed, edited and carried out."""

from __future__ import annotations

import datetime as dt
import re
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from edison_ci import ranges, utc
from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import duties
from edison_ci.cli import lookup, summary
from edison_ci.cli.options import (
    CliState,
    EdisonCommand,
    EdisonGroup,
    NumberRange,
    optional_first,
    takes,
)
from edison_ci.cli.terminal import BAD, GOOD, MOST_BLOCKS, ODD, StyledText, Terminal
from edison_ci.config import cron as config_cron
from edison_ci.config import sections
from edison_ci.documents import record_json
from edison_ci.errors import ExitCode, UsageError
from edison_ci.features.monitor import schedule_rows as store_schedules
from edison_ci.features.monitor import schedule_workflow
from edison_ci.features.monitor import scheduler as scheduling
from edison_ci.features.monitor import schedules as schedule_files
from edison_ci.numeric import counted
from edison_ci.results import stored_runs

if TYPE_CHECKING:
    from edison_ci.access.site import Site
    from edison_ci.features.monitor.schedule_rows import Fire
    from edison_ci.features.monitor.schedule_workflow import SyncResult
    from edison_ci.features.monitor.schedules import Scheduled, ScheduleFiles

_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
PRESETS: dict[str, tuple[str, str]] = {
    "5m": ("every-5-minutes", "*/5 * * * *"),
    "10m": ("every-10-minutes", "*/10 * * * *"),
    "15m": ("every-15-minutes", "*/15 * * * *"),
    "30m": ("every-30-minutes", "*/30 * * * *"),
    "hour": ("hourly", "MINUTE * * * *"),
    "6h": ("every-6-hours", "MINUTE */6 * * *"),
    "12h": ("every-12-hours", "MINUTE */12 * * *"),
    "day": ("daily", "MINUTE HOUR * * *"),
    "weekday": ("weekdays", "MINUTE HOUR * * 1-5"),
    **{day: (f"{day}s", f"MINUTE HOUR * * {number}") for number, day in enumerate(_DAYS)},
    "month": ("monthly", "MINUTE HOUR 1 * *"),
}
"""Presets: the name of the schedule, and its cron with places for a time of day."""
_WITHOUT_TIME = ("5m", "10m", "15m", "30m")


@click.group(cls=EdisonGroup)
def schedule() -> None:
    """List, edit and carry out schedules of runs.

    Schedules are in the experiment files, under `schedule`. Their times are in UTC, and do not
    follow daylight saving time.

    Examples:
      edison schedule add support-reply --every weekday --at 07:30
      edison schedule list
      edison schedule disable weekdays
    """


@schedule.command("list", cls=EdisonCommand)
@click.pass_obj
def list_schedules(state: CliState) -> None:
    """List the schedules with their last and next run, and whether a scheduler runs.

    Works even if other files are invalid.

    Examples:
      edison schedule list
      edison schedule list --json
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    overview = schedule_files.schedule_overview(site)
    scheduler = schedule_files.scheduler_status(
        site, [line.schedule for line in overview.schedules]
    )
    if terminal.json:
        schedules = [status.as_json(site.clock()) for status in overview.schedules]
        broken = [{"file": path, "message": problem.message} for path, problem in overview.broken]
        alive = record_json.fields_of(scheduler, "running", "seen_at", text="sentence")
        terminal.document({"schedules": schedules, "broken": broken, "scheduler": alive})
        return
    if not overview.schedules:
        terminal.note("no schedules; add one with: edison schedule add --every day")
    names = dict.fromkeys(scheduled.schedule.experiment for scheduled in overview.schedules)
    for name in terminal.listed([*names], most=MOST_BLOCKS):
        terminal.result(StyledText(name, bold=True))
        for scheduled in overview.schedules:
            if scheduled.schedule.experiment == name:
                _show_schedule(terminal, scheduled)
    for path, problem in overview.broken:
        terminal.note(StyledText("not read: ", ODD), f"{path}: {problem.message}")
    if any(scheduled.schedule.active for scheduled in overview.schedules):
        color = GOOD if scheduler.running else ODD
        terminal.note(StyledText("scheduler: ", color), scheduler.sentence)


def _show_schedule(terminal: Terminal, status: schedule_files.ScheduleStatus) -> None:
    scheduled = status.schedule
    off = "" if scheduled.active else ", archived" if scheduled.archived else ", disabled"
    budget = scheduled.entry.budget_usd
    cost = f", at most ${budget:g} each" if budget is not None else ""
    words = f": {config_cron.in_words(scheduled.entry.cron)}{cost}"
    terminal.result(
        "  ", StyledText(scheduled.name, bold=True), words, StyledText(off, ODD), hang=4
    )
    if status.coming is not None:
        terminal.result(f"    next  {both_times(status.coming)}")
    if status.last is not None:
        state = status.last.state
        color = GOOD if state is store_schedules.FireState.DONE else ODD if not state.over else BAD
        when = both_times(dt.datetime.fromisoformat(status.last.last_due_at))
        outcome = StyledText(status.outcome, color)
        terminal.result(f"    last  {when}: ", outcome, hang=10)


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to add to an experiment, as the options describe it."""

    experiment: str | None
    every: str | None
    at: str | None
    cron: str | None
    name: str | None
    budget: float | None
    disabled: bool

    def name_and_cron(self) -> tuple[str, str]:
        """Return name and cron; raises UsageError for options that do not go together."""
        if (self.every is None) == (self.cron is None):
            raise UsageError(
                "give either --every or --cron", hint="such as --every day, or --cron '0 9 * * 1-5'"
            )
        if self.cron is not None:
            if self.at is not None:
                raise UsageError("--at has no effect with --cron", hint="write the time in --cron")
            if (problem := config_cron.wrong_cron(self.cron)) is not None:
                raise UsageError(f"{self.cron!r} {problem}", hint=config_cron.HINT)
            return self.name or "custom", " ".join(self.cron.split())
        assert self.every is not None, "one of the two is given"
        name, pattern = PRESETS[self.every]
        if self.at is not None and self.every in _WITHOUT_TIME:
            raise UsageError(f"--every {self.every} has no time of day", hint="leave out --at")
        time = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", self.at or "09:00")
        if time is None:
            raise UsageError(
                f"{self.at!r} is not a time of day", hint="write HH:MM in UTC, such as 06:30"
            )
        hour, minute = int(time[1]), int(time[2]) if self.at or "HOUR" in pattern else 0
        cron = pattern.replace("MINUTE", str(minute)).replace("HOUR", str(hour))
        return self.name or name, cron

    def entry(self) -> sections.Schedule:
        """Return the entry for the file; raises UsageError."""
        name, cron = self.name_and_cron()
        fields: dict[str, Any] = {"name": name, "cron": cron, "enabled": not self.disabled}
        if self.budget is not None:
            whole = self.budget == int(self.budget)
            fields["budget_usd"] = int(self.budget) if whole else self.budget
        try:
            return sections.Schedule.model_validate(fields)
        except ValueError:
            raise UsageError(
                f"{name!r} is not a name",
                hint="use letters, digits, '.', '_' and '-', such as nightly",
            ) from None


@schedule.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option(
    "--every", type=click.Choice([*PRESETS]), metavar="PRESET", help="One of the presets."
)
@click.option("--at", metavar="HH:MM", help="Time of day in UTC; default: 09:00.")
@click.option("--cron", metavar="CRON", help="Five fields, UTC: minute hour day month weekday.")
@click.option("--name", metavar="NAME", help="Name of the schedule; default: that of the preset.")
@click.option(
    "--budget",
    type=NumberRange(*ranges.RUN_USD),
    metavar="USD",
    help="Budget of each run in dollars; default: stop.budget_usd.",
)
@click.option("--disabled", is_flag=True, help="Add it without enabling it.")
@click.pass_obj
@takes(NewSchedule)
def add(state: CliState, new: NewSchedule) -> None:
    """Add a schedule to an experiment.

    Presets: 5m, 10m, 15m, 30m, hour, 6h, 12h, day, weekday, monday to sunday, month. The entry is
    added to the experiment's file; comments and the rest of the file stay as they are. EXPERIMENT
    may be left out if there is one.

    Examples:
      edison schedule add --every day
      edison schedule add support-reply --every monday --at 06:30 --budget 2
      edison schedule add support-reply --cron "0 */6 * * 1-5" --name often
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    entry = new.entry()
    added = schedule_files.add_schedule(site, new.experiment, entry)
    if terminal.json:
        terminal.document({"added": added.as_json(site.clock())})
        return
    terminal.result(f"{added.full_name} added to {added.path}: {config_cron.in_words(entry.cron)}")
    _explain_times(terminal, added, site.clock())
    gap = config_cron.shortest_gap(entry.cron)
    if gap is not None and gap < dt.timedelta(minutes=5):
        terminal.note("it is due more often than every 5 minutes, which GitHub does not offer")


def _explain_times(terminal: Terminal, scheduled: Scheduled, now: dt.datetime) -> None:
    coming = config_cron.next_fire(scheduled.entry.cron, now)
    if not scheduled.active:
        terminal.note(
            f"it is disabled; enable it with: edison schedule enable {scheduled.full_name}"
        )
    elif coming is not None:
        terminal.note(f"next {both_times(coming)}")
    if coming is not None and _shifts(coming):
        terminal.note("times are in UTC: here they shift by an hour with daylight saving time")


def _shifts(time: dt.datetime) -> bool:
    """Whether the local time zone has daylight saving time in that year."""
    offsets = {
        dt.datetime(time.year, month, 1, tzinfo=dt.UTC).astimezone().utcoffset()
        for month in range(1, 13)
    }
    return len(offsets) > 1


@schedule.command(cls=EdisonCommand)
@optional_first("EXPERIMENT", "NAME")
@click.pass_obj
def remove(state: CliState, names: tuple[str | None, str]) -> None:
    """Remove a schedule from its experiment's file.

    EXPERIMENT may be left out if one experiment has a schedule of that name. What it did before
    stays in its history.

    Examples:
      edison schedule remove weekdays
      edison schedule remove support-reply weekdays
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    scheduled = _find(schedule_files.read_schedules(site), names)
    schedule_files.remove_schedule(site, scheduled)
    if terminal.json:
        terminal.document({"removed": scheduled.as_json(site.clock())})
        return
    terminal.result(f"{scheduled.full_name} removed from {scheduled.path}")


@schedule.command(cls=EdisonCommand)
@optional_first("EXPERIMENT", "NAME")
@click.pass_obj
def enable(state: CliState, names: tuple[str | None, str]) -> None:
    """Enable a schedule.

    EXPERIMENT may be left out if one experiment has a schedule of that name.

    Examples:
      edison schedule enable weekdays
    """
    _switch(state, names, to=True)


@schedule.command(cls=EdisonCommand)
@optional_first("EXPERIMENT", "NAME")
@click.pass_obj
def disable(state: CliState, names: tuple[str | None, str]) -> None:
    """Disable a schedule; it stays in its file.

    A run that it has started continues. EXPERIMENT may be left out if one experiment has a schedule
    of that name.

    Examples:
      edison schedule disable weekdays
      edison schedule disable support-reply weekdays
    """
    _switch(state, names, to=False)


def _switch(state: CliState, names: tuple[str | None, str], *, to: bool) -> None:
    terminal, site = Terminal(state), lookup.open_site(state)
    scheduled = _find(schedule_files.read_schedules(site), names)
    changed = schedule_files.enable_schedule(site, scheduled, to=to)
    again = _find(schedule_files.read_schedules(site), (scheduled.experiment, scheduled.name))
    if terminal.json:
        terminal.document({"schedule": again.as_json(site.clock()), "changed": changed})
        return
    word = "enabled" if to else "disabled"
    terminal.result(
        f"{scheduled.full_name} {'is' if changed else 'was'} {word}{'' if changed else ' already'}"
    )
    if to:
        _explain_times(terminal, again, site.clock())


@schedule.command(cls=EdisonCommand)
@click.option("--check", is_flag=True, help="Write nothing; exit code 2 if it is out of date.")
@click.pass_obj
def sync(state: CliState, check: bool) -> None:
    """Write the workflow that starts the runs on GitHub.

    Writes .github/workflows/edison-schedule.yml from the enabled schedules, with their times, and
    the budget of each time. Which time is due decides which experiments run. If nothing is
    scheduled, the workflow is removed. GitHub starts schedules of the default branch only, every 5
    minutes at most, and often some minutes late.

    The job gets the keys that models.yaml names, and what the notifications of edison.yaml name,
    from secrets of the repository. It may open issues only if a notification does.

    Examples:
      edison schedule sync
      edison schedule sync --check
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    if check:
        _check_workflow(terminal, site)
        return
    done = schedule_workflow.sync_workflow(site)
    names = [scheduled.full_name for scheduled in done.schedules]
    if terminal.json:
        written = {"workflow": done.path, "change": done.change, "schedules": names}
        terminal.document({**written, "also": [*done.also], "secrets": [*done.secrets]})
        return
    _show_sync(terminal, done)
    for name in done.also:
        terminal.note(f"  {name}")
    if done.change in ("written", "removed"):
        terminal.note("Commit it to the default branch, the only one that GitHub schedules.")


def _show_sync(terminal: Terminal, done: SyncResult) -> None:
    if done.change == "none":
        terminal.note("nothing is scheduled, and there is no workflow to remove")
    elif done.change == "removed":
        terminal.result(f"{done.path} removed: nothing is scheduled")
    elif done.change == "unchanged":
        terminal.result(f"{done.path} is up to date")
    else:
        was = " was out of date:" if done.replaced else ""
        count = counted(len(done.schedules), "schedule")
        terminal.result(f"{done.path}{was} written for {count}")
        for scheduled in done.schedules:
            terminal.note(f"  {scheduled.full_name}: {config_cron.in_words(scheduled.entry.cron)}")
        if done.secrets:
            terminal.note("It passes on these secrets of the repository:")
            for name in done.secrets:
                terminal.note(f"  gh secret set {name}")


def _check_workflow(terminal: Terminal, site: Site) -> None:
    if schedule_workflow.is_out_of_date(site):
        raise UsageError(
            f"{schedule_workflow.PATH} is out of date", hint="write it: edison schedule sync"
        )
    if terminal.json:
        terminal.document({"workflow": schedule_workflow.PATH, "change": "unchanged"})
    terminal.result(f"{schedule_workflow.PATH} is up to date")


@schedule.command("run", cls=EdisonCommand)
@click.argument("names", nargs=-1, metavar="[[EXPERIMENT] NAME]")
@click.option("--now", is_flag=True, help="Start the run of one schedule now, and wait for it.")
@click.pass_obj
def run_schedules(state: CliState, names: tuple[str, ...], now: bool) -> None:
    """Start the runs of all schedules when they are due.

    Runs in the foreground until SIGTERM or Ctrl-C, as a systemd unit or in a container; runs at
    work are then paused, and resumed at the next start. Changed files are read without a restart.
    Several schedulers on a machine start each run once. A run that is less than 5 minutes late is
    started; what is later is recorded as missed. Each run buys new answers.

    NAME --now starts the run of one schedule at once, enabled or not, and ends with its exit code.

    The results file must be on a disk of this machine: SQLite is not shared over a network.

    Examples:
      edison schedule run
      edison schedule run weekdays --now
      edison schedule run support-reply weekdays --now
    """
    terminal, site = Terminal(state), lookup.open_site(state)
    if bool(names) != now or len(names) > 2:
        raise UsageError(
            "--now takes the name of a schedule" if now else "NAME needs --now",
            hint="write: edison schedule run NAME --now, or leave out both",
        )
    what = "/".join(names)
    actor = site.require(sites.Role.EDITOR, "schedule run", what)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    only = (
        schedule_files.find_schedule(schedule_files.read_schedules(site), *_split(names))
        if now
        else None
    )
    scheduler = scheduling.Scheduler(
        site.root, tell=partial(_tell, terminal), offline=state.offline
    )
    try:
        if only is not None:
            site.record(actor, "schedule run", only.full_name)
            _show_ended(terminal, site, scheduler.run_once(only, stop.wait))
        else:
            _run_until_stopped(terminal, site, scheduler, stop)
    finally:
        scheduler.close()


def _run_until_stopped(
    terminal: Terminal, site: Site, scheduler: scheduling.Scheduler, stop: threading.Event
) -> None:
    active = [
        scheduled for scheduled in schedule_files.read_schedules(site).schedules if scheduled.active
    ]
    terminal.note(f"{counted(len(active), 'schedule')}; stop with Ctrl-C or SIGTERM")
    with duties.duties_in_background(site.root):
        scheduler.run(stop.wait)
    _tell(terminal, "stopped")
    if terminal.json:
        terminal.document({"stopped": True})


def _show_ended(terminal: Terminal, site: Site, fire: Fire) -> None:
    """Show how a run that was started now ended, and exit with its exit code."""
    if terminal.json:
        terminal.document({"fire": schedule_files.fire_json(fire)})
    elif fire.run_id is not None:
        with stored_runs.open_runs(site) as runs:
            summary.show_run(terminal, runs.result(fire.run_id))
    code = fire.exit_code
    if code is None:
        code = ExitCode.DONE if fire.state is store_schedules.FireState.DONE else ExitCode.PAUSED
    if fire.state is store_schedules.FireState.FAILED and fire.run_id is None and not terminal.json:
        raise UsageError(fire.reason, hint="see: edison schedule list")
    if code:
        raise click.exceptions.Exit(int(code) if code > 0 else int(ExitCode.PAUSED))


def _tell(terminal: Terminal, text: str) -> None:
    terminal.note(f"{utc.now():%Y-%m-%d %H:%M:%S} UTC  {text}")


def _split(names: tuple[str, ...]) -> tuple[str | None, str]:
    return (names[0] if len(names) > 1 else None, names[-1])


def _find(files: ScheduleFiles, names: tuple[str | None, str]) -> Scheduled:
    return schedule_files.find_schedule(files, *names)


def both_times(time: dt.datetime) -> str:
    """Return a time in UTC, and in local time where that differs."""
    local = time.astimezone()
    if not local.utcoffset():
        return f"{time:%Y-%m-%d %H:%M} UTC"
    day = "" if local.date() == time.date() else f"{local:%Y-%m-%d} "
    return f"{time:%Y-%m-%d %H:%M} UTC ({day}{local:%H:%M} local time)"
