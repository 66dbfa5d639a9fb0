"""Evaluation: start, resume and regrade runs, for the commands and the library."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.access import own_results, programs
from edison_ci.api.sessions import SessionFactory, require_editor, run_outside_loop
from edison_ci.config import requirements
from edison_ci.errors import ConfigError, ExitCode, UsageError
from edison_ci.execute import existing_answers
from edison_ci.execute.budgets import caps_of, refuse_runs_without_room
from edison_ci.execute.run_options import RunOptions, options_of
from edison_ci.execute.targets import RunTarget, refuse_missing, resumed_target, run_targets
from edison_ci.plan import baseline
from edison_ci.plan.plan import EmptyShard
from edison_ci.plan.selection import EVERYTHING, Selection
from edison_ci.records import Side
from edison_ci.results import snapshot
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import SpendingCap, booked
from edison_ci.store.runs import (
    IMPORT,
    LOOP,
    OUTPUTS,
    PRODUCTION,
    SCHEDULE,
    TRIAL,
    FireTime,
    find_run,
)
from edison_ci.store.steering import steered_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from edison_ci.api.recordings import Recording
    from edison_ci.config.load import Experiment, Project
    from edison_ci.errors import Problem
    from edison_ci.execute.existing_answers import OutputFile
    from edison_ci.execute.run_options import RunOutcome
    from edison_ci.records import BaselineDoubt
    from edison_ci.store.runs import Run

_PRECEDENCE = (70, 2, 130, 4, 3, 1, 5, 0)
"""Exit codes, most important first."""


def most_important(codes: Iterable[int]) -> int:
    """Return the exit code that takes precedence; 0 for none."""
    ended_with = {0, *codes}
    return next(code for code in _PRECEDENCE if code in ended_with)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Experiments to run, their base and options."""

    experiments: tuple[Experiment, ...]
    against: str | None = None
    """The Git ref of the base."""
    options: RunOptions = RunOptions()
    factory: SessionFactory = SessionFactory()
    doubts: tuple[BaselineDoubt, ...] = ()
    """Reasons why the answers of the recording are not trusted."""
    on_skip: Callable[[str], None] = lambda _: None
    """Called with the reason when a shard of an experiment has no cases."""

    def targets(self, project: Project) -> list[list[RunTarget]]:
        """Return the targets of each experiment; raises ConfigError if a key is missing."""
        for experiment in self.experiments:
            self.options.selection.refuse_unknown(project, experiment)
        chosen = self.options.selection
        agenda = [
            [
                target.widened(project, chosen)
                for target in run_targets(project, experiment, self.against)
            ]
            for experiment in self.experiments
        ]
        calls = () if self.factory.recording is not None else requirements.RUN
        every = [target for targets in agenda for target in targets]
        refuse_missing(every, self.options.selection, calls)
        return agenda


@dataclass(frozen=True, slots=True)
class RunOrder:
    """Runs as a person, a schedule or a job orders them."""

    experiments: tuple[Experiment, ...]
    against: str | None = None
    """The Git ref of the base."""
    selection: Selection = EVERYTHING
    budget_microusd: int | None = None
    fresh: bool = False
    """Whether new answers are requested even where some are stored."""
    allow_code: bool = False
    wait: bool = False
    """Whether to wait until another run of the experiment has ended."""
    batch: bool = False
    """Whether answers are bought in batches where that costs less."""
    recording: Recording | None = None
    """Answers that replace the models."""
    started_by: str | None = None
    """What started it, such as `page`; None for the command line or the event of a job."""
    fire: tuple[str, str] | None = None
    """The schedule, and its time that is due."""
    run_id: str | None = None
    """Its id, if the process that starts it has chosen one."""
    push: int | None = 1
    """Which push of its pull request it measures; None if that is unknown."""

    def options(self) -> RunOptions:
        """Return the options of each run."""
        by_itself = SCHEDULE if self.fire else os.environ.get("GITHUB_EVENT_NAME") or "cli"
        replayed = self.recording is not None
        return RunOptions(
            trigger="replay" if replayed else self.started_by or by_itself,
            run_id=self.run_id,
            selection=self.selection,
            budget_microusd=self.budget_microusd,
            reuse=not self.fresh and not replayed and self.fire is None,
            allow_code=self.allow_code,
            wait=self.wait,
            batch=self.batch or None,
            push=self.push,
            fire=None if self.fire is None else FireTime(*self.fire),
        )

    def request(
        self, factory: SessionFactory, on_skip: Callable[[str], None] = lambda _: None
    ) -> RunRequest:
        """Return the request of these runs, whose sessions the factory makes."""
        provider, doubts = self.recording or (None, ())
        return RunRequest(
            self.experiments,
            self.against,
            self.options(),
            replace(factory, recording=provider),
            doubts,
            on_skip,
        )


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """How a stored run is resumed."""

    budget_microusd: int | None = None
    """The budget of the whole run; None for the one it had last."""
    wait: bool = False
    """Whether to wait until its batches, or another run of the experiment, have ended."""
    one_by_one: bool = False
    """Whether answers that no batch has brought are requested one by one."""


