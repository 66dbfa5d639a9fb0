"""Starts of runs in separate processes, for the pages and for programs.

A run is carried out by a child process (`run_process`). What was shown is what is started: the
child refuses another plan. Where keys are missing, GitHub is asked to run it, if the repository and
a token are known; otherwise nothing is started, and the reason names the keys.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.api.run_control import current_run
from edison_ci.api.run_process import RunLaunch, RunProcess
from edison_ci.config import requirements
from edison_ci.config.load import load_project
from edison_ci.errors import UsageError
from edison_ci.execute.budgets import caps_of, run_limit
from edison_ci.execute.reuse_forecast import with_reuse
from edison_ci.git.host import RUN_WORKFLOW, find_address
from edison_ci.numeric import fixed
from edison_ci.plan.plan import plan_run
from edison_ci.records import RunStatus
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run, has_run
from edison_ci.store.steering import (
    StartRequest,
    accept_start,
    claim_start,
    find_start,
    forget_start,
)
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from edison_ci.access.site import Actor, Site
    from edison_ci.config.load import Project
    from edison_ci.git.host import RepositoryAddress
    from edison_ci.plan.plan import Plan
    from edison_ci.store.runs import Run

_POLL_S = 0.05
_PATIENCE_S = 20.0
"""Seconds for which the start of a process is waited for; a large dataset takes longer."""
MOST_KEY_CHARS = 200


class PlanChanged(UsageError):
    """The plan is not the one that was shown."""

    code = "plan_changed"


class CannotStart(UsageError):
    """A run could not be started."""

    code = "cannot_start"


class DispatchUnknown(UsageError):
    """It is not known whether GitHub starts a run."""

    code = "dispatch_unknown"


_turns: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
"""Held while a start is carried out, by its key: a repeated request waits for the outcome."""
_guard = threading.Lock()


class StartPlan:
    """What a run of an experiment would do, the most it may cost, and where it would be started."""

    def __init__(self, project: Project, name: str, *, offline: bool = False) -> None:
        experiment = project.experiment(name)
        requirements.refuse(requirements.missing(project, experiment, calls=requirements.RUN))
        made = plan_run(project, experiment)
        if project.tree.exists(project.file.results):
            made = with_reuse(made, project, experiment)
        self.plan: Plan = made
        self.limit_microusd = run_limit(caps_of(project, experiment, "", None))
        """The budget of a run that sets none."""
        self.dispatch_to: RepositoryAddress | None = None
        """The repository on GitHub that runs it, as keys are missing here; None if it runs here or
        cannot be started."""
        self.hint = "see: edison plan"
        """What to do if it cannot be started."""
        if made.unset and made.blockers == made.unset:
            self._find_repository(project, offline=offline)

    def _find_repository(self, project: Project, *, offline: bool) -> None:
        instead = "set what is missing for the server, or let GitHub run it (docs/serving.md)"
        if offline:
            self.hint = f"{instead}: it is disabled by --offline"
            return
        if feature.hook("start_workflow") is None:
            self.hint = f"{instead}: {feature.off_hint('github')}"
            return
        try:
            self.dispatch_to = find_address(project.root, os.environ)
        except UsageError as error:
            self.hint = f"{instead}: {error.message}"

    @property
    def workflow_url(self) -> str | None:
        """The page of the workflow that would be started; None if there is none."""
        return None if self.dispatch_to is None else self.dispatch_to.workflow_url(RUN_WORKFLOW)


@dataclass(frozen=True, slots=True)
class Start:
    """A start that a person or program asks for."""

    experiment: str
    plan_hash: str
    """Of the plan that was shown."""
    key: str
    """The same for a repeated request."""
    trigger: str
    """`page` or `api`."""
    budget_microusd: int | None = None


def start_run(site: Site, actor: Actor, start: Start, *, offline: bool = False) -> StartRequest:
    """Start a run once for each key, here, or on GitHub where this server lacks the keys.

    Raises PlanChanged if the plan is not the one that was shown, CannotStart if the run cannot be
    started, DispatchUnknown if it is not known whether GitHub starts it.
    """
    if not 0 < len(start.key) <= MOST_KEY_CHARS:
        raise UsageError(f"the key of a start has 1 to {MOST_KEY_CHARS} characters")
    with _turn(start.key):
        return _start_once(site, actor, start, offline=offline)


def _start_once(site: Site, actor: Actor, start: Start, *, offline: bool) -> StartRequest:
    """Start a run, unless it was started with this key."""
    with closing(open_reader(site.results)) as reader:
        earlier = find_start(reader, start.key)
        if earlier is not None:
            _refuse_other(earlier, start)
            if has_run(reader, earlier.run_id):
                return earlier
    if earlier is not None and earlier.workflow_url is not None:
        return _dispatched(site, earlier.key)
    prospect = StartPlan(load_project(site.root), start.experiment, offline=offline)
    plan = prospect.plan
    if plan.hash != start.plan_hash:
        raise PlanChanged(
            f"the plan of {start.experiment} has changed since it was shown",
            hint="look at the new plan, then start it",
        )
    if prospect.dispatch_to is not None and earlier is None:
        return _dispatch(site, actor, start, prospect)
    if plan.blockers:
        raise CannotStart("; ".join(plan.blockers), hint=prospect.hint)
    request = earlier or _claim(site, actor, start)
    if not _starts(site, start, request):
        raise CannotStart("the run has not begun yet", hint="see: edison status")
    return request


def _claim(
    site: Site, actor: Actor, start: Start, *, run_id: str = "", url: str | None = None
) -> StartRequest:
    """Keep a request with a row of the audit, unless its key is known; return the one that is."""
    run_id, about = run_id or _new_id(site), start.experiment
    after = {"run": run_id, "plan": start.plan_hash[:8], "budget_microusd": start.budget_microusd}
    if url is None:
        entry = replace(site.entry(actor, "start run", about, after=after), run_id=run_id)
    else:
        entry = site.entry(actor, "dispatch run", about, after={**after, "workflow": url})
    request = StartRequest(start.key, run_id, about, start.plan_hash, actor.name, site.now(), url)
    with Writer(site.results) as writer:
        claimed = writer.submit(claim_start(request, entry)).result()
    _refuse_other(claimed, start)
    return claimed


def _new_id(site: Site) -> str:
    return f"{site.clock():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"


@contextlib.contextmanager
def _turn(key: str) -> Iterator[None]:
    """Wait until no other start of this server has the key; raises CannotStart if that takes long.

    Two children would refuse each other: the experiment is locked by the first before its run is
    stored, and the refusal of the second would forget the key.
    """
    with _guard:
        turn = _turns.setdefault(key, threading.Lock())
    if not turn.acquire(timeout=_PATIENCE_S):
        raise CannotStart("a start with this key is under way", hint="ask again later")
    try:
        yield
    finally:
        turn.release()


def _dispatch(site: Site, actor: Actor, start: Start, prospect: StartPlan) -> StartRequest:
    """Ask GitHub to run the experiment, with the budget of a run that sets none."""
    address = prospect.dispatch_to
    assert address is not None
    if start.budget_microusd is None:
        start = replace(start, budget_microusd=prospect.limit_microusd)
    own = _new_id(site)
    request = _claim(site, actor, start, run_id=own, url=address.workflow_url(RUN_WORKFLOW))
    if request.run_id != own:
        return _dispatched(site, request.key)
    inputs = {"experiment": start.experiment, "plan": start.plan_hash, "request": request.run_id}
    if start.budget_microusd is not None:
        inputs["budget"] = fixed(start.budget_microusd / 1e6, 6)
    try:
        feature.hook("start_workflow")(address, inputs)
    except CannotStart as error:
        with Writer(site.results) as writer:
            writer.submit(forget_start(request.key)).result()
        site.note(site.entry(actor, "refused: dispatch run", start.experiment, after=error.message))
        raise
    except DispatchUnknown as error:
        row = site.entry(actor, "dispatch unconfirmed", start.experiment, after=error.message)
        site.note(row)
        raise _unknown(request, error.message) from None
    with Writer(site.results) as writer:
        writer.submit(accept_start(request.key, site.now())).result()
    return _dispatched(site, request.key)


def _dispatched(site: Site, key: str) -> StartRequest:
    """Return the request of a key; raises DispatchUnknown if GitHub has not confirmed it."""
    with closing(open_reader(site.results)) as reader:
        request = find_start(reader, key)
    if request is None:
        raise CannotStart("GitHub refused to run it", hint="start it again")
    if request.accepted_at is None:
        raise _unknown(request, "there was no answer")
    return request


def _unknown(request: StartRequest, why: str) -> DispatchUnknown:
    return DispatchUnknown(
        f"GitHub was asked to run {request.experiment}, and it is not known whether it does: {why}",
        hint=f"look for {request.run_id} at {request.workflow_url} before you start it again",
    )


def _refuse_other(request: StartRequest, start: Start) -> None:
    if (request.experiment, request.plan_hash) != (start.experiment, start.plan_hash):
        raise UsageError(
            "this key was used for another start", hint="choose a new key for each start"
        )


def _starts(site: Site, start: Start, request: StartRequest) -> bool:
    launch = RunLaunch(
        start.experiment,
        budget_microusd=start.budget_microusd,
        run_id=request.run_id,
        plan_hash=start.plan_hash,
        started_by=start.trigger,
    )
    try:
        return _begins(site, launch, lambda reader: has_run(reader, request.run_id))
    except CannotStart:
        with Writer(site.results) as writer:
            writer.submit(forget_start(request.key)).result()
        raise


def resume_run(site: Site, actor: Actor, run: Run, budget_microusd: int | None = None) -> None:
    """Resume a run that stopped; raises UsageError if it is running or has ended."""
    seen = current_run(site, run)
    if seen.moving or seen.status not in (RunStatus.PAUSED, RunStatus.FAILED):
        raise UsageError(f"run {run.id} is {seen.status}: it cannot be resumed")
    launch = RunLaunch(run.id, resumes=True, budget_microusd=budget_microusd)
    after = None if launch.budget is None else ["--budget", launch.budget]
    entry = site.entry(actor, "resume run", f"run {run.id}", after=after)
    site.note(replace(entry, run_id=run.id))

    def continues(reader: sqlite3.Connection) -> bool:
        now = find_run(reader, run.id)
        before = (run.owner, run.status, run.finished_at)
        return (now.owner, now.status, now.finished_at) != before

    if not _begins(site, launch, continues):
        raise CannotStart("the run has not begun yet", hint="see: edison status")


def _begins(site: Site, launch: RunLaunch, begun: Callable[[sqlite3.Connection], bool]) -> bool:
    """Launch a run; return whether it has begun in time. Raises CannotStart if it failed."""
    with closing(open_reader(site.results)) as reader:
        process = RunProcess(site.root, launch, silent=True)
        with closing(process):
            threading.Thread(target=process.wait, daemon=True, name="started-run").start()
            deadline = time.monotonic() + _PATIENCE_S
            while time.monotonic() < deadline:
                ended = process.poll() is not None
                if begun(reader):
                    return True
                if ended:
                    raise _refusal(process)
                time.sleep(_POLL_S)
    return False


def _refusal(process: RunProcess) -> CannotStart:
    failure = process.failure()
    if failure is None:
        hint = "start it with edison run, to see why"
        return CannotStart("the run ended before it began", hint=hint)
    return CannotStart(failure.message, hint=failure.hint)
