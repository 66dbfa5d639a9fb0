"""Targets: the runs that are made of an experiment, and the base that each is compared with."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config import requirements
from edison_ci.execute.run_options import BaseReference
from edison_ci.plan import baseline
from edison_ci.records import Side

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.requirements import Phase
    from edison_ci.errors import Location, Problem
    from edison_ci.plan.selection import Selection


@dataclass(frozen=True, slots=True)
class RunTarget:
    """A project, one of its experiments, and the base that it is compared with."""

    project: Project
    experiment: Experiment
    against: BaseReference | None = None

    def widened(self, project: Project, selection: Selection) -> RunTarget:
        """Return the target with the chosen models of models.yaml that it does not list.

        Both sides get the model of the working tree, so that they differ in the prompts alone.
        """
        against = self.against
        if against is not None and against.variant is not None:
            variant = selection.widen(project, against.variant)
            against = dataclasses.replace(against, variant=variant)
        experiment = selection.widen(project, self.experiment)
        return dataclasses.replace(self, experiment=experiment, against=against)


# One run on the eval suite of head. If that differs from the base's, a second one on the base's
# eval suite: a change must not look good only because it changed what it is measured with.
def run_targets(project: Project, experiment: Experiment, ref: str | None) -> list[RunTarget]:
    """Return the runs to make: two where the eval suite differs from the base's."""
    if ref is None:
        return [RunTarget(project, experiment)]
    base = baseline.base_of(project, experiment, ref)
    targets = [target_for(project, experiment, base, Side.HEAD)]
    if base.changed_eval_suite and baseline.readable(base):
        # First, so that the other one becomes `latest`.
        targets.insert(0, target_for(project, experiment, base, Side.BASE))
    return targets


def refuse_missing(
    targets: Sequence[RunTarget], selection: Selection, calls: Collection[Phase] = requirements.RUN
) -> None:
    """Raise for runs that need what is not installed here, before the first of them starts."""
    problems: dict[tuple[Location, str], Problem] = {}
    for target in reversed(targets):  # what both sides lack is reported for the working tree
        for problem, ref in _missing(target, selection, calls):
            message = f"{problem.message} (at {ref})" if ref else problem.message
            key = (problem.where, problem.message)
            problems.setdefault(key, dataclasses.replace(problem, message=message))
    requirements.refuse(problems.values())


def _missing(
    target: RunTarget, selection: Selection, calls: Collection[Phase]
) -> Iterator[tuple[Problem, str]]:
    """Yield what one run lacks, with the ref whose files need it; '' for the working tree."""
    against = target.against
    ref = against.ref if against is not None and against.eval_suite == Side.BASE else ""
    chosen = selection.narrow(target.experiment)
    for problem in requirements.missing(target.project, chosen, calls=calls):
        yield problem, ref
    if against is not None and against.variant is not None and "generate" in calls:
        models = (model for _, model, _ in selection.narrow(against.variant).models)
        for problem in requirements.missing_for_models(models):
            yield problem, against.ref


def target_for(
    project: Project, experiment: Experiment, base: baseline.Base, eval_suite: str
) -> RunTarget:
    """Return the run on the eval suite of head or base."""
    gates = base.experiment.file.gates if base.experiment is not None else None
    about = (base.changed_eval_suite, base.replaced, base.doubts, base.invalid, base.held)
    if eval_suite == Side.BASE and base.project is not None:
        sides = baseline.with_eval_suite_of(base, experiment)
        if sides is not None:
            head, old_side = baseline.held_to_the_stricter(*sides)
            # Results go to the file of today, even if the base names another one.
            results = {"results": project.file.results}
            file = base.project.file.model_copy(update=results)
            old = dataclasses.replace(base.project, file=file, root=project.root)
            against = BaseReference(base.ref, base.commit, old_side, gates, Side.BASE, *about)
            return RunTarget(old, head, against)
    variant = base.variant_on(experiment)
    if variant is not None:
        experiment, variant = baseline.held_to_the_stricter(experiment, variant)
    against = BaseReference(base.ref, base.commit, variant, gates, Side.HEAD, *about)
    return RunTarget(project, experiment, against)


def resumed_target(
    project: Project, experiment: Experiment, kept: dict[str, Any] | None
) -> RunTarget:
    """Return the target of a run that is resumed; `kept` is its stored base, if it has one."""
    if not kept:
        return RunTarget(project, experiment)
    base = baseline.base_of(project, experiment, kept["ref"], commit=kept["commit"])
    return target_for(project, experiment, base, kept["eval_suite"])
