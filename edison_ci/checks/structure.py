"""Checks of the shape of an answer: JSON, XML, HTML, YAML, SQL and numbers."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from pydantic import (
    BeforeValidator,
    Field,
    WithJsonSchema,
)

from edison_ci.checks.evaluation import (
    EvaluationError,
    Grade,
    quote,
    refuse_long,
    shorten,
    strip_fence,
)
from edison_ci.checks.json_schema import message_of, validator
from edison_ci.checks.markup import LONGEST_HTML, NotMarkupError, check_html, check_xml
from edison_ci.checks.options import (
    Check,
    ScalarText,
    TemplateText,
    TrimmedCheck,
    expected_output,
    when_constant,
)
from edison_ci.checks.patterns import LINEAR, analyse_pattern
from edison_ci.checks.time_limit import run_job
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.shape import PATH_PATTERN, TextPattern, normal_path, short, wrong
from edison_ci.templating.templates import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edison_ci.checks.evaluation import ParsedAnswer
    from edison_ci.records import Json


_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(-?[0-9]+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_SHORT = 100_000
_FEW_APPLICATIONS = 2_000_000
_LONG_VALIDATION_S = 5.0
_ENDLESS = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"}
)
_REMEMBERED = 64


def json_equal(value: Json, other: Json) -> bool:
    """Whether two JSON values are equal; 1 equals 1.0, but not true."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(json_equal, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(
            json_equal(value[key], other[key]) for key in value
        )
    return value == other


def equals_text(value: Json, text: str) -> bool:
    """Whether a value equals a text: strings are compared as they are, others as JSON."""
    if isinstance(value, str):
        return value == text
    try:
        return json_equal(value, parse_json(text.strip()))
    except Fault:
        return False


class PathError(LookupError):
    """A value has nothing at a path; the message says what is missing."""


def parse_path(path: str) -> tuple[str | int, ...]:
    """Return the keys and indexes of a path such as $.items[0].id."""
    return tuple(
        int(step[2]) if step[2] else str(step[1] or step[3] or step[4] or "")
        for step in _STEP.finditer(path)
    )


def value_at(value: Json, steps: tuple[str | int, ...]) -> Json:
    """Return the value at a path; raises PathError."""
    at = "$"
    for step in steps:
        if isinstance(step, str):
            if not isinstance(value, dict):
                raise PathError(f"{at} is not an object, so it has no {step!r}")
            if step not in value:
                raise PathError(f"{at} has no {step!r}")
            value, at = value[step], f"{at}.{step}"
            continue
        if not isinstance(value, list):
            raise PathError(f"{at} is not a list, so it has no [{step}]")
        if not -len(value) <= step < len(value):
            raise PathError(f"{at} has {len(value)} items, so it has no [{step}]")
        value, at = value[step], f"{at}[{step}]"
    return value


class _PreparedSchema(NamedTuple):
    """A schema, its validator, and the cost of using it."""

    schema: Json
    """Keeps the object alive, as the key of the table is its id()."""
    validator: Any
    effort: int
    """Upper bound of the work for each character of a value, if it is bounded."""
    is_tame: bool
    """Whether each part of the schema visits each part of a value at most once."""


_prepared_schemas: dict[int, _PreparedSchema] = {}


def _prepare(schema: Any) -> _PreparedSchema:
    prepared = _prepared_schemas.get(id(schema))
    if prepared is None:
        if len(_prepared_schemas) >= _REMEMBERED:
            _prepared_schemas.clear()
        prepared = _PreparedSchema(schema, validator(schema), _effort(schema), is_bounded(schema))
        _prepared_schemas[id(schema)] = prepared
    return prepared


def _schema_values(schema: Json) -> Iterator[Json]:
    stack = [schema]
    while stack:
        item = stack.pop()
        yield item
        if isinstance(item, dict | list):
            stack.extend(item.values() if isinstance(item, dict) else item)


def _schema_patterns(part: dict[str, Json]) -> Iterator[Json]:
    if "pattern" in part:
        yield part["pattern"]
    named = part.get("patternProperties")
    yield from named if isinstance(named, dict) else ()


