"""Templates: compiling them, the variables they use, and rendering.

The language is Jinja2, restricted by an allow-list on the syntax tree to variables, attribute and
index access on case data, if/elif/else, for over a list, and eleven filters. Values come from
datasets and are never parsed; attribute access reads keys of maps, never attributes of Python.
Strings render verbatim, other values as JSON. Work and output are bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.documents.marks import Fault
from edison_ci.templating.variables import (
    MissingValueError,
    Pieces,
    RenderError,
    TemplateFaults,
    Use,
    analyse_variables,
    as_text,
    uses_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.documents.marks import Json
    from edison_ci.templating.variables import Renders

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
    analysis = analyse_variables(source)
    if analysis is None:
        from edison_ci.templating.syntax import analyse_template  # loads Jinja2

        analysis = analyse_template(source)
    return Template(source, *analysis)


def _compile_braces(source: str) -> Template:
    uses = uses_of(_BRACES, source)
    return Template(source, uses, Pieces(_BRACES.split(source)) if uses else None)
