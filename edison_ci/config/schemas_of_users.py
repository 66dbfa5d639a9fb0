"""Is a JSON Schema that a user wrote a schema, and closed to the outside?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.documents.marks import Fault, Json

if TYPE_CHECKING:
    from collections.abc import Iterator


def schema_faults(schema: Any, what: str) -> Iterator[Fault]:
    """Yield what is wrong with a JSON Schema; a reference may point inside it only."""
    if not isinstance(schema, dict | bool):
        yield Fault("schema", f"{what} is not a JSON Schema", "a schema is an object")
        return
    from jsonschema.exceptions import SchemaError  # 100 ms, and only for projects with schemas
    from jsonschema.validators import Draft202012Validator, validator_for

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema if isinstance(schema, dict) else {})
    except SchemaError as error:
        at = "/".join(str(step) for step in error.absolute_path)
        yield Fault(
            "schema",
            f"{what} is not a JSON Schema: {error.message[:200]}",
            f"at {at}" if at else "",
        )
    except RecursionError:
        yield Fault("schema", f"{what} is nested too deeply")
    for reference in _references(schema):
        if not reference.startswith("#"):
            yield Fault(
                "schema",
                f"{what} refers to {reference[:100]!r}",
                "references stay inside the schema: #/...",
            )


def tool_faults(tools: Json) -> Iterator[Fault]:
    """Yield what is wrong with a list of tools."""
    if not isinstance(tools, list) or not tools:
        yield Fault("tools", "tools is not a list", "write [{name, description, parameters}]")
        return
    for index, tool in enumerate(tools):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            yield Fault(
                "tools", f"tool {index + 1} has no name", "write {name, description, parameters}"
            )
            continue
        unknown = sorted(tool.keys() - {"name", "description", "parameters"})
        if unknown:
            yield Fault("tools", f"tool {tool['name']!r} has unknown keys: {', '.join(unknown)}")
        yield from schema_faults(tool.get("parameters", {}), f"tool {tool['name']!r}")


def _references(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            reference = item.get("$ref")
            if isinstance(reference, str):
                yield reference
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
