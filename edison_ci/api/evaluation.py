"""Evaluation: start, resume and regrade runs, for the commands and the library."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.access import programs, provenance
from edison_ci.api.sessions import SessionFactory, require_editor, run_outside_loop
from edison_ci.config import requirements
from edison_ci.errors import ExitCode, UsageError
from edison_ci.execute import outputs as execute_outputs
from edison_ci.execute import regrade as execute_regrade
from edison_ci.execute.run_options import (
    RunOptions,
    RunTarget,
    options_of,
    refuse_missing,
    resumed_target,
    run_targets,
)
from edison_ci.plan import baseline
from edison_ci.plan.plan import EmptyShard
from edison_ci.records import Side
from edison_ci.results.snapshot import outputs_of, snapshot_of
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import SpendingCap, booked
from edison_ci.store.runs import IMPORT, LOOP, OUTPUTS, PRODUCTION, TRIAL, find_run
from edison_ci.store.steering import steered_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.outputs import OutputFile
    from edison_ci.execute.run_options import RunOutcome
    from edison_ci.records import BaselineDoubt
    from edison_ci.store.runs import Run


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
        found = [
            [target.widened(project, chosen) for target in run_targets(project, each, self.against)]
            for each in self.experiments
        ]
        calls = () if self.factory.recording is not None else requirements.RUN
        every = [target for each in found for target in each]
        refuse_missing(every, self.options.selection, calls)
        return found


def select_experiments(
    project: Project, names: Sequence[str] = (), *, since: str | None = None, offline: bool = False
) -> list[Experiment]:
    """Return the named experiments, or all; with `since` only those affected by the change."""
    found = [e for e in project.experiments.values() if not e.file.archived]
    if names:
        found = [project.experiment(name) for name in dict.fromkeys(names)]
    if since is None:
        return found
    impact = baseline.impact_since(project, since, offline=offline)
    return [experiment for experiment in found if experiment.id in impact.affected]


def evaluate(
    project: Project, request: RunRequest, agenda: Sequence[Sequence[RunTarget]] | None = None
) -> Iterator[RunOutcome]:
    """Run the experiments one after the other, and yield the outcome of each run.

    All runs share the budget. After a paused run no further run is started.
    """
    agenda = request.targets(project) if agenda is None else agenda
    ended: list[RunOutcome] = []
    for found in agenda:
        for target in found:
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


def _doubts(project: Project, target: RunTarget) -> tuple[BaselineDoubt, ...]:
    experiment, against = target.experiment, target.against
    sides = [experiment, *([against.variant] if against and against.variant else [])]
    models = [model for side in sides for _, model, _ in side.models]
    models += [project.models[name] for name in project.other_models_of(experiment)]
    doubts: tuple[BaselineDoubt, ...] = ()
    if any(model.store or model.script for model in models):
        doubts += provenance.model_doubts(project, experiment)
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
    project: Project,
    stored: Run,
    chosen: RunOptions,
    factory: SessionFactory,
) -> RunOutcome:
    """Resume a stored run; `chosen` sets budget, waiting and whether batches are left.

    Raises UsageError for runs of loops, trials and recordings.
    """
    experiment = project.experiment(stored.experiment)
    require_editor(project, "resume")
    _refuse_other_triggers(stored)
    options = replace(options_of(stored), wait=chosen.wait)
    if chosen.batch is not None:
        options = replace(options, batch=chosen.batch)
    budget = chosen.budget_microusd
    if budget is None:
        with contextlib.closing(open_reader(project.root / project.file.results)) as reader:
            budget = steered_budget(reader, stored.id)
    if budget is not None:
        options = replace(options, budget_microusd=budget)
    against = snapshot_of(stored)["command line"].get("against")
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
    project: Project, wanted: str, options: RunOptions, factory: SessionFactory
) -> RunOutcome:
    """Grade the stored answers of a run again; `options` sets budget, code, waiting and reuse."""
    with contextlib.closing(open_reader(project.root / project.file.results)) as reader:
        stored = find_run(reader, wanted)
        experiment = project.experiment(stored.experiment)
        if stored.trigger == PRODUCTION:
            hint = f"grade new ones: edison import production {stored.experiment}"
            raise UsageError("the questions of production are in no dataset", hint=hint)
        if (origin := outputs_of(stored)) is not None:
            experiment = execute_outputs.imported_variant(
                project, experiment, origin["models"], origin["prompts"]
            )
        known = options_of(stored).selection.widen(project, experiment)
        regrade = execute_regrade.regrade_options(reader, stored, known)
    require_editor(project, "regrade")
    regrade = replace(
        regrade,
        budget_microusd=options.budget_microusd,
        allow_code=regrade.allow_code or options.allow_code,
        wait=options.wait,
        reuse=options.reuse,
    )
    against = snapshot_of(stored).get("command line", {}).get("against")
    if against:
        against = {**against, "eval_suite": Side.HEAD}
    target = resumed_target(project, experiment, against).widened(project, regrade.selection)
    refuse_missing([target], regrade.selection, calls=requirements.GRADING)
    with factory.session(target) as session:
        return run_outside_loop(partial(session.run, regrade))


def grade_outputs(
    project: Project,
    experiment: Experiment,
    found: OutputFile,
    options: RunOptions,
    factory: SessionFactory,
) -> RunOutcome:
    """Grade imported answers as a run; `options` sets budget, code, waiting and doubts."""
    variant = execute_outputs.imported_variant(project, experiment, found.models, found.prompts)
    options = replace(
        options,
        trigger=OUTPUTS,
        outputs=found.origin(),
        selection=replace(options.selection, repeats=found.repeats),
    )
    target = RunTarget(project, variant)
    refuse_missing([target], options.selection, calls=requirements.GRADING)
    graded = replace(factory, answers=execute_outputs.ImportedAnswers(found.answers))
    with graded.session(target) as session:
        return run_outside_loop(partial(session.run, options))
