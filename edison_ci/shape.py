"""Base class and shared types of configuration models: closed, frozen, strict, with hints.

An invalid field never hides another: unknown keys are reported together with every other error of
the mapping, each with the nearest known name.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import field
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from edison_ci._dataclass import dataclass
from edison_ci.documents.files import inside
from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import brief
from edison_ci.spelling import did_you_mean, odd_character

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SerializationInfo


def wrong(
    code: str, message: str, hint: str | Callable[[], str] = "", *, at: tuple[str | int, ...] = ()
) -> PydanticCustomError:
    """Return the error of a validator; `at` is a path below it, `hint` may be computed later."""
    return PydanticCustomError(code, "{text}", {"text": message, "hint": hint, "at": list(at)})


def report(errors: Iterable[Exception]) -> None:
    """Raise all errors of the rules of one mapping, if any."""
    listed = [InitErrorDetails(type=error, loc=(), input=None) for error in errors]  # type: ignore[typeddict-item]  # made by `wrong`
    if listed:
        raise ValidationError.from_exception_data("rules", listed)


def details(error: ValidationError, *, below: tuple[str | int, ...] = ()) -> list[InitErrorDetails]:
    """Return the errors of a nested validation, for an outer one to raise."""
    return [
        InitErrorDetails(
            type=PydanticCustomError(
                "nested", "{text}", {"text": item["msg"], "original": {**item, "loc": ()}}
            ),
            loc=(*below, *item["loc"]),
            input=item.get("input"),
        )
        for item in error.errors(include_url=False)
    ]


class Shape(BaseModel):
    """A mapping in a configuration file."""

    # Building a validator takes a millisecond or more, so it is built on first use, and defaults
    # are created with `model_construct`, which needs none.
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True
    )

    tombstones: ClassVar[dict[str, str]] = {}
    """Removed or commonly mistaken keys, with a hint for each."""
    renamed: ClassVar[dict[str, str]] = {}
    """Old names of keys that still work, with a warning, for two minor versions."""

    @model_validator(mode="wrap")
    @classmethod
    def _name_unknown_keys(cls, value: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        if not isinstance(value, dict):
            return handler(value)
        known_keys, no_null = _keys(cls)
        unknown = [key for key in value if key not in known_keys]
        empty = [key for key in no_null if value.get(key, key) is None]
        if not unknown and not empty:
            made = handler(value)
            report(made.broken_rules())
            return made
        errors = [
            InitErrorDetails(
                type=cls._wrong_key(str(key), known_keys), loc=(key,), input=value[key]
            )
            for key in (*unknown, *empty)
        ]
        try:
            handler({k: v for k, v in value.items() if k in known_keys and k not in empty})
        except ValidationError as error:
            errors += details(error)
        raise ValidationError.from_exception_data(cls.__name__, errors)

    def broken_rules(self) -> Iterable[Exception]:
        """Return the errors of rules between keys, made by `wrong`; there are none by default."""
        return ()

    @classmethod
    def key_names(cls) -> list[str]:
        """Return the allowed keys."""
        return list(_keys(cls)[0])

    @classmethod
    def _wrong_key(cls, key: str, known_keys: Iterable[str]) -> PydanticCustomError:
        if key in known_keys:
            return wrong("no-value", f"{key} has no value", "set a value, or remove the key")
        near = partial(did_you_mean, key, known_keys, otherwise="docs/files.md lists all keys")
        hint = cls.tombstones.get(key) or near
        return wrong("unknown-key", f"unknown key {short(key)}", hint)


@cache
def _keys(shape: type[Shape]) -> tuple[dict[str, None], tuple[str, ...]]:
    """Return the allowed keys in their order, and those of them that may be left out, not null."""
    named = {field.alias or name: field for name, field in shape.model_fields.items()}
    return dict.fromkeys(named), tuple(k for k, field in named.items() if field.default is None)


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A text that must match a pattern."""

    pattern: str
    what: str
    hint: str
    code: str = "pattern"

    def check(self, value: str) -> str:
        """Return the text; raises an error if it does not match."""
        if not re.fullmatch(self.pattern, value):
            raise wrong(self.code, f"{short(value)} is not {self.what}", self.hint)
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": f"^(?:{self.pattern})$"}


