"""Requests to refine a prompt: which one, by which model, and who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config import needs
from edison_ci.errors import UsageError
from edison_ci.names import did_you_mean
from edison_ci.operate.actors import Role
from edison_ci.operate.proposal_terms import on_terms_of_base
from edison_ci.operate.site import Site
from edison_ci.refine.candidate import subject_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.operate.actors import Actor
    from edison_ci.refine.candidate import Subject
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.suggestions import Suggestion


@dataclass(frozen=True, slots=True)
class RefineRequest:
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


def refine_request(
    project: Project, action: str, experiment: str, prompt: str | None
) -> RefineRequest:
    """Return what is to be refined; whoever may not is refused."""
    project = on_terms_of_base(project)
    chosen = _with_data(project, experiment)
    subject = subject_of(project, chosen, prompt)
    model = _refiner(project, chosen)
    site = Site(project.root, project.file)
    actor = site.require(Role.EDITOR, action, chosen.id)
    needs.refuse(needs.missing(project, chosen, calls=needs.REFINEMENT))
    return RefineRequest(action, project, subject, model, site, actor)


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
