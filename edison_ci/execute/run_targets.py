"""What a run is of: a project, an experiment, and what it is compared with."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config import needs
from edison_ci.execute.run_options import Against
from edison_ci.execute.work import BASE, HEAD
from edison_ci.plan.baseline import Base, base_of, readable, with_material_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.needs import Phase
    from edison_ci.errors import Location, Problem
    from edison_ci.plan.selection import Selection


@dataclass(frozen=True, slots=True)
class RunTarget:
    """A project and an experiment to run, and what it is compared with."""

    project: Project
    experiment: Experiment
    against: Against | None = None


# One on the material of today. If that differs from the base's, a second one on the base's
# material: a change may not look good only because it changed what it is measured with.
def targets(project: Project, experiment: Experiment, ref: str | None) -> list[RunTarget]:
    """Return what is to be run: twice, where a comparison changes what both are measured with."""
    if ref is None:
        return [RunTarget(project, experiment)]
    base = base_of(project, experiment, ref)
    found = [target_on(project, experiment, base, HEAD)]  # last, so that it is the latest
    if base.changed_material and readable(base):
        found.insert(0, target_on(project, experiment, base, BASE))
    return found


def refuse_missing(
    found: Sequence[RunTarget], selection: Selection, calls: Collection[Phase] = needs.RUN
) -> None:
    """Refuse runs that need what is not installed here, before the first of them starts."""
    problems: dict[tuple[Location, str], Problem] = {}
    for target in reversed(found):  # what both sides lack is told of the working tree
        for problem, ref in _missing(target, selection, calls):
            told = f"{problem.message} (at {ref})" if ref else problem.message
            key = (problem.where, problem.message)
            problems.setdefault(key, dataclasses.replace(problem, message=told))
    needs.refuse(problems.values())


def _missing(
    target: RunTarget, selection: Selection, calls: Collection[Phase]
) -> Iterator[tuple[Problem, str]]:
    """Yield what one run lacks, each with the ref whose files need it; '' for the working tree."""
    against = target.against
    ref = against.ref if against is not None and against.material == BASE else ""
    chosen = selection.narrow(target.experiment)
    yield from ((each, ref) for each in needs.missing(target.project, chosen, calls=calls))
    if against is not None and against.subject is not None and "generate" in calls:
        models = (model for _, model, _ in selection.narrow(against.subject).models)
        yield from ((each, against.ref) for each in needs.missing_for_models(models))


def target_on(project: Project, experiment: Experiment, base: Base, material: str) -> RunTarget:
    """Return what is run on the material of head or base."""
    gates = base.experiment.file.gates if base.experiment is not None else None
    about = (base.changed_material, base.replaced, base.doubts)
    if material == BASE and base.project is not None:
        sides = with_material_of(base, experiment)
        if sides is not None:
            # Results go where they go today, wherever they went then.
            results = {"results": project.file.results}
            file = base.project.file.model_copy(update=results)
            old = dataclasses.replace(base.project, file=file, root=project.root)
            against = Against(base.ref, base.commit, sides[1], gates, BASE, *about)
            return RunTarget(old, sides[0], against)
    subject = base.subject_on(experiment)
    against = Against(base.ref, base.commit, subject, gates, HEAD, *about)
    return RunTarget(project, experiment, against)


def target_again(
    project: Project, experiment: Experiment, kept: dict[str, Any] | None
) -> RunTarget:
    """Return what a run that goes on is of."""
    if not kept:
        return RunTarget(project, experiment)
    base = base_of(project, experiment, kept["ref"], commit=kept["commit"])
    return target_on(project, experiment, base, kept["material"])
