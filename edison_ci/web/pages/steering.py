"""The pages that show the plan of a run before it is started, and that steer one."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from edison_ci.access.site import Role, require_role
from edison_ci.api.run_start import StartPlan
from edison_ci.errors import EdisonError, UsageError
from edison_ci.numeric import dollar_range, duration_range
from edison_ci.records import RunStatus
from edison_ci.results.steering import steering_state
from edison_ci.store.ledger import SpendingCap, booked
from edison_ci.store.starts import newest_dispatches
from edison_ci.web.cache import stored_messages
from edison_ci.web.page_context import Crumb, Page, PageContext, requested_run
from edison_ci.web.pages.run import crumbs_of
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.plan.estimate import Load
    from edison_ci.plan.plan import Plan

_REFRESH_S = 1


_DISPATCHES = 5
"""Requests to GitHub that are listed."""


def _project(context: PageContext, action: str) -> Project:
    """Return the project, if the visitor may run experiments here."""
    project = project_of(context)
    if context.actions is None or context.actor is None or project is None:
        raise UsageError(
            "runs cannot be started or changed on these pages",
            hint="use edison run, or edison serve",
        )
    require_role(context.actor, Role.EDITOR, action, project.file.members)
    return project


def plan(context: PageContext) -> Page:
    """Return the plan of a run, with the form that starts exactly this plan."""
    name = context.path["experiment"]
    project = _project(context, "start run")
    if name not in project.experiments:
        raise UsageError(f"there is no experiment {name!r}", hint="check the address")
    problem: EdisonError | None = None
    found: StartPlan | None = None
    offline = context.actions is not None and context.actions.offline
    try:
        found = StartPlan(project, name, offline=offline)
    except EdisonError as error:
        problem = error
    return Page(
        "start_run",
        f"Start {name}",
        {
            "experiment": name,
            "problem": problem,
            "plan": found and found.plan,
            "dispatch_to": found and found.dispatch_to,
            "workflow_url": found and found.workflow_url,
            "hint": found.hint if found and found.plan.unset else "",
            "dispatches": newest_dispatches(context.connection, name, _DISPATCHES),
            "messages": stored_messages(context.args.text("messages")),
            "limit_microusd": found and found.limit_microusd,
            "cost": _cost(found.plan) if found else "",
            "time": _time(found.plan) if found else "",
            "loads": [(load, _cost(load)) for load in found.plan.loads] if found else [],
            "key": secrets.token_hex(16),
        },
        crumbs=(
            Crumb("Experiments", context.links.to()),
            Crumb(name, context.links.to("experiment", name)),
        ),
        area="home",
    )


def _cost(of: Plan | Load) -> str:
    cost = of.cost_microusd
    return "unknown" if cost is None else dollar_range(cost.low, cost.high)


def _time(of: Plan) -> str:
    return duration_range(of.seconds.low, of.seconds.high)


def steer(context: PageContext) -> Page:
    """Return the state of a run with the forms that change, pause, resume or cancel it."""
    _project(context, "steer")
    run = requested_run(context, context.path["run"])
    state = steering_state(context.connection, run)
    spent = booked(context.connection, SpendingCap(f"run:{run.id}", None), "")[0]
    return Page(
        "steer",
        f"Steer {run.experiment}, run {run.id}",
        {
            "run": run,
            "state": state,
            "errors": state.progress.cells.get("error", 0),
            "spent": spent,
            "resumable": run.status in (RunStatus.PAUSED, RunStatus.FAILED),
            "messages": stored_messages(context.args.text("messages")),
        },
        crumbs=crumbs_of(context, run, Crumb(f"run {run.id}", context.links.to("run", run.id))),
        area="home",
        # The first report of a run comes with its first calls, often after the page.
        refresh_s=_REFRESH_S if run.moving and not state.models else None,
    )


def may_steer(context: PageContext) -> bool:
    """Whether the visitor may start and steer runs here."""
    with suppress(EdisonError):
        return context.may(Role.EDITOR) and project_of(context) is not None
    return False
