"""The runtime of templates: a restricted Jinja2 sandbox, with budget and filters.

Templates see maps and lists only; loops, work and output are bounded; every filter accepts every
JSON value; a missing value stops the rendering with an error that names it.
"""

from __future__ import annotations

import inspect
import json
import operator
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateSyntaxError, Undefined, nodes
from jinja2.lexer import TokenStream
from jinja2.runtime import LoopContext, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

from edison_ci.templating.variables import (
    MAX_OUTPUT,
    MissingValueError,
    RenderError,
    as_text,
    output_too_long,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jinja2.runtime import Context

    from edison_ci.documents.marks import Json

MAX_ITERATIONS = 10_000
MAX_WORK = 20_000_000
"""Characters that filters and comparisons may read, plus steps of loops."""
MAX_STRIPPED = 100
BUDGET = "_budget"
LOOP_ATTRIBUTES = ("first", "index", "index0", "last", "length", "revindex", "revindex0")

_LEEWAY = 5
_MAX_INDENT = 8


_KINDS = {str: "a text", int: "a number", float: "a number", bool: "a boolean", list: "a list"}


def type_name(value: Json) -> str:
    """Return the type of a value in words, as in the inputs of a prompt."""
    return "null" if value is None else _KINDS.get(type(value), "an object")


class Budget:
    """The remaining budget of one rendering."""

    __slots__ = ("iterations", "work")

    def __init__(self) -> None:
        self.iterations, self.work = MAX_ITERATIONS, MAX_WORK

    def spend(self, work: int) -> None:
        """Reduce the budget; raises RenderError if it is exhausted."""
        self.work -= work
        if self.work < 0:
            raise RenderError("the template does too much work; shorten its loops or its values")

    def text(self, value: Json) -> str:
        """Return a value as text, at the cost of its length."""
        text = as_text(value)
        self.spend(len(text))
        return text


class _Missing(StrictUndefined):
    """An undefined value that raises MissingValueError with its name when it is used."""

    def _fail_with_undefined_error(self, *_: Any, **__: Any) -> NoReturn:
        raise MissingValueError(self._undefined_name or "a value")

    __str__ = __iter__ = __len__ = __bool__ = __eq__ = __ne__ = __hash__ = __contains__ = (
        _fail_with_undefined_error
    )
    __lt__ = __le__ = __gt__ = __ge__ = _fail_with_undefined_error


def missing_value(name: str) -> Undefined:
    """Return a placeholder for a missing value, which raises when it is used."""
    return _Missing(name=name)


class _Environment(ImmutableSandboxedEnvironment):
    """Gives no access to attributes of Python objects, except the counters of a loop.

    The parser gets the offset of each token in place of its line, so that the `lineno` of a node,
    and of a syntax error, is 1 + its offset.
    """

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, LoopContext) and attribute in LOOP_ATTRIBUTES:
            return getattr(obj, attribute)
        return missing_value(f"a value at .{attribute}")

    def getitem(self, obj: Any, argument: Any) -> Any:
        return missing_value("a value at an index")

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        tokens = self.lexer.wrap(self._offset_tokens(source))
        return TokenStream(tokens, name, filename)

    def _offset_tokens(self, source: str) -> Iterator[tuple[int, str, str]]:
        at = 0
        try:
            for _, token, value in self.lexer.tokeniter(source, None):
                at = source.find(value, at) if value else at
                yield at + 1, token, value
                at += len(value)
        except TemplateSyntaxError as error:
            error.lineno = at + 1
            raise


def get_item(value: Any, key: Any, path: str) -> Any:
    """Return an item of a map or list; a missing one is named by its path."""
    if isinstance(value, Undefined):
        return value
    if isinstance(key, Undefined):
        str(key)
    if isinstance(value, dict):
        return value[key] if isinstance(key, str) and key in value else missing_value(path)
    if isinstance(value, list) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    return missing_value(path)


