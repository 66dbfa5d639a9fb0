"""What all configuration models have in common: closed, frozen, strict, and helpful when wrong.

A field that is wrong never hides another: unknown keys are reported beside every other error of
the same mapping, each with the nearest name that would have been right.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from edison_ci.documents.files import inside
from edison_ci.documents.marks import Fault
from edison_ci.names import did_you_mean, odd_character

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def wrong(code: str, message: str, hint: str = "", *, at: tuple[str | int, ...] = ()) -> Exception:
    """Return the error a validator raises; `at` points below the value that is validated."""
    return PydanticCustomError(code, "{text}", {"text": message, "hint": hint, "at": list(at)})


def details(error: ValidationError, *, below: tuple[str | int, ...] = ()) -> list[InitErrorDetails]:
    """Return the errors of a nested validation, so that an outer one can pass them on."""
    return [
        InitErrorDetails(
            type=PydanticCustomError(
                "nested", "{text}", {"text": "", "original": {**item, "loc": ()}}
            ),
            loc=(*below, *item["loc"]),
            input=item.get("input"),
        )
        for item in error.errors(include_url=False)
    ]


class Shape(BaseModel):
    """A mapping in a configuration file."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True
    )

    tombstones: ClassVar[dict[str, str]] = {}
    """Keys that are often tried or were removed, with what to write instead."""
    renamed: ClassVar[dict[str, str]] = {}
    """Old names of keys that still work, with a warning, for two minor versions."""

    @model_validator(mode="wrap")
    @classmethod
    def _name_unknown_keys(cls, value: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        if not isinstance(value, dict):
            return handler(value)
        known = cls.key_names()
        unknown = [key for key in value if key not in known]
        if not unknown:
            return handler(value)
        found = [
            InitErrorDetails(type=cls._unknown(str(key), known), loc=(key,), input=value[key])
            for key in unknown
        ]
        try:
            handler({key: item for key, item in value.items() if key in known})
        except ValidationError as error:
            found += details(error)
        raise ValidationError.from_exception_data(cls.__name__, found)

    @classmethod
    def key_names(cls) -> list[str]:
        """Return the keys this mapping may have."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def _unknown(cls, key: str, known: list[str]) -> PydanticCustomError:
        hint = cls.tombstones.get(key) or did_you_mean(key, known)
        return wrong("unknown-key", f"unknown key {key!r}", hint)  # type: ignore[return-value]  # it is one


# --- scalar types that several files share --------------------------------------------------------


def _listed(schema: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema(schema)


def _name(value: str) -> str:
    if odd := odd_character(value):
        raise wrong("name", f"{value!r} contains {odd}", "use letters, digits, '-', '_' and '.'")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        raise wrong("name", f"{value!r} is not a name", "use letters, digits, '-', '_' and '.'")
    return value


NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"

Name = Annotated[
    str,
    Field(min_length=1, max_length=100),
    AfterValidator(_name),
    Field(json_schema_extra={"pattern": NAME_PATTERN}),
]


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        shown = repr(value) if len(value) < 9 else f"{value[:4]!r}..."
        raise wrong(
            "env-name", f"{shown} is not the name of a variable", "never write the key itself"
        )
    return value


EnvName = Annotated[
    str,
    Field(min_length=1, max_length=100),
    AfterValidator(_variable),
    Field(json_schema_extra={"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}),
]


def _path(value: str) -> str:
    try:
        return inside(value)
    except Fault as fault:
        raise wrong(fault.code, fault.message, fault.hint) from None


FilePath = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_path)]

_PERCENT = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\s*%\Z")
_POINTS = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*pp\Z")


def _share(value: object) -> object:
    if isinstance(value, str):
        if found := _PERCENT.match(value):
            return float(found.group(1)) / 100
        raise wrong("share", f"{value!r} is not a share", "write 80% or 0.8")
    return value


def share_schema(low: float = 0, high: float = 1) -> WithJsonSchema:
    """Return the schema of a share: a number or a percentage."""
    return _listed(
        {
            "anyOf": [
                {"type": "number", "minimum": low, "maximum": high},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*%$"},
            ]
        }
    )


Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1), share_schema()]
"""A share from 0 to 1, written 0.8 or 80%."""


class Margin(Shape):
    """How much worse still counts as no worse."""

    value: float = Field(ge=0, le=1)
    relative: bool = False
    """Whether the margin is a share of the base value instead of points."""


def parse_margin(value: object) -> object:
    """Return the margin written as `5pp` (points) or `10%` (relative)."""
    if isinstance(value, str):
        if found := _POINTS.match(value):
            return {"value": float(found.group(1)) / 100}
        if found := _PERCENT.match(value):
            return {"value": float(found.group(1)) / 100, "relative": True}
    raise wrong("margin", f"{value!r} is not a margin", "write 5pp (points) or 10% (relative)")


MarginText = Annotated[
    Margin,
    BeforeValidator(parse_margin),
    WithJsonSchema(
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*(pp|%)$", "examples": ["5pp", "10%"]}
    ),
]


def items(minimum: int = 0, maximum: int = 10_000) -> Any:
    """Return the field of a list that becomes a tuple; its items stay strict."""
    return Field(strict=False, min_length=minimum, max_length=maximum)


def exactly_one(*names: str) -> Callable[[Any], Any]:
    """Return a check that just one of several keys is given."""

    def check(self: Any) -> Any:
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            listed = ", ".join(names)
            what = "none is given" if not given else f"{' and '.join(given)} are given"
            raise wrong("exactly-one", f"give exactly one of {listed}; {what}")
        return self

    return check
