"""Is the answer data of this shape?"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    Field,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from edison_ci.checks.evaluation import EvaluationError, Grade, brief, quote, too_long, unfenced
from edison_ci.checks.json_values import (
    NothingThereError,
    is_tame,
    reads_as,
    schema_breach,
    steps_of,
    value_at,
)
from edison_ci.checks.last_number import last_number, near, number_of, read_number
from edison_ci.checks.markup import LONGEST_HTML, NotMarkupError, check_html, check_xml
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
from edison_ci.checks.tool_calls import Call, calls_from, calls_of, matched, wanted_call
from edison_ci.checks.worker import bounded
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.shape import PATH_PATTERN, Or, Shape, Written, checked_path, items, short, wrong
from edison_ci.templating import Template, as_text

if TYPE_CHECKING:
    from edison_ci.checks.evaluation import Answered
    from edison_ci.records import Json

_LONGEST_SQL = 500_000
_LONGEST_YAML = 1_000_000


def _no_data(fault: Fault) -> Grade:
    line, column = fault.at
    return Grade(0.0, brief(f"{fault.message} (line {line + 1}, column {column + 1})"))


def _instead(made: list[Call]) -> str:
    return f"; {quote(made[0].tool, 40)} was" if made else "; no tool was"


class IsJson(Check):
    """The answer is JSON."""

    check: ClassVar[str] = "is_json"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_json: {}"

    def evaluate(self, answered: Answered) -> Grade:
        """Return 1 if the answer parses."""
        try:
            answered.json()
        except Fault as fault:
            return _no_data(fault)
        return Grade(1.0, "the answer is JSON")


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

    @property
    def blocking(self) -> bool:
        """Unless the schema is here and cannot take long."""
        return not (isinstance(self.value, dict) and is_tame(self.value))

    def evaluate(self, answered: Answered) -> Grade:
        """Return 1 if the schema accepts the value that the answer is."""
        try:
            value = answered.json()
        except Fault as fault:
            return _no_data(fault)
        schema: Json = self.value
        if isinstance(schema, str):
            if schema not in answered.schemas:
                raise EvaluationError(f"the schema {schema} was not loaded")
            schema = answered.schemas[schema]
        breach = schema_breach(schema, value, len(answered.text))
        return Grade(0.0, breach) if breach else Grade(1.0, "the schema accepts the answer")


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

    @cached_property
    def _steps(self) -> tuple[str | int, ...]:
        return steps_of(self.path)

    def evaluate(self, answered: Answered) -> Grade:
        """Return 1 if there is a value at the path and it is the one wanted."""
        wanted = None if self.value is None else answered.render(self.value)
        try:
            found = value_at(answered.json(), self._steps)
        except Fault as fault:
            return _no_data(fault)
        except NothingThereError as error:
            return Grade(0.0, brief(str(error)))
        if wanted is None or reads_as(found, wanted):
            return Grade(1.0, f"{self.path} is {quote(as_text(found))}")
        return Grade(0.0, f"{self.path} is {quote(as_text(found))}, not {quote(wanted)}")


class IsXml(Check):
    """The answer is well-formed XML."""

    check: ClassVar[str] = "is_xml"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_xml: {}"

    def evaluate(self, answered: Answered) -> Grade:
        """Return 1 if the answer is one well-formed document that declares no entities."""
        try:
            check_xml(unfenced(answered.text))
        except NotMarkupError as error:
            return Grade(0.0, brief(str(error)))
        return Grade(1.0, "the answer is XML")


class IsHtml(Check):
    """The answer is HTML."""

    check: ClassVar[str] = "is_html"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_html: {}"

    def evaluate(self, answered: Answered) -> Grade:
        """Return 1 if the answer starts and ends with tags of HTML that fit together."""
        too_long(answered, self.check, LONGEST_HTML)
        try:
            check_html(unfenced(answered.text))
        except NotMarkupError as error:
            return Grade(0.0, brief(str(error)))
        return Grade(1.0, "the answer is HTML")


class IsSql(Check):
    """The answer is one SQL statement that parses."""

    check: ClassVar[str] = "is_sql"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_sql: {}"

    @property
    def blocking(self) -> bool:
        """Always: parsing happens in another process."""
        return True

    def evaluate(self, answered: Answered) -> Grade:
        """Return 1 if SQLite's parser takes the answer as one statement."""
        too_long(answered, self.check, _LONGEST_SQL)
        statement = unfenced(answered.text)
        if not statement:
            return Grade(0.0, "the answer is empty")
        fault = bounded("sql", statement, what="parsing the SQL")
        if fault is None:
            return Grade(1.0, "the answer is one SQL statement")
        return Grade(0.0, brief(f"not SQL as SQLite reads it: {fault}"))


