"""What may stand in an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, model_validator

from edison_ci.checks.options import Check, CheckEntry
from edison_ci.config.dataset_entry import DataPath, DatasetEntries, DatasetEntry, Split
from edison_ci.config.decisions import Alerts, Gate, Judges, Refine, Safety, Schedule, Stop
from edison_ci.config.model_entry import GridParams
from edison_ci.config.project import Version
from edison_ci.shape import (
    UNIQUE,
    FilePath,
    Name,
    Shape,
    Share,
    Shorthand,
    items,
    report,
    short,
    wrong,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class ModelUse(Shape):
    """A model of the registry, with parameters of this experiment's own."""

    use: Name = Field(description="Name in models.yaml.")
    params: GridParams = Field(
        default_factory=GridParams.model_construct, description="Parameters; a list makes a grid."
    )


ModelUseEntry = Annotated[ModelUse, Shorthand("use")]


class RubricUse(Shape):
    """A rubric and its weight among the parts of the grade."""

    path: FilePath = Field(description="The rubric.")
    weight: float = Field(1, ge=0, le=100, description="Weight in the composite.")


RubricEntry = Annotated[RubricUse, Shorthand("path")]


class ExperimentFile(Shape):
    """experiments/NAME.yaml: objective, prompts, data, models, grading, gates and stop rules."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["dataset", "datasets"]}})

    tombstones: ClassVar[dict[str, str]] = {
        "name": "write experiment: NAME; it is the file's stem",
        "prompt": "write prompts: [prompts/NAME.md]",
        "model": "write models: [NAME]",
        "judge": "write judges: {pointwise: [NAME]}",
        "assert": "write checks",
        "budget_usd": "put it under stop",
        "max_iterations": "put it under stop",
        "providers": "write models: [NAME]; providers are in models.yaml",
        "tests": "write dataset: datasets/NAME.jsonl",
        "graders": "put it under judges",
        "pairwise": "put it under judges",
    }

    version: Version = 1
    experiment: Name = Field(description="Id; the file's stem.")
    title: str = Field("", max_length=200, description="Title in reports.")
    description: str = Field("", max_length=2_000, description="What it is about.")
    archived: bool = Field(False, description="Whether it is kept but no longer run.")
    objective: str = Field(
        min_length=20, max_length=2_000, description="What a good answer achieves."
    )
    prompts: Annotated[tuple[FilePath, ...], items(1, 10), UNIQUE] = Field(
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
    judges: Judges = Field(default_factory=Judges.model_construct, description="Models that judge.")
    safety: Safety = Field(
        default_factory=Safety.model_construct, description="Screens on every answer."
    )
    gates: Annotated[tuple[Gate, ...], items(0, 50)] = Field((), description="Rules that decide.")
    max_errors: Share = Field(0.2, description="Share of cells in error that still counts.")
    stop: Stop = Field(default_factory=Stop.model_construct, description="When it ends.")
    refine: Refine = Field(default_factory=Refine.model_construct, description="How it is refined.")
    schedule: Annotated[tuple[Schedule, ...], items(0, 20)] = Field(
        (), description="When it runs by itself."
    )
    alerts: Alerts = Field(
        default_factory=Alerts.model_construct, description="When somebody is told."
    )
    tags: Annotated[tuple[Name, ...], items(0, 50), UNIQUE] = Field((), description="Tags.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        report([*self._data_twice(), *self._repeated(), *self._weightless()])
        return self

    def _data_twice(self) -> Iterator[Exception]:
        if self.dataset is not None and self.datasets is not None:
            yield wrong(
                "exactly-one",
                "dataset and datasets are both given",
                "list every file under datasets",
                at=("dataset",),
            )

    def _repeated(self) -> Iterator[Exception]:
        hint = "give each a name of its own"
        for index, name in _again([entry.name for entry in self.schedule]):
            said = f"two schedules are named {name!r}"
            yield wrong("duplicate", said, hint, at=("schedule", index, "name"))
        for index, name in _again([check.name for check in self.checks]):
            said = f"two checks are named {name!r}"
            yield wrong(
                "duplicate", said, hint, at=("checks", index, self.checks[index].check, "name")
            )
        for index, name in _again([grader.known_as for grader in self.judges.graders]):
            said = f"two graders are named {name!r}"
            yield wrong("duplicate", said, hint, at=("judges", "graders", index))
        for index, gate in _again(list(self.gates)):
            said = f"this gate on {short(gate.metric)} is listed twice"
            yield wrong("duplicate", said, "remove one", at=("gates", index))

    def _weightless(self) -> Iterator[Exception]:
        """Refuse a grade in which no part counts: its composite would be 0/0."""
        graders = self.judges.graders
        if not (self.checks or self.rubric or graders):
            return
        default = 0 if self.rubric or graders else 1
        weights = [default if check.weight is None else check.weight for check in self.checks]
        weights += [grader.weight for grader in graders]
        weights += [self.rubric.weight] if self.rubric else []
        if not any(weights):
            yield wrong(
                "weights",
                "every part of the grade has weight 0, so there is no composite",
                "give the rubric, a grader or a check a weight above 0",
                at=("rubric",)
                if self.rubric
                else ("checks",)
                if self.checks
                else ("judges", "graders"),
            )

    @property
    def data(self) -> tuple[DatasetEntry, ...]:
        """The datasets, whichever way they are written; empty if there are none."""
        if self.dataset is not None:
            return (DatasetEntry(path=self.dataset),)
        return self.datasets or ()

    def named_checks(self) -> dict[str, Check]:
        """Return the checks by the name they have in reports: the written one, or NAME-2, ..."""
        written = {check.name for check in self.checks}
        named: dict[str, Check] = {}
        for check in self.checks:
            name, number = check.name or check.check, 2
            while name in named or (check.name is None and name in written):
                name, number = f"{check.check}-{number}", number + 1
            named[name] = check
        return named


def _again(values: list[Any]) -> Iterator[tuple[int, Any]]:
    """Yield each value that was there before, with its index; None is no value."""
    for index, value in enumerate(values):
        if value is not None and value in values[:index]:
            yield index, value
