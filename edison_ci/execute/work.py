"""The cells that a run has to fill.

One experiment, or two subjects on the same material: head and base. Each model has a stream of its
own, in which a case comes with all its cells, both sides of a pair next to each other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.cases import STATIC
from edison_ci.execute.runner import LaneWork, Task
from edison_ci.providers.throttling import AHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Configuration, Model
    from edison_ci.config.prompt import Prompt
    from edison_ci.execute.runner import Answer
    from edison_ci.plan.selection import Selection
    from edison_ci.records import Case

    Subject = list[tuple[Prompt, list[Configuration]]]

HEAD, BASE = "head", "base"


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the cells that is filled before the others."""

    draws: range
    cases: tuple[Case, ...] | None = None
    """None for all."""
    subjects: frozenset[tuple[str, str]] | None = None
    """Prompts and models; None for all."""

    def has(self, prompt: str, configuration: str) -> bool:
        """Whether a prompt with a configuration of a model belongs to it."""
        return self.subjects is None or (prompt, configuration) in self.subjects


@dataclass(slots=True)
class Work:
    """The cells of a run."""

    project: Project
    sides: Mapping[str, Experiment]
    """Head, and perhaps base: both with the same material."""
    selection: Selection
    clusters: dict[str, str] = field(default_factory=dict)
    """Cases that are not independent of each other, as far as they were read."""

    only: Callable[[Task], bool] | None = None
    """Which cells are filled; None for all."""
    stage: Stage | None = None
    """Which part of them is filled now; None for all at once."""

    @property
    def draws(self) -> int:
        """Answers to each case, before more are asked for."""
        return self.selection.narrow(self.sides[HEAD]).file.draws

    def cases(self) -> Iterable[Case]:
        """Return the cases of the run, read anew."""
        experiment = self.selection.narrow(self.sides[HEAD])
        cases = self.project.cases(experiment) if experiment.file.data else [STATIC]
        return self.selection.pick(cases)

    def planned(self, cases: int, stage: Stage | None = None) -> Counter[str]:
        """Return how many cells each lane has to fill, in a run of so many cases."""
        stage = stage or Stage(range(self.draws))
        each = len(stage.draws) * (cases if stage.cases is None else len(stage.cases))
        found: Counter[str] = Counter()
        for (side, name), lane in self.lane_names().items():
            prompts = self.selection.narrow(self.sides[side]).prompts
            found[lane] += each * sum(stage.has(prompt.id, name) for prompt in prompts)
        return found

    def lane_names(self) -> dict[tuple[str, str], str]:
        """Return the lane of each side and configuration."""
        models = self._models()
        return {
            (side, name): _lane_name(model.key, model, models)
            for side, experiment in self.sides.items()
            for name, model, _ in self.selection.narrow(experiment).models
        }

    def lanes(self, answer: Callable[[Model], Answer]) -> list[LaneWork]:
        """Return the work of each model, given how its answers are come by."""
        return [
            LaneWork(
                _lane_name(key, model, models),
                answer(model),
                self._workers(model),
                partial(self._chosen, key),
            )
            for models in [self._models()]
            for key, model in models.items()
        ]

    def tasks(self) -> Iterator[Task]:
        """Yield every cell there is, those that are not filled included."""
        for key in self._models():
            yield from self._tasks(key)

    def _chosen(self, key: str) -> Iterator[Task]:
        tasks = self._tasks(key)
        return tasks if self.only is None else filter(self.only, tasks)

    def _models(self) -> dict[str, Model]:
        """Return the generating models; one that changed since the base is there twice."""
        found: dict[str, Model] = {}
        for experiment in self.sides.values():
            for _, model, _ in self.selection.narrow(experiment).models:
                found.setdefault(model.key, model)
        return found

    def _workers(self, model: Model) -> int:
        """Return how many cells of a model are at work.

        While some are asked for, a few are booked or stored, and as many again are judged.
        """
        file = self.sides[HEAD].file
        judges = file.judges
        judged = file.rubric is not None or bool(judges.graders or judges.pairwise)
        places = model.limits.concurrency
        return (places + 2 * (places // AHEAD)) * (2 if judged else 1)

    def _tasks(self, key: str) -> Iterator[Task]:
        """Yield the cells of one model, reading the cases anew for each."""
        stage = self.stage or Stage(range(self.draws))
        subjects = {side: self._subject(side, key) for side in self.sides}
        twins = self._twins()
        for case in self.cases() if stage.cases is None else stage.cases:
            if case.cluster is not None:
                self.clusters[case.id] = case.cluster
            for draw in stage.draws:
                for side, subject in subjects.items():
                    for prompt, configurations in subject:
                        for configuration in configurations:
                            if stage.has(prompt.id, configuration.name):
                                twin = twins.get((side, prompt.id, configuration.name))
                                yield Task(prompt, configuration, case, draw, side, twin)

    def _twins(self) -> dict[tuple[str, str, str], tuple[Prompt, Configuration]]:
        """Return what the other side has for a prompt and model of a side."""
        if BASE not in self.sides:
            return {}
        found: dict[tuple[str, str, str], tuple[Prompt, Configuration]] = {}
        for side, other in ((HEAD, BASE), (BASE, HEAD)):
            experiment = self.selection.narrow(self.sides[other])
            for prompt in experiment.prompts:
                for configuration in experiment.configurations(prompt):
                    found[side, prompt.id, configuration.name] = (prompt, configuration)
        return found

    def _subject(self, side: str, key: str) -> Subject:
        experiment = self.selection.narrow(self.sides[side])
        return [
            (prompt, [c for c in experiment.configurations(prompt) if c.model.key == key])
            for prompt in experiment.prompts
        ]


def _lane_name(key: str, model: Model, models: Mapping[str, Model]) -> str:
    """Return what people call a lane: the model's name, unless it stands for two."""
    same = [other for other, one in models.items() if one.name == model.name]
    return model.name if same.index(key) == 0 else f"{model.name} at the base"
