"""Imported answers: graded like those of a run, without asking a model for them."""

from __future__ import annotations

import dataclasses
from dataclasses import field
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
    from edison_ci.execute.tasks import Task
    from edison_ci.plan.plan import Plan
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Json, Request
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


@dataclass(slots=True)
class OutputFile:
    """The answers of a file."""

    name: str
    sha256: str
    answers: dict[tuple[str, str, str, int], Settlement] = field(default_factory=dict)
    """By prompt, model, case and repeat."""
    without_cost: int = 0
    without_latency: int = 0

    @property
    def models(self) -> list[str]:
        """The models that have answers."""
        return list(dict.fromkeys(model for _, model, _, _ in self.answers))

    @property
    def prompts(self) -> list[str]:
        """The prompts that have answers."""
        return list(dict.fromkeys(prompt for prompt, _, _, _ in self.answers))

    @property
    def repeats(self) -> int:
        """The number of repeats, by the highest."""
        return 1 + max(repeat for _, _, _, repeat in self.answers)

    def origin(self) -> dict[str, Json]:
        """Return where the answers come from, as it is stored with the run."""
        return {
            "file": self.name,
            "sha256": self.sha256,
            "answers": len(self.answers),
            "without_cost": self.without_cost,
            "without_latency": self.without_latency,
            "models": list(self.models),
            "prompts": list(self.prompts),
        }
