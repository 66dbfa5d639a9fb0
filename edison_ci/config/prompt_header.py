"""What may stand in the front matter of a prompt?"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from edison_ci.config.model_entry import Params
from edison_ci.config.project import Version
from edison_ci.config.rubric import ScaleText
from edison_ci.config.schemas_of_users import TOOLS_SCHEMA, schema_faults, tool_faults
from edison_ci.shape import (
    PATH_PATTERN,
    Name,
    Shape,
    Shorthand,
    VariableName,
    checked_path,
    report,
    wrong,
)

InputType = Literal["string", "number", "boolean", "list", "object"]
Expect = Literal["auto", "none", "response", "json", "response+json"]


_JSON_TYPES = {
    "string": "string",
    "number": "number",
    "boolean": "boolean",
    "list": "array",
    "object": "object",
}


def _default_of(kind: str) -> dict[str, Any]:
    """Return the schema of an input whose default must be of its type."""
    given = {"properties": {"type": {"const": kind}}}
    if kind != "string":  # what an input is when it does not say
        given["required"] = ["type"]  # type: ignore[assignment]  # JSON
    return {"if": given, "then": {"properties": {"default": {"type": _JSON_TYPES[kind]}}}}


class Input(Shape):
    """One variable of a prompt."""

    model_config = ConfigDict(json_schema_extra={"allOf": [*map(_default_of, _JSON_TYPES)]})

    type: InputType = Field("string", description="Type of the variable.")
    default: Any = Field(None, description="Value for cases that lack it.")

    @property
    def has_default(self) -> bool:
        """Whether a case may lack it."""
        return "default" in self.model_fields_set

    @model_validator(mode="after")
    def _default_fits(self) -> Self:
        if self.has_default and not fits(self.default, self.type):
            raise wrong(
                "type",
                f"default is not a {self.type}",
                "change the default or the type",
                at=("default",),
            )
        return self


def fits(value: Any, kind: str) -> bool:
    """Whether a value of a case is of a declared type."""
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    types = {"string": str, "boolean": bool, "list": list, "object": dict}
    return isinstance(value, types[kind])


InputEntry = Annotated[Input, Shorthand("type")]


def _output(value: Any) -> Any:
    if isinstance(value, str):
        return checked_path(value)
    if not isinstance(value, dict):
        raise wrong("type", "output is not a JSON Schema", "write {type: object, ...} or a path")
    report(fault.error() for fault in schema_faults(value, "output"))
    return value


def _tools(value: Any) -> Any:
    if isinstance(value, str):
        return checked_path(value)
    report(fault.error() for fault in tool_faults(value))
    return value


_PATH = {"type": "string", "pattern": PATH_PATTERN}


class PromptHeader(Shape):
    """Front matter of prompts/NAME.md."""

    model_config = ConfigDict(
        json_schema_extra={
            "dependencies": {
                "scale": {"required": ["type"], "properties": {"type": {"const": "grader"}}}
            }
        }
    )

    tombstones: ClassVar[dict[str, str]] = {
        "model": "models belong in the experiment",
        "name": "write id; it is the file's stem",
        "variables": "write inputs",
        "temperature": "put it under params",
    }

    version: Version = 1
    id: Name | None = Field(None, description="The file's stem.")
    type: Literal["generator", "grader"] = Field("generator", description="What it is for.")
    inputs: dict[VariableName, InputEntry] | None = Field(
        None, description="Variables and their types; found in the text by default."
    )
    params: Params = Field(
        default_factory=Params.model_construct, description="Sampling parameters."
    )
    expect: Expect = Field("auto", description="What the output must be.")
    output: (
        Annotated[
            str | dict[str, Any],
            BeforeValidator(_output),
            WithJsonSchema({"anyOf": [_PATH, {"type": "object"}]}),
        ]
        | None
    ) = Field(None, description="JSON Schema of the output, inline or a path.")
    tools: (
        Annotated[
            str | list[Any],
            BeforeValidator(_tools),
            WithJsonSchema({"anyOf": [_PATH, TOOLS_SCHEMA]}),
        ]
        | None
    ) = Field(None, description="Tools, inline or a path.")
    syntax: Literal["jinja", "braces"] = Field("jinja", description="{{ name }} or {name}.")
    scale: ScaleText | None = Field(None, description="Scale of a grader's reply; 0-1 by default.")
    description: str = Field("", max_length=2_000, description="What it is about.")
    production: str = Field("", max_length=100, description="Version that is in production.")

    @model_validator(mode="after")
    def _scale_is_for_graders(self) -> Self:
        if self.scale is not None and self.type != "grader":
            raise wrong(
                "scale",
                "only a grader has a scale",
                "add type: grader, or remove it",
                at=("scale",),
            )
        return self
