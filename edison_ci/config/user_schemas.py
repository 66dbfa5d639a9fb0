"""Checks of the JSON Schemas and tools that users write, when files are loaded.

A valid schema is of a published draft, refers only to itself, has references that resolve and end,
and patterns that compile. The cost of applying it is bounded elsewhere (`checks/json_values`).
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.checks.json_schema import (
    DRAFT,
    draft_errors,
    is_known_draft,
    keywords,
    message_of,
    resolver,
)
from edison_ci.checks.patterns import MAX_PATTERN, analyse_pattern
from edison_ci.shape import short, wrong
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

_Path = tuple[str | int, ...]

_MOST = 10
_MAX_VALUES = 5_000
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are never schemas."""
_NAMES = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords whose values are maps from names to schemas."""
_SAME_VALUE = ("allOf", "anyOf", "else", "extends", "if", "not", "oneOf", "then")
"""Keywords whose schemas apply to the same value as the schema around them."""
_SAME_VALUE_BY_NAME = ("dependencies", "dependentSchemas")
_INSIDE = "references stay inside the schema: #/definitions/NAME"
_TYPES = "types are array, boolean, integer, null, number, object and string"
_TOOL = frozenset({"name", "description", "parameters"})


class _Part(NamedTuple):
    """A map inside a schema that may be a schema itself."""

    path: _Path
    schema: dict[str, Any]
    is_checked: bool
    """Whether it was checked against the draft together with the whole schema."""


class SchemaFault(NamedTuple):
    """A fault of a schema, with its path."""

    path: tuple[str | int, ...]
    code: str
    message: str
    hint: str

    def error(self) -> Exception:
        """Return it as a validation error."""
        return wrong(self.code, self.message, self.hint, at=self.path)

    def below(self, *steps: str | int) -> SchemaFault:
        """Return it with a longer path."""
        return self._replace(path=(*steps, *self.path))


def schema_faults(schema: Any, what: str) -> Iterator[SchemaFault]:
    """Yield the faults of a JSON Schema; references must stay inside it."""
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
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if named is not None and not is_known_draft(named):
        problem = f"{what} is written in {short(named)}, which is not a known draft"
        yield SchemaFault(("$schema",), "schema", problem, f"leave it out, or write {DRAFT}")
        return
    try:
        wrong_ones = _wrong_keywords(schema, schema, what)
        parts = list(_parts(schema))
        wrong_ones += _outside_references(parts, what)
        yield from wrong_ones or _broken_references(parts, what)
    except RecursionError:
        hint = "use definitions and $ref"
        yield SchemaFault((), "schema", f"{what} is nested too deeply", hint)


def _wrong_keywords(schema: Any, root: Any, what: str) -> list[SchemaFault]:
    """Return violations of the draft, the first few in order."""
    faults: dict[str, SchemaFault] = {}
    for error in draft_errors(schema, root):
        path = tuple(error.absolute_path)
        at = "/".join(str(step) for step in path)
        reason, hint = message_of(error)[:200], f"check {at}" if at else "see json-schema.org"
        if path[-1:] == ("type",) and path[-2:-1] != ("properties",):
            reason, hint = f"{short(error.instance)} is not a type", _TYPES
        message = f"{what} is not a JSON Schema: {reason}"
        faults.setdefault(at, SchemaFault(path, "schema", message, hint))
    return [faults[at] for at in sorted(faults)[:_MOST]]


def _outside_references(parts: list[_Part], what: str) -> Iterator[SchemaFault]:
    """Yield references out of a schema, and invalid patterns."""
    draft = str(parts[0].schema.get("$schema")) if parts else ""
    oldest = "draft-03" in draft or "draft-04" in draft  # older drafts have id instead of $id
    for path, part, _ in parts:
        for keyword in ("$id", "$schema", *(("id",) if oldest else ())):
            if path and isinstance(part.get(keyword), str):
                message = f"{what} has {keyword} inside, which would redirect its references"
                yield SchemaFault((*path, keyword), "schema", message, "leave it out")
        for keyword, reference in _references(part):
            if not reference.startswith("#"):
                message = f"{what} refers to {short(reference)}"
                yield SchemaFault((*path, keyword), "schema", message, _INSIDE)
        yield from _wrong_patterns(path, part, what)


def _references(part: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for keyword in _REFERENCES:
        if isinstance(part.get(keyword), str):
            yield keyword, part[keyword]


def _wrong_patterns(path: _Path, part: dict[str, Any], what: str) -> Iterator[SchemaFault]:
    named = part.get("patternProperties")
    patterns = [((*path, "pattern"), part["pattern"])] if "pattern" in part else []
    if isinstance(named, dict):
        patterns += [((*path, "patternProperties", name), name) for name in named]
    for place, pattern in patterns:
        if not isinstance(pattern, str):
            continue
        if len(pattern) > MAX_PATTERN:
            message = f"{what} has a pattern of more than {MAX_PATTERN:,} characters"
            yield SchemaFault(place, "regex", message, "write a shorter one")
            continue
        try:
            analyse_pattern(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            message = f"{what} has a pattern that is not valid: {error}"
            yield SchemaFault(place, "regex", message, "patterns use the syntax of Python's re")


def _broken_references(parts: list[_Part], what: str) -> Iterator[SchemaFault]:
    """Yield references that do not resolve to a schema, or form a cycle."""
    references = [
        ((*part.path, keyword), reference)
        for part in parts
        for keyword, reference in _references(part.schema)
    ]
    if not references:
        return
    root = parts[0].schema
    find, targets = resolver(root), dict[str, Any]()
    for path, reference in references:
        try:
            targets[reference] = find(reference)
        except LookupError:
            message = f"{what} refers to {short(reference)}, which it does not have"
            yield SchemaFault(path, "schema", message, _INSIDE)
    aimed_at = {id(target) for target in targets.values()}
    # The draft checks its own keywords only; elsewhere a reference makes a value a schema.
    sound = {
        id(part.schema)
        for part in parts
        if id(part.schema) in aimed_at
        and (part.is_checked or not _wrong_keywords(part.schema, root, what))
    }
    endless = _endless(parts, targets)
    for path, reference in references:
        target = targets.get(reference, True)
        if not isinstance(target, bool) and id(target) not in sound:
            message = f"{what} refers to {short(reference)}, which is not a JSON Schema"
            yield SchemaFault(path, "schema", message, "put it under $defs or definitions")
        elif id(target) in endless:
            message = f"{what} refers to {short(reference)}, which is a cycle without an end"
            yield SchemaFault(path, "schema", message, "refer to it from properties or items")


def _endless(parts: list[_Part], targets: dict[str, Any]) -> frozenset[int]:
    """Return the parts, by identity, that refer to themselves without descending into the value.

    Kahn's algorithm (1962): remove parts without references until none is left; the rest is cyclic.
    """
    before: dict[int, list[int]] = {}
    left: dict[int, int] = {}
    for part in {id(part.schema): part.schema for part in parts}.values():
        following = [inner for inner in _same_value(part, targets) if isinstance(inner, dict)]
        left[id(part)] = len(following)
        for inner in following:
            before.setdefault(id(inner), []).append(id(part))
    done = [part for part, number in left.items() if not number]
    while done:
        over = done.pop()
        del left[over]
        for other in before.get(over, ()):
            left[other] -= 1
            if not left[other]:
                done.append(other)
    return frozenset(left)


def _same_value(part: dict[str, Any], targets: dict[str, Any]) -> Iterator[Any]:
    for _, reference in _references(part):
        yield targets.get(reference)
    for keyword in _SAME_VALUE:
        inner = part.get(keyword)
        yield from inner if isinstance(inner, list) else (inner,)
    for keyword in _SAME_VALUE_BY_NAME:
        named = part.get(keyword)
        yield from named.values() if isinstance(named, dict) else ()


def tool_faults(tools: Any) -> Iterator[SchemaFault]:
    """Yield the faults of a list of tools."""
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
            message = f"two tools are named {short(name)}"
            yield SchemaFault((index, "name"), "tools", message, "give each a distinct name")
        names.append(name)
        for fault in _one_tool(tool, name):
            yield fault.below(index)


def _one_tool(tool: dict[str, Any], name: str) -> Iterator[SchemaFault]:
    for key in sorted(tool.keys() - _TOOL):
        message = f"tool {short(name)} has an unknown key {short(key)}"
        yield SchemaFault((key,), "tools", message, did_you_mean(key, _TOOL))
    if not isinstance(tool.get("description", ""), str):
        message = f"the description of tool {short(name)} is not a text"
        yield SchemaFault(("description",), "tools", message, "quote it")
    for fault in schema_faults(tool.get("parameters", {}), f"parameters of tool {short(name)}"):
        yield fault.below("parameters")


def _values(value: Any) -> Iterator[Any]:
    stack = [value]
    while stack:
        item = stack.pop()
        yield item
        if isinstance(item, dict | list):
            stack.extend(item.values() if isinstance(item, dict) else item)


def _parts(root: Any) -> Iterator[_Part]:
    """Yield every map that is or may be a schema, including those under unknown keywords."""
    schema_keywords = keywords(root)
    stack: list[tuple[_Path, Any, bool, bool]] = [((), root, False, True)]
    while stack:
        path, item, is_names, is_checked = stack.pop()
        if isinstance(item, list):
            stack.extend(
                ((*path, index), inner, False, is_checked) for index, inner in enumerate(item)
            )
        if not isinstance(item, dict):
            continue
        if not is_names:
            yield _Part(path, item, is_checked)
        for key, inner in item.items():
            if is_names:
                stack.append(((*path, key), inner, False, is_checked))
            elif key not in _DATA:
                stack.append(
                    ((*path, key), inner, key in _NAMES, is_checked and key in schema_keywords)
                )