def _effort(schema: Json) -> int:
    """Return the number of values in a schema plus the steps of its patterns."""
    total = 0
    for item in _schema_values(schema):
        total += 1
        if isinstance(item, dict):
            total += sum(_pattern_steps(pattern) for pattern in _schema_patterns(item))
    return total


def is_bounded(schema: Json) -> bool:
    """Whether validation is fast: no references, no uniqueItems, only linear patterns.

    Keywords are searched everywhere, also where they are names of properties, which errs on the
    safe side.
    """
    for part in _schema_values(schema):
        if not isinstance(part, dict):
            continue
        if not _ENDLESS.isdisjoint(part) or part.get("uniqueItems"):
            return False
        if any(_pattern_steps(pattern) > LINEAR for pattern in _schema_patterns(part)):
            return False
    return True


def _pattern_steps(pattern: Json) -> int:
    """Return the steps of a pattern for each character; 0 if it is not a string."""
    if not isinstance(pattern, str):
        return 0
    try:
        return analyse_pattern(pattern).steps
    except (re.error, RecursionError, OverflowError):
        return 2 * LINEAR


def schema_error(schema: Json, value: Json, length: int) -> str:
    """Return the first error of a value by a schema, or ''; `length` is that of its text."""
    prepared = _prepare(schema)
    if prepared.is_tame and length <= _SHORT and length * prepared.effort <= _FEW_APPLICATIONS:
        error = next(prepared.validator.iter_errors(value), None)
        return "" if error is None else _error_text(error.json_path, message_of(error))
    reply = run_job("schema", schema, value, what="the JSON Schema", limit_s=_LONG_VALIDATION_S)
    if reply is None:
        return ""
    if not isinstance(reply, list):  # pragma: no cover - the worker always returns a list
        raise EvaluationError("the worker returned no result for the JSON Schema")
    return _error_text(str(reply[0]), str(reply[1]))


def _error_text(path: str, message: str) -> str:
    return shorten(f"{path[:100]}: {message[:150]}")


_TAIL = 2_000
_LAST_NUMBER = re.compile(
    r"(?:(?<![\w.])[-\u2212][$\u20ac\u00a3]?)?"
    r"(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++|(?<![\w.])\.\d)\d*+(?:\.\d++)?(?:[eE][+-]?\d{1,4}+(?!\d))?",
    re.ASCII,
)
_NOISE = str.maketrans({",": "", "$": "", "\u20ac": "", "\u00a3": "", "\u2212": "-"})


def last_number(text: str) -> str | None:
    """Return the last number of a text as written; None if its end has none."""
    tail = text[-_TAIL:]
    cut = len(text) > _TAIL  # a number at the start of the tail may lack its first digits
    last = None
    for match in _LAST_NUMBER.finditer(tail):
        if match.start() or not cut:
            last = match.group()
    return last


def parse_argument(text: str) -> Decimal:
    """Return the argument of a check as a number; raises EvaluationError."""
    text = text.strip()
    if len(text) > _TAIL or not _LAST_NUMBER.fullmatch(text):
        raise EvaluationError(f"{quote(text)} is not a number; write 42 or {{{{ expected }}}}")
    return read_number(text)


def read_number(text: str) -> Decimal:
    """Return the value of a number that `last_number` found."""
    return Decimal(text.translate(_NOISE))


def is_close(number: Decimal, other: Decimal, tolerance: float) -> bool:
    """Whether two numbers differ by no more than the tolerance."""
    try:
        return number == other or abs(number - other) <= Decimal(str(tolerance))
    except ArithmeticError:  # out of range of decimal arithmetic
        return False


_LONGEST_SQL = 500_000
_LONGEST_YAML = 1_000_000


def _no_data(fault: Fault) -> Grade:
    line, column = fault.at
    return Grade(0.0, shorten(f"{fault.message} (line {line + 1}, column {column + 1})"))


_ANYWHERE = "Whether a JSON object somewhere in the answer is enough."
_MOST_OBJECTS = 1_000
"""Beginnings of objects that are tried in an answer."""


