"""The context of a loop, and its start: checks, limits, and the loop to continue."""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.errors import BusyError, Location, UsageError
from edison_ci.execute.budgets import caps_of, run_limit
from edison_ci.features.refine.evidence import split_cases
from edison_ci.features.refine.loop_rows import (
    Iteration,
    Loop,
    LoopState,
    iterations_of,
    last_loop,
    leave_loop,
    unfinished_run,
    write_iteration,
    write_loop,
)
from edison_ci.features.refine.trials import Allowance, TrialRunner
from edison_ci.features.refine.weaknesses import quarantined_cases
from edison_ci.git.command import run_git
from edison_ci.proposals.candidate import RefineTarget, with_prompt
from edison_ci.proposals.context import needs_repository
from edison_ci.proposals.prompt_file import prompt_in
from edison_ci.records import RunStatus
from edison_ci.stats.convergence import FEWEST_SEARCH_CASES
from edison_ci.store.audit import add_audit
from edison_ci.store.database import open_for_change
from edison_ci.store.ledger import SpendingCap
from edison_ci.store.liveness import experiment_lock
from edison_ci.store.runs import find_run, move_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from edison_ci.access.site import Actor
    from edison_ci.config.experiment import Stop
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.run_options import RunContext
    from edison_ci.judges.judge import Judge
    from edison_ci.proposals.context import ReviewContext
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.suggestions import Suggestion


BUDGET = "the budget of the loop"


class ContextFactory(Protocol):
    """Opens the dependencies of one session."""

    def __call__(self, loop: SpendingCap | None = None) -> AbstractContextManager[RunContext]:
        """Open them, within the budget of a loop."""
        ...


@dataclass(frozen=True, slots=True)
class LoopContext:
    """Dependencies and settings of a loop."""

    review: ReviewContext
    targets: tuple[RefineTarget, ...]
    """The prompts in the working tree, each with its experiment."""
    refiner: Judge
    open_context: ContextFactory
    actor: Actor
    audit: Callable[[RefineTarget, Sequence[Suggestion]], AuditEntry]
    """Makes the audit entry of suggestions."""
    advise: Callable[[sqlite3.Connection], list[str]] = lambda _: []
    """Returns sentences that recommend a model."""
    on_step: Callable[[str], None] = lambda _: None
    """Receives progress messages."""
    candidates: int = 1
    allow_code: bool = False

    @property
    def project(self) -> Project:
        """The project."""
        return self.review.project

    @property
    def experiment(self) -> Experiment:
        """The experiment with all prompts of the loop."""
        prompts = (target.prompt for target in self.targets)
        return with_prompt(self.targets[0].experiment, *prompts)

    @property
    def results(self) -> Path:
        """The results file."""
        return self.review.site.results

    @property
    def stop(self) -> Stop:
        """The stop rules of the experiment."""
        return self.targets[0].experiment.file.stop

    def now(self, iteration: Iteration) -> RefineTarget:
        """Return the prompt of an iteration as it is in the working tree."""
        current = next(
            (target for target in self.targets if target.prompt.path == iteration.path), None
        )
        if current is None:
            raise UsageError(
                f"the experiment no longer has {iteration.path}, which the loop refines",
                hint="put it back, or start again with --restart",
            )
        return current

    def at(self, iteration: Iteration) -> RefineTarget:
        """Return the prompt of an iteration with the text that it had there."""
        now, path = self.now(iteration), iteration.path
        if iteration.text == now.text:
            return now
        prompt = prompt_in(self.project, path, iteration.text.encode("utf-8", "surrogatepass"))
        if prompt is None:
            raise UsageError(
                f"the version of {path} that the loop measured is no longer valid",
                hint="restore the files that the prompt uses, or start again with --restart",
            )
        experiment = with_prompt(now.experiment, prompt)
        return RefineTarget(self.project, experiment, iteration.text, now.holdout)

    def open_run_context(self, loop: Loop) -> AbstractContextManager[RunContext]:
        """Open the dependencies of a session, within the budget of the loop."""
        tokens = self.stop.max_total_tokens
        return self.open_context(
            SpendingCap(loop.scope, None, loop.budget_microusd, tokens, BUDGET)
        )

    def trials(self, loop: Loop, target: RefineTarget) -> TrialRunner:
        """Return a runner of trials, within the budget of the loop."""
        return TrialRunner(
            target,
            lambda: self.open_run_context(loop),
            Allowance(None),
            allow_code=self.allow_code,
        )


def with_limits(loop: Loop, max_iterations: int | None, budget_microusd: int | None) -> Loop:
    """Return a loop with new limits; None keeps a limit."""
    most = loop.max_iterations if max_iterations is None else max_iterations
    budget = loop.budget_microusd if budget_microusd is None else budget_microusd
    return replace(loop, max_iterations=most, budget_microusd=budget)


FOLDER = "edison/loop"


@dataclass(frozen=True, slots=True)
class LoopRequest:
    """Options of `edison loop`."""

    iterations: int | None = None
    budget_microusd: int | None = None
    auto: bool = False
    restart: bool = False
    """Whether to abandon an unfinished loop."""


@contextlib.contextmanager
def exclusive(context: LoopContext) -> Iterator[None]:
    """Hold the lock of the experiment's loop; raises BusyError if another loop has it."""
    name = context.experiment.id
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(
                experiment_lock(context.review.site.locks, f"{name}.loop", f"loop of {name}")
            )
        except BusyError:
            raise BusyError(
                f"another loop of {name} is running", hint="stop it with Ctrl-C, or wait"
            ) from None
        yield