class IsYaml(Check):
    """The answer is YAML."""

    check: ClassVar[str] = "is_yaml"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "is_yaml: {}"

    def evaluate(self, answered: Answered) -> Grade:
        """Return 1 if the answer is a map or a list in YAML as files of a project are read."""
        too_long(answered, self.check, _LONGEST_YAML)
        try:
            document = read_yaml(unfenced(answered.text), "the answer")
        except Fault as fault:
            return _no_data(fault)
        if document.problems:
            return Grade(0.0, brief(f"not YAML: {document.problems[0].message}"))
        if not isinstance(document.value, dict | list):
            return Grade(0.0, "the answer is plain text, not a map or a list in YAML")
        return Grade(1.0, "the answer is YAML")


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

    def evaluate(self, answered: Answered) -> Grade:
        """Return 1 if the last number of the answer is within the tolerance."""
        wanted = number_of(answered.some(self.value))
        written = last_number(answered.text)
        if written is None:
            return Grade(0.0, "the answer has no number at its end")
        if near(read_number(written), wanted, self.tolerance):
            return Grade(1.0, f"the answer ends in {quote(written)}")
        more = f" within {self.tolerance:g}" if self.tolerance else ""
        said = f"the answer ends in {quote(written)}, not in {quote(str(wanted), 40)}{more}"
        return Grade(0.0, said)


class ToolCall(Check):
    """The model called this tool, with these arguments."""

    check: ClassVar[str] = "tool_call"
    main: ClassVar[str | None] = "tool"
    example: ClassVar[str] = "tool_call: {tool: get_weather, arguments: {city: Oslo}}"
    tool: SomeText = Field(description="Name of the tool.")
    arguments: TemplateData | None = Field(
        None, description="Arguments that must be among those given; any by default."
    )

    def evaluate(self, answered: Answered) -> Grade:
        """Return 1 if a call of the tool has the arguments, perhaps among others."""
        wanted = wanted_call(answered, self.tool, self.arguments)
        made = calls_of(answered.completion.tool_calls)
        if any(wanted.fits(call) for call in made):
            return Grade(1.0, f"{quote(wanted.tool)} was called")
        if any(wanted.tool == call.tool for call in made):
            return Grade(0.0, f"{quote(wanted.tool)} was called with other arguments")
        return Grade(0.0, f"{quote(wanted.tool)} was not called{_instead(made)}")


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

    def evaluate(self, answered: Answered) -> Grade:
        """Return 2 x calls in common / (calls wanted + calls made)."""
        if isinstance(self.value, Template):
            name = str(self.value.single)
            wanted = calls_from(self.value.value(answered.case.variables), name)
        else:
            wanted = [wanted_call(answered, call.tool, call.arguments) for call in self.value]
        made = calls_of(answered.completion.tool_calls)
        if not wanted and not made:
            return Grade(1.0, "no tool was wanted and none was called")
        common = matched(wanted, made)
        said = f"{common} of {len(wanted)} calls wanted were made, of {len(made)} in all"
        return Grade(2 * common / (len(wanted) + len(made)), said)