@dataclass(frozen=True, slots=True)
class Shorthand:
    """A mapping that may be written as a text, the value of one of its keys."""

    key: str

    def _expand(self, value: Any) -> Any:
        return {self.key: value} if isinstance(value, str) else value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self._expand, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        whole = handler(schema)
        key = dict(handler.resolve_ref_schema(whole)["properties"][self.key])
        return {"anyOf": [{k: v for k, v in key.items() if k not in _ANNOTATIONS}, whole]}


_ANNOTATIONS = ("description", "default", "title")


@dataclass(frozen=True, slots=True)
class Or:
    """An alternative form of a value in the schema; a validator converts it."""

    other: dict[str, Any] = field(hash=False)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [self.other, handler(schema)]}


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping that few files have: its model is loaded when a file has it.

    if TYPE_CHECKING:
        from edison_ci.config.sections import Schedule
    else:
        Schedule = section("edison_ci.config.sections", "Schedule")
    """

    module: str
    name: str

    @property
    def shape(self) -> type[Shape]:
        """The model."""
        shape: type[Shape] = getattr(import_module(self.module), self.name)
        return shape

    def _validate(self, value: Any) -> Any:
        return self.shape.model_validate(value)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(_dump, info_arg=True),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return a place that `config.schema` fills."""
        return {"x-section": f"{self.module}:{self.name}"}


def _dump(shape: Shape, info: SerializationInfo) -> dict[str, Any]:
    return shape.model_dump(
        mode=info.mode,
        by_alias=info.by_alias,
        exclude_unset=info.exclude_unset,
        exclude_defaults=info.exclude_defaults,
        exclude_none=info.exclude_none,
    )


def section(module: str, name: str) -> Any:
    """Return the type of a section, for the annotation of a field."""
    return Annotated[Any, Section(module, name)]


class _OneOrMany:
    """A list that may be written as a single entry."""

    @staticmethod
    def _as_list(value: Any) -> Any:
        return value if isinstance(value, list) else [value]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self._as_list, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


ONE_OR_MANY = _OneOrMany()


class _Unique:
    """A list without duplicates."""

    @staticmethod
    def check(value: tuple[Any, ...]) -> tuple[Any, ...]:
        for index, item in enumerate(value):
            if item in value[:index]:
                message = f"{short(item)} is listed twice"
                raise wrong("duplicate", message, "remove one", at=(index,))
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "uniqueItems": True}


UNIQUE = _Unique()


def items(minimum: int = 0, maximum: int = 10_000) -> Any:
    """Return the field of a list that is stored as a tuple; its items stay strict."""
    return Field(strict=False, min_length=minimum, max_length=maximum)


short = brief
"""Returns a value for a message."""


_NAME_HINT = "use letters, digits, '-', '_' and '.', starting with a letter or digit"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def _name(value: str) -> str:
    if not re.fullmatch(NAME_PATTERN.strip("^$"), value):
        odd = odd_character(value)
        message = f"{short(value)} contains {odd}" if odd else f"{short(value)} is not a name"
        raise wrong("name", message, _NAME_HINT)
    return value


Name = Annotated[
    str,
    Field(min_length=1, max_length=100, json_schema_extra={"pattern": NAME_PATTERN}),
    AfterValidator(_name),
]


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        excerpt = repr(value) if len(value) < 9 else f"{value[:4]!r}..."
        raise wrong(
            "env-name",
            f"{excerpt} is not the name of an environment variable",
            "write a name such as OPENAI_API_KEY; never write the key itself",
        )
    return value


ENV_PATTERN = "^[A-Za-z_][A-Za-z0-9_]*$"

EnvName = Annotated[
    str,
    Field(min_length=1, max_length=100, json_schema_extra={"pattern": ENV_PATTERN}),
    AfterValidator(_variable),
]

