"""Is the answer data of this shape?"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    Field,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from edison_ci.checks.options import (
    ONE_VARIABLE,
    Check,
    ScalarText,
    SomeText,
    TemplateData,
    expected_output,
    one_variable,
    when_constant,
)
from edison_ci.shape import PATH_PATTERN, Or, Shape, Written, checked_path, items, short, wrong


class IsJson(Check):
    """The answer is JSON."""

    check: ClassVar[str] = "is_json"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_json: {}"


def _schema_or_path(value: Any) -> Any:
    if isinstance(value, str):
        return checked_path(value)
    if isinstance(value, dict):
        return value
    raise wrong("type", f"{short(value)} is not a JSON Schema", "write {type: object} or a path")


_UNDER_VALUE = "a schema goes under value: json_schema: {value: {type: object}}"


class JsonSchema(Check):
    """The answer is JSON that a JSON Schema accepts."""

    check: ClassVar[str] = "json_schema"
    example: ClassVar[str] = "json_schema: schemas/reply.json"
    tombstones: ClassVar[dict[str, str]] = dict.fromkeys(
        ("type", "properties", "required", "$schema", "items", "enum", "anyOf", "allOf", "oneOf"),
        _UNDER_VALUE,
    )
    value: Annotated[
        str | dict[str, Any],
        BeforeValidator(_schema_or_path),
        WithJsonSchema(
            {"anyOf": [{"type": "string", "pattern": PATH_PATTERN}, {"type": "object"}]}
        ),
    ] = Field(description="Path of a JSON Schema, or the schema itself.")


_JSON_PATH = Written(
    r"\$(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[(?:-?[0-9]+|'[^']*'|\"[^\"]*\")\])*",
    "a path",
    "write $.order.items[0].id",
    "json-path",
)


class JsonPath(Check):
    """The answer is JSON with a value at this path, and it is this one."""

    check: ClassVar[str] = "json_path"
    main: ClassVar[str | None] = "path"
    example: ClassVar[str] = 'json_path: {path: $.total, value: "{{ expected.total }}"}'
    path: Annotated[str, Field(min_length=1, max_length=500), _JSON_PATH] = Field(
        description="Keys and indexes from the root $."
    )
    value: ScalarText | None = Field(
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


_NUMBER = Written(
    r"\s*-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\s*",
    "a number",
    'write 42, or a variable of the case: "{{ expected }}"',
    "number",
)


class Number(Check):
    """The answer is, or ends in, this number."""

    check: ClassVar[str] = "number"
    example: ClassVar[str] = 'number: {value: "{{ expected }}", tolerance: 0.01}'
    value: Annotated[
        ScalarText,
        when_constant(_NUMBER.check),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "number"},
                    {"type": "string", "pattern": rf"^(?:{_NUMBER.pattern})$|\{{[{{%]"},
                ]
            }
        ),
    ] = expected_output("The number; the expected output by default.")
    tolerance: float = Field(0, ge=0, description="How far off is still right.")


class ToolCall(Check):
    """The model called this tool, with these arguments."""

    check: ClassVar[str] = "tool_call"
    main: ClassVar[str | None] = "tool"
    example: ClassVar[str] = "tool_call: {tool: get_weather, arguments: {city: Oslo}}"
    tool: SomeText = Field(description="Name of the tool.")
    arguments: TemplateData | None = Field(
        None, description="Arguments that must be among those given; any by default."
    )


class ExpectedCall(Shape):
    """A tool call that should have happened."""

    tool: SomeText = Field(description="Name of the tool.")
    arguments: TemplateData | None = Field(None, description="Arguments; any by default.")


def _listed_or_variable(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    return one_variable(value) if isinstance(value, str) else handler(value)


class ToolCallF1(Check):
    """How well the tools called match a list of those that should be (F1)."""

    check: ClassVar[str] = "tool_call_f1"
    graded: ClassVar[bool] = True
    example: ClassVar[str] = "tool_call_f1: [{tool: search}, {tool: book}]"
    value: Annotated[
        tuple[ExpectedCall, ...],
        items(1, 100),
        WrapValidator(_listed_or_variable),
        Or(ONE_VARIABLE),
    ] = Field(description="The calls, or one variable of the case that holds them.")
