"""Checks of the shape of an answer: JSON, XML, HTML, YAML, SQL, numbers and tool calls."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, NoReturn
from xml.parsers import expat

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
    same,
    schema_breach,
    steps_of,
    value_at,
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
from edison_ci.checks.worker import bounded
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.shape import PATH_PATTERN, Or, Shape, Written, checked_path, items, short, wrong
from edison_ci.templating.templates import Template, as_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.checks.evaluation import Answered
    from edison_ci.records import Json


_MOST = 1_000
_MOST_WANTED = 100


class Call(NamedTuple):
    """A tool and its arguments; None for any."""

    tool: str
    arguments: dict[str, Json] | None

    def fits(self, made: Call) -> bool:
        """Whether a call that was made is this one: same tool, and these arguments among its."""
        if self.tool != made.tool:
            return False
        given = made.arguments or {}
        wanted = self.arguments or {}
        return all(key in given and same(value, given[key]) for key, value in wanted.items())


def calls_of(listed: Json) -> list[Call]:
    """Return the calls of a completion, whether in OpenAI's, Anthropic's or the plain form."""
    if not isinstance(listed, list):
        return []
    return [call for item in listed[:_MOST] if (call := _call(item)) is not None]


def _call(item: Json) -> Call | None:
    if not isinstance(item, dict):
        return None
    inner = item.get("function")
    body = inner if isinstance(inner, dict) else item
    name = body.get("name", body.get("tool"))
    if not isinstance(name, str):
        return None
    arguments = body.get("arguments", body.get("input"))
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments)
        except Fault:
            arguments = None
    return Call(name, arguments if isinstance(arguments, dict) else {})


def wanted_call(answered: Answered, tool: Template, arguments: Json) -> Call:
    """Return a call that a check describes, filled in for a case."""
    filled = fill(arguments, answered.case.variables)
    return Call(answered.some(tool), filled if isinstance(filled, dict) else None)


def fill(data: Any, values: Mapping[str, Json]) -> Json:
    """Return data with its templates rendered; one that is a single variable keeps its kind."""
    if isinstance(data, Template):
        return data.value(values)
    if isinstance(data, dict):
        return {key: fill(item, values) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return [fill(item, values) for item in data]
    return data  # type: ignore[no-any-return]  # a scalar of YAML


def calls_from(value: Json, name: str) -> list[Call]:
    """Return the calls that a variable of a case lists; an empty list wants no call."""
    if not isinstance(value, list):
        raise EvaluationError(f"{name} is not a list of tool calls")
    if len(value) > _MOST_WANTED:
        raise EvaluationError(f"{name} lists more than {_MOST_WANTED} tool calls")
    found = []
    for item in value:
        call = Call(item, None) if isinstance(item, str) else _call(item)
        if call is None:
            raise EvaluationError(f"{name} holds something that is not a tool call")
        if isinstance(item, dict) and not {"arguments", "input", "function"} & item.keys():
            call = Call(call.tool, None)
        found.append(call)
    return found


def matched(wanted: Sequence[Call], made: Sequence[Call]) -> int:
    """Return how many wanted calls can be paired with calls that were made, each used once.

    The largest pairing (Kuhn 1955, by augmenting paths): a call without arguments must not take
    the only one that fits a stricter one.
    """
    taken: dict[int, int] = {}
    fits = [[j for j, call in enumerate(made) if want.fits(call)] for want in wanted]

    def place(index: int, seen: set[int]) -> bool:
        for j in fits[index]:
            if j not in seen:
                seen.add(j)
                if j not in taken or place(taken[j], seen):
                    taken[j] = index
                    return True
        return False

    return sum(place(index, set()) for index in range(len(wanted)))


# Both readers go over the text once, follow nothing that lies outside it, and build nothing.
LONGEST_HTML = 500_000

_EMPTY = "area base br col embed hr img input link meta param source track wbr"
_LEFT_OPEN = "html head body p li dt dd option optgroup rp rt colgroup thead tbody tfoot tr td th"
_CLOSED = """
    a abbr address article aside audio b bdi bdo blockquote button canvas caption cite code data
    datalist del details dfn dialog div dl em fieldset figcaption figure footer form h1 h2 h3 h4 h5
    h6 header hgroup i iframe ins kbd label legend main map mark menu meter nav noscript object ol
    output picture pre progress q s samp script search section select slot small span strong style
    sub summary sup svg table template textarea time title u ul var video
