"""The check for alerts: what it finds is opened, and what is gone is closed.

The facts come from `results`; here is decided how serious each is. Everything found in one check is
written in one transaction.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.experiment import Stop
from edison_ci.config.load import inspect_project
from edison_ci.documents.files import WorkingTree
from edison_ci.execute.budgets import caps_of, share_used
from edison_ci.execute.run_options import options_of
from edison_ci.features.monitor import alerts
from edison_ci.features.monitor import conditions as watching
from edison_ci.features.monitor.alert_rows import (
    Condition,
    Finding,
    Level,
    has_alerts,
    open_alerts,
    shows_more,
    stuck_runs,
)
from edison_ci.numeric import duration, fixed, percent
from edison_ci.records import RunStatus
from edison_ci.store import integrity
from edison_ci.store.database import open_for_change, open_for_reading
from edison_ci.store.runs import newest_complete, newest_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable

    from edison_ci.access.site import Site
    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.monitor.alert_rows import Alert
    from edison_ci.store.ledger import SpendingCap

DISK_WARN, DISK_ALERT = 0.90, 0.95
"""Share of the disk in use from which on there is a WARN, and an ALERT."""
_RECENT_S = 3_600
STUCK_ALERT_S = 6 * 3_600
"""Time without progress from which on a stuck run is an ALERT."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check changed: the numbers of alerts."""

    opened: tuple[int, ...] = ()
    raised: tuple[int, ...] = ()
    """From WARN to ALERT."""
    closed: tuple[int, ...] = ()


def check_alerts(site: Site, *, thorough: bool = True) -> CheckResult:
    """Look for every condition; open and close alerts. Files that are invalid are passed over.

    Unless it is thorough, the pages of the results file are not read, and of experiments only those
    are looked at that had a run in the last hour: each run is followed by its own check.
    """
    site = site.at_one_time()
    project, _ = inspect_project(WorkingTree(site.root), root=site.root)
    with open_for_reading(site.results) as connection:
        findings = [*_disk(site), *_stuck(site, connection)]
        if thorough:
            findings += _database(connection)
        experiments = {} if project is None else project.experiments
        watched = {name for name, experiment in experiments.items() if not experiment.file.archived}
        since = "" if thorough else site.seconds_ago(_RECENT_S)
        looked = {name for name in watched if _ended_since(connection, name, since)}
        if project is not None:
            for name in sorted(watched):
                findings += _budget(site, connection, project, experiments[name])
            for name in sorted(looked):
                findings += watching.findings_of(connection, name, experiments[name].file.alerts)
            findings += _month(site, connection, project)
        runs = {name: newest_complete(connection, name) for name in watched}

    def looked_for(alert: Alert) -> bool:
        if alert.condition is Condition.DATABASE:
            return thorough
        if not alert.experiment or alert.experiment not in watched:
            return True
        if alert.condition in watching.OF_EXPERIMENT and alert.experiment not in looked:
            return False
        return _may_close(alert, runs[alert.experiment])

    return _write(site, findings, looked_for)


def _ended_since(connection: sqlite3.Connection, name: str, since: str) -> bool:
    run = newest_run(connection, name)
    return run is not None and (run.finished_at or "") >= since


def check_experiments(
    site: Site, project: Project, reader: sqlite3.Connection, names: Collection[str]
) -> CheckResult:
    """Look for the conditions of some experiments, after a run of them has ended.

    The clock of the site has stopped, before the results were opened.
    """
    names = project.experiments.keys() & set(names)
    findings = [finding for finding in _stuck(site, reader) if finding.experiment in names]
    for name in sorted(names):
        experiment = project.experiment(name)
        if experiment.file.alerts.latency_ms is not None or shows_more(reader, name):
            findings += watching.findings_of(reader, name, experiment.file.alerts)
        findings += _budget(site, reader, project, experiment)
    if not findings and not has_alerts(reader):
        return CheckResult()
    runs = {name: newest_complete(reader, name) for name in names}

    def looked_for(alert: Alert) -> bool:
        return alert.experiment in names and _may_close(alert, runs[alert.experiment])

    return _write(site, findings, looked_for)


def _may_close(alert: Alert, newest: str | None) -> bool:
    """Whether a check that does not find a condition ends its alert.

    What runs have shown is over when a later run is complete; `newest` is when the last one ended.
    """
    if alert.condition in (*watching.OF_EXPERIMENT, *_BY_SCHEDULER):
        return newest is not None and newest > alert.seen_at
    return True


_BY_SCHEDULER = (Condition.SCHEDULE_MISSED, Condition.FIRE_SKIPPED)
"""Conditions that the scheduler finds; a later complete run closes them."""
_GONE = {
    Condition.DISK: "there is enough room again",
    Condition.DATABASE: "the results file is sound again",
    Condition.STUCK_RUN: "the run ended, is running again, or was replaced by a newer one",
    Condition.BUDGET: "there is enough budget again",
}


