"""Alerts about schedules: times that were missed, skipped or paused, and files that are broken."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level
from edison_ci.features.monitor.alerts import close_alert, raise_alert
from edison_ci.features.monitor.schedule_rows import FireState
from edison_ci.numeric import counted

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.access.site import Site
    from edison_ci.features.monitor.schedule_rows import Fire
    from edison_ci.features.monitor.schedules import ScheduleFiles


def alert_end(connection: sqlite3.Connection, site: Site, fire: Fire) -> None:
    """Raise the alert that the end of a time calls for, or close those that it settles."""
    if fire.state is FireState.DONE:
        for condition in (Condition.SCHEDULE_MISSED, Condition.FIRE_SKIPPED):
            why = "a scheduled run is complete"
            close_alert(connection, site, condition, fire.experiment, why=why)
    elif fire.state is FireState.SKIPPED:
        _raise_skipped(connection, site, fire, f"was skipped: {fire.reason}")
    elif fire.state is FireState.MISSED or fire.run_id is None:
        alert_missed(connection, site, fire)


def alert_paused(connection: sqlite3.Connection, site: Site, fire: Fire, reason: str) -> None:
    """Raise the alert that a run waits for the budget of the next day."""
    _raise_skipped(connection, site, fire, f"is paused: {reason}")


def _raise_skipped(connection: sqlite3.Connection, site: Site, fire: Fire, outcome: str) -> None:
    sentence = f"The run of {utc.to_minute(fire.due_at)} by {fire.schedule} {outcome}."
    _raise(connection, site, fire, Finding(Condition.FIRE_SKIPPED, Level.WARN, sentence))


def alert_missed(connection: sqlite3.Connection, site: Site, fire: Fire) -> None:
    """Raise the alert that a time, or several in one row, passed without a run."""
    first, last = utc.to_minute(fire.due_at), utc.to_minute(fire.last_due_at)
    if fire.fires > 1:
        what = f"{counted(fire.fires, 'run')} by {fire.schedule} from {first} to {last}"
    else:
        what = f"The run of {first} by {fire.schedule}"
    verb = "could not start" if fire.state is FireState.FAILED else "missed"
    were = "" if verb == "could not start" else "were " if fire.fires > 1 else "was "
    level = Level.WARN if fire.fires == 1 else Level.ALERT
    sentence = f"{what} {were}{verb}: {fire.reason}."
    _raise(connection, site, fire, Finding(Condition.SCHEDULE_MISSED, level, sentence))


def alert_broken(
    connection: sqlite3.Connection, site: Site, experiment: str, files: ScheduleFiles
) -> None:
    """Raise the alert that the file of an experiment is not valid, so that nothing is started."""
    for path, problem in files.broken:
        if path.rpartition("/")[2].partition(".")[0] == experiment:
            sentence = f"{path} is not valid, so its schedules start nothing: {problem.message}."
            finding = Finding(Condition.SCHEDULE_MISSED, Level.ALERT, sentence, experiment)
            raise_alert(connection, site, finding)


def _raise(connection: sqlite3.Connection, site: Site, fire: Fire, finding: Finding) -> None:
    detail = {"schedule": fire.schedule, "due_at": fire.due_at}
    about = replace(finding, experiment=fire.experiment, run_id=fire.run_id, detail=detail)
    raise_alert(connection, site, about)
