"""What may stand in the front matter of a prompt?"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from edison_ci.config.model_entry import Params
from edison_ci.config.rubric import ScaleText
from edison_ci.shape import FilePath, Name, Shape, wrong

InputType = Literal["string", "number", "boolean", "list", "object"]
Expect = Literal["auto", "none", "response", "json", "response+json"]


class Input(Shape):
    """One variable of a prompt."""

    type: InputType = Field("string", description="Type of the variable.")
    default: Any = Field(None, description="Value for cases that lack it.")

    @property
    def has_default(self) -> bool:
        """Whether a case may lack it."""
        return "default" in self.model_fields_set

    @model_validator(mode="after")
    def _default_fits(self) -> Self:
        if self.has_default and not fits(self.default, self.type):
            raise wrong("type", f"default is not a {self.type}", at=("default",))
        return self


def fits(value: Any, kind: str) -> bool:
    """Whether a value of a case is of a declared type."""
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    types = {"string": str, "boolean": bool, "list": list, "object": dict}
    return isinstance(value, types[kind])


def _input(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


InputEntry = Annotated[
    Input,
    BeforeValidator(_input),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["string", "number", "boolean", "list", "object"]},
                {"x-shape": "Input"},
            ]
        }
    ),
]


def _path_or(kind: type, what: str) -> Any:
    def check(value: Any) -> Any:
        if isinstance(value, str | kind):
            return value
        raise wrong("type", f"{what}, or the path of a file with it, is needed")

    return BeforeValidator(check)


class PromptHeader(Shape):
    """Front matter of prompts/NAME.md."""

    tombstones: ClassVar[dict[str, str]] = {
        "model": "models belong in the experiment",
        "name": "write id; it is the file's stem",
        "variables": "write inputs",
        "temperature": "put it under params",
    }

    version: Literal[1] = Field(1, description="Version of the file format.")
    id: Name | None = Field(None, description="The file's stem.")
    type: Literal["generator", "grader"] = Field("generator", description="What it is for.")
    inputs: dict[str, InputEntry] | None = Field(
        None, description="Variables and their types; found in the text by default."
    )
    params: Params = Field(default_factory=Params, description="Sampling parameters.")
    expect: Expect = Field("auto", description="What the output must be.")
    output: Annotated[
        FilePath | dict[str, Any] | None,
        _path_or(dict, "a JSON Schema"),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
    ] = Field(None, description="JSON Schema of the output, inline or a path.")
    tools: Annotated[
        FilePath | list[Any] | None,
        _path_or(list, "a list of tools"),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array"}]}),
    ] = Field(None, description="Tools, inline or a path.")
    syntax: Literal["jinja", "braces"] = Field("jinja", description="{{ name }} or {name}.")
    scale: ScaleText | None = Field(None, description="Scale of a grader's reply; 0-1 by default.")
    description: str = Field("", max_length=2_000, description="What it is about.")
    production: str = Field("", max_length=100, description="Version that is in production.")

    @model_validator(mode="after")
    def _scale_is_for_graders(self) -> Self:
        if self.scale is not None and self.type != "grader":
            raise wrong("scale", "scale is for graders", "add type: grader", at=("scale",))
        return self
