"""Evaluation: runs started, gone on with and graded again, as commands and the library do it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config import needs
from edison_ci.errors import ExitCode, UsageError
from edison_ci.execute.regrade import regrading
from edison_ci.execute.run_options import RunOptions, options_of
from edison_ci.execute.run_targets import refuse_missing, target_again, targets
from edison_ci.execute.work import HEAD
from edison_ci.operate.provenance import doubted_models
from edison_ci.operate.sessions import SessionFactory, beside_loops, require_editor
from edison_ci.plan.impact import impact_since
from edison_ci.plan.plan import EmptyShard
from edison_ci.results.snapshot import kept_snapshot
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import Cap, booked
from edison_ci.store.loops import TRIGGER
from edison_ci.store.runs import TRIAL, find_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.run_options import Ended
    from edison_ci.execute.run_targets import RunTarget
    from edison_ci.plan.baseline import Doubt
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is to be run, and with which answers."""

    experiments: tuple[Experiment, ...]
    against: str | None = None
    """The Git ref whose prompts and models they are compared with."""
    options: RunOptions = RunOptions()
    factory: SessionFactory = SessionFactory()
    doubts: tuple[Doubt, ...] = ()
    """Why the answers of its recording prove nothing."""
    on_skip: Callable[[str], None] = lambda _: None
    """Hears why an experiment is not run, where its shard has no case."""

    def targets(self, project: Project) -> list[list[RunTarget]]:
        """Return what each experiment takes, and refuse what cannot be run here."""
        for experiment in self.experiments:
            self.options.selection.refuse_unknown(project, experiment)
        found = [targets(project, experiment, self.against) for experiment in self.experiments]
        calls = () if self.factory.recording is not None else needs.RUN
        every = [target for each in found for target in each]
        refuse_missing(every, self.options.selection, calls)
        return found


def chosen(
    project: Project, names: Sequence[str] = (), *, since: str | None = None, offline: bool = False
) -> list[Experiment]:
    """Return the experiments that are named, or all; of these, those that a change touches."""
    found = [e for e in project.experiments.values() if not e.file.archived]
    if names:
        found = [project.experiment(name) for name in dict.fromkeys(names)]
    if since is None:
        return found
    impact = impact_since(project, since, offline=offline)
    return [experiment for experiment in found if experiment.id in impact.affected]


def evaluate(
    project: Project, request: RunRequest, agenda: Sequence[Sequence[RunTarget]] | None = None
) -> Iterator[Ended]:
    """Run what is asked for, one after the other, and yield how each run ended.

    What one run has spent is no longer there for the next; after one that somebody stopped, none is
    started.
    """
    agenda = request.targets(project) if agenda is None else agenda
    ended: list[Ended] = []
    for found in agenda:
        for target in found:
            own = () if request.factory.recording is not None else _doubts(project, target)
            options = replace(request.options, doubts=(*request.doubts, *own))
            with request.factory.session(target) as session:
                try:
                    within = _within(project, options, ended)
                    end = beside_loops(partial(session.run, within))
                except EmptyShard as empty:
                    request.on_skip(empty.message)
                    continue
            ended.append(end)
            yield end
        if ended and ended[-1].exit_code is ExitCode.PAUSED:
            return


def _doubts(project: Project, target: RunTarget) -> tuple[Doubt, ...]:
    return doubted_models(project, target.experiment)


def _within(project: Project, options: RunOptions, ended: Sequence[Ended]) -> RunOptions:
    """Return the options with what earlier runs left of their budget."""
    if options.budget_microusd is None or not ended:
        return options
    with contextlib.closing(open_reader(project.root / project.file.results)) as reader:
        gone = sum(booked(reader, Cap(f"run:{end.run_id}", None), "")[0] for end in ended)
    return replace(options, budget_microusd=max(options.budget_microusd - gone, 0))


def go_on(
    project: Project,
    stored: Run,
    budget_microusd: int | None,
    factory: SessionFactory,
    *,
    wait: bool = False,
) -> Ended:
    """Go on with a stored run; what only another command can go on with is refused."""
    experiment = project.experiment(stored.experiment)
    require_editor(project, "resume")
    _refuse_others(stored)
    options = replace(options_of(stored), wait=wait)
    if budget_microusd is not None:
        options = replace(options, budget_microusd=budget_microusd)
    against = kept_snapshot(stored)["command line"].get("against")
    target = target_again(project, experiment, against)
    refuse_missing([target], options.selection)
    with factory.session(target) as session:
        return beside_loops(partial(session.resume, stored, options))


def _refuse_others(stored: Run) -> None:
    name = stored.experiment
    if stored.trigger == "replay":
        hint = "start it again: edison run --replay FILE"
        raise UsageError(f"run {stored.id} answers from a recording", hint=hint)
    if stored.trigger == TRIGGER:
        hint = f"go on with: edison loop {name}"
        raise UsageError(f"run {stored.id} is an iteration of a loop", hint=hint)
    if stored.trigger == TRIAL:
        hint = f"go on with what started it: edison refine {name}, or edison optimize {name}"
        raise UsageError(f"run {stored.id} tries a suggestion", hint=hint)


def grade_again(
    project: Project, wanted: str, options: RunOptions, factory: SessionFactory
) -> Ended:
    """Grade the stored answers of a run again; of `options` budget, code and waiting count."""
    with contextlib.closing(open_reader(project.root / project.file.results)) as reader:
        stored = find_run(reader, wanted)
        experiment = project.experiment(stored.experiment)
        kept = regrading(reader, stored, experiment)
    require_editor(project, "regrade")
    kept = replace(
        kept,
        budget_microusd=options.budget_microusd,
        allow_code=kept.allow_code or options.allow_code,
        wait=options.wait,
    )
    against = kept_snapshot(stored).get("command line", {}).get("against")
    if against:
        against = {**against, "material": HEAD}
    target = target_again(project, experiment, against)
    refuse_missing([target], kept.selection, calls=needs.GRADING)
    with factory.session(target) as session:
        return beside_loops(partial(session.run, kept))
