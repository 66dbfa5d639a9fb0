"""Which runs does a comparison with another commit take?

One on the material of today. If that differs from the base's, a second one on the base's material:
a change may not look good only because it changed what it is measured with.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from edison_ci.cli.terminal import ODD, Ink
from edison_ci.config import needs
from edison_ci.execute.orders import Against
from edison_ci.execute.work import BASE, HEAD
from edison_ci.frozen import dataclass
from edison_ci.names import commit_names
from edison_ci.plan.baseline import Base, base_of, readable, with_material_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.needs import Phase
    from edison_ci.errors import Location, Problem
    from edison_ci.plan.selection import Selection

_LISTED = 5


@dataclass(frozen=True, slots=True)
class Match:
    """A project and an experiment to run, and what it is compared with."""

    project: Project
    experiment: Experiment
    against: Against | None = None


def matches(
    terminal: Terminal, project: Project, experiment: Experiment, ref: str | None
) -> Iterator[Match]:
    """Yield what is to be run, saying first what it is compared with."""
    if ref is None:
        yield Match(project, experiment)
        return
    base = base_of(project, experiment, ref)
    names = commit_names(ref, base.commit)
    terminal.note(f"{experiment.id}: compared with {' at '.join(names)}")
    if base.experiment is None:
        terminal.note(f"  {names[0]} has no such experiment, so there is nothing to compare with")
    for doubt in base.doubts:
        terminal.note(Ink("in doubt: ", ODD), doubt.sentence)
    for each in base.replaced:
        terminal.note(f"  {each}, and compared with it")
    if base.changed_material and readable(base):
        shown = ", ".join(base.changed_material[:_LISTED])
        more = ", ..." if len(base.changed_material) > _LISTED else ""
        terminal.note(Ink("the material changed: ", ODD), f"{shown}{more}")
        terminal.note(
            f"  both are measured on the material of {names[0]} too; the worse verdict counts"
        )
        yield match_on(project, experiment, base, BASE)
    yield match_on(project, experiment, base, HEAD)  # last, so that it is the latest


def refuse_missing(
    found: Sequence[Match], selection: Selection, calls: Collection[Phase] = needs.RUN
) -> None:
    """Refuse runs that need what is not installed here, before the first of them starts."""
    problems: dict[tuple[Location, str], Problem] = {}
    for match in reversed(found):  # what both sides lack is told of the working tree
        for problem, ref in _missing(match, selection, calls):
            told = f"{problem.message} (at {ref})" if ref else problem.message
            key = (problem.where, problem.message)
            problems.setdefault(key, dataclasses.replace(problem, message=told))
    needs.refuse(problems.values())


def _missing(
    match: Match, selection: Selection, calls: Collection[Phase]
) -> Iterator[tuple[Problem, str]]:
    """Yield what one run lacks, each with the ref whose files need it; '' for the working tree."""
    against = match.against
    ref = against.ref if against is not None and against.material == BASE else ""
    chosen = selection.narrow(match.experiment)
    yield from ((each, ref) for each in needs.missing(match.project, chosen, calls=calls))
    if against is not None and against.subject is not None and "generate" in calls:
        models = (model for _, model, _ in selection.narrow(against.subject).models)
        yield from ((each, against.ref) for each in needs.missing_for_models(models))


def match_on(project: Project, experiment: Experiment, base: Base, material: str) -> Match:
    """Return the match on the material of head or base."""
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
            return Match(old, sides[0], against)
    subject = base.subject_on(experiment)
    against = Against(base.ref, base.commit, subject, gates, HEAD, *about)
    return Match(project, experiment, against)


def match_again(project: Project, experiment: Experiment, kept: dict[str, Any] | None) -> Match:
    """Return the match of a run that goes on."""
    if not kept:
        return Match(project, experiment)
    base = base_of(project, experiment, kept["ref"], commit=kept["commit"])
    return match_on(project, experiment, base, kept["material"])
