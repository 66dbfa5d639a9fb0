"""What is refined, by which model, at whose wish, and what may that cost?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from edison_ci.cli.progress import dollars
from edison_ci.cli.terminal import ODD, Ink, counted
from edison_ci.cli.trusting import on_terms_of_base
from edison_ci.config import needs
from edison_ci.config.load import find_root, load_project
from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass
from edison_ci.names import did_you_mean
from edison_ci.operate.actors import Role
from edison_ci.operate.site import Site
from edison_ci.refine.candidate import subject_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.cli.asking import Asking
    from edison_ci.cli.options import State
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.operate.actors import Actor
    from edison_ci.plan.estimate import Span
    from edison_ci.refine.candidate import Subject
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.suggestions import Suggestion

which_prompt = click.option(
    "--prompt", metavar="PROMPT", help="Which prompt, where there are several."
)


@dataclass(frozen=True, slots=True)
class Errand:
    """A prompt that somebody wants refined, and may have refined."""

    action: str
    project: Project
    subject: Subject
    model: Model
    """Which refines."""
    site: Site
    actor: Actor

    def audited(self, made: Sequence[Suggestion]) -> AuditEntry:
        """Return the row of the audit that says who wanted suggestions."""
        after = [{"suggestion": one.id, "status": str(one.status)} for one in made]
        entity = f"{self.subject.experiment.id}/{self.subject.prompt.id}"
        return self.site.entry(self.actor, self.action, entity, after=after)


def errand_of(state: State, action: str, experiment: str, prompt: str | None) -> Errand:
    """Return what a command is to refine; whoever may not is refused."""
    project = on_terms_of_base(load_project(state.entered(find_root(state.folder))))
    chosen = _with_data(project, experiment)
    subject = subject_of(project, chosen, prompt)
    model = _refiner(project, chosen)
    site = Site(project.root, project.file)
    actor = site.require(Role.EDITOR, action, chosen.id)
    needs.refuse(needs.missing(project, chosen, calls=needs.REFINEMENT))
    return Errand(action, project, subject, model, site, actor)


def _with_data(project: Project, name: str) -> Experiment:
    """Return an experiment that has cases to learn from."""
    found = project.experiment(name)
    if not found.file.data:
        hint = "add a dataset: what is held out of it proves that a change helps"
        raise UsageError(f"{name} has no dataset, so there is nothing to learn from", hint=hint)
    return found


def _refiner(project: Project, experiment: Experiment) -> Model:
    """Return the model that refines the prompts of an experiment."""
    name = experiment.file.refine.by or project.file.defaults.refiner
    if name is None:
        raise UsageError(
            f"no model refines {experiment.id}",
            hint="add refine: {by: NAME} to it, or defaults: {refiner: NAME} to edison.yaml",
        )
    if name not in project.models:
        hint = did_you_mean(name, project.models, label="models")
        raise UsageError(f"there is no model {name!r}", hint=hint)
    return project.models[name]


class Outlook(NamedTuple):
    """What refining would work with, and what it may cost."""

    training: int
    held_out: int
    cost: Span | None
    simulated: bool
    more: str = ""
    """What else is asked for, in words."""


def announce(asking: Asking, subject: Subject, outlook: Outlook) -> None:
    """Say what is refined on which cases at what cost, and ask where that is much."""
    if not outlook.training:
        raise UsageError("every case is held out", hint="lower split.holdout of the experiment")
    cost = outlook.cost
    most = "" if cost is None or not cost.high else f", at most about {dollars(cost.high)}"
    cases = f"{counted(outlook.training, 'training case')} and {outlook.held_out:,} held out"
    asking.terminal.note(
        Ink(subject.experiment.id, bold=True),
        f": {subject.prompt.path}, {cases}{outlook.more}{most}",
        *simulated(outlook.simulated),
    )
    asking.confirm(cost)


def simulated(told: bool) -> tuple[Ink, ...]:
    """Return the mark of what a simulated model took part in."""
    return (Ink("  simulated", ODD),) if told else ()
