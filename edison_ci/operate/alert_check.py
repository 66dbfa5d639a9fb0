"""The check for alerts: what it finds is opened, and what is gone is closed.

The facts come from `results`; here is decided how serious each is. Everything found in one check is
written in one transaction.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import duration, fixed, percent
from edison_ci.operate.alerts import close_alert, raise_alert
from edison_ci.results.stuck_runs import stuck_runs
from edison_ci.store.alerts import Condition, Finding, Level, open_alerts
from edison_ci.store.database import open_for_change, open_for_reading
from edison_ci.store.integrity import page_problems
from edison_ci.store.liveness import is_alive

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from edison_ci.operate.site import Site

DISK_WARN, DISK_ALERT = 0.90, 0.95
"""Share of the disk in use from which on there is a WARN, and an ALERT."""
STUCK_ALERT_S = 6 * 3_600
"""Time without progress from which on a stuck run is an ALERT."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check changed: the numbers of alerts."""

    opened: tuple[int, ...]
    raised: tuple[int, ...]
    """From WARN to ALERT."""
    closed: tuple[int, ...]


def check_alerts(site: Site) -> CheckResult:
    """Look for every condition; open and close alerts."""
    with open_for_reading(site.results) as connection:
        found = [*_disk(site), *_database(connection), *_stuck(site, connection)]
    return _write(site, found, _MACHINE)


_MACHINE = (Condition.DISK, Condition.DATABASE, Condition.STUCK_RUN)
_GONE = {
    Condition.DISK: "there is enough room again",
    Condition.DATABASE: "the results file is sound again",
    Condition.STUCK_RUN: "the run ended, goes on, or was replaced by a newer one",
}


def _write(site: Site, found: Iterable[Finding], looked_for: Iterable[Condition]) -> CheckResult:
    """Open what was found, and close what was looked for and not found."""
    by_key = {(each.condition, each.experiment): each for each in found}
    looked = frozenset(looked_for)
    with open_for_change(site.results) as connection:
        before = {alert.id: alert for alert in open_alerts(connection)}
        for finding in by_key.values():
            raise_alert(connection, site, finding)
        for alert in before.values():
            if alert.condition in looked and (alert.condition, alert.experiment) not in by_key:
                close_alert(
                    connection, site, alert.condition, alert.experiment, why=_GONE[alert.condition]
                )
        after = {alert.id: alert for alert in open_alerts(connection)}
    return CheckResult(
        opened=tuple(sorted(after.keys() - before.keys())),
        raised=tuple(n for n, alert in sorted(after.items())
                     if n in before and alert.level is not before[n].level),
        closed=tuple(sorted(before.keys() - after.keys())),
    )  # fmt: skip


# --- the machine ----------------------------------------------------------------------------------


def _disk(site: Site) -> list[Finding]:
    try:
        space = shutil.disk_usage(site.results.parent)
    except OSError:
        return []
    # As df counts it: what only the administrator may use is not free.
    used = space.used / max(1, space.used + space.free)
    if used <= DISK_WARN:
        return []
    said = (
        f"The disk with the results is {percent(used)} full, with {_gigabytes(space.free)} left. "
        "Free some space: a run stops when it cannot write."
    )
    level = Level.ALERT if used > DISK_ALERT else Level.WARN
    return [Finding(Condition.DISK, level, said, detail={"used": used, "free_bytes": space.free})]


def _gigabytes(size: int) -> str:
    return f"{fixed(size / 1e9, 1)} GB"


def _database(connection: sqlite3.Connection) -> list[Finding]:
    problems = page_problems(connection)
    if not problems:
        return []
    said = (
        f"The results file is damaged: {problems[0]}. Run edison admin db check, and restore a "
        "backup."
    )
    return [Finding(Condition.DATABASE, Level.ALERT, said, detail={"problems": problems})]


def _stuck(site: Site, connection: sqlite3.Connection) -> list[Finding]:
    found = []
    for run in stuck_runs(connection, site.now(), lambda owner: is_alive(site.locks, owner)):
        silent = duration(run.silent_s)
        if run.alive:
            said = f"Run {run.run_id} has made no progress for {silent}. Look at it with edison "
            said += f"runs watch {run.run_id}, or stop it with edison runs pause {run.run_id}."
        else:
            said = f"The process of run {run.run_id} is gone, {silent} after its last sign of life."
            said += f" Go on with edison resume {run.run_id}."
        level = Level.ALERT if run.silent_s >= STUCK_ALERT_S else Level.WARN
        detail = {"alive": run.alive, "silent_s": run.silent_s}
        found.append(Finding(Condition.STUCK_RUN, level, said, run.experiment, run.run_id, detail))
    return found
