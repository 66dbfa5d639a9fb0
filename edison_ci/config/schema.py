"""JSON Schemas of every kind of file.

The schemas are generated from the models that read the files, in draft-07 because most editors
support it, and written to `schemas/` with `python -m edison_ci.config.schema FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from edison_ci.checks.options import REGISTRY, check_class
from edison_ci.config.calibration import JudgeApprovalsFile, Label
from edison_ci.config.dataset_about import DatasetAbout
from edison_ci.config.experiment import ExperimentFile
from edison_ci.config.model_entry import (
    KEYLESS,
    LITELLM_VENDORS,
    LOCAL_MODEL,
    NAMELESS,
    NEEDS_ADDRESS,
    PROVIDERS,
    SIM_MODELS,
    TAKES_ADDRESS,
    ModelEntry,
)
from edison_ci.config.project import ProjectFile
from edison_ci.config.prompt import PromptHeader
from edison_ci.config.provider_options import OPTIONS
from edison_ci.config.quarantine import QuarantineFile
from edison_ci.config.rubric import RubricFile
from edison_ci.config.sealed import SecretsFile
from edison_ci.config.trust import TrustFile
from edison_ci.documents.files import make_folder
from edison_ci.resources import KINDS, MESSAGES, resource_folder
from edison_ci.shape import NAME_PATTERN, Section, Shape, if_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# An entry may inherit missing keys from the model in `use`, so a schema can require a key only in
# entries without `use`; the reader of the registry decides.
_KNOWN_WEIGHTS = {"properties": {"model": {"const": LOCAL_MODEL}}}
_VENDORS = f"^(?:{'|'.join(LITELLM_VENDORS)})/"


def _options(*names: str) -> dict[str, Any]:
    """Return the rule that these options are given."""
    # Strict readers want the type beside a rule that holds for one type only.
    return {
        "required": ["options"],
        "properties": {"options": {"type": "object", "required": list(names)}},
    }


def conditions(needed: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Return the conditions for entries of models.yaml; `needed` are options by provider."""
    rules: list[dict[str, Any]] = [
        {"anyOf": [{"required": ["use"]}, {"required": ["provider"]}]},
        {"not": {"required": ["base_url", "base_url_env"]}},
        _alone({"not": {"enum": sorted(NAMELESS)}}, {"required": ["model"]}),
        _alone({"enum": sorted(NEEDS_ADDRESS)}, _ADDRESS),
        _of(_built_in_except(TAKES_ADDRESS), {"not": _ADDRESS}),
        _alone({"const": "replay"}, {"required": ["store"]}),
        _of({"not": {"const": "replay"}}, {"not": {"required": ["store"]}}),
        _of({"enum": sorted(KEYLESS)}, {"not": {"required": ["key_env"]}}),
        _of({"const": "sim"}, {"properties": {"model": {"enum": list(SIM_MODELS)}}}),
        _of(
            {"const": "litellm"}, {"properties": {"model": {"type": "string", "pattern": _VENDORS}}}
        ),
        _alone({"const": "local"}, {"anyOf": [_KNOWN_WEIGHTS, _options("file_env")]}),
    ]
    for provider, names in needed.items():
        options = {"$ref": f"#/definitions/{OPTIONS[provider].__name__}"}
        rules.append(_of({"const": provider}, {"properties": {"options": options}}))
        if names:
            rules.append(_alone({"const": provider}, _options(*names)))
    closed = _built_in_except(needed)
    rules.append(_of(closed, {"properties": {"options": {"type": "object", "maxProperties": 0}}}))
    return rules


def _built_in_except(names: Collection[str]) -> dict[str, Any]:
    """Return the other built-in providers; a plugin defines its own rules."""
    return {"enum": [name for name in PROVIDERS.built_in if name not in names]}


_ADDRESS = {"anyOf": [{"required": ["base_url"]}, {"required": ["base_url_env"]}]}


def _of(provider: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Return a rule for entries with one of these providers."""
    return if_key("provider", provider, then)


def _alone(provider: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Return a rule for entries with one of these providers and without `use`."""
    rule = if_key("provider", provider, then)
    rule["if"]["not"] = {"required": ["use"]}
    return rule


_SHAPES: dict[str, type[Shape]] = {
    "edison": ProjectFile,
    "experiment": ExperimentFile,
    "prompt": PromptHeader,
    "rubric": RubricFile,
    "about": DatasetAbout,
    "quarantine": QuarantineFile,
    "labels": Label,
    "judge_approvals": JudgeApprovalsFile,
    "trust": TrustFile,
    "secrets": SecretsFile,
}

_WRITTEN = ("dataset", "notification")
"""Kinds without a model: their schemas are written by hand."""
_DESCRIPTIONS = {
    "models": "models.yaml: the model registry, by name.",
    "prompt": "Front matter of prompts/NAME.md.",
}


def file_name(kind: str) -> str:
    """Return the file name of a schema."""
    return f"{kind}.schema.json"


def schema_of(kind: str) -> dict[str, Any]:
    """Return the draft-07 schema of one kind of file."""
    if kind in _WRITTEN:
        path = resource_folder("schemas") / file_name(kind)
        return dict(json.loads(path.read_text(encoding="utf-8")))
    schema = _models() if kind == "models" else _shape(_SHAPES[kind])
    head = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": file_name(kind),
        "title": f"edison {kind}",
        "description": _DESCRIPTIONS.get(kind, schema.get("description", "")),
    }
    return {**head, **{k: v for k, v in schema.items() if k not in head}}


