"""The allow-list of template syntax, and the variables of a template.

Jinja2 parses a template, and an allow-list on the syntax tree decides. This module is loaded only
for templates that are more than text and variables, because loading Jinja2 is slow.
"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateSyntaxError, nodes
from jinja2.parser import Parser

from edison_ci._dataclass import dataclass
from edison_ci.documents.decoding import place
from edison_ci.documents.marks import Fault
from edison_ci.templating.runtime import (
    BUDGET,
    ENVIRONMENT,
    FILTERS,
    LOOP_ATTRIBUTES,
    Budget,
    argument_error,
    filter_signature,
    guard,
)
from edison_ci.templating.variables import (
    MAX_OUTPUT,
    NAME,
    Pieces,
    TemplateAnalysis,
    TemplateFaults,
    Use,
    output_too_long,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from edison_ci.documents.marks import Json

FILTER_NAMES = ", ".join(sorted(FILTERS))

_MAX_NODES = 5_000
_MAX_DEPTH = 64
_MAX_LOOPS = 10  # Python itself compiles no more than 20 loops inside each other
_MAX_NUMBER = 10**300


@dataclass(frozen=True, slots=True)
class Program:
    """A template compiled by Jinja2."""

    template: Any

    def render(self, values: Mapping[str, Json]) -> str:
        """Return the text; raises MissingValueError or RenderError."""
        context = self.template.new_context({**values, BUDGET: Budget()})
        return _join(self.template.root_render_func(context))


def _join(texts: Iterable[str]) -> str:
    """Return the joined texts; raises RenderError if they are too long."""
    pieces: list[str] = []
    size = 0
    for text in texts:
        size += len(text)
        if size > MAX_OUTPUT:
            raise output_too_long(MAX_OUTPUT)
        pieces.append(text)
    return "".join(pieces)


def analyse_template(source: str) -> TemplateAnalysis:
    """Return the analysis of a template; raises TemplateFaults with all faults."""
    inspector = _Inspector(source.replace("\r\n", "\n"))
    tree = inspector.read()
    if inspector.faults:
        raise TemplateFaults(inspector.faults)
    single = _single(tree)
    pieces = _pieces(tree)
    if pieces is not None:
        return TemplateAnalysis(inspector.uses, pieces, single)
    plain = next(tree.find_all(_RISKY), None) is None
    code = ENVIRONMENT.compile(guard(tree))
    compiled = ENVIRONMENT.template_class.from_code(ENVIRONMENT, code, {}, None)
    return TemplateAnalysis(inspector.uses, Program(compiled), single, plain)


_ALLOWED = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const,
    nodes.Getattr, nodes.Getitem, nodes.If, nodes.For, nodes.Filter, nodes.Keyword,
    nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not,
)  # fmt: skip
_REASONS: dict[type[nodes.Node], str] = {
    nodes.Call: "calls are not allowed",
    nodes.CallBlock: "call blocks are not allowed",
    nodes.FilterBlock: "filter blocks are not allowed",
    nodes.Block: "blocks are not allowed",
    nodes.Macro: "macros are not allowed",
    nodes.Include: "includes are not allowed",
    nodes.Import: "imports are not allowed",
    nodes.FromImport: "imports are not allowed",
    nodes.Extends: "extends is not allowed",
    nodes.Assign: "set is not allowed",
    nodes.AssignBlock: "set is not allowed",
    nodes.With: "with is not allowed",
    nodes.Scope: "autoescape is not allowed",
    nodes.BinExpr: "arithmetic is not allowed",
    nodes.Neg: "arithmetic is not allowed",
    nodes.Pos: "arithmetic is not allowed",
    nodes.Concat: "~ is not allowed; write texts and variables side by side",
    nodes.Test: "tests ('is ...') are not allowed; use the filter default",
    nodes.CondExpr: "inline if is not allowed; use {% if %}",
    nodes.Slice: "slices are not allowed; use truncate, first or last",
    nodes.List: "lists are not allowed; give the default of a variable under inputs",
    nodes.Tuple: "tuples are not allowed",
    nodes.Dict: "maps are not allowed; give the default of a variable under inputs",
}
_RISKY = (nodes.Getattr, nodes.Getitem, nodes.For, nodes.Filter, nodes.Compare)


class _Inspector:
    """Parses a template and collects its variables and faults."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.uses: dict[str, Use] = {}
        self.faults: list[Fault] = []

    def read(self) -> nodes.Template:
        """Return the syntax tree; to be used only if there are no faults."""
        try:
            with warnings.catch_warnings(action="error", category=DeprecationWarning):
                tree = Parser(ENVIRONMENT, self._text.replace("\r", "\n")).parse()
        except TemplateSyntaxError as error:
            reason = re.sub(r" at \d+\Z|(?<=')\)\Z", "", str(error.message))
            # The message of Python 3.14 differs.
            reason = re.sub(r'"(.+)" is an (invalid escape sequence)\..*', r"\2 '\1'", reason)
            raise self._fatal(f"not a valid template: {reason}", error.lineno) from None
        except ValueError:  # an integer of more digits than Python reads
            raise self._fatal("not a valid template: a number has too many digits") from None
        except RecursionError:
            raise self._fatal("the template is nested too deeply") from None
        self._measure(tree)
        self._visit(tree, frozenset())
        return tree

    def _measure(self, tree: nodes.Template) -> None:
        count, stack = 0, [(node, 1, 0) for node in tree.iter_child_nodes()]
        while stack:
            node, depth, loops = stack.pop()
            count, loops = count + 1, loops + isinstance(node, nodes.For)
            if depth > _MAX_DEPTH or loops > _MAX_LOOPS:
                raise self._fatal("the template is nested too deeply", node.lineno)
            if count > _MAX_NODES:
                raise self._fatal(f"the template has more than {_MAX_NODES:,} parts")
            stack.extend((child, depth + 1, loops) for child in node.iter_child_nodes())

    def _visit(self, node: nodes.Node, bound: frozenset[str], *, optional: bool = False) -> None:
        if isinstance(node, nodes.Neg) and _is_number(node.node):
            node = node.node
        if not isinstance(node, _ALLOWED):
            self._refuse(node, _reason(node))
        elif isinstance(node, nodes.Name):
            self._name(node, bound, optional=optional)
        elif isinstance(node, nodes.Const):
            self._constant(node)
        elif isinstance(node, nodes.For):
            self._for(node, bound)
        elif isinstance(node, nodes.Filter):
            self._filter(node, bound)
        elif isinstance(node, nodes.Getattr | nodes.Getitem):
            self._access(node, bound, optional=optional)
        else:
            for child in node.iter_child_nodes():
                self._visit(child, bound)

    def _name(self, node: nodes.Name, bound: frozenset[str], *, optional: bool) -> None:
        if node.name == "loop":
            attributes = ", ".join(LOOP_ATTRIBUTES)
            self._refuse(node, "loop is not a variable", f"inside for, loop has: {attributes}")
        elif node.name not in bound and self._is_name(node):
            use = self.uses.get(node.name)
            if use is None or (use.optional and not optional):
                self.uses[node.name] = Use(*self._place(node.lineno), optional)

    def _is_name(self, node: nodes.Name) -> bool:
        if node.name in ("loop", "self"):
            self._refuse(
                node, f"{node.name!r} is reserved and cannot be a variable", "choose another name"
            )
        elif not NAME.match(node.name):
            hint = "start with a letter; letters, digits and _"
            self._refuse(node, f"{node.name!r} is not a variable name", hint)
        else:
            return True
        return False

    def _constant(self, node: nodes.Const) -> None:
        value = node.value
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            self._refuse(node, "a lone surrogate is not a character")
        elif isinstance(value, int | float) and not abs(value) < _MAX_NUMBER:
            self._refuse(node, "the number is out of range")

    def _for(self, node: nodes.For, bound: frozenset[str]) -> None:
        if node.recursive:
            self._refuse(node, "recursive loops are not allowed")
        if not isinstance(node.target, nodes.Name):
            self._refuse(node.target, "a loop has one variable")
            return
        self._is_name(node.target)
        if not isinstance(node.iter, nodes.Name | nodes.Getattr | nodes.Getitem | nodes.Filter):
            reason = _reason(node.iter) if not isinstance(node.iter, _ALLOWED) else ""
            self._refuse(node.iter, reason or "a loop iterates over a list of the case")
            return
        self._visit(node.iter, bound)
        inner = bound | {node.target.name}
        if node.test is not None:
            self._visit(node.test, inner)
        for child in node.body:
            self._visit(child, inner | {"loop"})
        for child in node.else_:
            self._visit(child, bound)

    def _filter(self, node: nodes.Filter, bound: frozenset[str]) -> None:
        if node.name not in FILTERS:
            self._refuse(node, f"filter {node.name!r} is not allowed", f"allowed: {FILTER_NAMES}")
        elif node.dyn_args is not None or node.dyn_kwargs is not None:
            self._refuse(node, "starred arguments are not allowed")
        elif reason := _arguments_error(node):
            takes = ", ".join(filter_signature(node.name).parameters) or "no arguments"
            self._refuse(node, f"{node.name}: {reason}", f"{node.name} takes {takes}")
        if node.node is not None:
            self._visit(node.node, bound, optional=node.name == "default")
        for child in (*node.args, *node.kwargs):
            self._visit(child, bound)

    def _access(
        self, node: nodes.Getattr | nodes.Getitem, bound: frozenset[str], *, optional: bool
    ) -> None:
        if isinstance(node.node, nodes.Name) and node.node.name == "loop" and "loop" in bound:
            if isinstance(node, nodes.Getitem) or node.attr not in LOOP_ATTRIBUTES:
                allowed = ", ".join(f"loop.{name}" for name in LOOP_ATTRIBUTES)
                self._refuse(node, "loop has no such value", f"allowed: {allowed}")
            return
        if isinstance(node, nodes.Getitem) and not _is_index(node.arg):
            sliced = isinstance(node.arg, nodes.Slice)
            index = "an index is a number, a quoted key or a variable"
            self._refuse(node, _reason(node.arg) if sliced else index)
            return
        if isinstance(node, nodes.Getitem):
            self._visit(node.arg, bound)
        self._visit(node.node, bound, optional=optional)

    def _refuse(self, node: nodes.Node, message: str, hint: str = "") -> None:
        at = node.lineno if isinstance(node, nodes.Filter) else _start(node)
        hint = hint or "use variables, if, for and filters; compute the rest in the dataset"
        self.faults.append(Fault("template", message, hint, at=self._place(at)))

    def _fatal(self, message: str, lineno: int = 1) -> TemplateFaults:
        hint = "write {{ name }} or {% if name %}...{% endif %}"
        return TemplateFaults([Fault("template", message, hint, at=self._place(lineno))])

    def _place(self, lineno: int) -> tuple[int, int]:
        """Return line and column of a `lineno`, which is 1 + the offset here (see _Environment)."""
        return place(self._text, min(max(lineno - 1, 0), len(self._text)))


