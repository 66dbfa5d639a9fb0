"""Tasks: the cells that a run fills, read from the cases whenever they are needed."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.cases import STATIC
from edison_ci.execute.progress import AT_THE_BASE
from edison_ci.providers import client as provider_client
from edison_ci.records import Request, Side
from edison_ci.store.cells import cell_id as make_cell_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Configuration, Model
    from edison_ci.config.prompt import Prompt
    from edison_ci.plan.selection import Selection
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Case

    Answer = Callable[["Task", Request], Awaitable[StoredAnswer]]
    Variants = list[tuple[Prompt, list[Configuration]]]


@dataclass(frozen=True, slots=True)
class Task:
    """A cell to fill."""

    prompt: Prompt
    configuration: Configuration
    case: Case
    repeat: int
    side: Side = Side.HEAD
    counterpart: tuple[Prompt, Configuration] | None = None
    """Prompt and configuration of the other side, where there is one."""
    cluster: str | None = None
    """Of the case: declared, or of the cases with the same input."""


def id_of_cell(run_id: str, task: Task) -> str:
    """Return the id that a cell has in a run."""
    name = task.configuration.name
    return make_cell_id(run_id, task.side, task.prompt.id, name, task.case.id, task.repeat)


def cell_name(task: Task) -> str:
    """Return the name of a cell, CASE@MODEL#REPEAT."""
    return f"{task.case.id}@{task.configuration.name}#{task.repeat}"


def request_for(task: Task) -> Request:
    """Return what the model is sent; raises MissingValueError or RenderError."""
    model = task.configuration.model
    return Request(
        provider=model.provider,
        endpoint=model.endpoint,
        model=model.model,
        messages=task.prompt.render(task.case.inputs),
        params=dict(task.configuration.params),
        left_out=task.configuration.left_out,
        tools=task.prompt.tools,
        response_format=task.prompt.output,
        repeat=task.repeat,
    )


@dataclass(frozen=True, slots=True)
class ClientWork:
    """A client, its workers, and the cells it has to fill."""

    name: str
    answer: Answer
    """Brings the answer to a cell: from a model, or from the store."""
    workers: Callable[[], int]
    """How many fill its cells at once, by its limits of the moment."""
    tasks: Callable[[], Iterator[Task]]


@dataclass(frozen=True, slots=True)
class WorkStage:
    """Cells that are filled before the others."""

    repeats: range
    cases: tuple[Case, ...] | None = None
    """None for all."""
    variants: frozenset[tuple[str, str]] | None = None
    """Prompts and models; None for all."""

    def has(self, prompt: str, configuration: str) -> bool:
        """Whether a prompt with a configuration of a model belongs to it."""
        return self.variants is None or (prompt, configuration) in self.variants


