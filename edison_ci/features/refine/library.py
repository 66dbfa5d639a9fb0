"""Refinement as a library: permitted requests, measured changes of prompts, and proposals."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.access.proposal_terms import apply_base_terms
from edison_ci.access.site import Role, Site
from edison_ci.api.notices import notify
from edison_ci.api.sessions import SessionFactory, run_outside_loop
from edison_ci.config import requirements
from edison_ci.errors import UsageError
from edison_ci.features.refine.refinement import RefineOptions, refine
from edison_ci.features.refine.refiner import refiner_of
from edison_ci.features.refine.suggestions import suggestion_notice
from edison_ci.features.refine.trials import Allowance, TrialRunner
from edison_ci.features.refine.weaknesses import with_holdout
from edison_ci.proposals.candidate import target_of
from edison_ci.proposals.context import ReviewContext
from edison_ci.proposals.proposal import ProposeOptions, newest, propose_suggestion
from edison_ci.records import SuggestionStatus
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.access.site import Actor
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.features.refine.refinement import RefineResult
    from edison_ci.judges.judge import Judge
    from edison_ci.proposals.candidate import RefineTarget
    from edison_ci.proposals.proposal import ProposedSuggestion
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.suggestions import Suggestion


@dataclass(frozen=True, slots=True)
class RefineRequest:
    """A permitted request to refine a prompt: target, model and actor."""

    action: str
    project: Project
    target: RefineTarget
    model: Model
    """The refiner."""
    site: Site
    actor: Actor

    @property
    def refiner(self) -> Judge:
        """The refiner, with its parameters."""
        return refiner_of(self.model)

    def audit_entry(self, made: Sequence[Suggestion]) -> AuditEntry:
        """Return the audit entry for suggestions."""
        after = [
            {"suggestion": suggestion.id, "status": str(suggestion.status)} for suggestion in made
        ]
        entity = f"{self.target.experiment.id}/{self.target.prompt.id}"
        return self.site.entry(self.actor, self.action, entity, after=after)

    def tell(self, connection: sqlite3.Connection, made: Sequence[Suggestion]) -> None:
        """Notify people, in the current transaction, of suggestions that wait for a decision."""
        for suggestion in made:
            if suggestion.status is SuggestionStatus.PROPOSED:
                notify(connection, self.site, suggestion_notice(suggestion))


def refine_request(
    project: Project, action: str, experiment: str, prompt: str | None
) -> RefineRequest:
    """Return a request to refine a prompt; raises RoleError below the role editor."""
    project = apply_base_terms(project)
    chosen = _require_dataset(project, experiment)
    target = target_of(project, chosen, prompt)
    model = _refiner(project, chosen)
    site = Site(project.root, project.file)
    actor = site.require(Role.EDITOR, action, chosen.id)
    requirements.refuse(requirements.missing(project, chosen, calls=requirements.REFINEMENT))
    return RefineRequest(action, project, with_holdout(target), model, site, actor)


def _require_dataset(project: Project, name: str) -> Experiment:
    """Return an experiment that has a dataset."""
    experiment = project.experiment(name)
    if not experiment.file.data:
        hint = "add a dataset: refining needs training and held-out cases"
        raise UsageError(f"{name} has no dataset", hint=hint)
    return experiment


def _refiner(project: Project, experiment: Experiment) -> Model:
    """Return the model that refines the prompts of an experiment."""
    name = experiment.file.refine.by or project.file.defaults.refiner
    if name is None:
        raise UsageError(
            f"{experiment.id} has no refiner model",
            hint="add refine: {by: NAME} to it, or defaults: {refiner: NAME} to edison.yaml",
        )
    if name not in project.models:
        hint = did_you_mean(name, project.models, label="models")
        raise UsageError(f"there is no model {name!r}", hint=hint)
    return project.models[name]


def refine_prompt(
    project: Project,
    experiment: str,
    *,
    prompt: str | None = None,
    options: RefineOptions | None = None,
    budget_microusd: int | None = None,
) -> RefineResult:
    """Suggest small changes to a prompt, each measured on training and held-out cases."""
    request = refine_request(project, "refine", experiment, prompt)
    allowance = Allowance.of(request.target, budget_microusd)
    factory = SessionFactory()
    trials = TrialRunner(request.target, lambda: factory.context(request.project), allowance)
    options = options or RefineOptions(request.target.limits.candidates)
    stored_options = replace(options, audit=request.audit_entry, on_stored=request.tell)
    return run_outside_loop(partial(refine, trials, request.refiner, stored_options))


def propose(
    project: Project, suggestion: str | None = None, *, open_pr: bool = False, force: bool = False
) -> ProposedSuggestion | None:
    """Propose a suggestion on a branch; without an id the newest that is shown to help.

    Returns None if there is no such suggestion.
    """
    review = ReviewContext.of(project, offline=not open_pr)
    if suggestion is None:
        chosen = newest(review.suggestions(), force=force)
    else:
        chosen = review.find(suggestion)
    if chosen is None:
        return None
    options = ProposeOptions(open_pr, force)
    return run_outside_loop(lambda: asyncio.run(propose_suggestion(review, chosen, options)))
