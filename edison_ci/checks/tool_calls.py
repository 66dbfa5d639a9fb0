"""Checks of the tools that a model called, and of their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from edison_ci.checks.evaluation import EvaluationError, Grade, quote
from edison_ci.checks.options import ONE_VARIABLE, Check, SomeText, TemplateData, one_variable
from edison_ci.checks.structure import json_equal
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.shape import Or, Shape, items
from edison_ci.templating.templates import Template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.checks.evaluation import ParsedAnswer
    from edison_ci.records import Json

_MOST = 1_000
_MOST_WANTED = 100


class Call(NamedTuple):
    """A tool and its arguments; None for any."""

    tool: str
    arguments: dict[str, Json] | None

    def fits(self, made: Call) -> bool:
        """Whether a call matches this one: the same tool, and at least these arguments."""
        if self.tool != made.tool:
            return False
        actual = made.arguments or {}
        expected = self.arguments or {}
        return all(
            key in actual and json_equal(value, actual[key]) for key, value in expected.items()
        )


def parse_calls(listed: Json) -> list[Call]:
    """Return the tool calls of a completion, in OpenAI's, Anthropic's or the plain form."""
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


def expected_call(answered: ParsedAnswer, tool: Template, arguments: Json) -> Call:
    """Return the call that a check expects for a case."""
    filled = fill(arguments, answered.case.variables)
    return Call(answered.render_required(tool), filled if isinstance(filled, dict) else None)


def fill(data: Any, values: Mapping[str, Json]) -> Json:
    """Return data with its templates rendered; a single variable keeps its type."""
    if isinstance(data, Template):
        return data.value(values)
    if isinstance(data, dict):
        return {key: fill(item, values) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return [fill(item, values) for item in data]
    return data  # type: ignore[no-any-return]  # a scalar of YAML


def parse_expected_calls(value: Json, name: str) -> list[Call]:
    """Return the calls in a variable of a case; an empty list expects no call."""
    if not isinstance(value, list):
        raise EvaluationError(f"{name} is not a list of tool calls")
    if len(value) > _MOST_WANTED:
        raise EvaluationError(f"{name} lists more than {_MOST_WANTED} tool calls")
    calls = []
    for item in value:
        call = Call(item, None) if isinstance(item, str) else _call(item)
        if call is None:
            raise EvaluationError(f"{name} contains an item that is not a tool call")
        if isinstance(item, dict) and not {"arguments", "input", "function"} & item.keys():
            call = Call(call.tool, None)
        calls.append(call)
    return calls


def count_matches(expected: Sequence[Call], made: Sequence[Call]) -> int:
    """Return how many expected calls can be matched with calls that were made, each used once.

    A maximum matching (Kuhn 1955, by augmenting paths): an expected call without arguments must
    not use up the only call that fits a stricter one.
    """
    taken: dict[int, int] = {}
    fits = [[j for j, call in enumerate(made) if want.fits(call)] for want in expected]

    def place(index: int, seen: set[int]) -> bool:
        for j in fits[index]:
            if j not in seen:
                seen.add(j)
                if j not in taken or place(taken[j], seen):
                    taken[j] = index
                    return True
        return False

    return sum(place(index, set()) for index in range(len(expected)))


def _instead(made: list[Call]) -> str:
    return f"; {quote(made[0].tool, 40)} was" if made else "; no tool was"


class ToolCall(Check):
    """The model called this tool, with these arguments."""

    check: ClassVar[str] = "tool_call"
    main: ClassVar[str | None] = "tool"
    example: ClassVar[str] = "tool_call: {tool: get_weather, arguments: {city: Oslo}}"
    tool: SomeText = Field(description="Name of the tool.")
    arguments: TemplateData | None = Field(
        None, description="Arguments that must be among those given; any by default."
    )

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if a call of the tool has at least the arguments."""
        expected = expected_call(answered, self.tool, self.arguments)
        made = parse_calls(answered.completion.tool_calls)
        if any(expected.fits(call) for call in made):
            return Grade(1.0, f"{quote(expected.tool)} was called")
        if any(expected.tool == call.tool for call in made):
            return Grade(0.0, f"{quote(expected.tool)} was called with other arguments")
        return Grade(0.0, f"{quote(expected.tool)} was not called{_instead(made)}")


class ExpectedCall(Shape):
    """A tool call that should have happened."""

    tool: SomeText = Field(description="Name of the tool.")
    arguments: TemplateData | None = Field(None, description="Arguments; any by default.")


def _listed_or_variable(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    return one_variable(value) if isinstance(value, str) else handler(value)


_ExpectedCalls = Annotated[
    tuple[ExpectedCall, ...],
    items(1, _MOST_WANTED),
    WrapValidator(_listed_or_variable),
    Or(ONE_VARIABLE),
    Field(description="The calls, or one variable of the case that holds them."),
]


class ToolCallF1(Check):
    """How well the tools called match a list of those that should be (F1)."""

    check: ClassVar[str] = "tool_call_f1"
    graded: ClassVar[bool] = True
    example: ClassVar[str] = "tool_call_f1: [{tool: search}, {tool: book}]"
    value: _ExpectedCalls

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 2 x matching calls / (expected calls + calls made)."""
        expected = _wanted_calls(self.value, answered)
        made = parse_calls(answered.completion.tool_calls)
        if not expected and not made:
            return Grade(1.0, "no tool was wanted and none was called")
        common = count_matches(expected, made)
        message = f"{common} of {len(expected)} calls wanted were made, of {len(made)} in all"
        return Grade(2 * common / (len(expected) + len(made)), message)


class Calls(Check):
    """The model called these tools, in this order."""

    check: ClassVar[str] = "calls"
    example: ClassVar[str] = "calls: [{tool: search}, {tool: book}]"
    value: _ExpectedCalls
    match: Literal["exact", "in_order", "any_order"] = Field(
        "exact",
        description="exact: these and no others; in_order: others may stand between; any_order: "
        "all of them, in any order.",
    )

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the calls that were made match those wanted."""
        expected = _wanted_calls(self.value, answered)
        made = parse_calls(answered.completion.tool_calls)
        if self.match == "exact":
            good = len(expected) == len(made) and all(map(Call.fits, expected, made))
        elif self.match == "in_order":
            left = iter(made)
            good = all(any(call.fits(other) for other in left) for call in expected)
        else:
            good = count_matches(expected, made) == len(expected)
        called = ", ".join(quote(call.tool, 40) for call in made[:_MOST_SHOWN]) or "nothing"
        more = f" and {len(made) - _MOST_SHOWN} more" if len(made) > _MOST_SHOWN else ""
        return Grade(float(good), f"called: {called}{more}")


_MOST_SHOWN = 5


def _wanted_calls(value: Any, answered: ParsedAnswer) -> list[Call]:
    if isinstance(value, Template):
        return parse_expected_calls(value.value(answered.case.variables), str(value.single))
    return [expected_call(answered, call.tool, call.arguments) for call in value]
