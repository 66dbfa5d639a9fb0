"""Which tools did the model call, and were they the right ones?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.json_values import same
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.templating import Template

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
