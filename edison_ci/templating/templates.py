"""Templates: compiling them, the variables they use, and rendering.

The language is Jinja2, restricted by an allow-list on the syntax tree to variables, attribute and
index access on case data, if/elif/else, for over a list, and eleven filters. Values come from
datasets and are never parsed; attribute access reads keys of maps, never attributes of Python.
Strings render verbatim, other values as JSON. Work and output are bounded.

Most templates are text and variables only; those are compiled and rendered without Jinja2.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.documents.decoding import place
from edison_ci.documents.marks import Fault, Json

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_OUTPUT = 1_000_000
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")

_VARIABLE = re.compile(r"\{\{ *([A-Za-z][A-Za-z0-9_]*) *\}\}")
_MARKS = re.compile(r"\{[{%#]|\{\Z|\r")
"""Marks in the text between variables which show that a template has more syntax."""
_WORDS = frozenset(
    [
        "and",
        "else",
        "false",
        "if",
        "in",
        "is",
        "loop",
        "none",
        "not",
        "or",
        "self",
        "true",
        "False",
        "None",
        "True",
    ]
)
"""Reserved names of the language."""
_MOST = 1_000
"""The most variables of a template that is compiled without Jinja2."""


class MissingValueError(Exception):
    """A case lacks a variable, or a value inside of one, that a template needs."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is missing")
        self.name = name


class RenderError(Exception):
    """A template does not fit a case, or exceeds the limit of work or output."""


class TemplateFaults(Exception):
    """All faults of a template."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults[0].message)
        self.faults = faults


class Use(NamedTuple):
    """The first use of a variable (counted from 0), and whether a case may lack it."""

    line: int
    column: int
    optional: bool


class Renders(Protocol):
    """Renders the values of a case."""

    def render(self, values: Mapping[str, Json]) -> str:
        """Return the text; raises MissingValueError or RenderError."""
        ...


class Pieces(NamedTuple):
    """Texts and names of variables, alternating, text first."""

    parts: list[str]

    def render(self, values: Mapping[str, Json]) -> str:
        """Return the joined parts; raises MissingValueError, or RenderError if it is too long."""
        found = self.parts.copy()
        size = 0
        for index in range(1, len(found), 2):
            if found[index] not in values:
                raise MissingValueError(found[index])
            found[index] = text = as_text(values[found[index]])
            size += len(text)
            if size > MAX_OUTPUT:
                raise output_too_long(MAX_OUTPUT)
        text = "".join(found)
        if len(text) > MAX_OUTPUT:
            raise output_too_long(MAX_OUTPUT)
        return text


class TemplateAnalysis(NamedTuple):
    """The variables of a template, and its renderer."""

    uses: Mapping[str, Use]
    renders: Renders
    single: str | None = None
    """Name of the variable when the template is exactly one variable."""
    plain: bool = True
    """Whether a case that has the variables can always be rendered."""


def as_text(value: Json) -> str:
    """Return a value as it appears in a prompt: strings verbatim, others as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def output_too_long(limit: int) -> RenderError:
    """Return the error for a rendered text that is too long."""
    return RenderError(f"the rendered text is longer than {limit:,} characters")


def analyse_variables(source: str) -> TemplateAnalysis | None:
    """Return the analysis of a template of text and variables; None if it has other syntax."""
    parts = _VARIABLE.split(source)
    names = parts[1::2]
    if len(names) > _MOST or not _WORDS.isdisjoint(names) or any(map(_MARKS.search, parts[::2])):
        return None
    uses: dict[str, Use] = {}
    for found in _VARIABLE.finditer(source):
        if found.group(1) not in uses:
            uses[found.group(1)] = Use(*place(source, found.start(1)), optional=False)
    alone = len(names) == 1 and not parts[0] and not parts[2]
    return TemplateAnalysis(uses, Pieces(parts), names[0] if alone else None)


__all__ = [
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

MAX_SOURCE = 50_000

_BRACES = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template. `render` is safe for any data."""

    source: str
    uses: Mapping[str, Use]
    _renders: Renders | None
    single: str | None = None
    """Name of the variable when the template is exactly one variable, as in `{{ words }}`."""
    plain: bool = True
    """Whether a case that has the variables can always be rendered."""

    @property
    def is_constant(self) -> bool:
        """Whether the text is the same for every case."""
        return self._renders is None

    def render(self, values: Mapping[str, Json]) -> str:
        """Return the text; raises MissingValueError or RenderError."""
        return self.source if self._renders is None else self._renders.render(values)

    def value(self, values: Mapping[str, Json]) -> Json:
        """Return the value of the variable if the template is exactly one, else the text."""
        if self.single is None:
            return self.render(values)
        if self.single not in values:
            raise MissingValueError(self.single)
        return values[self.single]


def compile_template(source: str, *, syntax: Syntax = "jinja") -> Template:
    """Return the template; raises TemplateFaults with all faults and their positions."""
    if syntax == "braces":
        return _compile_braces(source)
    if "{{" not in source and "{%" not in source and "{#" not in source:
        return Template(source, {}, None)
    if len(source) > MAX_SOURCE:
        message = f"the template has {len(source):,} characters; at most {MAX_SOURCE:,}"
        raise TemplateFaults([Fault("length", message, "shorten it")])
    found = analyse_variables(source)
    if found is None:
        from edison_ci.templating.syntax import analyse_template  # loads Jinja2

        found = analyse_template(source)
    return Template(source, *found)


def _compile_braces(source: str) -> Template:
    uses: dict[str, Use] = {}
    for found in _BRACES.finditer(source):
        if found.group(1) not in uses:
            uses[found.group(1)] = Use(*place(source, found.start(1)), optional=False)
    return Template(source, uses, Pieces(_BRACES.split(source)) if uses else None)