def _objects_in(answered: ParsedAnswer) -> Iterator[Json]:
    """Yield the JSON objects in an answer, from left to right, not those inside of others."""
    refuse_long(answered, "JSON", _SHORT)
    text, at = answered.text, 0
    decoder = json.JSONDecoder()
    for _ in range(_MOST_OBJECTS):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        yield value


class IsJson(TrimmedCheck):
    """The answer is JSON."""

    check: ClassVar[str] = "is_json"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_json: {}"

    anywhere: bool = Field(False, description=_ANYWHERE)

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the answer parses, or an object in it."""
        if self.anywhere:
            has_object = next(_objects_in(answered), None) is not None
            return Grade.of(has_object, "there is no JSON object in the answer")
        try:
            answered.json(exact=self.exact)
        except Fault as fault:
            return _no_data(fault)
        return Grade(1.0, "the answer is JSON")


def _schema_or_path(value: Any) -> Any:
    if isinstance(value, str):
        return normal_path(value)
    if isinstance(value, dict):
        return value
    raise wrong("type", f"{short(value)} is not a JSON Schema", "write {type: object} or a path")


_UNDER_VALUE = "a schema goes under value: json_schema: {value: {type: object}}"


class JsonSchema(TrimmedCheck):
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

    anywhere: bool = Field(False, description=_ANYWHERE)

    @property
    def blocking(self) -> bool:
        """False only for a bounded schema that is given inline."""
        return not (isinstance(self.value, dict) and is_bounded(self.value))

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the answer, or an object in it, is JSON that the schema accepts."""
        schema: Json = self.value
        if isinstance(schema, str):
            if schema not in answered.schemas:
                raise EvaluationError(f"the schema {schema} was not loaded")
            schema = answered.schemas[schema]
        if self.anywhere:
            return _accepts_any(schema, answered)
        try:
            value = answered.json(exact=self.exact)
        except Fault as fault:
            return _no_data(fault)
        breach = schema_error(schema, value, len(answered.text))
        return Grade(0.0, breach) if breach else Grade(1.0, "the schema accepts the answer")


def _accepts_any(schema: Json, answered: ParsedAnswer) -> Grade:
    breach = "there is no JSON object in the answer"
    for value in _objects_in(answered):
        breach = schema_error(schema, value, len(answered.text))
        if not breach:
            return Grade(1.0, "the schema accepts an object in the answer")
    return Grade(0.0, breach)


_JSON_PATH = TextPattern(
    # Editors read it as a Unicode expression, which refuses \" as an escape.
    r"""\$(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[(?:-?[0-9]+|'[^']*'|"[^"]*")\])*""",
    "a path",
    "write $.order.items[0].id",
    "json-path",
)


class JsonPath(TrimmedCheck):
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

    @cached_property
    def _steps(self) -> tuple[str | int, ...]:
        return parse_path(self.path)

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if there is a value at the path and it is the expected one."""
        expected = None if self.value is None else answered.render(self.value)
        try:
            value = value_at(answered.json(exact=self.exact), self._steps)
        except Fault as fault:
            return _no_data(fault)
        except PathError as error:
            return Grade(0.0, shorten(str(error)))
        if expected is None or equals_text(value, expected):
            return Grade(1.0, f"{self.path} is {quote(as_text(value))}")
        return Grade(0.0, f"{self.path} is {quote(as_text(value))}, not {quote(expected)}")


class _Content(TrimmedCheck):
    main: ClassVar[str | None] = None

    def _content(self, answered: ParsedAnswer) -> str:
        """Return the answer without a code fence, unless it is taken as it is."""
        return answered.text.strip() if self.exact else strip_fence(answered.text)

    def _grade(self, answered: ParsedAnswer, read: Callable[[str], None], what: str) -> Grade:
        try:
            read(self._content(answered))
        except NotMarkupError as error:
            return Grade(0.0, shorten(str(error)))
        return Grade(1.0, f"the answer is {what}")


class IsXml(_Content):
    """The answer is well-formed XML."""

    check: ClassVar[str] = "is_xml"
    example: ClassVar[str] = "is_xml: {}"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the answer is one well-formed document that declares no entities."""
        return self._grade(answered, check_xml, "XML")


