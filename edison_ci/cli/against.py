"""Which runs does a comparison with another commit take?

One on the material of today. If that differs from the base's, a second one on the base's material:
a change may not look good only because it changed what it is measured with.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from edison_ci.cli.terminal import ODD, Ink
from edison_ci.execute.orders import Against
from edison_ci.execute.work import BASE, HEAD
from edison_ci.frozen import dataclass
from edison_ci.names import commit_names
from edison_ci.plan.baseline import Base, base_of, readable, with_material_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Experiment, Project

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
    if base.changed_material and readable(base):
        shown = ", ".join(base.changed_material[:_LISTED])
        more = ", ..." if len(base.changed_material) > _LISTED else ""
        terminal.note(Ink("the material changed: ", ODD), f"{shown}{more}")
        terminal.note(
            f"  both are measured on the material of {names[0]} too; the worse verdict counts"
        )
        yield match_on(project, experiment, base, BASE)
    yield match_on(project, experiment, base, HEAD)  # last, so that it is the latest


def match_on(project: Project, experiment: Experiment, base: Base, material: str) -> Match:
    """Return the match on the material of head or base."""
    gates = base.experiment.file.gates if base.experiment is not None else None
    changed = base.changed_material
    if material == BASE and base.project is not None:
        sides = with_material_of(base, experiment)
        if sides is not None:
            # Results go where they go today, wherever they went then.
            results = {"results": project.file.results}
            file = base.project.file.model_copy(update=results)
            old = dataclasses.replace(base.project, file=file, root=project.root)
            against = Against(base.ref, base.commit, sides[1], gates, BASE, changed)
            return Match(old, sides[0], against)
    subject = base.subject_on(experiment)
    against = Against(base.ref, base.commit, subject, gates, HEAD, changed)
    return Match(project, experiment, against)


def match_again(project: Project, experiment: Experiment, kept: dict[str, Any] | None) -> Match:
    """Return the match of a run that goes on."""
    if not kept:
        return Match(project, experiment)
    base = base_of(project, experiment, kept["ref"], commit=kept["commit"])
    return match_on(project, experiment, base, kept["material"])
