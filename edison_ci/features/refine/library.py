"""Refinement: suggest measured changes of prompts, and propose them for review."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from edison_ci.api.sessions import SessionFactory, run_outside_loop
from edison_ci.features.refine.refinement import RefineOptions, refine, refine_request
from edison_ci.features.refine.refiner import refiner_of
from edison_ci.features.refine.trials import Allowance, TrialRunner
from edison_ci.proposals.context import ReviewContext
from edison_ci.proposals.proposal import ProposeOptions, newest, propose_suggestion
from edison_ci.store.suggestions import list_suggestions

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.features.refine.refinement import RefineResult
    from edison_ci.proposals.proposal import ProposedSuggestion


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
    wanted = replace(options, audit=request.audit_entry, on_stored=request.tell)
    return run_outside_loop(partial(refine, trials, refiner_of(request.model), wanted))


def propose(
    project: Project, suggestion: str | None = None, *, open_pr: bool = False, force: bool = False
) -> ProposedSuggestion | None:
    """Propose a suggestion on a branch; without an id the newest that is shown to help.

    Returns None if there is no such suggestion.
    """
    review = ReviewContext.of(project, offline=not open_pr)
    if suggestion is None:
        one = newest(review.read(list_suggestions), force=force)
    else:
        one = review.find(suggestion)
    if one is None:
        return None
    chosen = ProposeOptions(open_pr, force)
    return run_outside_loop(lambda: asyncio.run(propose_suggestion(review, one, chosen)))
