"""Imported answers: graded like those of a run, without asking a model for them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import Limits
from edison_ci.config.models import Model
from edison_ci.errors import Location
from edison_ci.plan.plan import without_generating
from edison_ci.providers.budget import store_unpaid
from edison_ci.providers.replay import MissingRecording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.runner import Task
    from edison_ci.plan.plan import Plan
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Request
    from edison_ci.store.answers import Settlement


Answers: TypeAlias = "Mapping[tuple[str, str, str, int], Settlement]"
"""Answers by prompt, model, case and repeat."""


@dataclass(frozen=True, slots=True)
class ImportedAnswers:
    """The answers of a file, in place of the models that would give them."""

    answers: Answers

    def plan(self, project: Project, plan: Plan) -> Plan:
        """Return the plan of grading only; cells without an answer are skipped."""
        judging, total = without_generating(project, plan), plan.cells + plan.skipped
        cells = len(self.answers)
        return dataclasses.replace(judging, cells=cells, skipped=total - cells)

    async def answer(self, task: Task, request: Request, clients: ClientPool) -> StoredAnswer:
        """Store and return the answer of a cell; raises MissingRecording if it has none."""
        model = task.configuration.name
        found = self.answers.get((task.prompt.id, model, task.case.id, task.repeat))
        if found is None:
            raise MissingRecording(request.request_hash, "no answer was imported for this cell")
        stored = await store_unpaid(clients.budget, request, task.configuration.model.name, found)
        clients.usage.add(stored)
        return stored


def imported_variant(
    project: Project, experiment: Experiment, models: Sequence[str], prompts: Sequence[str]
) -> Experiment:
    """Return the experiment with only these prompts and models, also models that it has not."""
    known = {name: (name, model, params) for name, model, params in experiment.models}
    chosen = [known.get(name) or (name, _model(project, name), {}) for name in models]
    return dataclasses.replace(
        experiment,
        models=tuple(chosen),
        prompts=tuple(prompt for prompt in experiment.prompts if prompt.id in prompts),
    )


def _model(project: Project, name: str) -> Model:
    """Return a model of the registry, or one that is known by its name only and never called."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("base_url", "base_url_env", "price", "store"), None
    ) | {"keys": {}, "options": {}, "params": {}, "fallback": ()}
    return project.models.get(name) or Model(
        name=name,
        provider="replay",
        model=name,
        limits=Limits.model_construct(),
        where=Location(project.file.paths.models),
        **nothing,
    )
