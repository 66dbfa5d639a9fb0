"""The base class of checks: options, templates in arguments, and entries in YAML."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from edison_ci.checks.evaluation import Grade, single_line
from edison_ci.errors import UsageError
from edison_ci.plugins import Registry
from edison_ci.shape import (
    Name,
    Shape,
    TextPattern,
    details,
    report,
    short,
    some_of_keys,
    wrong,
)
from edison_ci.spelling import did_you_mean
from edison_ci.templating.templates import Template, TemplateFaults, as_text, compile_template

if TYPE_CHECKING:
    from pydantic_core import InitErrorDetails

    from edison_ci.checks.evaluation import ParsedAnswer
    from edison_ci.extras import Library


_FAMILIES = {
    "text": "equals contains icontains starts_with ends_with contains_any contains_all regex one_of"
    " count quotes",
    "limits": "words chars sentences tokens latency cost finish_reason",
    "structure": "is_json json_schema json_path is_xml is_html is_sql is_yaml number json_diff",
    "tool_calls": "tool_call tool_call_f1 calls",
    "similarity": "levenshtein rouge_l rouge_n bleu chrf token_f1 similar overlap",
    "language": "refusal language readability",
    "code": "python command",
    "combined": "not any_of all_of mean_of",
}


def _class(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


REGISTRY = Registry(
    "edison_ci.checks",
    {
        name: f"edison_ci.checks.{family}:{_class(name)}"
        for family, names in _FAMILIES.items()
        for name in names.split()
    },
)


MAX_NESTING = 10


class Check(Shape):
    """One check: a score from 0 to 1 for an answer, without a model."""

    check: ClassVar[str]
    """The name of the check in YAML."""
    main: ClassVar[str | None] = "value"
    """The option that a bare argument sets; None if there is none."""
    graded: ClassVar[bool] = False
    """Whether the score has values between 0 and 1 (default threshold 0.5 instead of 1)."""
    example: ClassVar[str]
    """A line of YAML as an example."""
    needs: ClassVar[tuple["Library", ...]] = ()
    """Libraries of extras that it needs."""

    name: Name | None = Field(
        None, description="Name in reports; by default the check with its argument."
    )
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

    @property
    def title(self) -> str:
        """The check with its first options on one line: `words max 120`, `not regex "as an ai"`.

        It depends on nothing but the check, so the same check has the same name in every run.
        """
        words, *more = self._words()
        for option in more:
            if len(words) + 1 + len(option) > _LONGEST_TITLE:
                break
            words += f" {option}"
        return _cut(words, _LONGEST_TITLE)

    @property
    def long_title(self) -> str:
        """The check with all its options, to tell it from another one of the same title."""
        return _cut(" ".join(self._words()), _LONGEST_LONG_TITLE)

    def _words(self) -> list[str]:
        """Return the check with what it is mainly about, and its other options."""
        inner = [part.title for part in self.inner_checks()]
        first, *more = [", ".join(inner)] if inner else [*self._shown_options(), ""]
        words = [" ".join(filter(None, (self.check, first))), *more]
        return [word.replace("`", "'") for word in words if word]

    def _shown_options(self) -> Iterator[str]:
        """Yield the options that are written, the main one without its name."""
        for option in type(self).model_fields:
            value = getattr(self, option)
            default = option in Check.model_fields or option not in self.model_fields_set
            if default or value is None or isinstance(value, dict):
                continue
            if isinstance(value, bool):
                yield option if value else f"no {option}"
            else:
                yield _shown(value) if option == self.main else f"{option} {_shown(value)}"

    @classmethod
    def expand(cls, argument: Any) -> dict[str, Any]:
        """Return the options for an argument in YAML."""
        if isinstance(argument, dict):
            return argument
        if argument is None:
            return {}
        if cls.main is None:
            message = f"{cls.check} takes options, not {short(argument)}"
            raise wrong("check", message, f"write {cls.example}")
        return {cls.main: argument}

    def templates(self) -> Iterator[tuple[str, Template]]:
        """Yield the arguments that are templates over the case, by option."""
        for option in type(self).model_fields:
            yield from ((option, template) for template in _templates(getattr(self, option)))

    def inner_checks(self) -> "tuple[Check, ...]":
        """Return the checks inside a combinator."""
        return ()

    @property
    def libraries(self) -> "tuple[Library, ...]":
        """The libraries of extras that it needs with its options."""
        return self.needs

    def texts_to_embed(self, answered: "ParsedAnswer") -> Iterator[tuple[str, str]]:
        """Yield a model of models.yaml and a text for each embedding that `evaluate` compares."""
        for part in self.inner_checks():
            yield from part.texts_to_embed(answered)

    @property
    def program(self) -> str:
        """The code of the repository that it runs itself; empty if it runs none."""
        return ""

    @property
    def needs_code(self) -> bool:
        """Whether it runs code of the repository."""
        return any(part.needs_code for part in self.inner_checks())

    @property
    def blocking(self) -> bool:
        """Whether it may wait for a process, so that it is run in a thread."""
        return any(part.blocking for part in self.inner_checks())

    def evaluate(self, answered: "ParsedAnswer") -> Grade:
        """Return the grade of an answer.

        Raises MissingValueError if the case lacks a variable of an argument, and any other
        exception if the check cannot grade the answer.
        """
        raise NotImplementedError(f"the check {self.check!r} has no evaluate()")


Count = Annotated[int, Field(ge=0, le=10_000_000)]


class Range(Check):
    """A check with a lowest or a highest value, or both."""

    model_config = ConfigDict(json_schema_extra=some_of_keys("min", "max"))
    main: ClassVar[str | None] = None

    def broken_rules(self) -> Iterator[Exception]:
        """Yield the error of a range without ends, or with its ends swapped."""
        low: Any = getattr(self, "min", None)
        high: Any = getattr(self, "max", None)
        if low is None and high is None:
            yield wrong("range", f"{self.check} needs min or max", f"write {self.example}")
        if low is not None and high is not None and low > high:
            message = f"min {low:g} is above max {high:g}"
            yield wrong("range", message, "swap them, or leave one out", at=("min",))

    def _within(self, number: float, what: str) -> Grade:
        """Return 1 if a number is in the range; `what` describes the number."""
        low: Any = getattr(self, "min", None)
        high: Any = getattr(self, "max", None)
        if low is not None and number < low:
            return Grade(0.0, f"{what}; at least {low:,} wanted")
        if high is not None and number > high:
            return Grade(0.0, f"{what}; at most {high:,} allowed")
        return Grade(1.0, what)


class TrimmedCheck(Check):
    """A check that ignores surrounding white space and a code fence around all of the answer."""

    exact: bool = Field(
        False,
        description="Take the answer as it is: surrounding white space and a code fence count.",
    )


_LONGEST_TITLE = 40
_LONGEST_LONG_TITLE = 80
_LONGEST_TEXT = 24
_PATH = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")
_FLAGS = re.compile(r"^\(\?[aimsux]+\)")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _shown(value: Any) -> str:
    """Return an option in a title: a text in quotes, a single value of the case by its name."""
    if isinstance(value, Template):
        if path := _PATH.fullmatch(value.source):
            return path[1]
        value = value.source
    if isinstance(value, str):
        text = single_line(_FLAGS.sub("", value))
        return f'"{_cut(text, _LONGEST_TEXT)}"'
    if isinstance(value, tuple | list):
        return ", ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _templates(value: Any) -> Iterator[Template]:
    if isinstance(value, Template):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _templates(item)
    elif isinstance(value, dict):
        yield from _templates(list(value.values()))
    elif isinstance(value, Shape) and not isinstance(value, Check):
        for option in type(value).model_fields:
            yield from _templates(getattr(value, option))


def _compile(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return compile_template(value)
    except TemplateFaults as error:
        report(wrong(fault.code, fault.message, fault.hint) for fault in error.faults)
        raise


def _is_template(value: Any) -> Template:
    if isinstance(value, list):
        hint = "for several texts use contains_any, contains_all or one_of"
        raise wrong("type", "a list is not a text", hint)
    if not isinstance(value, Template):
        raise wrong("type", f"{short(value)} is not a text", "quote it")
    return value


def _not_empty(value: Template) -> Template:
    if not value.source:
        raise wrong("length", "the text is empty, so every answer has it", "write the text")
    return value


def when_constant(check: Callable[[str], str]) -> AfterValidator:
    """Return a validator for constant templates; others are checked when they are rendered."""

    def checked(value: Template) -> Template:
        if value.is_constant:
            check(value.source)
        return value

    return AfterValidator(checked)


TemplateText = Annotated[
    Any,
    BeforeValidator(_compile),
    AfterValidator(_is_template),
    WithJsonSchema({"type": "string"}),
]
"""A text that may use the case: `{{ expected }}`, `{{ name }}`."""

SomeText = Annotated[
    Any,
    BeforeValidator(_compile),
    AfterValidator(_is_template),
    AfterValidator(_not_empty),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
"""A text that may use the case and is not empty, because every answer contains nothing."""


def _scalar(value: Any) -> Any:
    return as_text(value) if isinstance(value, bool | int | float) else value


SCALAR: dict[str, Any] = {"anyOf": [{"type": kind} for kind in ("string", "number", "boolean")]}
"""The schema of a text, a number, true or false."""
ScalarText = Annotated[
    Any,
    BeforeValidator(_compile),
    BeforeValidator(_scalar),
    AfterValidator(_is_template),
    WithJsonSchema(SCALAR),
]
"""A text that may use the case, or a number, true or false as they appear in a prompt."""


def text_of_form(form: TextPattern) -> Any:
    """Return the type of a text of this form, or of a template that renders to one."""
    return Annotated[
        Any,
        BeforeValidator(_compile),
        AfterValidator(_is_template),
        when_constant(form.check),
        WithJsonSchema({"type": "string", "pattern": rf"^(?:{form.pattern})$|\{{[{{%]"}),
    ]


_LIST_HINT = "write [a, b], or one variable that holds a list: {{ name }}"


def one_variable(value: str) -> Template:
    """Return the template of a single variable, which holds a list."""
    template = _compile(value)
    if template.single is None:
        raise wrong("type", f"{short(value)} is not a list", _LIST_HINT)
    return template  # type: ignore[no-any-return]  # compiled from a text


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        return one_variable(value)
    if not isinstance(value, list) or not value:
        raise wrong("type", f"{short(value)} is not a list of texts", _LIST_HINT)
    for index, item in enumerate(value):
        if not isinstance(item, str) or not item:
            message = f"{short(item)} is not a text" if item != "" else "the text is empty"
            hint = "quote it" if item != "" else "write the text, or remove it"
            raise wrong("type", message, hint, at=(index,))
    return tuple(_compile(item) for item in value)


ONE_VARIABLE = {"type": "string", "pattern": r"^\s*\{\{[-+]?\s*[A-Za-z]\w*\s*[-+]?\}\}\s*$"}


TemplateTexts = Annotated[
    Any,
    BeforeValidator(_texts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
                ONE_VARIABLE,
            ]
        }
    ),
]
"""A list of texts, or one variable of the case that holds a list."""


def _compile_inside(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _compile_inside(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_compile_inside(item) for item in value]
    if isinstance(value, str):
        template = _compile(value)
        return value if template.is_constant else template
    return value


TemplateData = Annotated[
    dict[str, Any], AfterValidator(_compile_inside), WithJsonSchema({"type": "object"})
]
"""Any data; texts inside it may use the case."""


_EXPECTED = compile_template("{{ expected }}")


def expected_output(description: str) -> Any:
    """Return the field of an argument that is the expected output by default."""
    # A factory, because pydantic copies defaults, and a compiled template cannot be copied.
    return Field(
        default_factory=lambda: _EXPECTED,
        description=description,
        json_schema_extra={"default": "{{ expected }}"},
    )


def check_class(name: str) -> type[Check] | None:
    """Return the class of a check, built in or installed; None if it is unknown."""
    kind = REGISTRY.load_class(name, Check)
    if kind is None or name in REGISTRY.built_in:
        return kind
    lacking = [attribute for attribute in ("check", "example") if not hasattr(kind, attribute)]
    lacking += ["evaluate"] if kind.evaluate is Check.evaluate else []
    fault = f"does not define {', '.join(lacking)}" if lacking else ""
    if not fault and kind.check != name:
        fault = f"calls itself {kind.check!r}"
    if fault:
        raise UsageError(
            f"the check {name!r} of {REGISTRY.package(name)} {fault}",
            hint="reinstall or uninstall the package it is from",
        )
    return kind


def parse_check(entry: Any, depth: int = 1) -> Check:
    """Return the check of an entry in YAML; raises ValidationError."""
    if isinstance(entry, Check):
        return entry
    if not isinstance(entry, dict) or len(entry) != 1:
        raise _no_entry(entry)
    if depth > MAX_NESTING:
        hint = "put fewer not, any_of and all_of inside each other"
        raise wrong("depth", f"checks are nested deeper than {MAX_NESTING} levels", hint)
    ((name, argument),) = entry.items()
    kind = check_class(name)
    if kind is None:
        raise wrong("unknown-check", f"unknown check {short(name)}", partial(_near_check, name))
    options = kind.expand(argument)
    try:
        return kind.model_validate(options, context={"depth": depth})
    except ValidationError as error:
        errors = details(error, below=(name,))
        if options is not argument:
            errors = [_at_argument(item, (name, str(kind.main))) for item in errors]
        raise ValidationError.from_exception_data(name, errors) from None


def _near_check(name: str) -> str:
    return did_you_mean(name, REGISTRY.names()) or "list them: edison admin schema experiment"


def _no_entry(entry: Any) -> Exception:
    """Return the error for an entry that is not a map with one key."""
    if isinstance(entry, str):
        kind = check_class(entry)
        hint = f"write {kind.example}" if kind else "write NAME: ARGUMENT"
        return wrong("check", f"{short(entry)} is not a check but a text", hint)
    if not isinstance(entry, dict) or not entry:
        return wrong("check", f"{short(entry)} is not a check", "write NAME: ARGUMENT")
    names = [key for key in entry if key not in Check.model_fields]
    others = [key for key in entry if key in Check.model_fields]
    hint = "write one entry for each check"
    if len(names) == 1:
        hint = f"put {' and '.join(others)} inside: {names[0][:50]}: {{..., {others[0]}: ...}}"
    listed = ", ".join(str(key) for key in entry)
    message = f"a check is a map with exactly one name; this has {len(entry)} keys: {listed}"
    return wrong("check", message if len(message) < 200 else message[:197] + "...", hint)


def _at_argument(item: "InitErrorDetails", main: tuple[str, str]) -> "InitErrorDetails":
    """Return an error of the main option with the location of the bare argument."""
    loc = item.get("loc", ())
    if loc[:2] == main:
        item["loc"] = (loc[0], *loc[2:])
    return item


def _parse(value: Any, info: Any) -> Check:
    context = info.context if isinstance(info.context, dict) else {}
    return parse_check(value, int(context.get("depth", 0)) + 1)


CheckEntry = Annotated[Any, BeforeValidator(_parse), WithJsonSchema({"x-shape": "Check"})]
"""A check in one-key syntax."""
