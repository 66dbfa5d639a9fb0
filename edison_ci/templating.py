"""What may a template say, which variables does it use, and what does it render to?

The language is Jinja2's, cut down by an allow-list on the syntax tree to variables, attribute and
index access on case data, if/elif/else, for over a list, and eleven filters. Values come from
datasets and are never parsed; attribute access reaches keys of mappings and nothing of Python.
Strings render verbatim, everything else as JSON. Work and output are bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jinja2 import TemplateSyntaxError, nodes

from edison_ci.documents.marks import Fault, Json
from edison_ci.template_runtime import (
    BUDGET,
    ENVIRONMENT,
    FILTERS,
    MAX_ITERATIONS,
    MAX_OUTPUT,
    MissingValueError,
    RenderError,
    as_text,
    over,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FILTER_NAMES",
    "MissingValueError",
    "RenderError",
    "Syntax",
    "Template",
    "TemplateFaults",
    "Use",
    "as_text",
    "compile_template",
]

Syntax = Literal["jinja", "braces"]

_BRACES = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


class Use(NamedTuple):
    """Where a variable is first used (counted from 0), and whether a case may lack it."""

    line: int
    column: int
    optional: bool


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template. `render` is safe on any data."""

    source: str
    uses: Mapping[str, Use]
    _compiled: Any
    single: str | None = None
    """Name of the variable when the template is exactly one variable, as in `{{ words }}`."""
    plain: bool = True
    """Whether having its variables is all a case needs to be rendered."""

    @property
    def is_constant(self) -> bool:
        """Whether the text is the same for every case."""
        return self._compiled is None

    def render(self, values: Mapping[str, Json]) -> str:
        """Return the text; raises MissingValueError or RenderError."""
        if self._compiled is None:
            return self.source
        if isinstance(self._compiled, _Braces):
            return self._compiled.render(values)
        context = self._compiled.new_context({**values, BUDGET: [MAX_ITERATIONS]})
        pieces: list[str] = []
        size = 0
        for piece in self._compiled.root_render_func(context):
            size += len(piece)
            if size > MAX_OUTPUT:
                raise over(MAX_OUTPUT)
            pieces.append(piece)
        return "".join(pieces)

    def value(self, values: Mapping[str, Json]) -> Json:
        """Return the variable's own value when the template is exactly one, else the text."""
        if self.single is None:
            return self.render(values)
        if self.single not in values:
            raise MissingValueError(self.single)
        return values[self.single]


