"""The parsed answer that a check evaluates, and the grade that it returns."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci import extras
from edison_ci._dataclass import dataclass
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.records import FinishReason
from edison_ci.templating.templates import MissingValueError, RenderError, as_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from edison_ci.contracts import CheckOutcome
    from edison_ci.extras import Library
    from edison_ci.records import Case, Completion, Json
    from edison_ci.templating.templates import Template

LONGEST_REASON = 300
_QUOTED = 80
_LONGEST_JSON = 2_000_000
_FENCE = re.compile(r"\s*+```[^\n`]*+\n")


class EvaluationError(Exception):
    """A check cannot grade an answer, for a reason that is not in the answer."""


class CodeAtWorker(BaseException):
    """A worker is to be asked what code finds, before the check is evaluated again.

    Not an Exception, because checks of plugins may catch all of those.
    """

    def __init__(self, program: str, request: str) -> None:
        super().__init__(program)
        self.program, self.request = program, request


@dataclass(frozen=True, slots=True)
class Grade:
    """A score from 0 to 1, and its reason."""

    score: float
    reason: str = ""
    passed: bool | None = None
    """The decision of a code check; None lets the threshold decide."""

    @classmethod
    def of(cls, good: bool, reason: str) -> Grade:
        """Return a grade of 1, or of 0 with the reason."""
        return cls(1.0) if good else cls(0.0, reason)


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer to a case, parsed."""

    case: Case
    text: str
    """The text that is graded: without thinking, from the response section."""
    completion: Completion
    cost_microusd: int = 0
    schemas: Mapping[str, Json] = field(default_factory=dict)
    """JSON Schemas by the path that checks name."""
    root: Path | None = None
    """Folder of the project if its code may run, else None."""
    outcomes: dict[str, CheckOutcome | None] | None = None
    """What code has found at workers, by program, and None for what no worker runs; None as a
    whole if the run has no workers."""
    embeddings: dict[tuple[str, str], str | EvaluationError] = field(default_factory=dict)
    """Stored embeddings by model and text, or why there is none."""
    _parsed: list[Json | Fault] = field(default_factory=list, repr=False, compare=False)

    def render(self, template: Template) -> str:
        """Return an argument for this case; raises MissingValueError or RenderError."""
        if template.is_constant:
            return template.source
        return template.render(self.case.variables)

    def render_required(self, template: Template) -> str:
        """Return an argument that must not be empty; raises MissingValueError if it is."""
        text = self.render(template)
        if not text:
            raise MissingValueError("the text to look for")
        return text

    def texts(self, listed: Template | tuple[Template, ...]) -> list[str]:
        """Return an argument that is a list of texts, or one variable with such a list."""
        if isinstance(listed, tuple):
            return [self.render_required(template) for template in listed]
        value = listed.value(self.case.variables)
        if not isinstance(value, list):
            raise RenderError(f"{listed.single} is {quote(as_text(value), 30)}, not a list")
        if not value or "" in value:
            raise MissingValueError(f"a text in {listed.single}")
        return [as_text(item) for item in value]

    def json(self, *, exact: bool = False) -> Json:
        """Return the answer as a JSON value, parsed once; raises Fault.

        A code fence around it is removed, unless it is taken exactly as it is.
        """
        if exact and self.text.strip() != strip_fence(self.text):
            raise Fault("syntax", "there is a code fence around it", "leave out exact")
        if not self._parsed:
            refuse_long(self, "JSON", _LONGEST_JSON)
            try:
                self._parsed.append(parse_json(strip_fence(self.text)))
            except Fault as fault:
                message = cut_off_note(fault.message, self.completion)
                self._parsed.append(Fault(fault.code, message, fault.hint, at=fault.at))
        parsed = self._parsed[0]
        if isinstance(parsed, Fault):
            raise parsed
        return parsed


def cut_off_note(reason: str, completion: Completion) -> str:
    """Return why an answer does not parse; an answer that was cut off says so first."""
    if completion.finish_reason is FinishReason.LENGTH:
        return f"the answer was cut off at max_tokens: {reason}"
    return reason


def strip_fence(text: str) -> str:
    """Return the text without a code fence around all of it, trimmed."""
    fence = _FENCE.match(text)
    whole = text.strip()
    if fence is None or not whole.endswith("```"):
        return whole
    inner = text[fence.end() : text.rindex("```")]
    return whole if "```" in inner else inner.strip()


def quote(text: str, longest: int = _QUOTED) -> str:
    """Return a text in quotes for a reason: short, on one line, printable."""
    return f"'{single_line(text[:longest])}{'...' if len(text) > longest else ''}'"


def single_line(text: str) -> str:
    """Return a text on one line, without control and other invisible characters."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split()) if "  " in text else text


def shorten(reason: str) -> str:
    """Return a reason that is short enough for a report."""
    reason = single_line(reason[: LONGEST_REASON + 1])
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 3] + "..."


def check_named(name_or_kind: str, names: Collection[str]) -> str | None:
    """Return the check of a name, or the only one of a kind such as `regex`; None otherwise."""
    if name_or_kind in names:
        return name_or_kind
    of_kind = [name for name in names if name.startswith(f"{name_or_kind} ")]
    return of_kind[0] if len(of_kind) == 1 else None


def refuse_long(answered: ParsedAnswer, check: str, longest: int) -> None:
    """Raise EvaluationError for an answer that is too long for a check."""
    if len(answered.text) > longest:
        size = f"{len(answered.text):,}"
        raise EvaluationError(
            f"the answer has {size} characters; {check} takes at most {longest:,}"
        )


@contextmanager
def library_errors(library: Library) -> Iterator[None]:
    """Turn any error while a library is loaded into an EvaluationError with a remedy."""
    try:
        yield
    except Exception as error:  # a broken library may raise anything
        fault, reason = library.fault(), f"{type(error).__name__}: {error}"
        if fault:
            message = f"{library.module} {fault}: {extras.install_command(library.extra)}"
        else:
            message = f"{library.module} is installed but broken, reinstall it: {reason}"
        raise EvaluationError(message) from error
