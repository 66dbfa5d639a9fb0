"""Health, readiness and Prometheus metrics of the server, for machines that watch it."""

from __future__ import annotations

import datetime as dt
import shutil
from typing import TYPE_CHECKING, Any

from edison_ci import __version__, utc
from edison_ci.access.accounts import Accounts
from edison_ci.api.duties import health_of_duties
from edison_ci.documents.record_json import fields_of
from edison_ci.features.monitor.alert_rows import Condition, find_open, stuck_runs
from edison_ci.features.monitor.metrics import (
    OF_PROJECT,
    MetricSource,
    project_samples,
    render,
    server_metrics,
    unfinished_runs,
)
from edison_ci.features.monitor.schedules import read_schedules, scheduler_status
from edison_ci.results.run_lists import last_run_at
from edison_ci.results.stored_runs import SchemaVersion, is_current
from edison_ci.web.identity import current_site
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from edison_ci.access.site import Site
    from edison_ci.web.page_context import PageContext

LEAST_FREE_BYTES = 100_000_000
"""Minimum free disk space to store another run."""


def ready(context: PageContext) -> dict[str, Any]:
    """Return whether pages can be served now: the results can be read, and are of this version."""
    ok = is_current(context.connection)
    return {"_status": 200 if ok else 503, "ok": ok}


def health(context: PageContext) -> dict[str, Any]:
    """Return what an operator has to know, and whether all of it is well."""
    schema = SchemaVersion.of(context.connection)
    checks: dict[str, Any] = {
        "database": {"ok": True},
        "schema": {"ok": schema.version == schema.known, **schema._asdict()},
    }
    if is_current(context.connection):
        checks |= _of_results(context)
    if context.file is not None:
        free = shutil.disk_usage(context.file.parent).free
        checks["disk"] = {"ok": free >= LEAST_FREE_BYTES, "free_bytes": free}
    checks["keys"] = {"ok": True, "present": _keys(context)}
    ok = all(check["ok"] for check in checks.values())
    return {"_status": 200 if ok else 503, "ok": ok, "edison": __version__, "checks": checks}


def _of_results(context: PageContext) -> dict[str, Any]:
    """Return the checks that read a results file of this version."""
    connection = context.connection
    # The duty `alerts` goes through all pages of the file; that takes too long here.
    damaged = find_open(connection, Condition.DATABASE, "") is not None
    checks: dict[str, Any] = {
        "database": {"ok": not damaged, "last_run_at": last_run_at(connection)},
        "runs": _runs(context),
    }
    if context.server is not None and context.server.is_home:
        site = current_site(context.server.root)
        checks["duties"] = _duties(context, site)
        schedules = read_schedules(site, scheduled_only=True).schedules
        if any(schedule.active for schedule in schedules):
            scheduler = scheduler_status(site, schedules)
            seen = fields_of(scheduler, "running", "seen_at", detail="sentence")
            checks["scheduler"] = {"ok": not scheduler.missing, **seen}
    return checks


def _runs(context: PageContext) -> dict[str, Any]:
    """Return the oldest run that is under way, and those that make no progress."""
    running = unfinished_runs(context.connection)
    oldest = None
    if running:
        begun = dt.datetime.fromisoformat(running[0].created_at)
        age_s = round((context.now - begun).total_seconds())
        oldest = {"run_id": running[0].run_id, "status": running[0].status, "age_s": age_s}
    stuck: list[str] = []
    if context.root is not None:
        locks, now = context.root / ".edison" / "locks", utc.timestamp(context.now)
        stuck = [run.run_id for run in stuck_runs(context.connection, now, locks)]
    return {"ok": not stuck, "oldest_unfinished": oldest, "stuck": stuck}


def _duties(context: PageContext, site: Site) -> dict[str, Any]:
    duties = health_of_duties(context.connection, site, context.now)
    late = [duty.name for duty in duties if duty.overdue]
    states = {
        duty.name: fields_of(duty.state, "done_at", "outcome", "detail", "due_at")
        for duty in duties
    }
    return {"ok": not late, "overdue": late, "duties": states}


def _keys(context: PageContext) -> dict[str, bool]:
    """Return which keys are set or sealed, without their values."""
    project = project_of(context)
    if project is None:
        return {}
    named = {name for model in project.models.values() for name in model.keys.values()}
    return {name: project.has_key(name) for name in sorted(named)}


def metrics(context: PageContext) -> str:
    """Return the metrics of the project, and of the server, in the text format of Prometheus."""
    source = MetricSource(context.connection, context.file, project_of(context), context.now)
    text = render(OF_PROJECT, project_samples(source))
    if context.server is None or not context.server.is_home:
        return text
    sessions = None
    if context.server.access.sign_in:
        accounts = Accounts(current_site(context.server.root))
        sessions = sum(account.sessions for account in accounts.access())
    served = server_metrics(context.server.traffic, sessions)
    return text + served