class TemplateFaults(Exception):
    """Everything a template says that it may not."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults[0].message)
        self.faults = faults


def compile_template(source: str, *, syntax: Syntax = "jinja") -> Template:
    """Return the template, or raise TemplateFaults with every refusal and its line."""
    if syntax == "braces":
        return _compile_braces(source)
    if "{{" not in source and "{%" not in source and "{#" not in source:
        return Template(source, {}, None)
    try:
        tree = ENVIRONMENT.parse(source)
    except TemplateSyntaxError as error:
        fault = Fault(
            "template", f"not a valid template: {error.message}", at=(error.lineno - 1, 0)
        )
        raise TemplateFaults([fault]) from None
    except RecursionError:
        raise TemplateFaults([Fault("template", "the template is nested too deeply")]) from None
    inspector = _Inspector(source)
    inspector.visit(tree, frozenset())
    if inspector.faults:
        raise TemplateFaults(inspector.faults)
    single = _single(tree)
    plain = next(tree.find_all(_RISKY), None) is None
    _bound_loops(tree)
    code = ENVIRONMENT.compile(tree)
    compiled = ENVIRONMENT.template_class.from_code(ENVIRONMENT, code, {}, None)
    return Template(source, inspector.uses, compiled, single, plain)


# --- braces ---------------------------------------------------------------------------------------


class _Braces(NamedTuple):
    source: str

    def render(self, values: Mapping[str, Json]) -> str:
        def replace(found: re.Match[str]) -> str:
            name = found.group(1)
            if name not in values:
                raise MissingValueError(name)
            return as_text(values[name])

        text = _BRACES.sub(replace, self.source)
        if len(text) > MAX_OUTPUT:
            raise over(MAX_OUTPUT)
        return text


def _compile_braces(source: str) -> Template:
    uses: dict[str, Use] = {}
    for found in _BRACES.finditer(source):
        line = source.count("\n", 0, found.start())
        column = found.start(1) - (source.rfind("\n", 0, found.start()) + 1)
        uses.setdefault(found.group(1), Use(line, column, optional=False))
    return Template(source, uses, _Braces(source) if uses else None)


_ALLOWED: tuple[type[nodes.Node], ...] = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.Name,
    nodes.Getattr,
    nodes.Getitem,
    nodes.If,
    nodes.For,
    nodes.Filter,
    nodes.Keyword,
    nodes.Const,
    nodes.Compare,
    nodes.Operand,
    nodes.And,
    nodes.Or,
    nodes.Not,
)
_REASONS: dict[type[nodes.Node], str] = {
    nodes.Call: "calls are not allowed",
    nodes.Macro: "macros are not allowed",
    nodes.Include: "includes are not allowed",
    nodes.Import: "imports are not allowed",
    nodes.FromImport: "imports are not allowed",
    nodes.Extends: "extends is not allowed",
    nodes.Assign: "set is not allowed",
    nodes.AssignBlock: "set is not allowed",
    nodes.BinExpr: "arithmetic is not allowed",
    nodes.Neg: "arithmetic is not allowed",
    nodes.Pos: "arithmetic is not allowed",
    nodes.Concat: "~ is not allowed",
    nodes.Test: "tests ('is ...') are not allowed; use the filter default",
    nodes.CondExpr: "inline if is not allowed; use {% if %}",
    nodes.Slice: "slices are not allowed; use truncate, first or last",
}


_RISKY = (nodes.Getattr, nodes.Getitem, nodes.For, nodes.Filter, nodes.Compare)


class _Inspector:
    """Collects variables and refusals from a syntax tree."""

    def __init__(self, source: str) -> None:
        self._lines = source.split("\n")
        self.uses: dict[str, Use] = {}
        self.faults: list[Fault] = []

    def visit(self, node: nodes.Node, bound: frozenset[str], *, optional: bool = False) -> None:
        if not isinstance(node, _ALLOWED):
            self._refuse(node, _reason(node))
            return
        if isinstance(node, nodes.Name):
            self._name(node, bound, optional=optional)
        elif isinstance(node, nodes.For):
            self._for(node, bound)
        elif isinstance(node, nodes.Filter):
            self._filter(node, bound)
        elif isinstance(node, nodes.Getattr | nodes.Getitem):
            self._access(node, bound, optional=optional)
        else:
            for child in node.iter_child_nodes():
                self.visit(child, bound)

    def _name(self, node: nodes.Name, bound: frozenset[str], *, optional: bool) -> None:
        if node.name in bound:
            return
        if not _NAME.match(node.name):
            self._refuse(node, f"{node.name!r} is not a variable name", "start with a letter")
            return
        line = node.lineno - 1
        column = self._column(line, node.name)
        known = self.uses.get(node.name)
        if known is None or (known.optional and not optional):
            self.uses[node.name] = Use(line, column, optional)

    def _for(self, node: nodes.For, bound: frozenset[str]) -> None:
        if node.recursive:
            self._refuse(node, "recursive loops are not allowed")
        if not isinstance(node.target, nodes.Name):
            self._refuse(node, "a loop has one variable")
            return
        if not isinstance(node.iter, nodes.Name | nodes.Getattr | nodes.Getitem | nodes.Filter):
            self._refuse(node, "a loop goes over a list of the case")
            return
        self.visit(node.iter, bound)
        inner = bound | {node.target.name, "loop"}
        for child in (*([node.test] if node.test else []), *node.body):
            self.visit(child, inner)
        for child in node.else_:
            self.visit(child, bound)

    def _filter(self, node: nodes.Filter, bound: frozenset[str]) -> None:
        if node.name not in FILTERS:
            self._refuse(node, f"filter {node.name!r} is not allowed", f"allowed: {FILTER_NAMES}")
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            self._refuse(node, "starred arguments are not allowed")
        if node.node is None:
            self._refuse(node, "filter blocks are not allowed")
            return
        self.visit(node.node, bound, optional=node.name == "default")
        for child in (*node.args, *node.kwargs):
            self.visit(child, bound)

    def _access(
        self, node: nodes.Getattr | nodes.Getitem, bound: frozenset[str], *, optional: bool
    ) -> None:
        if isinstance(node, nodes.Getitem):
            key = node.arg
            if not (isinstance(key, nodes.Const) and isinstance(key.value, str | int)):
                if not isinstance(key, nodes.Name):
                    self._refuse(node, "an index is a number, a quoted key or a variable")
                    return
                self.visit(key, bound)
        self.visit(node.node, bound, optional=optional)

    def _refuse(self, node: nodes.Node, message: str, hint: str = "") -> None:
        line = max(node.lineno - 1, 0)
        called = node.node if isinstance(node, nodes.Call) else node
        column = self._column(line, getattr(called, "name", None))
        self.faults.append(Fault("template", message, hint, at=(line, column)))

    def _column(self, line: int, name: str | None) -> int:
        text = self._lines[line] if line < len(self._lines) else ""
        opening = re.search(r"\{[{%]", text)
        start = opening.start() if opening else 0
        if name is None:
            return start
        found = re.search(rf"\b{re.escape(name)}\b", text[start:])
        return start + found.start() if found else start


FILTER_NAMES = ", ".join(sorted(FILTERS))


def _reason(node: nodes.Node) -> str:
    for kind in type(node).__mro__:
        if kind in _REASONS:
            return _REASONS[kind]
    return f"{type(node).__name__.lower()} is not allowed"


def _single(tree: nodes.Template) -> str | None:
    if len(tree.body) == 1 and isinstance(tree.body[0], nodes.Output):
        parts = tree.body[0].nodes
        if len(parts) == 1 and isinstance(parts[0], nodes.Name):
            return parts[0].name
    return None


def _bound_loops(tree: nodes.Template) -> None:
    for loop in tree.find_all(nodes.For):
        each = nodes.Filter(loop.iter, "_each", [], [], None, None, lineno=loop.lineno)
        each.environment = ENVIRONMENT
        loop.iter = each