def _write(
    site: Site, findings: Iterable[Finding], looked_for: Callable[[Alert], bool]
) -> CheckResult:
    """Open what was found, and close what was looked for and not found."""
    by_key = {(finding.condition, finding.experiment): finding for finding in findings}
    with open_for_change(site.results) as connection:
        before = {alert.id: alert for alert in open_alerts(connection)}
        for finding in _keep_names(by_key, before.values()):
            alerts.raise_alert(connection, site, finding)
        for alert in before.values():
            if (alert.condition, alert.experiment) not in by_key and looked_for(alert):
                why = _GONE.get(alert.condition, "a complete run does not show it")
                alerts.close_alert(connection, site, alert.condition, alert.experiment, why=why)
        alerts.tell_alerts(connection, site)
        after = {alert.id: alert for alert in open_alerts(connection)}
    risen = (n for n, alert in after.items() if n in before and alert.level != before[n].level)
    return CheckResult(
        opened=tuple(sorted(after.keys() - before.keys())),
        raised=tuple(sorted(risen)),
        closed=tuple(sorted(before.keys() - after.keys())),
    )


_FALLS = {Condition.DROP: Condition.SLOW_FALL, Condition.SLOW_FALL: Condition.DROP}


def _keep_names(
    by_key: dict[tuple[Condition, str], Finding], already_open: Collection[Alert]
) -> list[Finding]:
    """Return the findings; a fall that is open as a drop, or as a slow fall, stays the same alert.

    Whether it is gradual may look different from run to run. `by_key` is changed accordingly.
    """
    open_now = {(alert.condition, alert.experiment) for alert in already_open}
    for key, finding in list(by_key.items()):
        condition, experiment = key
        other = (_FALLS.get(condition, condition), experiment)
        if condition in _FALLS and key not in open_now and other in open_now:
            del by_key[key]
            by_key[other] = replace(finding, condition=other[0])
    return [*by_key.values()]


def _budget(
    site: Site, connection: sqlite3.Connection, project: Project, experiment: Experiment
) -> list[Finding]:
    """Return how much of the budgets of the newest run and of today is used, if that is much."""
    run = newest_run(connection, experiment.id)
    if run is None:
        return []
    caps = caps_of(project, experiment, run.id, options_of(run).budget_microusd)
    own = [cap for cap in caps if cap.scope != "project"]
    stopped = str(run.stopped_by).startswith("budget") and run.status is RunStatus.PAUSED
    return _used(site, connection, own, experiment, run.id, stopped=stopped)


def _month(site: Site, connection: sqlite3.Connection, project: Project) -> list[Finding]:
    """Return how much of the budget of the project is used, if that is much."""
    caps = [cap for cap in caps_of(project, None, "", None) if cap.scope == "project"]
    return _used(site, connection, caps, None, None, stopped=False)


def _used(  # noqa: PLR0913 - one budget
    site: Site,
    connection: sqlite3.Connection,
    caps: Iterable[SpendingCap],
    experiment: Experiment | None,
    run_id: str | None,
    *,
    stopped: bool,
) -> list[Finding]:
    alert_at = Stop().alert_at if experiment is None else experiment.file.stop.alert_at
    today = site.now()[:10]
    shares = {cap.name: share_used(connection, cap, today) for cap in caps}
    high = {name: share for name, share in shares.items() if share >= alert_at}
    if not high and not stopped:
        return []
    usage = ", ".join(f"{percent(share)} of {name} is used" for name, share in high.items())
    if stopped:
        usage = f"Run {run_id} was stopped by a budget{f': {usage}' if usage else ''}"
    level = Level.ALERT if stopped or max(high.values(), default=0) >= 1 else Level.WARN
    name = "" if experiment is None else experiment.id
    sentence = f"{usage}."
    return [Finding(Condition.BUDGET, level, sentence, name, run_id, {"used": high})]


def _disk(site: Site) -> list[Finding]:
    try:
        space = shutil.disk_usage(site.results.parent)
    except OSError:
        return []
    # As df counts it: what only the administrator may use is not free.
    used = space.used / max(1, space.used + space.free)
    if used <= DISK_WARN:
        return []
    sentence = (
        f"The disk with the results is {percent(used)} full, with {_gigabytes(space.free)} left. "
        "Free some space: a run stops when it cannot write."
    )
    level = Level.ALERT if used > DISK_ALERT else Level.WARN
    return [
        Finding(Condition.DISK, level, sentence, detail={"used": used, "free_bytes": space.free})
    ]


def _gigabytes(size: int) -> str:
    return f"{fixed(size / 1e9, 1)} GB"


def _database(connection: sqlite3.Connection) -> list[Finding]:
    problems = integrity.page_problems(connection)
    if not problems:
        return []
    sentence = (
        f"The results file is damaged: {problems[0]}. Run edison admin db check, and restore a "
        "backup."
    )
    return [Finding(Condition.DATABASE, Level.ALERT, sentence, detail={"problems": problems})]


def _stuck(site: Site, connection: sqlite3.Connection) -> list[Finding]:
    findings = []
    for run in stuck_runs(connection, site.now(), site.locks):
        silent = duration(run.silent_s)
        if run.alive:
            sentence = (
                f"Run {run.run_id} has made no progress for {silent}. Look at it with edison "
            )
            sentence += f"runs watch {run.run_id}, or stop it with edison runs pause {run.run_id}."
        else:
            sentence = (
                f"The process of run {run.run_id} is gone, {silent} after its last heartbeat."
            )
            sentence += f" Continue it with edison resume {run.run_id}."
        level = Level.ALERT if run.silent_s >= STUCK_ALERT_S else Level.WARN
        detail = {"alive": run.alive, "silent_s": run.silent_s}
        findings.append(
            Finding(Condition.STUCK_RUN, level, sentence, run.experiment, run.run_id, detail)
        )
    return findings