"""
_VOID = frozenset(_EMPTY.split())
_MAY_STAY_OPEN = frozenset(_LEFT_OPEN.split())
_KNOWN = _VOID | _MAY_STAY_OPEN | frozenset(_CLOSED.split())
_RAW = {
    name: re.compile(rf"</{name}\s*+>", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title")
}
_MARK = re.compile(r"<(?:(/?)([A-Za-z][^\s/>]*+)|(!--|[!?]))")  # any other < is text
_UNTIL_QUOTE = re.compile(r"[^\"'>]*+")


class NotMarkupError(ValueError):
    """Why a text is not what it should be."""


# --- XML ------------------------------------------------------------------------------------------


def check_xml(text: str) -> None:
    """Raise NotMarkupError unless a text is one well-formed XML document without entities."""
    parser = expat.ParserCreate("utf-8")
    parser.EntityDeclHandler = _refuse_entity
    try:
        parser.Parse(text.encode(), True)
    except UnicodeEncodeError:
        raise NotMarkupError("not XML: a lone surrogate is not a character") from None
    except expat.ExpatError as error:
        said = expat.ErrorString(error.code)
        place = f"line {error.lineno}, column {error.offset + 1}"
        raise NotMarkupError(f"not XML: {said} ({place})") from None


def _refuse_entity(name: str, *_: object) -> NoReturn:
    """An entity may stand for gigabytes, or for a file of this machine."""
    raise NotMarkupError(f"the XML declares an entity ({name[:40]}), which is not read")


# --- HTML -----------------------------------------------------------------------------------------


def check_html(text: str) -> None:
    """Raise NotMarkupError unless a text starts and ends with tags of HTML that fit together."""
    if not text.startswith("<") or not text.endswith(">"):
        raise NotMarkupError("not HTML: it does not start and end with a tag")
    reader = _Html(text)
    reader.read()
    if not reader.known:
        raise NotMarkupError("not HTML: none of its tags is an element of HTML")


class _Html:
    """Goes from tag to tag and remembers which are open."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._open: list[str] = []
        self.known = False
        """Whether there was an element of HTML."""

    def read(self) -> None:
        while found := _MARK.search(self._text, self._at):
            if found[2]:
                self._tag(found)
            elif found[3] == "!--":
                self._at = self._after("-->", found.end(), "a comment")
            else:
                self._at = self._after(">", found.end(), "a declaration")
        left = [name for name in self._open if name not in _MAY_STAY_OPEN]
        if left:
            raise NotMarkupError(f"not HTML: <{left[-1][:40]}> is never closed")

    def _tag(self, found: re.Match[str]) -> None:
        name = found[2].lower()
        self._at = end = self._end_of_tag(found.end())
        self.known = self.known or name in _KNOWN
        if found[1]:
            self._close(name, found.start())
        elif name not in _VOID and self._text[end - 2] != "/":
            self._open.append(name)
            if name in _RAW:
                inside = _RAW[name].search(self._text, end)
                if inside is None:
                    raise NotMarkupError(f"not HTML: <{name}> is never closed")
                self._at = inside.start()

    def _close(self, name: str, at: int) -> None:
        while self._open and self._open[-1] != name and self._open[-1] in _MAY_STAY_OPEN:
            self._open.pop()
        if name in _VOID or not self._open or self._open.pop() != name:
            line = self._text.count("\n", 0, at) + 1
            raise NotMarkupError(f"not HTML: </{name[:40]}> in line {line} closes nothing")

    def _end_of_tag(self, at: int) -> int:
        """Return the place after the > that is not inside quotes."""
        while True:
            found = _UNTIL_QUOTE.match(self._text, at)
            at = found.end() if found else at
            if at >= len(self._text):
                raise NotMarkupError("not HTML: a tag has no end")
            if self._text[at] == ">":
                return at + 1
            at = self._after(self._text[at], at + 1, "a quoted value")

    def _after(self, mark: str, start: int, what: str) -> int:
        end = self._text.find(mark, start)
        if end < 0:
            raise NotMarkupError(f"not HTML: {what} has no end")
        return end + len(mark)


_TAIL = 2_000
_LAST_NUMBER = re.compile(
    r"(?:(?<![\w.])[-\u2212][$\u20ac\u00a3]?)?"
    r"(?:\d{1,3}(?:,\d{3})++(?!\d)|\d++|(?<![\w.])\.\d)\d*+(?:\.\d++)?(?:[eE][+-]?\d{1,4}+(?!\d))?",
    re.ASCII,
)
_NOISE = str.maketrans({",": "", "$": "", "\u20ac": "", "\u00a3": "", "\u2212": "-"})


def last_number(text: str) -> str | None:
    """Return the last number of a text as it is written, or None if its end has none."""
    tail = text[-_TAIL:]
    cut = len(text) > _TAIL  # a number at the very start of the tail may lack its first digits
    last = None
    for found in _LAST_NUMBER.finditer(tail):
        if found.start() or not cut:
            last = found.group()
    return last


def number_of(text: str) -> Decimal:
    """Return the number that the argument of a check is."""
    text = text.strip()
    if len(text) > _TAIL or not _LAST_NUMBER.fullmatch(text):
        raise EvaluationError(f"{quote(text)} is not a number; write 42 or {{{{ expected }}}}")
    return read_number(text)


def read_number(text: str) -> Decimal:
    """Return the value of a number as `last_number` finds it."""
    return Decimal(text.translate(_NOISE))


def near(one: Decimal, other: Decimal, tolerance: float) -> bool:
    """Whether two numbers differ by no more than the tolerance."""
    try:
        return one == other or abs(one - other) <= Decimal(str(tolerance))
    except ArithmeticError:  # beyond what decimal arithmetic holds
        return False


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
