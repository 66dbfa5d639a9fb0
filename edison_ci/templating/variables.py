"""Templates of text and variables only, as most are: analysed and rendered without Jinja2.

The analysis, the limits and the errors of all templates are here, too.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edison_ci.documents.decoding import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.documents.marks import Fault, Json


MAX_OUTPUT = 1_000_000
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")

_VARIABLE = re.compile(r"\{\{ *([A-Za-z][A-Za-z0-9_]*) *\}\}")
_MARKS = re.compile(r"\{[{%#]|\{\Z|\r")
"""Marks in the text between variables which show that a template has more syntax."""
_WORDS = frozenset(
    {"and", "else", "false", "if", "in", "is", "loop", "none", "not", "or", "self", "true", "False",
     "None", "True"}
)  # fmt: skip
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
        parts = self.parts.copy()
        size = 0
        for index in range(1, len(parts), 2):
            if parts[index] not in values:
                raise MissingValueError(parts[index])
            parts[index] = text = as_text(values[parts[index]])
            size += len(text)
            if size > MAX_OUTPUT:
                raise output_too_long(MAX_OUTPUT)
        text = "".join(parts)
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
    uses = uses_of(_VARIABLE, source)
    alone = len(names) == 1 and not parts[0] and not parts[2]
    return TemplateAnalysis(uses, Pieces(parts), names[0] if alone else None)


def uses_of(variable: re.Pattern[str], source: str) -> dict[str, Use]:
    """Return the first use of each variable; the first group of the pattern is its name."""
    uses: dict[str, Use] = {}
    for match in variable.finditer(source):
        if match[1] not in uses:
            uses[match[1]] = Use(*place(source, match.start(1)), optional=False)
    return uses
