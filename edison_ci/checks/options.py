"""What every check is: its options, the one-key syntax that writes them, and the combinators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, WithJsonSchema

from edison_ci.checks.registry import REGISTRY
from edison_ci.names import did_you_mean
from edison_ci.shape import Name, Shape, details, wrong
from edison_ci.templating import Template, TemplateFaults, compile_template

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic_core import InitErrorDetails

MAX_NESTING = 10


class Check(Shape):
    """One check: a score from 0 to 1 for an answer, without a model."""

    check: ClassVar[str]
    """The name of the check in YAML."""
    main: ClassVar[str | None] = "value"
    """The option that a bare argument stands for; None if the check takes none."""
    graded: ClassVar[bool] = False
    """Whether the score has values between 0 and 1 (default threshold 0.5 instead of 1)."""
    example: ClassVar[str]
    """A line of YAML that shows the check at work."""

    name: Name | None = Field(None, description="Name in reports; the check's own by default.")
    weight: float | None = Field(
        None,
        ge=0,
        le=100,
        description="Weight in the composite; 0 beside a rubric or grader, else 1.",
    )
    threshold: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Lowest passing score; 1 for yes/no checks, 0.5 for graded ones.",
    )

    @property
    def passes_at(self) -> float:
        """The lowest passing score."""
        if self.threshold is not None:
            return self.threshold
        return 0.5 if self.graded else 1.0

    @classmethod
    def expand(cls, argument: Any) -> dict[str, Any]:
        """Return the options that an argument in YAML stands for."""
        if isinstance(argument, dict):
            return argument
        if argument is None:
            return {}
        if cls.main is None:
            raise wrong("check", f"{cls.check} takes no argument", f"write {cls.check}: {{}}")
        return {cls.main: argument}

    def templates(self) -> Iterator[tuple[str, Template]]:
        """Yield the arguments that are templates over the case, by option."""
        for option in type(self).model_fields:
            yield from ((option, template) for template in _templates(getattr(self, option)))

    def parts(self) -> tuple[Check, ...]:
        """Return the checks inside a combinator."""
        return ()

    @property
    def needs_code(self) -> bool:
        """Whether evaluating it runs code from the repository."""
        return any(part.needs_code for part in self.parts())


def _templates(value: Any) -> Iterator[Template]:
    if isinstance(value, Template):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _templates(item)


def _compile(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return compile_template(value)
    except TemplateFaults as error:
        first = error.faults[0]
        raise wrong(first.code, first.message, first.hint) from None


def _optional(value: Any) -> Template | None:
    return None if value is None else _is_template(value)


def _is_template(value: Any) -> Template:
    if not isinstance(value, Template):
        raise wrong("type", f"{value!r} is not a text", "quote it")
    return value


TemplateText = Annotated[
    Any,
    BeforeValidator(_compile),
    AfterValidator(_is_template),
    WithJsonSchema({"type": "string"}),
]
"""A text that may use the case: `{{ expected }}`, `{{ name }}`."""


OptionalTemplate = Annotated[
    Any, BeforeValidator(_compile), AfterValidator(_optional), WithJsonSchema({"type": "string"})
]


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        template = _compile(value)
        if template.single is None:
            raise wrong(
                "type", f"{value!r} is not a list", "write [a, b] or one variable: {{ name }}"
            )
        return template
    if isinstance(value, list) and value:
        return tuple(_is_template(_compile(item)) for item in value)
    raise wrong("type", "a list of texts is needed", "write [a, b] or one variable: {{ name }}")


TemplateTexts = Annotated[
    Any,
    BeforeValidator(_texts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "string", "pattern": r"^\{\{.*\}\}$"},
            ]
        }
    ),
]
"""A list of texts, or one variable of the case that holds a list."""


def parse_check(entry: Any, depth: int = 1) -> Check:
    """Return the check an entry of YAML stands for."""
    if isinstance(entry, Check):
        return entry
    if isinstance(entry, str):
        known = entry in REGISTRY.built_in
        hint = f"write {entry}: {{}}" if known else "write NAME: ARGUMENT"
        raise wrong("check", f"{entry!r} is not a check but a text", hint)
    if not isinstance(entry, dict) or len(entry) != 1:
        count = len(entry) if isinstance(entry, dict) else "no"
        raise wrong(
            "check",
            f"a check is a map with exactly one name; this has {count}",
            "put weight, name and threshold inside: words: {max: 120, weight: 0.5}",
        )
    if depth > MAX_NESTING:
        raise wrong("depth", f"checks are nested deeper than {MAX_NESTING} levels")
    ((name, argument),) = entry.items()
    kind = REGISTRY.load(name)
    if kind is None:
        raise wrong(
            "unknown-check",
            f"unknown check {name!r}",
            did_you_mean(name, REGISTRY.names()),
            at=(name,),
        )
    options = kind.expand(argument)
    try:
        return kind.model_validate(options, context={"depth": depth})  # type: ignore[no-any-return]  # registry
    except ValidationError as error:
        found = details(error, below=(name,))
        if options is not argument:
            found = [_at_argument(item, (name, kind.main)) for item in found]
        raise ValidationError.from_exception_data(name, found) from None


def _at_argument(item: InitErrorDetails, main: tuple[str, str]) -> InitErrorDetails:
    """Let an error of the main option point at the bare argument that stood for it."""
    loc = item.get("loc", ())
    if loc[:2] == main:
        item["loc"] = (loc[0], *loc[2:])
    return item


def _parse(value: Any, info: Any) -> Check:
    context = info.context if isinstance(info.context, dict) else {}
    return parse_check(value, int(context.get("depth", 0)) + 1)


def _schema() -> dict[str, Any]:
    return {"x-shape": "Check"}


CheckEntry = Annotated[Any, BeforeValidator(_parse), WithJsonSchema(_schema())]
"""A check in one-key syntax."""
