"""Every shape of the configuration, and the bounds its fields carry."""

from __future__ import annotations

import importlib
import math
import pkgutil
import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import annotated_types as at
from jsonschema import Draft7Validator
from pydantic import ConfigDict, TypeAdapter
from pydantic.fields import FieldInfo
from referencing import Registry
from referencing.jsonschema import DRAFT7

import edison_ci.checks
import edison_ci.config
from edison_ci.config.schema import schema_of
from edison_ci.resources import KINDS
from edison_ci.shape import Section, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

Step = Literal["item", "key", "value"]
Metadata = tuple[Any, ...]

KEYWORDS: dict[type, str] = {
    at.Ge: "ge",
    at.Gt: "gt",
    at.Le: "le",
    at.Lt: "lt",
    at.MinLen: "min_length",
    at.MaxLen: "max_length",
}


def all_shapes() -> list[type[Shape]]:
    """Return every shape that a file can contain: those no other shape of ours is made from."""
    for package in (edison_ci.config, edison_ci.checks):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found, stack = [], [Shape]
    while stack:
        kind = stack.pop()
        ours = [c for c in kind.__subclasses__() if c.__module__.startswith("edison_ci.")]
        stack.extend(ours)
        if not ours:
            found.append(kind)
    return sorted(set(found), key=lambda kind: kind.__name__)


@dataclass(frozen=True)
class Bound:
    """One end of one range of one field."""

    shape: type[Shape]
    field: str
    steps: tuple[Step, ...]
    """How to get from the field's value to the value that is bounded."""
    type: Any
    metadata: Metadata
    keyword: str
    limit: Any

    def __str__(self) -> str:
        path = "".join(f"[{step}]" for step in self.steps)
        return f"{self.shape.__name__}.{self.field}{path}-{self.keyword}-{self.limit}"

    @property
    def key(self) -> str:
        return self.shape.model_fields[self.field].alias or self.field


def bounds_of(shape: type[Shape], name: str) -> Iterator[Bound]:
    """Yield the bounds of a field, those inside its lists and maps too."""
    shape.model_rebuild()
    field = shape.model_fields[name]
    for steps, kind, metadata in _walk(field.annotation, tuple(field.metadata), ()):
        for item in metadata:
            if type(item) in KEYWORDS:
                keyword = KEYWORDS[type(item)]
                limit = getattr(item, keyword)
                yield Bound(shape, name, steps, kind, metadata, keyword, limit)


def limits_of(shape: type[Shape], name: str, *steps: Step) -> dict[str, Any]:
    """Return the bounds at one place of a field by keyword."""
    found = [bound for bound in bounds_of(shape, name) if bound.steps == steps]
    return {bound.keyword: bound.limit for bound in found}


def _flat(metadata: Metadata) -> Metadata:
    found: list[Any] = []
    for item in metadata:
        found.extend(_flat(tuple(item.metadata)) if isinstance(item, FieldInfo) else [item])
    return tuple(found)


def _walk(
    kind: Any, metadata: Metadata, steps: tuple[Step, ...]
) -> Iterator[tuple[tuple[Step, ...], Any, Metadata]]:
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        yield from _walk(inner, (*more, *metadata), steps)
        return
    metadata = _flat(metadata)
    if get_origin(kind) in (typing.Union, types.UnionType):
        for one in get_args(kind):
            if one is not type(None):
                yield from _walk(one, metadata, steps)
        return
    yield steps, kind, metadata
    arguments = get_args(kind)
    if get_origin(kind) in (tuple, list):
        yield from _walk(arguments[0], (), (*steps, "item"))
    elif get_origin(kind) is dict:
        yield from _walk(arguments[0], (), (*steps, "key"))
        yield from _walk(arguments[1], (), (*steps, "value"))


# --- values ---------------------------------------------------------------------------------------

_AROUND = (
    ("", ""),
    ("", "@b"),
    ("", ".csv"),
    ("", ".jsonl"),
    ("https://", ""),
    ("check.", ""),
    ("$.", ""),
    ("", ".py:f"),
    ("/", ""),
)
"""What may have to stand around a text of letters to make it one of the kinds of text we have."""


def texts(length: int, index: int = 0) -> Iterator[str]:
    """Yield texts of this length, one for each kind of text; another index, another text."""
    number = str(index) if index else ""
    for before, after in _AROUND:
        filling = length - len(before) - len(after)
        if filling > len(number) or filling == len(number) > 0:
            yield before + "a" * (filling - len(number)) + number + after
    if length > 9:
        yield "0 0 * * 1".ljust(length)
    if length == 1:
        yield "$"


