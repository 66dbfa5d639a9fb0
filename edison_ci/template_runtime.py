"""What can a template do while it runs?

Jinja2's sandbox, cut down further: mappings and lists are all it sees, loops and output are
bounded, and a missing value stops the rendering with its name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import Undefined
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import LoopContext, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jinja2.runtime import Context

    from edison_ci.documents.marks import Json

MAX_ITERATIONS = 10_000
MAX_OUTPUT = 1_000_000
BUDGET = "_iterations_left"
_LOOP_ATTRIBUTES = frozenset(
    {"index", "index0", "first", "last", "length", "revindex", "revindex0"}
)


class MissingValueError(Exception):
    """A case lacks a variable, or something inside one, that a template needs."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is missing")
        self.name = name


class RenderError(Exception):
    """A template went over something that is no list, worked too long, or wrote too much."""


def as_text(value: Json) -> str:
    """Return how a value appears in a prompt: strings verbatim, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _Missing(StrictUndefined):
    """Raises our own error, so that the missing name reaches the report."""

    def _fail_with_undefined_error(self, *_: Any, **__: Any) -> NoReturn:
        raise MissingValueError(self._undefined_name or "a value")

    __str__ = __iter__ = __len__ = __bool__ = __eq__ = __ne__ = __hash__ = __contains__ = (
        _fail_with_undefined_error
    )
    __lt__ = __le__ = __gt__ = __ge__ = _fail_with_undefined_error


class _Environment(ImmutableSandboxedEnvironment):
    """Sees mappings and lists only: no attribute of a Python object is ever reached."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Undefined):
            return obj
        if isinstance(obj, dict) and isinstance(argument, str) and argument in obj:
            return obj[argument]
        if isinstance(obj, list) and type(argument) is int and -len(obj) <= argument < len(obj):
            return obj[argument]
        if isinstance(obj, LoopContext) and argument in _LOOP_ATTRIBUTES:
            return getattr(obj, argument)
        shown = f"[{argument}]" if isinstance(argument, int) else f".{argument}"
        return self.undefined(name=f"a value at {shown}")


@pass_context
def _each(context: Context, value: Any) -> Iterator[Any]:
    if isinstance(value, Undefined):
        iter(value)
    if not isinstance(value, list):
        raise RenderError(f"for goes over a list, not over {type(value).__name__}")
    budget = context[BUDGET]
    budget[0] -= len(value)
    if budget[0] < 0:
        raise RenderError(f"more than {MAX_ITERATIONS:,} loop iterations")
    return iter(value)


def _replace(text: Any, old: str, new: str, count: int | None = None) -> str:
    source = as_text(text) if not isinstance(text, Undefined) else str(text)
    times = source.count(old) if count is None else min(count, source.count(old))
    if len(source) + times * (len(new) - len(old)) > MAX_OUTPUT:
        raise over(MAX_OUTPUT)
    return source.replace(old, new, times)


def _join(value: Any, separator: str = "", attribute: str | None = None) -> str:
    items = [as_text(ENVIRONMENT.getitem(v, attribute) if attribute else v) for v in value]
    if sum(map(len, items)) + len(separator) * len(items) > MAX_OUTPUT:
        raise over(MAX_OUTPUT)
    return separator.join(items)


def _tojson(value: Any, indent: int | None = None) -> str:
    if isinstance(value, Undefined):
        str(value)
    return json.dumps(value, ensure_ascii=False, indent=indent and min(indent, 8))


def _finalize(value: Any) -> Any:
    return value if isinstance(value, str | Undefined) else json.dumps(value, ensure_ascii=False)


def over(limit: int) -> RenderError:
    """Return the error of a text that grew too long."""
    return RenderError(f"the rendered text is longer than {limit:,} characters")


FILTERS: dict[str, Any] = {
    name: JINJA_FILTERS[name]
    for name in ("default", "first", "last", "length", "lower", "trim", "truncate", "upper")
} | {"join": _join, "replace": _replace, "tojson": _tojson}

ENVIRONMENT = _Environment(
    undefined=_Missing, finalize=_finalize, autoescape=False, keep_trailing_newline=True
)
ENVIRONMENT.filters = {**FILTERS, "_each": _each}
ENVIRONMENT.tests = {}
ENVIRONMENT.globals = {}