def begin(
    context: LoopContext, request: LoopRequest, environ: Mapping[str, str] = os.environ
) -> Loop:
    """Return the unfinished loop to continue, or a new one."""
    with open_for_change(context.results) as connection:
        unfinished = last_loop(connection, context.experiment.id)
        if unfinished is not None and unfinished.point is not LoopState.DONE:
            if not request.restart:
                return write_loop(connection, _resume(context, unfinished, request, environ))
            _leave(connection, context, unfinished)
        auto = request.auto
        head = _branch_base(context, environ) if auto else None
        loop = _new(context, request, head)
        write_loop(connection, loop)
        for target in context.targets:
            prompt = target.prompt
            first = Iteration(1, str(prompt.id), prompt.path, prompt.version, target.text)
            write_iteration(connection, loop, first)
        entity = f"{loop.experiment}/{loop.prompt}"
        after = {"loop": loop.id, "mode": loop.mode, "branch": loop.branch}
        add_audit(connection, context.review.site.entry(context.actor, "loop", entity, after=after))
    return loop


def _new(context: LoopContext, request: LoopRequest, head: str | None) -> Loop:
    experiment, project = context.experiment, context.project
    most = request.iterations or context.stop.max_iterations or project.file.defaults.max_iterations
    now = context.review.site.now()
    return Loop(
        id=f"loop-{utc.now():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}",
        experiment=experiment.id,
        prompt=names_of(context),
        mode="auto" if request.auto else "review",
        point=LoopState.MEASURING,
        max_iterations=most,
        budget_microusd=_budget(context, request.budget_microusd),
        started_at=now,
        branch=f"{FOLDER}/{experiment.id}" if head is not None else None,
        base_commit=head,
    )


def names_of(context: LoopContext) -> str:
    """Return the names of the prompts of a loop, as they are stored."""
    return ", ".join(str(target.prompt.id) for target in context.targets)


def _budget(context: LoopContext, budget_microusd: int | None) -> int:
    limit = run_limit(caps_of(context.project, context.experiment, "", budget_microusd))
    assert limit is not None, "stop.budget_usd has a default"
    return limit


def _resume(
    context: LoopContext, unfinished: Loop, request: LoopRequest, environ: Mapping[str, str]
) -> Loop:
    name = unfinished.experiment
    if unfinished.prompt != names_of(context):
        several = len(unfinished.prompts) > 1
        again = "leave out --prompt" if several else f"name it with --prompt {unfinished.prompt}"
        raise UsageError(
            f"the unfinished loop of {name} refines {unfinished.prompt}",
            hint=f"{again}, or abandon it with --restart",
        )
    if request.auto and unfinished.mode != "auto":
        raise UsageError(
            f"the unfinished loop of {name} waits for a human decision",
            hint="continue without --auto-approve, or abandon it with --restart",
        )
    if unfinished.mode == "auto":
        refuse_auto(context, environ)
    budget = None if request.budget_microusd is None else _budget(context, request.budget_microusd)
    return with_limits(unfinished, request.iterations, budget)


def _leave(connection: sqlite3.Connection, context: LoopContext, abandoned: Loop) -> None:
    """Mark a loop as abandoned, and complete its waiting runs."""
    now = context.review.site.now()
    runs = [
        iteration.run_id for iteration in iterations_of(connection, abandoned) if iteration.run_id
    ][-1:]
    runs += filter(None, [unfinished_run(connection, abandoned)])
    for run_id in runs:
        status = find_run(connection, run_id).status
        if status in (RunStatus.REFINING, RunStatus.REVIEWING):
            move_run(run_id, RunStatus.COMPLETED, now)(connection)
    leave_loop(connection, abandoned, now=now)


def refuse_auto(context: LoopContext, environ: Mapping[str, str]) -> None:
    """Raise UsageError where automatic approval is not permitted."""
    if any(environ.get(name, "").lower() not in ("", "0", "false") for name in _CI):
        raise UsageError(
            "--auto-approve is not permitted in CI",
            hint="remove it, and propose changes with edison propose --open-pr",
        )
    if context.project.file.settings.require_review_approval:
        raise UsageError(
            "this project requires a human approval of every change",
            hint="set settings: {require_review_approval: false}, or remove --auto-approve",
            where=Location("edison.yaml"),
        )


_CI = ("CI", "GITHUB_ACTIONS")


def _branch_base(context: LoopContext, environ: Mapping[str, str]) -> str:
    """Return the commit at which the branch of a new loop starts."""
    refuse_auto(context, environ)
    review, first = context.review, context.targets[0]
    training = split_cases(first)[0] - quarantined_cases(first)
    if len(training) < FEWEST_SEARCH_CASES:
        raise UsageError(
            f"--auto-approve needs {FEWEST_SEARCH_CASES} training cases, but there are "
            f"{len(training)}",
            hint="add cases, or remove --auto-approve",
        )
    repository = needs_repository(review)
    head = repository.head()
    for target in context.targets:
        path = target.prompt.path
        committed = None if head is None else repository.read(head, review.in_repository(path))
        if committed != target.text.encode("utf-8"):
            raise UsageError(
                f"{path} has uncommitted changes, and the branch starts from the last commit",
                hint="commit them first",
                where=Location(path),
            )
    assert head is not None, "the prompts are committed"
    if run_git("var", "GIT_COMMITTER_IDENT", cwd=repository.root).code:
        raise UsageError(
            "Git has no identity for the commits of the loop",
            hint="set git config user.name and user.email",
        )
    branch = f"{FOLDER}/{context.experiment.id}"
    command = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"refs/heads/{branch}")
    if run_git(*command, cwd=repository.root).code == 0:
        raise UsageError(
            f"the branch {branch} of an earlier loop still exists",
            hint=f"merge it and delete it with git branch -d {branch}, or discard it with -D",
        )
    return head
