"""What may stand in an experiment?"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from edison_ci.checks.options import Check, CheckEntry
from edison_ci.config.dataset_entry import DataPath, DatasetEntries, DatasetEntry, Split
from edison_ci.config.decisions import Alerts, Gate, Judges, Refine, Safety, Schedule, Stop
from edison_ci.config.model_entry import GridParams
from edison_ci.config.project import Version
from edison_ci.shape import FilePath, Name, Shape, Share, items, wrong


class ModelUse(Shape):
    """A model of the registry, with parameters of this experiment's own."""

    use: Name = Field(description="Name in models.yaml.")
    params: GridParams = Field(
        default_factory=GridParams, description="Parameters; a list makes a grid."
    )


def _use(value: Any) -> Any:
    return {"use": value} if isinstance(value, str) else value


ModelUseEntry = Annotated[
    ModelUse,
    BeforeValidator(_use),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"x-shape": "ModelUse"}]}),
]


class RubricUse(Shape):
    """A rubric and its weight among the parts of the grade."""

    path: FilePath = Field(description="The rubric.")
    weight: float = Field(1, ge=0, le=100, description="Weight in the composite.")


def _rubric(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


RubricEntry = Annotated[
    RubricUse,
    BeforeValidator(_rubric),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"x-shape": "RubricUse"}]}),
]


class ExperimentFile(Shape):
    """experiments/NAME.yaml: objective, prompts, data, models, grading, gates and stop rules."""

    tombstones: ClassVar[dict[str, str]] = {
        "prompt": "write prompts: [prompts/NAME.md]",
        "model": "write models: [NAME]",
        "judge": "write judges: {pointwise: [NAME]}",
        "assert": "write checks",
        "budget_usd": "put it under stop",
        "max_iterations": "put it under stop",
    }

    version: Version = 1
    experiment: Name = Field(description="Id; the file's stem.")
    title: str = Field("", max_length=200, description="Title in reports.")
    description: str = Field("", max_length=2_000, description="What it is about.")
    archived: bool = Field(False, description="Whether it is kept but no longer run.")
    objective: str = Field(
        min_length=20, max_length=2_000, description="What a good answer achieves."
    )
    prompts: Annotated[tuple[FilePath, ...], items(1, 10)] = Field(
        description="Prompts; several are compared with each other."
    )
    models: Annotated[tuple[ModelUseEntry, ...], items(1, 10)] | None = Field(
        None, description="Models that generate; defaults.model by default."
    )
    dataset: DataPath | None = Field(None, description="A file of cases.")
    datasets: DatasetEntries | None = Field(None, description="Several, or with conditions.")
    split: Split | None = Field(None, description="Which cases are held out when refining.")
    draws: int = Field(1, ge=1, le=100, description="Answers per case.")
    checks: Annotated[tuple[CheckEntry, ...], items(0, 100)] = Field(
        (), description="Grades without a model."
    )
    rubric: RubricEntry | None = Field(None, description="Criteria that judges score.")
    judges: Judges = Field(default_factory=Judges, description="Models that judge.")
    safety: Safety = Field(default_factory=Safety, description="Screens on every answer.")
    gates: Annotated[tuple[Gate, ...], items(0, 50)] = Field((), description="Rules that decide.")
    max_errors: Share = Field(0.2, description="Share of cells in error that still counts.")
    stop: Stop = Field(default_factory=Stop, description="When it ends.")
    refine: Refine = Field(default_factory=Refine, description="How it is refined.")
    schedule: Annotated[tuple[Schedule, ...], items(0, 20)] = Field(
        (), description="When it runs by itself."
    )
    alerts: Alerts = Field(default_factory=Alerts, description="When somebody is told.")
    tags: Annotated[tuple[Name, ...], items(0, 50)] = Field((), description="Tags.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.dataset is not None and self.datasets is not None:
            raise wrong("exactly-one", "dataset and datasets are both given", at=("dataset",))
        for key, values in (
            ("prompts", self.prompts),
            ("schedule", tuple(entry.name for entry in self.schedule)),
        ):
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise wrong("duplicate", f"{value!r} is listed twice", at=(key, index))
        return self

    @property
    def data(self) -> tuple[DatasetEntry, ...]:
        """The datasets, whichever way they are written; empty if there are none."""
        if self.dataset is not None:
            return (DatasetEntry(path=self.dataset),)
        return self.datasets or ()

    def named_checks(self) -> dict[str, Check]:
        """Return the checks by the name they have in reports."""
        named: dict[str, Check] = {}
        for check in self.checks:
            wanted = check.name or check.check
            name, number = wanted, 2
            while name in named:
                name, number = f"{wanted}-{number}", number + 1
            named[name] = check
        return named