MINIMAL: dict[str, dict[str, Any]] = {
    "Criterion": {"name": "Tone", "description": "Friendly and warm.", "weight": 0.5},
    "DatasetEntry": {"path": "datasets/a.csv"},
    "ExpectedCall": {"tool": "search"},
    "RatesAbove": {"tokens": 200_000, "in": 1.0, "out": 2.0},
    "Gate": {"metric": "composite", "at_least": 0.5},
    "Grader": {"prompt": "prompts/tone.md"},
    "Input": {"type": "string"},
    "ApprovalEntry": {
        "rubric": "tone",
        "judges": ["judge"],
        **dict.fromkeys(
            ("models_hash", "rubric_hash", "instructions_hash", "labels_hash"), "0" * 64
        ),
        "n": 60,
        "floor": 0.6,
        "min_n": 50,
        "date": "2026-11-15",
    },
    "Member": {"github": "ada", "role": "owner"},
    "ModelUse": {"use": "small"},
    "Notification": {"name": "ops", "on": ["alert"], "webhook_env": "HOOK"},
    "QuarantinedCase": {
        "experiment": "hello",
        "case": "ada",
        "reason": "flaky",
        "since": "2026-01-01",
        "until": "2026-02-01",
        "owner": "ada",
    },
    "Schedule": {"name": "daily", "cron": "0 9 * * *"},
    "SealedKey": {"name": "KEY", "since": "2026-01-01", "box": "A" * 116},
    "TrustedProgram": {"model": "m"},
    "TrustedService": {"host": "https://example.com"},
    "TrustedKey": {"env": "KEY", "hosts": ["https://example.com"]},
}
"""The least each shape that stands in a list needs."""


def sample(kind: Any, metadata: Metadata = (), index: int = 0) -> Any:
    """Return a valid value of a type; another index, another value where there are enough."""
    if isinstance(kind, type) and issubclass(kind, Shape):
        return MINIMAL[kind.__name__]
    (_, bare, flat), *inner = _walk(kind, metadata, ())
    for item in flat:
        if isinstance(item, Section):
            return MINIMAL[item.name]
    limits = {KEYWORDS[type(m)]: getattr(m, KEYWORDS[type(m)]) for m in flat if type(m) in KEYWORDS}
    if bare is int:
        return min(limits.get("ge", 0) + index, limits.get("le", index))
    if bare is float:
        return limits.get("ge", 0) + index / 100
    if isinstance(bare, type) and issubclass(bare, Shape):
        return MINIMAL[bare.__name__]
    if get_origin(bare) is Literal:
        return get_args(bare)[index % len(get_args(bare))]
    if bare is Any:  # a check
        return {"is_json": {}}
    if get_origin(bare) is dict:
        return {}
    assert bare is str, f"no sample of {kind}: {inner}"
    valid = adapter(kind, metadata)
    length = max(limits.get("min_length", 1), 12)
    key, language = f"{index!s:A>42}A=", f"{chr(97 + index // 26)}{chr(97 + index % 26)}"
    candidates = (*texts(length, index), key, language)
    return next(text for text in candidates if accepts(valid, text))


def adapter(kind: Any, metadata: Metadata = ()) -> TypeAdapter[Any]:
    """Return the validator of a type alone, as strict as a shape."""
    annotated: Any = Annotated[(kind, *metadata)] if metadata else kind
    return TypeAdapter(annotated, config=ConfigDict(strict=True, allow_inf_nan=False))


def accepts(valid: TypeAdapter[Any], value: Any) -> bool:
    try:
        valid.validate_python(value)
    except ValueError:
        return False
    return True


def beyond(limit: float, kind: Any, *, up: bool) -> float:
    """Return the next number above or below a limit."""
    if kind is int:
        return int(limit) + (1 if up else -1)
    return math.nextafter(float(limit), math.inf if up else -math.inf)


# --- schemas --------------------------------------------------------------------------------------


@cache
def schemas() -> dict[str, dict[str, Any]]:
    return {kind: schema_of(kind) for kind in KINDS}


@cache
def _registry() -> Registry[Any]:
    """Every schema, walked through once: a validator of its own would do it for each value."""
    named = ((f"urn:{kind}", DRAFT7.create_resource(each)) for kind, each in schemas().items())
    return Registry[Any]().with_resources(named).crawl()


def property_schema(shape: type[Shape], key: str) -> dict[str, Any] | None:
    """Return the schema of one key of a shape, a reference; None if no schema has it."""
    for kind, whole in schemas().items():
        if shape.__name__ == _ROOTS.get(kind):
            return {"$ref": f"urn:{kind}#/properties/{key}"}
        if shape.__name__ in whole.get("definitions", {}):
            return {"$ref": f"urn:{kind}#/definitions/{shape.__name__}/properties/{key}"}
    return None


def property_entry(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a schema says of the key that `property_schema` refers to."""
    found = _registry().resolver().lookup(schema["$ref"]).contents
    assert isinstance(found, dict)
    return found


def validator_for(schema: dict[str, Any]) -> Draft7Validator:
    """Return what checks values of the key that `property_schema` refers to."""
    return Draft7Validator(schema, registry=_registry())


_ROOTS = {
    "edison": "ProjectFile",
    "experiment": "ExperimentFile",
    "prompt": "PromptHeader",
    "rubric": "RubricFile",
    "quarantine": "QuarantineFile",
    "labels": "Label",
    "judge_approvals": "JudgeApprovalsFile",
    "about": "DatasetAbout",
    "trust": "TrustFile",
    "secrets": "SecretsFile",
}
