"""Templates: the variables they use, and what they render to.

The language is Jinja2's, cut down by an allow-list on the syntax tree to variables, attribute and
index access on case data, if/elif/else, for over a list, and eleven filters. Values come from
datasets and are never parsed; attribute access reaches keys of mappings and nothing of Python.
Strings render verbatim, everything else as JSON. Work and output are bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.documents.decoding import place
from edison_ci.documents.marks import Fault, Json
from edison_ci.plugins import later
from edison_ci.templating.pieces import (
    MissingValueError,
    Pieces,
    RenderError,
    TemplateFaults,
    Use,
    as_text,
    joined,
    only_variables,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.templating.pieces import Renders, Understood

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
_understood = later("edison_ci.templating.syntax:understood")


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template. `render` is safe on any data."""

    source: str
    uses: Mapping[str, Use]
    _renders: Renders | None
    single: str | None = None
    """Name of the variable when the template is exactly one variable, as in `{{ words }}`."""
    plain: bool = True
    """Whether having its variables is all a case needs to be rendered."""

    @property
    def is_constant(self) -> bool:
        """Whether the text is the same for every case."""
        return self._renders is None

    def render(self, values: Mapping[str, Json]) -> str:
        """Return the text; raises MissingValueError or RenderError."""
        return self.source if self._renders is None else joined(self._renders.texts(values))

    def value(self, values: Mapping[str, Json]) -> Json:
        """Return the variable's own value when the template is exactly one, else the text."""
        if self.single is None:
            return self.render(values)
        if self.single not in values:
            raise MissingValueError(self.single)
        return values[self.single]


def compile_template(source: str, *, syntax: Syntax = "jinja") -> Template:
    """Return the template, or raise TemplateFaults with every refusal and its place."""
    if syntax == "braces":
        return _compile_braces(source)
    if "{{" not in source and "{%" not in source and "{#" not in source:
        return Template(source, {}, None)
    if len(source) > MAX_SOURCE:
        message = f"the template has {len(source):,} characters; at most {MAX_SOURCE:,}"
        raise TemplateFaults([Fault("length", message, "shorten it")])
    found: Understood = only_variables(source) or _understood(source)
    return Template(source, *found)


def _compile_braces(source: str) -> Template:
    uses: dict[str, Use] = {}
    for found in _BRACES.finditer(source):
        if found.group(1) not in uses:
            uses[found.group(1)] = Use(*place(source, found.start(1)), optional=False)
    return Template(source, uses, Pieces(_BRACES.split(source)) if uses else None)
