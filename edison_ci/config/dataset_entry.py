"""What an experiment may say about its data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from edison_ci.names import did_you_mean
from edison_ci.records import CaseKind
from edison_ci.shape import (
    PATH_PATTERN,
    FilePath,
    Shape,
    Shorthand,
    VariableName,
    items,
    report,
    short,
    wrong,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIFFICULTY = re.compile(r"\s*(>=|<=|>|<|=|==)?\s*([1-5])\Z")
_WHERE = ("tags", "kind", "difficulty", "id", "metadata.KEY")


class DataLimits(Shape):
    """How much data is too much."""

    max_rows: int = Field(1_000, ge=1, le=100_000_000, description="Most rows.")
    max_bytes: int = Field(10_000_000, ge=1, le=1_000_000_000_000, description="Most bytes.")


def _scalars(key: str, value: Any) -> tuple[Any, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(v, str | int | float | bool) for v in values):
        hint = f"write {key}: VALUE or {key}: [VALUE, VALUE]"
        raise wrong("where", f"{key} takes a value or a list of values", hint, at=(key,))
    return tuple(values)


def _texts(key: str, value: Any) -> tuple[str, ...]:
    values = _scalars(key, value)
    if not all(isinstance(v, str) for v in values):
        raise wrong("where", f"{key} takes a text or a list of texts", "quote numbers", at=(key,))
    return values


def _difficulty(value: Any) -> tuple[str, int]:
    found = _DIFFICULTY.match(str(value)) if isinstance(value, int | str) else None
    if found is None or isinstance(value, bool):
        raise wrong(
            "where",
            f"difficulty is {short(value)}, not a level from 1 to 5",
            'write 3 or ">=3"',
            at=("difficulty",),
        )
    return (found.group(1) or "=").replace("==", "="), int(found.group(2))


def parse_where(value: Any) -> dict[str, tuple[Any, ...]]:
    """Return the conditions of a `where`, each as a tuple of allowed values."""
    if not isinstance(value, dict):
        raise wrong("type", "where is a map", "write where: {tags: [billing]}")
    conditions: dict[str, tuple[Any, ...]] = {}
    for key, given in value.items():
        if key in ("tags", "id"):
            conditions[key] = _texts(key, given)
        elif key == "kind":
            conditions[key] = _texts(key, given)
            for kind in conditions[key]:
                if kind not in list(CaseKind):
                    raise wrong(
                        "where",
                        f"unknown kind {short(kind)}",
                        did_you_mean(kind, list(CaseKind)),
                        at=(key,),
                    )
        elif key == "difficulty":
            conditions[key] = _difficulty(given)
        elif key.startswith("metadata.") and key != "metadata.":
            conditions[key] = _scalars(key, given)
        else:
            hint = did_you_mean(key, _WHERE)
            raise wrong("unknown-key", f"unknown key {short(key)}", hint, at=(key,))
    return conditions


def _one_or_more(item: dict[str, Any], description: str) -> dict[str, Any]:
    many = {"type": "array", "items": item, "minItems": 1}
    return {"anyOf": [item, many], "description": description}


Where = Annotated[
    dict[str, tuple[Any, ...]],
    BeforeValidator(parse_where),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "tags": _one_or_more({"type": "string"}, "Any of these tags."),
                "kind": _one_or_more({"enum": [*CaseKind]}, "Any of these kinds."),
                "difficulty": {
                    "anyOf": [
                        {"type": "integer", "minimum": 1, "maximum": 5},
                        {"type": "string", "pattern": f"^{_DIFFICULTY.pattern[:-2]}$"},
                    ],
                    "description": "1 to 5, or a comparison.",
                    "examples": [3, ">=3"],
                },
                "id": _one_or_more({"type": "string"}, "Any of these cases."),
            },
            "patternProperties": {
                "^metadata\\..+": _one_or_more(
                    {"type": ["string", "number", "boolean"]}, "Any of these values."
                )
            },
            "additionalProperties": False,
        }
    ),
]


def _data_file(value: str) -> str:
    if not value.endswith((".jsonl", ".csv", ".yaml", ".yml")):
        raise wrong(
            "dataset", f"{short(value)} is not a dataset", "datasets end in .jsonl, .csv or .yaml"
        )
    return value


DataPath = Annotated[
    FilePath,
    AfterValidator(_data_file),
    Field(json_schema_extra={"pattern": PATH_PATTERN.replace("+$", r"*\.(?:jsonl|csv|ya?ml)$")}),
]


class DatasetEntry(Shape):
    """One file of cases and which of them count."""

    path: DataPath = Field(description="A .jsonl, .csv or .yaml file.")
    kind: Literal["golden", "synthetic", "adversarial"] = Field(
        "golden", description="Where the cases come from."
    )
    map: dict[str, VariableName] = Field(
        default_factory=dict, description="Columns to the names the prompt uses."
    )
    where: Where = Field(default_factory=dict, description="Which cases count.")
    take: Annotated[int, Field(ge=1, le=100_000_000)] | None = Field(
        None, description="A stable sample of this many cases."
    )
    limits: DataLimits = Field(
        default_factory=DataLimits.model_construct, description="How much is too much."
    )

    @model_validator(mode="after")
    def _one_column_each(self) -> Self:
        report(self._shared_names())
        return self

    def _shared_names(self) -> Iterator[Exception]:
        columns: dict[str, str] = {}
        for column, name in self.map.items():
            first = columns.setdefault(name, column)
            if first != column:
                yield wrong(
                    "map",
                    f"{short(first)} and {short(column)} both become {name!r}",
                    "give each column a name of its own",
                    at=("map", column),
                )


class Split(Shape):
    """Which cases the refiner never sees."""

    holdout: float = Field(0.4, ge=0, lt=1, description="Share of cases held out.")
    seed: int = Field(0, ge=0, le=2**53, description="Changes which cases those are.")


DatasetEntries = Annotated[
    tuple[Annotated[DatasetEntry, Shorthand("path")], ...],
    items(1, 20),
]
