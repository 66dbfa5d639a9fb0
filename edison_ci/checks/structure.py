"""Is the answer data of this shape?"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from edison_ci.checks.options import Check, OptionalTemplate, TemplateText
from edison_ci.shape import FilePath, Shape, items, wrong
from edison_ci.templating import compile_template

_EXPECTED = compile_template("{{ expected }}")


class IsJson(Check):
    """The answer is JSON."""

    check: ClassVar[str] = "is_json"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_json: {}"


def _schema_or_path(value: Any) -> Any:
    if isinstance(value, dict | str):
        return value
    raise wrong("type", "a JSON Schema or the path of one is needed")


class JsonSchema(Check):
    """The answer is JSON that a JSON Schema accepts."""

    check: ClassVar[str] = "json_schema"
    example: ClassVar[str] = "json_schema: schemas/reply.json"
    value: Annotated[
        FilePath | dict[str, Any],
        BeforeValidator(_schema_or_path),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
    ] = Field(description="Path of a JSON Schema, or the schema itself.")


_STEP = re.compile(r"(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[(?:-?[0-9]+|'[^']*'|\"[^\"]*\")\])")


def _json_path(value: str) -> str:
    rest = value[1:] if value.startswith("$") else ""
    while found := _STEP.match(rest):
        rest = rest[found.end() :]
    if rest or not value.startswith("$"):
        raise wrong("json-path", f"{value!r} is not a path", "write $.order.items[0].id")
    return value


class JsonPath(Check):
    """The answer is JSON with a value at this path, and it is this one."""

    check: ClassVar[str] = "json_path"
    main: ClassVar[str | None] = "path"
    example: ClassVar[str] = 'json_path: {path: $.total, value: "{{ expected.total }}"}'
    path: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_json_path)] = Field(
        description="Keys and indexes from the root $."
    )
    value: OptionalTemplate = Field(
        None, description="What the value must be, as it would appear in a prompt; any by default."
    )


class IsXml(Check):
    """The answer is well-formed XML."""

    check: ClassVar[str] = "is_xml"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_xml: {}"


class IsHtml(Check):
    """The answer is HTML."""

    check: ClassVar[str] = "is_html"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_html: {}"


class IsSql(Check):
    """The answer is one SQL statement that parses."""

    check: ClassVar[str] = "is_sql"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_sql: {}"


class IsYaml(Check):
    """The answer is YAML."""

    check: ClassVar[str] = "is_yaml"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_yaml: {}"


def _numeric(value: Any) -> Any:
    return str(value) if type(value) in (int, float) else value


class Number(Check):
    """The answer is, or ends in, this number."""

    check: ClassVar[str] = "number"
    example: ClassVar[str] = 'number: {value: "{{ expected }}", tolerance: 0.01}'
    value: Annotated[
        TemplateText,
        BeforeValidator(_numeric),
        WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]}),
    ] = Field(_EXPECTED, description="The number; the expected output by default.")
    tolerance: float = Field(0, ge=0, description="How far off is still right.")


class ToolCall(Check):
    """The model called this tool, with these arguments."""

    check: ClassVar[str] = "tool_call"
    main: ClassVar[str | None] = "tool"
    example: ClassVar[str] = "tool_call: {tool: get_weather, arguments: {city: Oslo}}"
    tool: str = Field(min_length=1, max_length=200, description="Name of the tool.")
    arguments: dict[str, Any] | None = Field(
        None, description="Arguments that must be among those given; any by default."
    )


class ExpectedCall(Shape):
    """A tool call that should have happened."""

    tool: str = Field(min_length=1, max_length=200, description="Name of the tool.")
    arguments: dict[str, Any] | None = Field(None, description="Arguments; any by default.")


class ToolCallF1(Check):
    """How well the tools called match a list of those that should be (F1)."""

    check: ClassVar[str] = "tool_call_f1"
    graded: ClassVar[bool] = True
    example: ClassVar[str] = "tool_call_f1: [{tool: search}, {tool: book}]"
    value: Annotated[tuple[ExpectedCall, ...], items(1, 100)] = Field(description="The calls.")