@dataclass(frozen=True, slots=True)
class GradingRequest:
    """How stored or imported answers are graded."""

    budget_microusd: int | None = None
    allow_code: bool = False
    wait: bool = False
    """Whether to wait until another run of the experiment has ended."""
    reuse: bool = True
    """Whether stored replies of judges are reused."""
    doubts: tuple[BaselineDoubt, ...] = ()
    """Reasons for which the run is inconclusive at best."""


def select_experiments(
    project: Project, names: Sequence[str] = (), *, since: str | None = None, offline: bool = False
) -> list[Experiment]:
    """Return the named experiments, or all; with `since` only those affected by the change."""
    if names:
        experiments = [project.experiment(name) for name in dict.fromkeys(names)]
    else:
        experiments = [e for e in project.experiments.values() if not e.file.archived]
    if since is None:
        return experiments
    affected = baseline.impact_since(project, since, offline=offline).affected
    return [experiment for experiment in experiments if experiment.id in affected]


def evaluate(
    project: Project, request: RunRequest, agenda: Sequence[Sequence[RunTarget]] | None = None
) -> Iterator[RunOutcome]:
    """Run the experiments one after the other, and yield the outcome of each run.

    All runs share the budget. After a paused run no further run is started. What would refuse one
    of several runs is found before the first of them makes a call.
    """
    agenda = request.targets(project) if agenda is None else agenda
    _refuse_together(project, request, [target for targets in agenda for target in targets])
    ended: list[RunOutcome] = []
    for targets in agenda:
        for target in targets:
            own = () if request.factory.recording is not None else _doubts(project, target)
            options = replace(request.options, doubts=(*request.doubts, *own))
            with request.factory.session(target) as session:
                try:
                    within = _with_remaining_budget(project, options, ended)
                    end = run_outside_loop(partial(session.run, within))
                except EmptyShard as empty:
                    request.on_skip(empty.message)
                    continue
            ended.append(end)
            yield end
        if ended and ended[-1].exit_code is ExitCode.PAUSED:
            return


def _refuse_together(project: Project, request: RunRequest, targets: Sequence[RunTarget]) -> None:
    """Raise for several runs if one of them would be refused; one run is checked as it starts."""
    if len(targets) < 2:
        return
    options = request.options
    problems: list[Problem] = []
    costs: dict[tuple[str, ...], tuple[tuple[SpendingCap, ...], int]] = {}
    for target in targets:
        with request.factory.session(target) as session:
            try:
                plan = session.preview(options)
            except EmptyShard:
                continue
            except ConfigError as refused:
                problems += refused.problems
                continue
        cost, experiment = plan.cost_microusd, target.experiment
        lowest = 0 if cost is None or request.factory.recording is not None else int(cost.low)
        # Runs of the same prompts may share their answers, such as those on two eval suites.
        same = tuple(sorted(prompt.id for prompt in experiment.prompts))
        if same not in costs or costs[same][1] < lowest:
            costs[same] = (caps_of(target.project, experiment, "", None), lowest)
    requirements.refuse(dict.fromkeys(problems))
    path = project.root / project.file.results
    with open_reader(path) if path.exists() else contextlib.nullcontext() as reader:
        today = utc.timestamp(utc.now())[:10]
        refuse_runs_without_room(reader, costs.values(), options.budget_microusd, today)


def _doubts(project: Project, target: RunTarget) -> tuple[BaselineDoubt, ...]:
    experiment, against = target.experiment, target.against
    sides = [experiment, *([against.variant] if against and against.variant else [])]
    models = [model for side in sides for _, model, _ in side.models]
    models += [project.models[name] for name in project.other_models_of(experiment)]
    doubts: tuple[BaselineDoubt, ...] = ()
    if any(model.store or model.script for model in models):
        doubts += own_results.model_doubts(project, experiment)
    if any(model.provider == "command" for model in models):
        doubts += programs.ProgramRules.of(project).doubts(models)
    return doubts


def _with_remaining_budget(
    project: Project, options: RunOptions, ended: Sequence[RunOutcome]
) -> RunOptions:
    """Return the options with the rest of the budget after earlier runs."""
    if options.budget_microusd is None or not ended:
        return options
    with contextlib.closing(open_reader(project.root / project.file.results)) as reader:
        spent = sum(booked(reader, SpendingCap(f"run:{end.run_id}", None), "")[0] for end in ended)
    return replace(options, budget_microusd=max(options.budget_microusd - spent, 0))