def _start(node: nodes.Node) -> int:
    """Return the start of an expression; its own position may be that of an operator."""
    starts = [node.lineno, *(_start(child) for child in node.iter_child_nodes())]
    return min((start for start in starts if start), default=0)  # Jinja2 leaves some out


def _reason(node: nodes.Node) -> str:
    for kind in type(node).__mro__:
        if kind in _REASONS:
            return _REASONS[kind]
    return f"{type(node).__name__.lower()} is not allowed"


def _is_number(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and type(node.value) in (int, float)


def _is_index(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Neg):
        node = node.node
        return isinstance(node, nodes.Const) and type(node.value) is int
    return isinstance(node, nodes.Name) or (
        isinstance(node, nodes.Const) and isinstance(node.value, str | int)
    )


def _arguments_error(node: nodes.Filter) -> str:
    """Return the problem with the arguments of a filter; empty if there is none."""
    named = {str(pair.key): pair.value for pair in node.kwargs}
    if len(named) < len(node.kwargs):
        return "an argument is given twice"
    try:
        arguments = filter_signature(node.name).bind(*node.args, **named).arguments
    except TypeError as error:
        return str(error)
    reasons = (
        argument_error(node.name, name, value.value)
        for name, value in arguments.items()
        if isinstance(value, nodes.Const)
    )
    return next(filter(None, reasons), "")


def _single(tree: nodes.Template) -> str | None:
    if len(tree.body) == 1 and isinstance(tree.body[0], nodes.Output):
        parts = tree.body[0].nodes
        if len(parts) == 1 and isinstance(parts[0], nodes.Name):
            return parts[0].name
    return None


def _pieces(tree: nodes.Template) -> Pieces | None:
    """Return the pieces of a template; None if it has other syntax."""
    parts = [""]
    for output in tree.body:
        if not isinstance(output, nodes.Output):
            return None
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                if len(parts) % 2 == 0:
                    parts.append(node.data)
                else:
                    parts[-1] += node.data
            elif isinstance(node, nodes.Name):
                parts += [node.name] if len(parts) % 2 else ["", node.name]
            else:
                return None
    return Pieces(parts)
