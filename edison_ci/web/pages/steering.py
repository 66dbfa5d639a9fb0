"""The pages that show the plan of a run before it is started, and that steer one; their forms."""

from __future__ import annotations

import math
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from edison_ci.access.site import Role, require_role
from edison_ci.api.run_control import ACTIONS, RunControl, budget_microusd, steering_change
from edison_ci.api.run_start import DispatchUnknown, Start, StartPlan, resume_run, start_run
from edison_ci.errors import EdisonError, UsageError
from edison_ci.numeric import dollar_range, duration_range
from edison_ci.records import RunStatus
from edison_ci.results.live_progress import steering_state
from edison_ci.results.run_lists import newest_dispatches
from edison_ci.results.spending import run_cost
from edison_ci.results.stored_runs import live_runs
from edison_ci.web.page_context import Crumb, Page, PageContext, requested_run
from edison_ci.web.pages.run import crumbs_of
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.plan.estimate import Load
    from edison_ci.plan.plan import Plan
    from edison_ci.store.runs import Run
    from edison_ci.store.steering import Change
    from edison_ci.web.forms import FormRequest
    from edison_ci.web.page_context import Args

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
    start_plan: StartPlan | None = None
    offline = context.actions is not None and context.actions.offline
    try:
        start_plan = StartPlan(project, name, offline=offline)
    except EdisonError as error:
        problem = error
    return Page(
        "start_run",
        f"Start {name}",
        {
            "experiment": name,
            "problem": problem,
            "plan": start_plan and start_plan.plan,
            "dispatch_to": start_plan and start_plan.dispatch_to,
            "workflow_url": start_plan and start_plan.workflow_url,
            "hint": start_plan.hint if start_plan and start_plan.plan.unset else "",
            "dispatches": newest_dispatches(context.connection, name, _DISPATCHES),
            "messages": context.messages,
            "limit_microusd": start_plan and start_plan.limit_microusd,
            "cost": _cost(start_plan.plan) if start_plan else "",
            "time": _time(start_plan.plan) if start_plan else "",
            "loads": [(load, _cost(load)) for load in start_plan.plan.loads] if start_plan else [],
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
    return Page(
        "steer",
        f"Steer {run.experiment}, run {run.id}",
        {
            "run": run,
            "state": state,
            "errors": state.progress.cells.get("error", 0),
            "spent": run_cost(context.connection, run.id),
            "resumable": run.status in (RunStatus.PAUSED, RunStatus.FAILED),
            "messages": context.messages,
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


def start_form(sent: FormRequest) -> str:
    """Start the run whose plan was shown, here or on GitHub."""
    request = Start(
        experiment=sent.path["experiment"],
        plan_hash=sent.form.text("plan_hash"),
        key=sent.form.text("key"),
        trigger="page",
        budget_microusd=_budget(sent.form),
    )
    page = ("experiment", request.experiment, "plan")
    try:
        begun = start_run(sent.site, sent.actor, request, offline=sent.can.offline)
    except DispatchUnknown:
        return sent.links.to(*page)  # which lists it, as not confirmed
    if begun.workflow_url is None:
        return sent.links.to("run", begun.run_id)
    message = f"GitHub starts a run of {begun.experiment}, with {begun.run_id} in its title"
    return sent.links.to(*page, messages=sent.keep(message, begun.workflow_url))


def steer_form(sent: FormRequest) -> str:
    """Request one change of a run, and wait for its answer."""
    change = _change(sent.form)
    run = _asked_run(sent)
    (answer,) = RunControl(sent.site, sent.actor).steer(run, [change])
    return _steering_page(sent, run, f"{'Done' if answer.done else 'Refused'}: {answer.said}.")


def pause_form(sent: FormRequest) -> str:
    """Pause a run; calls in flight are finished first."""
    return _stop(sent, "pause", "The run pauses; calls in flight are finished first.")


def cancel_form(sent: FormRequest) -> str:
    """Cancel a run for good."""
    return _stop(sent, "cancel", "The run is cancelled; calls in flight are finished first.")


def resume_form(sent: FormRequest) -> str:
    """Resume a run that stopped."""
    run = _asked_run(sent)
    resume_run(sent.site, sent.actor, run, _budget(sent.form))
    return sent.links.to("run", run.id)


def _stop(sent: FormRequest, how: str, message: str) -> str:
    run = _asked_run(sent)
    RunControl(sent.site, sent.actor).stop(run, how)
    return _steering_page(sent, run, message)


def _asked_run(sent: FormRequest) -> Run:
    with live_runs(sent.site) as runs:
        return runs.find(sent.path["run"])


def _steering_page(sent: FormRequest, run: Run, message: str) -> str:
    return sent.links.to("run", run.id, "steer", messages=sent.keep(message))


def _change(form: Args) -> Change:
    action = form.choice("action", ACTIONS)
    if action == "requeue":
        return steering_change(action)
    if action == "budget":
        budget = _budget(form)
        if budget is None:
            raise UsageError("a budget is missing", hint="go back and enter one")
        return steering_change(action, microusd=budget)
    calls = form.text("calls")
    number = int(calls) if calls.isascii() and calls.isdigit() and len(calls) < 9 else 0
    return steering_change(action, form.text("model"), number if action == "concurrency" else None)


def _budget(form: Args) -> int | None:
    """Return the budget of a form in micro-dollars; None if it is left empty."""
    text = form.text("budget")
    if not text:
        return None
    return budget_of(text)


def budget_of(text: str) -> int:
    """Return the budget that a form has, in micro-dollars."""
    try:
        dollars = float(text)
    except ValueError:
        dollars = math.nan
    return budget_microusd(dollars)