def resume_run(
    project: Project, stored: Run, request: ResumeRequest, factory: SessionFactory
) -> RunOutcome:
    """Resume a stored run; raises UsageError for runs of loops, trials and recordings."""
    experiment = project.experiment(stored.experiment)
    require_editor(project, "resume")
    _refuse_other_triggers(stored)
    options = replace(options_of(stored), wait=request.wait)
    if request.one_by_one:
        options = replace(options, batch=False)
    budget = request.budget_microusd
    if budget is None:
        with contextlib.closing(open_reader(project.root / project.file.results)) as reader:
            budget = steered_budget(reader, stored.id)
    if budget is not None:
        options = replace(options, budget_microusd=budget)
    against = snapshot.snapshot_of(stored)["command line"].get("against")
    target = resumed_target(project, experiment, against).widened(project, options.selection)
    refuse_missing([target], options.selection)
    with factory.session(target) as session:
        return run_outside_loop(partial(session.resume, stored, options))


def _refuse_other_triggers(stored: Run) -> None:
    name = stored.experiment
    if stored.trigger == "replay":
        hint = "start it again: edison run --replay FILE"
        raise UsageError(f"run {stored.id} answers from a recording", hint=hint)
    if stored.trigger == IMPORT:
        hint = f"start one here: edison run {name}"
        raise UsageError(f"run {stored.id} came from elsewhere", hint=hint)
    if stored.trigger == OUTPUTS:
        hint = "import them again, its judges are not asked twice: edison import outputs FILE"
        raise UsageError(f"run {stored.id} grades imported answers", hint=hint)
    if stored.trigger == PRODUCTION:
        hint = f"its judges are not asked twice: edison import production {name}"
        raise UsageError(f"run {stored.id} grades answers of production", hint=hint)
    if stored.trigger == LOOP:
        hint = f"continue with: edison loop {name}"
        raise UsageError(f"run {stored.id} is an iteration of a loop", hint=hint)
    if stored.trigger == TRIAL:
        hint = f"repeat what started it: edison refine {name}, or edison optimize {name}"
        raise UsageError(f"run {stored.id} is a trial of a suggestion", hint=hint)


def regrade_run(
    project: Project, wanted: str, request: GradingRequest, factory: SessionFactory
) -> RunOutcome:
    """Grade the stored answers of a run again, as a new run."""
    with contextlib.closing(open_reader(project.root / project.file.results)) as reader:
        stored = find_run(reader, wanted)
        experiment = project.experiment(stored.experiment)
        if stored.trigger == PRODUCTION:
            hint = f"grade new ones: edison import production {stored.experiment}"
            raise UsageError("the questions of production are in no dataset", hint=hint)
        if (origin := snapshot.outputs_of(stored)) is not None:
            experiment = existing_answers.imported_variant(
                project, experiment, origin["models"], origin["prompts"]
            )
        widened = options_of(stored).selection.widen(project, experiment)
        regrade = existing_answers.regrade_options(reader, stored, widened)
    require_editor(project, "regrade")
    regrade = replace(
        regrade,
        budget_microusd=request.budget_microusd,
        allow_code=regrade.allow_code or request.allow_code,
        wait=request.wait,
        reuse=request.reuse,
    )
    against = snapshot.snapshot_of(stored).get("command line", {}).get("against")
    if against:
        against = {**against, "eval_suite": Side.HEAD}
    target = resumed_target(project, experiment, against).widened(project, regrade.selection)
    refuse_missing([target], regrade.selection, calls=requirements.GRADING)
    with factory.session(target) as session:
        return run_outside_loop(partial(session.run, regrade))


def grade_outputs(
    project: Project,
    experiment: Experiment,
    outputs: OutputFile,
    request: GradingRequest,
    factory: SessionFactory,
) -> RunOutcome:
    """Grade imported answers as a run."""
    variant = existing_answers.imported_variant(
        project, experiment, outputs.models, outputs.prompts
    )
    options = RunOptions(
        trigger=OUTPUTS,
        outputs=outputs.origin(),
        selection=replace(EVERYTHING, repeats=outputs.repeats),
        budget_microusd=request.budget_microusd,
        allow_code=request.allow_code,
        wait=request.wait,
        doubts=request.doubts,
    )
    target = RunTarget(project, variant)
    refuse_missing([target], options.selection, calls=requirements.GRADING)
    graded = replace(factory, answers=existing_answers.ImportedAnswers(outputs.answers))
    with graded.session(target) as session:
        return run_outside_loop(partial(session.run, options))
