"""What a check sees of an answer, and what it says."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.extras import install_command
from edison_ci.templating.templates import MissingValueError, RenderError, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from edison_ci.extras import Library
    from edison_ci.records import Case, Completion, Json
    from edison_ci.templating.templates import Template

LONGEST_REASON = 300
_QUOTED = 80
_LONGEST_JSON = 2_000_000
_FENCE = re.compile(r"\s*+```[^\n`]*+\n")


class EvaluationError(Exception):
    """A check cannot say what an answer is worth; that is not the answer's fault."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A score from 0 to 1, and why."""

    score: float
    reason: str = ""
    passed: bool | None = None
    """What code of the repository decided itself; None lets the threshold decide."""

    @classmethod
    def of(cls, good: bool, reason: str) -> Grade:
        """Return 1, or 0 with the reason."""
        return cls(1.0) if good else cls(0.0, reason)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer to a case, taken apart."""

    case: Case
    text: str
    """What counts: without thinking, and out of its response section."""
    completion: Completion
    cost_microusd: int = 0
    schemas: Mapping[str, Json] = field(default_factory=dict)
    """The JSON Schemas that checks name by path."""
    root: Path | None = None
    """Folder of the project whose code may run; None if none may."""
    _parsed: list[Json | Fault] = field(default_factory=list, repr=False, compare=False)

    def render(self, template: Template) -> str:
        """Return an argument for this case; raises MissingValueError or RenderError."""
        if template.is_constant:
            return template.source
        return template.render(self.case.variables)

    def some(self, template: Template) -> str:
        """Return an argument that must not be empty; a case with nothing to look for lacks it."""
        text = self.render(template)
        if not text:
            raise MissingValueError("the text to look for")
        return text

    def texts(self, listed: Template | tuple[Template, ...]) -> list[str]:
        """Return an argument that is a list of texts, or one variable that holds one."""
        if isinstance(listed, tuple):
            return [self.some(template) for template in listed]
        value = listed.value(self.case.variables)
        if not isinstance(value, list):
            raise RenderError(f"{listed.single} is {quote(as_text(value), 30)}, not a list")
        if not value or "" in value:
            raise MissingValueError(f"a text in {listed.single}")
        return [as_text(item) for item in value]

    def json(self) -> Json:
        """Return the JSON value that the answer is, read once; raises Fault."""
        if not self._parsed:
            too_long(self, "JSON", _LONGEST_JSON)
            try:
                self._parsed.append(parse_json(unfenced(self.text)))
            except Fault as fault:
                self._parsed.append(fault)
        found = self._parsed[0]
        if isinstance(found, Fault):
            raise found
        return found


def unfenced(text: str) -> str:
    """Return the text inside a code fence around the whole answer, or the answer; trimmed."""
    found = _FENCE.match(text)
    whole = text.strip()
    if found is None or not whole.endswith("```"):
        return whole
    inner = text[found.end() : text.rindex("```")]
    return whole if "```" in inner else inner.strip()


def quote(text: str, longest: int = _QUOTED) -> str:
    """Return a text in quotes for a reason: short, on one line, nothing invisible in it."""
    return f"'{plain(text[:longest])}{'...' if len(text) > longest else ''}'"


def plain(text: str) -> str:
    """Return a text on one line without control, bidirectional and other invisible characters."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split()) if "  " in text else text


def brief(reason: str) -> str:
    """Return a reason that fits a report."""
    reason = plain(reason[: LONGEST_REASON + 1])
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 3] + "..."


def too_long(answered: Answered, check: str, longest: int) -> None:
    """Refuse an answer that a check would take too long to read."""
    if len(answered.text) > longest:
        size = f"{len(answered.text):,}"
        raise EvaluationError(
            f"the answer has {size} characters; {check} takes at most {longest:,}"
        )


@contextmanager
def using(library: Library) -> Iterator[None]:
    """Turn whatever goes wrong while a library is loaded into an error that says what to do."""
    try:
        yield
    except Exception as error:  # a broken library may raise anything
        fault, said = library.fault(), f"{type(error).__name__}: {error}"
        if fault:
            told = f"{library.module} {fault}: {install_command(library.extra)}"
        else:
            told = f"{library.module} is installed but cannot be used, install it again: {said}"
        raise EvaluationError(told) from error
