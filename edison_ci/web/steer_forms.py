"""Forms of the pages that start, steer, pause, resume and cancel runs."""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci.api.run_control import RunControl
from edison_ci.api.run_start import DispatchUnknown, Start, resume_run, start_run
from edison_ci.errors import UsageError
from edison_ci.store.database import open_reader
from edison_ci.store.runs import Run, find_run
from edison_ci.store.steering import Change, SteeringAction
from edison_ci.web.cache import store_messages

if TYPE_CHECKING:
    from edison_ci.web.forms import FormRequest
    from edison_ci.web.page_context import Args

MOST_USD = 100_000
_MOST_DIGITS = 9


def start(sent: FormRequest) -> str:
    """Start the run whose plan was shown, here or on GitHub."""
    asked = Start(
        experiment=sent.path["experiment"],
        plan_hash=sent.form.text("plan_hash"),
        key=sent.form.text("key"),
        trigger="page",
        budget_microusd=_budget(sent.form),
    )
    page = ("experiment", asked.experiment, "plan")
    try:
        begun = start_run(sent.site, sent.actor, asked, offline=sent.can.offline)
    except DispatchUnknown:
        return sent.links.to(*page)  # which lists it, as not confirmed
    if begun.workflow_url is None:
        return sent.links.to("run", begun.run_id)
    said = f"GitHub starts a run of {begun.experiment}, with {begun.run_id} in its title"
    return sent.links.to(*page, messages=store_messages((said, begun.workflow_url)))


def steer(sent: FormRequest) -> str:
    """Request one change of a run, and wait for its answer."""
    change = _change(sent.form)
    run = _run(sent)
    (answer,) = RunControl(sent.site, sent.actor).steer(run, [change])
    return _steering_page(sent, run, f"{'Done' if answer.done else 'Refused'}: {answer.said}.")


def pause(sent: FormRequest) -> str:
    """Pause a run; calls in flight are finished first."""
    return _stop(sent, "pause", "The run pauses; calls in flight are finished first.")


def cancel(sent: FormRequest) -> str:
    """Cancel a run for good."""
    return _stop(sent, "cancel", "The run is cancelled; calls in flight are finished first.")


def resume(sent: FormRequest) -> str:
    """Resume a run that stopped."""
    run = _run(sent)
    resume_run(sent.site, sent.actor, run, _budget(sent.form))
    return sent.links.to("run", run.id)


def _stop(sent: FormRequest, asked: str, said: str) -> str:
    run = _run(sent)
    RunControl(sent.site, sent.actor).stop(run, asked)
    return _steering_page(sent, run, said)


def _run(sent: FormRequest) -> Run:
    with closing(open_reader(sent.site.results)) as reader:
        return find_run(reader, sent.path["run"])


def _steering_page(sent: FormRequest, run: Run, said: str) -> str:
    return sent.links.to("run", run.id, "steer", messages=store_messages((said,)))


def _change(form: Args) -> Change:
    action = form.choice("action", tuple(SteeringAction))
    if action is SteeringAction.REQUEUE:
        return Change(action)
    if action is SteeringAction.BUDGET:
        budget = _budget(form)
        if budget is None:
            raise UsageError("a budget is missing", hint="go back and enter one")
        return Change(action, microusd=budget)
    calls = form.text("calls")
    number = int(calls) if calls.isascii() and calls.isdigit() and len(calls) < _MOST_DIGITS else 0
    concurrency = action is SteeringAction.CONCURRENCY
    return Change(action, form.text("model"), number if concurrency else None)


def _budget(form: Args) -> int | None:
    """Return the budget of a form in micro-dollars; None if it is left empty."""
    text = form.text("budget")
    if not text:
        return None
    try:
        dollars = float(text)
    except ValueError:
        dollars = math.nan
    if not 0 < dollars <= MOST_USD:
        raise UsageError(
            f"a budget is more than $0 and at most ${MOST_USD:,}", hint="go back and change it"
        )
    return round(dollars * 1_000_000)