@pass_context
def _each(context: Context, value: Any, steps: int) -> Iterator[Any]:
    if isinstance(value, Undefined):
        iter(value)
    if not isinstance(value, list):
        raise RenderError(f"for iterates over a list, not over {type_name(value)}")
    budget: Budget = context[BUDGET]
    budget.iterations -= len(value)
    if budget.iterations < 0:
        raise RenderError(f"the template has more than {MAX_ITERATIONS:,} loop iterations")
    budget.spend(len(value) * steps)
    return iter(value)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda item, group: item in group,
    "notin": lambda item, group: item not in group,
}


@pass_context
def _compare(context: Context, left: Any, *rest: Any) -> bool:
    """Return whether `left op right op right ...` holds; every value is charged."""
    values = (left, *rest[1::2])
    for value in values:
        if isinstance(value, Undefined):
            str(value)
        if isinstance(value, str | list | dict):
            context[BUDGET].text(value)
    for sign, first, second in zip(rest[::2], values, values[1:], strict=False):
        try:
            holds = _COMPARE[sign](first, second)
        except TypeError:
            done = "searched in" if "in" in sign else "compared with"
            raise RenderError(f"{type_name(first)} cannot be {done} {type_name(second)}") from None
        if not holds:
            return False
    return True


def _default(_: Budget, value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def _end(which: int, name: str) -> Callable[[Budget, Any], Any]:
    def apply(_: Budget, value: Any) -> Any:
        if not isinstance(value, str | list):
            raise RenderError(f"{name} takes a list or a text, not {type_name(value)}")
        return value[which] if value else missing_value(f"a {name} item")

    return apply


def _length(_: Budget, value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise RenderError(f"length takes a list, a text or an object, not {type_name(value)}")
    return len(value)


def _trim(budget: Budget, value: Any, chars: str | None = None) -> str:
    if chars is not None and len(chars) > MAX_STRIPPED:  # the cost is length times length
        raise RenderError(f"trim takes at most {MAX_STRIPPED} characters")
    return budget.text(value).strip(chars)


def _replace(budget: Budget, value: Any, old: str, new: str, count: int | None = None) -> str:
    source = budget.text(value)
    times = source.count(old)
    if count is not None and 0 <= count < times:
        times = count
    if len(source) + times * (len(new) - len(old)) > MAX_OUTPUT:
        raise output_too_long(MAX_OUTPUT)
    return source.replace(old, new, times)


def _join(budget: Budget, value: Any, d: str = "", attribute: str | None = None) -> str:
    if not isinstance(value, list):
        raise RenderError(f"join takes a list, not {type_name(value)}")
    size, pieces = 0, []
    for item in value:
        part = item if attribute is None else get_item(item, attribute, f"item.{attribute}")
        if isinstance(part, Undefined):
            str(part)
        pieces.append(budget.text(part))
        size += len(pieces[-1]) + len(d)
        if size - len(d) > MAX_OUTPUT:
            raise output_too_long(MAX_OUTPUT)
    return d.join(pieces)


def _tojson(budget: Budget, value: Any, indent: int | None = None) -> str:
    if not indent:
        text = json.dumps(value, ensure_ascii=False)
        budget.spend(len(text))
        return text
    encoder = json.JSONEncoder(ensure_ascii=False, indent=min(max(indent, 0), _MAX_INDENT))
    size, pieces = 0, []
    for piece in encoder.iterencode(value):
        size += len(piece)
        if size > MAX_OUTPUT:
            raise output_too_long(MAX_OUTPUT)
        pieces.append(piece)
    budget.spend(size)
    return "".join(pieces)


def _truncate(  # noqa: PLR0913 - the arguments are Jinja2's
    budget: Budget,
    value: Any,
    length: int = 255,
    killwords: bool = False,
    end: str = "...",
    leeway: int | None = None,
) -> str:
    text = budget.text(value)
    if length < len(end):
        raise RenderError(f"truncate takes a length of at least {len(end)}, that of its end")
    if len(text) <= length + (_LEEWAY if leeway is None else max(leeway, 0)):
        return text
    cut = text[: length - len(end)]
    return (cut if killwords else cut.rsplit(" ", 1)[0]) + end


FILTERS: dict[str, Callable[..., Any]] = {
    "default": _default,
    "first": _end(0, "first"),
    "join": _join,
    "last": _end(-1, "last"),
    "length": _length,
    "lower": lambda budget, value: budget.text(value).lower(),
    "replace": _replace,
    "tojson": _tojson,
    "trim": _trim,
    "truncate": _truncate,
    "upper": lambda budget, value: budget.text(value).upper(),
}
_WANTED = {"str": (str, "text"), "int": (int, "whole number"), "bool": (bool, "boolean")}


@cache
def filter_signature(name: str) -> inspect.Signature:
    """Return the signature of a filter, without the value that it is applied to."""
    signature = inspect.signature(FILTERS[name])
    return signature.replace(parameters=list(signature.parameters.values())[2:])


def argument_error(name: str, argument: str, value: Any) -> str:
    """Return why a value is not valid for an argument of a filter; empty if it is."""
    kind, _, nothing = str(filter_signature(name).parameters[argument].annotation).partition(" | ")
    if kind not in _WANTED or type(value) is _WANTED[kind][0] or (nothing and value is None):
        return ""
    written = value if isinstance(value, float) else type_name(value)
    return f"{argument} is {written}, not a {_WANTED[kind][1]}"


def _jinja_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter for Jinja2 that checks its arguments first."""

    @pass_context
    def call(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = filter_signature(name).bind(*args, **kwargs).arguments
        if isinstance(value, Undefined) and name != "default":
            str(value)
        for argument, item in arguments.items():
            if isinstance(item, Undefined) and argument != "default_value":
                str(item)
            if reason := argument_error(name, argument, item):
                raise RenderError(f"{name}: {reason}")
        return function(context[BUDGET], value, **arguments)

    return call


def _finalize(value: Any) -> Any:
    return value if isinstance(value, str | Undefined) else json.dumps(value, ensure_ascii=False)


ENVIRONMENT = _Environment(
    undefined=_Missing, finalize=_finalize, autoescape=False, keep_trailing_newline=True
)
ENVIRONMENT.filters = {
    name: _jinja_filter(name, function) for name, function in FILTERS.items()
} | {
    "_compare": _compare,
    "_each": _each,
    "_get": get_item,
}
ENVIRONMENT.tests = {}
ENVIRONMENT.globals = {}


class _Guard(NodeTransformer):
    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:
        if isinstance(node.node, nodes.Name) and node.node.name == "loop":
            return node
        return self._call(node.node, "_get", nodes.Const(node.attr), nodes.Const(_path(node)))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        return self._call(node.node, "_get", node.arg, nodes.Const(_path(node)))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        pairs = ((nodes.Const(operand.op), operand.expr) for operand in node.ops)
        return self._call(node.expr, "_compare", *(part for pair in pairs for part in pair))

    def visit_For(self, node: nodes.For) -> nodes.Node:
        steps = sum(1 for child in node.body for _ in child.find_all(nodes.Node)) + 1
        self.generic_visit(node)
        node.iter = self._call(node.iter, "_each", nodes.Const(steps))
        return node

    def _call(self, on: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
        call = nodes.Filter(self.visit(on), name, [self.visit(a) for a in args], [], None, None)
        return call.set_environment(ENVIRONMENT).set_lineno(1)  # type: ignore[return-value]  # self


def _path(node: nodes.Node) -> str:
    """Return an expression of access as it is written in a template."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return f"{_path(node.node)}.{node.attr}"
    if isinstance(node, nodes.Filter) and node.node is not None:
        return f"{_path(node.node)}|{node.name}"
    if isinstance(node, nodes.Getitem):
        key = node.arg.name if isinstance(node.arg, nodes.Name) else node.arg.as_const()
        dotted = isinstance(key, str) and isinstance(node.arg, nodes.Const)
        return f"{_path(node.node)}.{key}" if dotted else f"{_path(node.node)}[{key}]"
    return "(...)"


guard = _Guard().visit
"""Returns a tree in which access, comparisons and loops call the functions above."""
