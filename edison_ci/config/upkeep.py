"""Sections of an experiment beside its runs: schedules, answers of production, coverage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from edison_ci.config import cron as config_cron
from edison_ci.shape import (
    UNIQUE,
    FilePath,
    Name,
    Shape,
    TextPattern,
    VariableName,
    items,
    short,
    wrong,
)


def _cron(value: str) -> str:
    if (said := config_cron.wrong_cron(value)) is not None:
        raise wrong("cron", f"{short(value)} {said}", config_cron.HINT)
    return value


class Schedule(Shape):
    """A schedule of runs."""

    name: Name = Field(description="Name.")
    cron: Annotated[str, Field(max_length=200), AfterValidator(_cron)] = Field(
        description="Five fields, UTC: minute hour day month weekday.",
        json_schema_extra={"pattern": r"^\s*\S+(?:\s+\S+){4}\s*$", "examples": ["0 9 * * 1-5"]},
    )
    enabled: bool = Field(True, description="Whether the schedule is active.")
    budget_usd: Annotated[float, Field(ge=0.01, le=10_000)] | None = Field(
        None, description="Budget of each run it starts, in dollars; default: stop.budget_usd."
    )


def _files_of_production(value: str) -> str:
    folder, _, name = value.rpartition("/")
    if any(sign in folder for sign in "*?["):
        raise wrong("path", "only the name of a file may have wildcards", 'write "logs/*.jsonl"')
    if not name.endswith((".jsonl", ".json")):
        raise wrong("path", f"{short(value)} is not a .jsonl or .json file", "name such files")
    return value


class Production(Shape):
    """Answers of production, of which a sample is graded beside the dataset."""

    files: Annotated[FilePath, AfterValidator(_files_of_production)] = Field(
        description="Traces (OTLP JSON) or rows with input and text; wildcards in the name.",
        json_schema_extra={"examples": ["logs/*.jsonl"]},
    )
    sample: int = Field(50, ge=1, le=10_000, description="Answers that are graded at a time.")
    input: VariableName = Field(
        "message", description="Variable that gets the message of the user of a trace."
    )
    prompt: FilePath | None = Field(
        None, description="The prompt that production uses; default: the first."
    )


LanguageCode = Annotated[
    str,
    TextPattern("[a-z]{2,3}", "the code of a language", "write an ISO 639 code such as en or de"),
]


class CoverageTargets(Shape):
    """Values that the cases are to cover; a dimension that is left out has its usual values."""

    at_least: int = Field(3, ge=1, le=1_000, description="Cases that each value needs.")
    tags: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=100)], ...],
                    items(0, 200), UNIQUE] = Field((), description="Tags.")  # fmt: skip
    entities: Annotated[
        tuple[Literal["number", "date", "amount", "percent", "time", "email", "url"], ...],
        items(0, 7),
        UNIQUE,
    ] = Field((), description="Kinds of things that inputs mention.")
    lengths: Annotated[tuple[Literal["XS", "S", "M", "L", "XL"], ...], items(0, 5), UNIQUE] = Field(
        (), description="Lengths of the inputs."
    )
    ambiguity: Annotated[tuple[Literal["clear", "ambiguous"], ...], items(0, 2), UNIQUE] = Field(
        (), description="Whether inputs can be understood in two ways."
    )
    languages: Annotated[tuple[LanguageCode, ...], items(0, 50), UNIQUE] = Field(
        (), description="Languages of the inputs, by their ISO 639 codes."
    )
    difficulty: Annotated[tuple[Annotated[int, Field(ge=1, le=5)], ...], items(0, 5), UNIQUE] = (
        Field((), description="Difficulties.")
    )