VariableName = Annotated[
    str,
    Field(min_length=1, max_length=100),
    TextPattern(
        r"[A-Za-z_][A-Za-z0-9_]*",
        "a name of a variable",
        "use letters, digits and '_', so that a prompt can use {{ name }}",
        "name",
    ),
]
"""A name that a template can use."""

Email = Annotated[
    str,
    Field(max_length=254),
    TextPattern(r"[^@\s]+@[^@\s]+", "an e-mail address", "write name@example.com", "email"),
]


_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"


def _date(value: str) -> str:
    try:
        dt.date.fromisoformat(value)
    except ValueError:
        is_date = False
    else:
        is_date = re.fullmatch(_DATE, value) is not None  # Python reads weeks, 2026-W01-1, too
    if not is_date:
        raise wrong("date", f"{short(value)} is not a date", "write YYYY-MM-DD")
    return value


Date = Annotated[
    str,
    AfterValidator(_date),
    Field(json_schema_extra={"pattern": f"^{_DATE}$"}),
]


def normal_path(value: str) -> str:
    """Return a normalized path of the project; raises an error if it is invalid."""
    try:
        return inside(value)
    except Fault as fault:
        raise wrong(fault.code, fault.message, fault.hint) from None


PATH_PATTERN = r"^(?![/~]|.:|\.\.(?:/|$))(?!.*://)[^\\\n]+$"
"""Pattern of valid paths, as far as a schema can check them."""

FilePath = Annotated[
    str,
    Field(min_length=1, max_length=500, json_schema_extra={"pattern": PATH_PATTERN}),
    AfterValidator(normal_path),
]

PERCENT = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\s*%\Z")
TO_100 = r"0*(?:100(?:\.0+)?|[0-9]{1,2}(?:\.[0-9]+)?)"


@dataclass(frozen=True, slots=True)
class Percent:
    """A number that may be written as a percentage: 80% is 0.8."""

    pattern: str = TO_100
    """Pattern of the percentages in the range of the number."""

    @staticmethod
    def _share(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if match := PERCENT.match(value):
            return float(match.group(1)) / 100
        raise wrong("share", f"{short(value)} is not a share", "write 80% or 0.8")

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self._share, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        text = {"type": "string", "pattern": rf"^(?:{self.pattern})\s*%$"}
        return {"anyOf": [handler(schema), text]}


Share = Annotated[float, Field(ge=0, le=1), Percent()]
"""A share from 0 to 1, written 0.8 or 80%."""


def within(limits: tuple[float, float]) -> Any:
    """Return the range of a number, as a field has it."""
    return Field(ge=limits[0], le=limits[1])


def one_of_keys(*names: str) -> dict[str, Any]:
    """Return the schema of a mapping that has exactly one of these keys."""
    return {"oneOf": [{"required": [name]} for name in names]}


def some_of_keys(*names: str) -> dict[str, Any]:
    """Return the schema of a mapping that has at least one of these keys."""
    return {"anyOf": [{"required": [name]} for name in names]}


def if_key(name: str, value: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a mapping that has more rules if a key is given with such a value."""
    return {"if": {"required": [name], "properties": {name: value}}, "then": then}


def need_one_of(shape: Shape, *names: str, of: str, add: str) -> None:
    """Refuse a mapping without exactly one of these keys; `of` names the mapping."""
    present = [name for name in names if getattr(shape, name) is not None]
    if len(present) == 1:
        return
    fault = f"this has {' and '.join(present)}" if present else "this has none"
    hint = "write one entry for each" if present else f"add {add}"
    listed = f"{', '.join(names[:-1])} or {names[-1]}"
    at = (present[1],) if present else ()
    raise wrong("exactly-one", f"{of} needs exactly one of {listed}; {fault}", hint, at=at)


def repeats(keys: Iterable[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield the index of each repeated key, and that of its first use; None is not a key."""
    firsts: dict[Hashable, int] = {}
    for index, key in enumerate(keys):
        if key is not None and (first := firsts.setdefault(key, index)) != index:
            yield index, first