class IsHtml(_Content):
    """The answer is HTML."""

    check: ClassVar[str] = "is_html"
    example: ClassVar[str] = "is_html: {}"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the answer starts and ends with balanced tags of HTML."""
        refuse_long(answered, self.check, LONGEST_HTML)
        return self._grade(answered, check_html, "HTML")


class IsSql(_Content):
    """The answer is one SQL statement that parses."""

    check: ClassVar[str] = "is_sql"
    example: ClassVar[str] = "is_sql: {}"

    @property
    def blocking(self) -> bool:
        """Always true: parsing happens in another process."""
        return True

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if SQLite parses the answer as one statement."""
        refuse_long(answered, self.check, _LONGEST_SQL)
        statement = self._content(answered)
        if not statement:
            return Grade(0.0, "the answer is empty")
        fault = run_job("sql", statement, what="parsing the SQL")
        if fault is None:
            return Grade(1.0, "the answer is one SQL statement")
        return Grade(0.0, shorten(f"not SQL as SQLite reads it: {fault}"))


class IsYaml(Check):
    """The answer is YAML."""

    check: ClassVar[str] = "is_yaml"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_yaml: {}"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the answer is a map or a list in YAML as files of a project are read."""
        refuse_long(answered, self.check, _LONGEST_YAML)
        try:
            document = read_yaml(strip_fence(answered.text), "the answer")
        except Fault as fault:
            return _no_data(fault)
        if document.problems:
            return Grade(0.0, shorten(f"not YAML: {document.problems[0].message}"))
        if not isinstance(document.value, dict | list):
            return Grade(0.0, "the answer is plain text, not a map or a list in YAML")
        return Grade(1.0, "the answer is YAML")


_NUMBER = TextPattern(
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

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the last number of the answer is within the tolerance."""
        expected = parse_argument(answered.render_required(self.value))
        written = last_number(answered.text)
        if written is None:
            return Grade(0.0, "the answer has no number at its end")
        if is_close(read_number(written), expected, self.tolerance):
            return Grade(1.0, f"the answer ends in {quote(written)}")
        more = f" within {self.tolerance:g}" if self.tolerance else ""
        message = f"the answer ends in {quote(written)}, not in {quote(str(expected), 40)}{more}"
        return Grade(0.0, message)


class JsonDiff(Check):
    """Share of the values that the answer, as JSON, has in common with the reference."""

    check: ClassVar[str] = "json_diff"
    graded: ClassVar[bool] = True
    example: ClassVar[str] = "json_diff: {threshold: 0.9}"
    value: TemplateText = expected_output("The reference, JSON; the expected output by default.")

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return the mean over keys and positions of both, recursively; other values 1 or 0."""
        try:
            value = answered.json()
        except Fault as fault:
            return _no_data(fault)
        reference = self.value.value(answered.case.variables)
        if isinstance(reference, str):
            try:
                reference = parse_json(reference.strip())
            except Fault as fault:
                raise EvaluationError(f"the reference is not JSON: {fault.message}") from None
        differing: list[str] = []
        score = _likeness(reference, value, "$", differing)
        reason = f"{differing[0]} differs" if differing else "both are equal"
        return Grade(score, shorten(reason))


def _likeness(reference: Json, value: Json, at: str, differing: list[str]) -> float:
    """Return how much of two values is equal; paths that differ are added to the list."""
    parts: list[float] = []
    if isinstance(reference, dict) and isinstance(value, dict):
        for key in dict.fromkeys([*reference, *value]):
            path = f"{at}.{key}"
            if key in reference and key in value:
                parts.append(_likeness(reference[key], value[key], path, differing))
            else:
                differing.append(path)
                parts.append(0.0)
    elif isinstance(reference, list) and isinstance(value, list):
        for index, (item, other) in enumerate(zip(reference, value, strict=False)):
            parts.append(_likeness(item, other, f"{at}[{index}]", differing))
        if missing := abs(len(reference) - len(value)):
            differing.append(f"{at}[{len(parts)}]")
            parts += [0.0] * missing
    if parts:
        return sum(parts) / len(parts)
    same = json_equal(reference, value)
    if not same:
        differing.append(at)
    return float(same)
