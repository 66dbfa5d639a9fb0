"""Is a JSON Schema that a user wrote a schema, and closed to the outside?"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.names import did_you_mean
from edison_ci.shape import short, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 10
_MAX_VALUES = 5_000
_REFERRING = ("$ref", "$dynamicRef", "$recursiveRef")
_TYPES = "types are array, boolean, integer, null, number, object and string"
_TOOL = frozenset({"name", "description", "parameters"})
TOOLS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "description": "Name of the tool."},
            "description": {"type": "string", "description": "What it does, for the model."},
            "parameters": {"type": "object", "description": "JSON Schema of its arguments."},
        },
        "additionalProperties": False,
    },
}
"""What a list of tools looks like, for editors; `tool_faults` is what decides."""


class SchemaFault(NamedTuple):
    """One thing wrong with a schema, and where inside it."""

    path: tuple[str | int, ...]
    code: str
    message: str
    hint: str

    def error(self) -> Exception:
        """Return it as the error of a validator."""
        return wrong(self.code, self.message, self.hint, at=self.path)

    def below(self, *steps: str | int) -> SchemaFault:
        """Return it as seen from further up."""
        return self._replace(path=(*steps, *self.path))


def schema_faults(schema: Any, what: str) -> Iterator[SchemaFault]:
    """Yield what is wrong with a JSON Schema; a reference may point inside it only."""
    if not isinstance(schema, dict | bool):
        yield SchemaFault((), "schema", f"{what} is not a JSON Schema", "a schema is a map")
        return
    if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
        yield SchemaFault(("$schema",), "schema", "$schema is not a text", "leave it out")
        return
    if sum(1 for _ in itertools.islice(_values(schema), _MAX_VALUES + 1)) > _MAX_VALUES:
        message = f"{what} has more than {_MAX_VALUES:,} values"
        yield SchemaFault((), "size", message, "use definitions and $ref")
        return
    try:
        yield from _wrong_keywords(schema, what)
    except RecursionError:
        hint = "use definitions and $ref"
        yield SchemaFault((), "schema", f"{what} is nested too deeply", hint)
    for path, reference in _references(schema):
        if not reference.startswith("#"):
            yield SchemaFault(
                path,
                "schema",
                f"{what} refers to {short(reference)}",
                "references stay inside the schema: #/definitions/NAME",
            )


def _wrong_keywords(schema: dict[str, Any] | bool, what: str) -> list[SchemaFault]:
    """Return where a schema breaks the rules of its draft, the first few places in order."""
    from jsonschema.validators import (  # 100 ms, and only for projects with schemas
        Draft202012Validator,
        validator_for,
    )

    kind = validator_for(schema, default=Draft202012Validator)
    found: dict[str, SchemaFault] = {}
    for error in kind(kind.META_SCHEMA).iter_errors(schema):
        path = tuple(error.absolute_path)
        at = "/".join(str(step) for step in path)
        said, hint = error.message[:200], f"look at {at}" if at else "see json-schema.org"
        if path[-1:] == ("type",) and path[-2:-1] != ("properties",):
            said, hint = f"{short(error.instance)} is not a type", _TYPES
        message = f"{what} is not a JSON Schema: {said}"
        found.setdefault(at, SchemaFault(path, "schema", message, hint))
    return [found[at] for at in sorted(found)[:_MOST]]


def tool_faults(tools: Any) -> Iterator[SchemaFault]:
    """Yield what is wrong with a list of tools."""
    hint = "write [{name: ..., description: ..., parameters: {...}}]"
    if not isinstance(tools, list) or not tools:
        yield SchemaFault((), "tools", "tools is not a list of tools", hint)
        return
    names: list[str] = []
    for index, tool in enumerate(tools):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            yield SchemaFault((index,), "tools", f"tool {index + 1} has no name", hint)
            continue
        if name in names:
            said = f"two tools are called {short(name)}"
            yield SchemaFault((index, "name"), "tools", said, "give each a name of its own")
        names.append(name)
        for fault in _one_tool(tool, name):
            yield fault.below(index)


def _one_tool(tool: dict[str, Any], name: str) -> Iterator[SchemaFault]:
    for key in sorted(tool.keys() - _TOOL):
        said = f"tool {short(name)} has an unknown key {short(key)}"
        yield SchemaFault((key,), "tools", said, did_you_mean(key, _TOOL))
    if not isinstance(tool.get("description", ""), str):
        said = f"the description of tool {short(name)} is not a text"
        yield SchemaFault(("description",), "tools", said, "quote it")
    for fault in schema_faults(tool.get("parameters", {}), f"parameters of tool {short(name)}"):
        yield fault.below("parameters")


def _values(value: Any) -> Iterator[Any]:
    stack = [value]
    while stack:
        item = stack.pop()
        yield item
        if isinstance(item, dict | list):
            stack.extend(item.values() if isinstance(item, dict) else item)


def _references(value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict):
            for keyword in _REFERRING:
                reference = item.get(keyword)
                if isinstance(reference, str):
                    yield (*path, keyword), reference
            stack.extend(((*path, key), inner) for key, inner in item.items())
        elif isinstance(item, list):
            stack.extend(((*path, index), inner) for index, inner in enumerate(item))
