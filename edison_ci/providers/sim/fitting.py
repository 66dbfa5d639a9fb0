"""How is a draft made to fit the JSON Schema that was asked for?

Types, enumerations, required keys, and the least and most of numbers, texts and lists are kept;
whatever else a schema says is left to whoever validates the reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

_FILLER = "This was made up by the simulator and says nothing about the world. "
_DEEPEST = 12


def schema_of(wanted: Any) -> dict[str, Any]:
    """Return the schema of a response format; empty if it has none."""
    if not isinstance(wanted, dict):
        return {}
    inner = wanted.get("json_schema")
    if wanted.get("type") == "json_schema" and isinstance(inner, dict):
        inner = inner.get("schema")
        return inner if isinstance(inner, dict) else {}
    return {} if wanted.get("type") in ("json_object", "text") else wanted


def fitted(value: Any, schema: Any, rng: Random, depth: int = 0) -> Any:
    """Return a value of the schema's form, as near to the given one as it goes."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return value
    if "const" in schema:
        return schema["const"]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return value if value in choices else rng.choice(choices)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return fitted(value, schema[key][0], rng, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(value, schema, rng, depth)
    if kind == "array":
        return _array(value, schema, rng, depth)
    return _plain(value, schema, kind)


def _plain(value: Any, schema: dict[str, Any], kind: Any) -> Any:
    if kind == "string":
        return _text(value, schema)
    if kind in ("number", "integer"):
        return _number(value, schema, whole=kind == "integer")
    if kind == "boolean":
        return bool(value)
    return None if kind == "null" else value


def _object(value: Any, schema: dict[str, Any], rng: Random, depth: int) -> dict[str, Any]:
    given = value if isinstance(value, dict) else {}
    known = schema.get("properties")
    known = known if isinstance(known, dict) else {}
    required = [name for name in schema.get("required", ()) if isinstance(name, str)]
    names = dict.fromkeys([*(name for name in given if name in known), *required])
    found = {name: fitted(given.get(name), known.get(name, {}), rng, depth + 1) for name in names}
    if schema.get("additionalProperties", True) is not False:
        found |= {name: each for name, each in given.items() if name not in found}
    return found


def _array(value: Any, schema: dict[str, Any], rng: Random, depth: int) -> list[Any]:
    given = value if isinstance(value, list) else [] if value is None else [value]
    least, most = schema.get("minItems"), schema.get("maxItems")
    if isinstance(most, int):
        given = given[:most]
    while isinstance(least, int) and len(given) < min(least, 1_000):
        given = [*given, given[-1] if given else None]
    return [fitted(item, schema.get("items", {}), rng, depth + 1) for item in given]


def _text(value: Any, schema: dict[str, Any]) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)
    text = text or _FILLER.strip()
    least, most = schema.get("minLength"), schema.get("maxLength")
    while isinstance(least, int) and len(text) < min(least, 10_000):
        text = f"{text} {_FILLER}"
    return text[:most].rstrip() if isinstance(most, int) and len(text) > most else text


def _number(value: Any, schema: dict[str, Any], *, whole: bool) -> float:
    low, high = schema.get("minimum"), schema.get("maximum")
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else low or 0
    if isinstance(low, int | float):
        number = max(number, low)
    if isinstance(high, int | float):
        number = min(number, high)
    return round(number) if whole else number
