"""Pieces of a template, and rendering of those that are only text and variables.

Most are. Such a one needs no template engine, neither to be read nor to be rendered.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edison_ci.documents.decoding import place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from edison_ci.documents.marks import Fault, Json

MAX_OUTPUT = 1_000_000
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")

_VARIABLE = re.compile(r"\{\{ *([A-Za-z][A-Za-z0-9_]*) *\}\}")
_MARKS = re.compile(r"\{[{%#]|\{\Z|\r")
"""What says, in a text beside variables, that there is more to a template."""
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
"""Names that mean something in the language."""
_MOST = 1_000
"""Variables; whether more are too many is for the language to say."""


class MissingValueError(Exception):
    """A case lacks a variable, or something inside one, that a template needs."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is missing")
        self.name = name


class RenderError(Exception):
    """A template and a case do not fit, or the template worked too long or wrote too much."""


class TemplateFaults(Exception):
    """Everything a template says that it may not."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(faults[0].message)
        self.faults = faults


class Use(NamedTuple):
    """Where a variable is first used (counted from 0), and whether a case may lack it."""

    line: int
    column: int
    optional: bool


class Renders(Protocol):
    """Something that makes texts of the values of a case."""

    def texts(self, values: Mapping[str, Json]) -> Iterator[str]:
        """Yield the text piece by piece; raises MissingValueError or RenderError."""
        ...


class Pieces(NamedTuple):
    """Text and names of variables in turn, text first."""

    parts: list[str]

    def texts(self, values: Mapping[str, Json]) -> Iterator[str]:
        """Yield the text of each part; raises MissingValueError."""
        for index, part in enumerate(self.parts):
            if index % 2 == 0:
                yield part
            elif part in values:
                yield as_text(values[part])
            else:
                raise MissingValueError(part)


class Understood(NamedTuple):
    """What a template uses, and how it is rendered."""

    uses: Mapping[str, Use]
    renders: Renders
    single: str | None = None
    """Name of the variable when the template is exactly one variable."""
    plain: bool = True
    """Whether having its variables is all a case needs to be rendered."""


def as_text(value: Json) -> str:
    """Return how a value appears in a prompt: strings verbatim, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def over(limit: int) -> RenderError:
    """Return the error of a text that grew too long."""
    return RenderError(f"the rendered text is longer than {limit:,} characters")


def only_variables(source: str) -> Understood | None:
    """Return what a template is that has texts and variables only, or None if there is more."""
    parts = _VARIABLE.split(source)
    names = parts[1::2]
    if len(names) > _MOST or not _WORDS.isdisjoint(names) or any(map(_MARKS.search, parts[::2])):
        return None
    uses: dict[str, Use] = {}
    for found in _VARIABLE.finditer(source):
        if found.group(1) not in uses:
            uses[found.group(1)] = Use(*place(source, found.start(1)), optional=False)
    alone = len(names) == 1 and not parts[0] and not parts[2]
    return Understood(uses, Pieces(parts), names[0] if alone else None)


def joined(texts: Iterable[str]) -> str:
    """Return the texts as one, which may not become too long."""
    found: list[str] = []
    size = 0
    for text in texts:
        size += len(text)
        if size > MAX_OUTPUT:
            raise over(MAX_OUTPUT)
        found.append(text)
    return "".join(found)