@dataclass(slots=True)
class RunWork:
    """The cells of a run."""

    project: Project
    sides: dict[Side, Experiment]
    """Head, and perhaps base: both with the same eval suite."""
    selection: Selection
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Cluster of each case that has one, from the plan."""
    only: Callable[[Task], bool] | None = None
    """Which cells are filled; None for all."""
    stage: WorkStage | None = None
    """Which of them are filled now; None for all at once."""
    batch: bool = False
    """Whether answers are bought in batches, all of them at once."""
    places: Callable[[Model], int] = lambda model: model.limits.concurrency
    """Calls that a model may make at once at this moment."""
    looks_up: bool = False
    """Whether answers are looked for in a shared cache, while other cells wait for the model."""

    @property
    def repeats(self) -> int:
        """Repeats of each case, before `more_repeats` adds some."""
        return self.selection.narrow(self.sides[Side.HEAD]).file.repeats

    def cases(self) -> Iterable[Case]:
        """Return the cases of the run, read again."""
        experiment = self.selection.narrow(self.sides[Side.HEAD])
        cases = self.project.cases(experiment) if experiment.file.data else [STATIC]
        return self.selection.pick(cases)

    def cells_by_client(self, cases: int, stage: WorkStage | None = None) -> Counter[str]:
        """Return how many cells each client has to fill, in a run of that number of cases."""
        stage = stage or WorkStage(range(self.repeats))
        per_variant = len(stage.repeats) * (cases if stage.cases is None else len(stage.cases))
        cells: Counter[str] = Counter()
        for (side, name), client in self.client_names().items():
            prompts = self.selection.narrow(self.sides[side]).prompts
            cells[client] += per_variant * sum(stage.has(prompt.id, name) for prompt in prompts)
        return cells

    def client_names(self) -> dict[tuple[Side, str], str]:
        """Return the client of each side and configuration."""
        models = self._models()
        return {
            (side, name): _client_name(model.key, model, models)
            for side, experiment in self.sides.items()
            for name, model, _ in self.selection.narrow(experiment).models
        }

    def clients(self, answer: Callable[[Model], Answer]) -> list[ClientWork]:
        """Return the work of each model; `answer` returns the source of a model's answers."""
        return [
            ClientWork(
                _client_name(key, model, models),
                answer(model),
                partial(self._workers, model),
                partial(self._open_tasks, key),
            )
            for models in [self._models()]
            for key, model in models.items()
        ]

    def tasks(self) -> Iterator[Task]:
        """Yield every cell, including those that `only` leaves out."""
        for key in self._models():
            yield from self._tasks(key)

    def _open_tasks(self, key: str) -> Iterator[Task]:
        tasks = self._tasks(key)
        return tasks if self.only is None else filter(self.only, tasks)

    def _models(self) -> dict[str, Model]:
        """Return the generating models by key; one that changed since the base is there twice."""
        models: dict[str, Model] = {}
        for experiment in self.sides.values():
            for _, model, _ in self.selection.narrow(experiment).models:
                models.setdefault(model.key, model)
        return models

    def _workers(self, model: Model) -> int:
        """Return how many workers fill the cells of a model.

        While some cells wait for the model, a few are booked or stored, and as many are judged.
        """
        judged = self.sides[Side.HEAD].file.is_judged
        places = self.places(model)
        looking = places if self.looks_up else 0
        return (places + 2 * (places // provider_client.AHEAD) + looking) * (2 if judged else 1)

    def _tasks(self, key: str) -> Iterator[Task]:
        """Yield the cells of one model, reading the cases again for each."""
        stage = self.stage or WorkStage(range(self.repeats))
        variants = {side: self._variants(side, key) for side in self.sides}
        counterparts = self._counterparts()
        for case in self.cases() if stage.cases is None else stage.cases:
            cluster = self.clusters.get(case.id)
            for repeat in stage.repeats:
                for side, variant in variants.items():
                    for prompt, configurations in variant:
                        for configuration in configurations:
                            if stage.has(prompt.id, configuration.name):
                                counterpart = counterparts.get(
                                    (side, prompt.id, configuration.name)
                                )
                                yield Task(
                                    prompt, configuration, case, repeat, side, counterpart, cluster
                                )

    def _counterparts(self) -> dict[tuple[Side, str, str], tuple[Prompt, Configuration]]:
        """Return what the other side has, by side, prompt id and configuration."""
        if Side.BASE not in self.sides:
            return {}
        counterparts: dict[tuple[Side, str, str], tuple[Prompt, Configuration]] = {}
        for side, other in ((Side.HEAD, Side.BASE), (Side.BASE, Side.HEAD)):
            experiment = self.selection.narrow(self.sides[other])
            for prompt in experiment.prompts:
                for configuration in experiment.configurations(prompt):
                    counterparts[side, prompt.id, configuration.name] = (prompt, configuration)
        return counterparts

    def _variants(self, side: Side, key: str) -> Variants:
        experiment = self.selection.narrow(self.sides[side])
        return [
            (prompt, [c for c in experiment.configurations(prompt) if c.model.key == key])
            for prompt in experiment.prompts
        ]


def _client_name(key: str, model: Model, models: Mapping[str, Model]) -> str:
    """Return the name of a client: the model's, marked if the base has another of that name."""
    same = [other for other, named in models.items() if named.name == model.name]
    return model.name if same.index(key) == 0 else f"{model.name}{AT_THE_BASE}"
