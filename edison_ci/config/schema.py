"""Which JSON Schema describes each kind of file?

The schemas are generated from the models that read the files, in draft-07 because that is what
editors speak, and written to `schemas/` with `python -m edison_ci.config.schema FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from edison_ci.checks.registry import REGISTRY
from edison_ci.config.experiment import ExperimentFile
from edison_ci.config.model_entry import ModelEntry
from edison_ci.config.project import ProjectFile
from edison_ci.config.prompt_header import PromptHeader
from edison_ci.config.quarantine import QuarantineFile
from edison_ci.config.rubric import RubricFile
from edison_ci.config.trust import TrustFile
from edison_ci.shape import NAME_PATTERN, Shape

_SHAPES: dict[str, type[Shape]] = {
    "edison": ProjectFile,
    "experiment": ExperimentFile,
    "prompt": PromptHeader,
    "rubric": RubricFile,
    "quarantine": QuarantineFile,
    "trust": TrustFile,
}
KINDS = ("edison", "models", "experiment", "prompt", "rubric", "dataset", "quarantine", "trust")
"""The kinds of file a project has."""

_DESCRIPTIONS = {
    "models": "models.yaml: the model registry, name by name.",
    "dataset": "datasets/NAME.yaml: a list of cases. A line of a .jsonl file is one of them.",
    "prompt": "Front matter of prompts/NAME.md.",
}


def file_name(kind: str) -> str:
    """Return the name of a schema's file."""
    return f"{kind}.schema.json"


def schema_of(kind: str) -> dict[str, Any]:
    """Return the draft-07 schema of one kind of file."""
    if kind == "models":
        schema = _models()
    elif kind == "dataset":
        schema = _dataset()
    else:
        schema = _shape(_SHAPES[kind])
    head = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": file_name(kind),
        "title": f"edison {kind}",
        "description": _DESCRIPTIONS.get(kind, schema.get("description", "")),
    }
    return {**head, **{k: v for k, v in schema.items() if k not in head}}


def text_of(kind: str) -> str:
    """Return the text of a schema's file."""
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"


class _Draft7(GenerateJsonSchema):
    """Leaves out what pydantic adds for itself."""

    def default_schema(self, schema: Any) -> Any:
        """Leave out defaults that are objects of ours, such as compiled templates."""
        found = super().default_schema(schema)
        if "default" in found and not _plain(found["default"]):
            found.pop("default")
        return found

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Say nothing: a default that is not JSON is left out on purpose."""


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | list | dict)


def _shape(shape: type[Shape]) -> dict[str, Any]:
    """Return the schema of a shape with everything it refers to."""
    definitions: dict[str, Any] = {}
    schema = _bare(shape, definitions)
    while missing := _references([schema, definitions]) - definitions.keys():
        for name in sorted(missing):
            definitions[name] = (
                _check(definitions) if name == "Check" else _bare(_named(name), definitions)
            )
    if definitions:
        schema["definitions"] = dict(sorted(definitions.items()))
    return schema


def _bare(shape: type[Shape], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a shape; the shapes it contains go to the definitions."""
    raw = TypeAdapter(shape).json_schema(
        by_alias=True, ref_template="#/definitions/{model}", schema_generator=_Draft7
    )
    for name, inner in raw.pop("$defs", {}).items():
        definitions.setdefault(name, _tidy(inner))
    return dict(_tidy(raw))


def _references(value: Any) -> set[str]:
    found: set[str] = set()
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if isinstance(item.get("$ref"), str):
                found.add(item["$ref"].rpartition("/")[2])
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return found


def _named(name: str) -> type[Shape]:
    return next(kind for kind in _subclasses(Shape) if kind.__name__ == name)


def _subclasses(kind: type[Shape]) -> list[type[Shape]]:
    found = []
    for child in kind.__subclasses__():
        found += [child, *_subclasses(child)]
    return found


def _check(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a check in one-key syntax."""
    properties: dict[str, Any] = {}
    for name in REGISTRY.built_in:
        kind = REGISTRY.load(name)
        options = _bare(kind, definitions)
        forms: list[dict[str, Any]] = [options]
        required = options.get("required", [])
        if kind.main is not None:
            forms.append(_main(kind, options))
        if name == "not":
            forms = [{"$ref": "#/definitions/Check"}, options]
        if not required:
            forms.append({"type": "null"})
        properties[name] = {"description": kind.__doc__, "anyOf": forms}
    return {
        "description": "A check: a map with exactly one name.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _main(kind: Any, options: dict[str, Any]) -> dict[str, Any]:
    main = dict(options["properties"][kind.main])
    if kind.check == "json_schema":
        return {"type": "string"}  # an inline schema goes under `value`
    return {k: v for k, v in main.items() if k not in ("description", "title", "default")}


def _tidy(value: Any) -> Any:
    """Drop the titles pydantic invents, and `null` where leaving out is the way."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "x-shape" in value:  # how hand-written parts name a shape that pydantic does not see
        return {"$ref": f"#/definitions/{value['x-shape']}"}
    tidy = {k: _tidy(v) for k, v in value.items() if k != "title" or not isinstance(v, str)}
    forms = tidy.get("anyOf")
    if isinstance(forms, list) and {"type": "null"} in forms:
        rest = [form for form in forms if form != {"type": "null"}]
        if len(rest) == 1:
            tidy.pop("anyOf")
            described = {k: v for k, v in tidy.items() if k in ("description",)}
            tidy = {**rest[0], **tidy, **described}
        else:
            tidy["anyOf"] = rest
        if tidy.get("default", ...) is None:
            tidy.pop("default")
    return tidy


def _models() -> dict[str, Any]:
    entry = _shape(ModelEntry)
    definitions = entry.pop("definitions", {})
    return {
        "type": "object",
        "properties": {"version": {"const": 1, "description": "Version of the file format."}},
        "patternProperties": {
            NAME_PATTERN.replace("^", "^(?!version$)"): {"$ref": "#/definitions/ModelEntry"}
        },
        "additionalProperties": False,
        "definitions": {**definitions, "ModelEntry": entry},
    }


def _dataset() -> dict[str, Any]:
    parts = {
        "id": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "Name of the case.",
        },
        "expected": {"description": "What a right answer is."},
        "tags": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "description": "Tags.",
        },
        "difficulty": {
            "type": "integer",
            "minimum": 1,
            "maximum": 5,
            "description": "1 easy, 5 hard.",
        },
        "cluster": {
            "type": "string",
            "minLength": 1,
            "description": "Cases of one cluster are not independent.",
        },
        "metadata": {"type": "object", "description": "Anything else."},
    }
    nested = {
        "type": "object",
        "properties": {"input": {"type": "object", "description": "Variables."}, **parts},
        "required": ["input"],
        "additionalProperties": False,
    }
    flat = {"type": "object", "properties": {"input": {"not": {"type": "object"}}, **parts}}
    return {
        "type": "array",
        "items": {"$ref": "#/definitions/Case"},
        "definitions": {"Case": {"description": "One case.", "anyOf": [nested, flat]}},
    }


def write_schemas(folder: Path) -> None:
    """Write every schema to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        (folder / file_name(kind)).write_text(text_of(kind), encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