def text_of(kind: str) -> str:
    """Return the text of a schema file."""
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"


class _Draft7(GenerateJsonSchema):
    """Generates schemas without pydantic's additions."""

    def default_schema(self, schema: Any) -> Any:
        """Leave out defaults that are not JSON, such as compiled templates."""
        generated = super().default_schema(schema)
        if "default" in generated and not _plain(generated["default"]):
            generated.pop("default")
        return generated

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Suppress the warning about defaults that are not JSON."""


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | list | dict)


def _shape(shape: type[Shape]) -> dict[str, Any]:
    """Return the schema of a shape with everything it refers to."""
    definitions: dict[str, Any] = {}
    schema = bare(shape, definitions)
    if _mentions_checks([schema, definitions]):
        definitions["Check"] = _check(definitions)
    if definitions:
        schema["definitions"] = dict(sorted(definitions.items()))
    return schema


def bare(shape: type[Shape], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a shape; nested shapes go to the definitions."""
    raw = TypeAdapter(shape).json_schema(
        by_alias=True, ref_template="#/definitions/{model}", schema_generator=_Draft7
    )
    for place in dict.fromkeys(_sections_in(raw)):
        section = Section(*place.split(":"))
        definitions.setdefault(section.name, bare(section.shape, definitions))
    for name, inner in raw.pop("$defs", {}).items():
        definitions.setdefault(name, _tidy(inner))
    return dict(_tidy(raw))


def _sections_in(value: Any) -> Iterator[str]:
    """Yield the sections in a schema, whose models are loaded when a file has them."""
    if isinstance(value, dict):
        if "x-section" in value:
            yield value["x-section"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _sections_in(item)


def _mentions_checks(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if item.get("$ref") == _CHECK["$ref"]:
                return True
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


_CHECK = {"$ref": "#/definitions/Check"}


def _check(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a check in one-key syntax; its options go to the definitions."""
    properties: dict[str, Any] = {}
    for name in dict.fromkeys([*REGISTRY.built_in, *REGISTRY.names()]):
        kind = check_class(name)
        assert kind is not None, "it is in the list"
        # A class of a plugin may have the name of a built-in class.
        title = kind.__name__ if name in REGISTRY.built_in else name
        options = definitions[title] = bare(kind, definitions)
        forms: list[dict[str, Any]] = [{"$ref": f"#/definitions/{title}"}]
        if name == "not":
            forms.insert(0, _CHECK)  # a map holds the options of the check, unless it has a `value`
        elif kind.main is not None:
            forms += _bare_argument(kind, options)
        if _may_be_empty(kind):
            forms.append({"type": "null"})
        properties[name] = {"description": kind.__doc__, "anyOf": forms}
    return {
        "description": "A check: a map with exactly one key, its name.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _bare_argument(kind: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of the main option in short form, which is never a map."""
    main = {
        key: value
        for key, value in options["properties"][kind.main].items()
        if key not in ("description", "default")
    }
    return [form for form in main.get("anyOf", [main]) if form.get("type") != "object"]


def _may_be_empty(kind: Any) -> bool:
    try:
        kind.model_validate({})
    except ValidationError:
        return False
    return True


def _models() -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    entry = bare(ModelEntry, definitions)
    needed: dict[str, list[str]] = {}
    for provider, shape in OPTIONS.items():
        options = definitions[shape.__name__] = bare(shape, definitions)
        needed[provider] = options.pop("required", [])  # the model in `use` may have them
    entry["allOf"] = conditions(needed)
    return {
        "type": "object",
        "properties": {"version": {"const": 1, "description": "Version of the file format."}},
        "patternProperties": {
            NAME_PATTERN.replace("^", "^(?!version$)"): {"$ref": "#/definitions/ModelEntry"}
        },
        "propertyNames": {"maxLength": 100},
        "additionalProperties": False,
        "definitions": {**definitions, "ModelEntry": entry},
    }


def _tidy(value: Any) -> Any:
    """Drop generated titles, and `null` for optional keys."""
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("x-shape") == "Check":  # pydantic does not know the checks
        return {**_CHECK, **{k: v for k, v in value.items() if k == "description"}}
    tidy = {k: _tidy(v) for k, v in value.items() if k != "title" or not isinstance(v, str)}
    if place := tidy.pop("x-section", ""):
        tidy = {"$ref": f"#/definitions/{place.rpartition(':')[2]}", **tidy}
    if "patternProperties" in tidy:  # a map with key patterns has no other keys
        tidy.setdefault("additionalProperties", False)
    forms = tidy.get("anyOf")
    if isinstance(forms, list) and {"type": "null"} in forms:
        rest = [form for form in forms if form != {"type": "null"}]
        tidy = {**rest[0], **tidy} if len(rest) == 1 else tidy
        tidy["anyOf"] = rest
        if len(rest) == 1:
            tidy.pop("anyOf")
        if tidy.get("default", ...) is None:
            tidy.pop("default")
    return tidy


def write_schemas(folder: Path) -> None:
    """Write every schema to a folder."""
    make_folder(folder)
    for kind in (*KINDS, *MESSAGES):
        (folder / file_name(kind)).write_text(text_of(kind), encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
