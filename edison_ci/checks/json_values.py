"""JSON values: equality, paths and schemas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.checks.evaluation import EvaluationError, brief
from edison_ci.checks.json_schema import validator
from edison_ci.checks.patterns import LINEAR, analysed
from edison_ci.checks.worker import bounded
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.records import Json

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(-?[0-9]+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_SHORT = 100_000
_FEW_APPLICATIONS = 2_000_000
_LONG_VALIDATION_S = 5.0
_ENDLESS = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"}
)
_REMEMBERED = 64


def same(one: Json, other: Json) -> bool:
    """Whether two JSON values are equal: 1 is 1.0 and not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


def reads_as(found: Json, text: str) -> bool:
    """Whether a value is what a text says: texts compare as they are, the rest as JSON."""
    if isinstance(found, str):
        return found == text
    try:
        return same(found, parse_json(text.strip()))
    except Fault:
        return False


# --- paths ----------------------------------------------------------------------------------------


class NothingThereError(LookupError):
    """A value has nothing at a path; says what is missing."""


def steps_of(path: str) -> tuple[str | int, ...]:
    """Return the keys and indexes of a path such as $.items[0].id."""
    return tuple(
        int(found[2]) if found[2] else str(found[1] or found[3] or found[4] or "")
        for found in _STEP.finditer(path)
    )


def value_at(value: Json, steps: tuple[str | int, ...]) -> Json:
    """Return what lies at a path, or raise NothingThereError."""
    at = "$"
    for step in steps:
        if isinstance(step, str):
            if not isinstance(value, dict):
                raise NothingThereError(f"{at} is not an object, so it has no {step!r}")
            if step not in value:
                raise NothingThereError(f"{at} has no {step!r}")
            value, at = value[step], f"{at}.{step}"
            continue
        if not isinstance(value, list):
            raise NothingThereError(f"{at} is not a list, so it has no [{step}]")
        if not -len(value) <= step < len(value):
            raise NothingThereError(f"{at} has {len(value)} items, so it has no [{step}]")
        value, at = value[step], f"{at}[{step}]"
    return value


# --- schemas --------------------------------------------------------------------------------------


class _Known(NamedTuple):
    """A schema and what is known about it."""

    schema: Json
    """Kept, because the key of the table is its address in memory."""
    validator: Any
    effort: int
    """How much it does at most for each character of a value, if it is tame."""
    is_tame: bool
    """Whether every part of it looks at every part of a value at most once."""


_known: dict[int, _Known] = {}


def _prepared(schema: Any) -> _Known:
    known = _known.get(id(schema))
    if known is None:
        if len(_known) >= _REMEMBERED:
            _known.clear()
        known = _Known(schema, validator(schema), _effort(schema), is_tame(schema))
        _known[id(schema)] = known
    return known


def _values(schema: Json) -> Iterator[Json]:
    stack = [schema]
    while stack:
        item = stack.pop()
        yield item
        if isinstance(item, dict | list):
            stack.extend(item.values() if isinstance(item, dict) else item)


def _patterns(part: dict[str, Json]) -> Iterator[Json]:
    if "pattern" in part:
        yield part["pattern"]
    named = part.get("patternProperties")
    yield from named if isinstance(named, dict) else ()


def _effort(schema: Json) -> int:
    """Return the values of a schema, each of an enum too, and the steps of its patterns."""
    total = 0
    for item in _values(schema):
        total += 1
        if isinstance(item, dict):
            total += sum(_steps(pattern) for pattern in _patterns(item))
    return total


def is_tame(schema: Json) -> bool:
    """Whether a schema cannot take long: no references, no comparing all with all, easy patterns.

    Keywords are looked for everywhere, also where they are names of properties; that only errs on
    the safe side.
    """
    for part in _values(schema):
        if not isinstance(part, dict):
            continue
        if not _ENDLESS.isdisjoint(part) or part.get("uniqueItems"):
            return False
        if any(_steps(pattern) > LINEAR for pattern in _patterns(part)):
            return False
    return True


def _steps(pattern: Json) -> int:
    """Return how many steps a pattern takes for each character; none if it is no pattern."""
    if not isinstance(pattern, str):
        return 0
    try:
        return analysed(pattern).steps
    except (re.error, RecursionError, OverflowError):
        return 2 * LINEAR


def schema_breach(schema: Json, value: Json, length: int) -> str:
    """Return where a value first breaks a schema and how, or ''; `length` is that of its text."""
    known = _prepared(schema)
    if known.is_tame and length <= _SHORT and length * known.effort <= _FEW_APPLICATIONS:
        error = next(known.validator.iter_errors(value), None)
        return "" if error is None else _said(error.json_path, error.message)
    reply = bounded("schema", schema, value, what="the JSON Schema", limit_s=_LONG_VALIDATION_S)
    if reply is None:
        return ""
    if not isinstance(reply, list):  # pragma: no cover - the worker is ours
        raise EvaluationError("the JSON Schema gave no answer")
    return _said(str(reply[0]), str(reply[1]))


def _said(path: str, message: str) -> str:
    return brief(f"{path[:100]}: {message[:150]}")
