"""Where is a YAML text really wrong, when the parser gives up?

The parser stops where it can go no further. What was opened and never closed is mended where it
opens, often many lines above.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from edison_ci.documents.marks import Fault
from edison_ci.frozen import dataclass

Place = tuple[int, int]

_HINTS = {
    "'\\t'": "indent with spaces, not with tabs",
    "tab character": "indent with spaces, not with tabs",
    "cannot start any token": "indent with spaces; quote text that starts with a tab, @, ` or %",
    "mapping values are not allowed": "check the indentation; quote a text that contains ': '",
    "could not find expected ':'": "a key needs ': ' and a value; long texts go after '>-' or '|'",
    "did not find expected key": (
        "keys of one map start in the same column; text after a quoted value is not part of it"
    ),
    "did not find expected '-'": "entries of one list start with '- ' in the same column",
    "did not find expected node content": "a value is missing here",
    "did not find expected ','": "separate with ',' and close each bracket with its own kind",
    "unknown escape character": "write a backslash as \\\\, or use single quotes",
}
_QUOTE = "quote a text that has special characters"
_CLOSING = {
    "quote": "end the text with a quote",
    "[": "separate with ',', end with ']'",
    "{": "separate with ',', end with '}'",
}
_CONTEXTS = {
    "while scanning a quoted scalar": "quote",
    "while parsing a quoted scalar": "quote",
    "while parsing a flow sequence": "[",
    "while parsing a flow mapping": "{",
}


@dataclass(slots=True)
class Seen:
    """What was read before the parser gave up."""

    root: Place | None = None
    opened: list[tuple[Place, str]] = field(default_factory=list)
    """Lists and maps that are not at their end, with the bracket that opened them, if one did."""
    quoted: Place = (0, 0)
    """Start of the last quoted text that goes over several lines."""
    quote_end: int = -1


def syntax_fault(error: Any, end: Place, first_line: int, seen: Seen) -> Fault:
    """Return what the parser said, at the place where it is mended."""
    problem = str(getattr(error, "problem", None) or error)
    context = getattr(error, "context", None)
    at = _mark(error, "problem_mark", end)
    at_end = at == end and first_line == 1  # front matter ends before its file does
    line = "the end of the file" if at_end else f"line {at[0] + first_line}"
    opened, what = _unclosed(error, problem, at, seen)
    if what and (opened[0] != at[0] or at == end):
        problem, hint = f"this {what} is not closed by {line}", _CLOSING[what]
        at = opened
    elif "<document start>" in problem and seen.root is not None:
        problem, at = f"what starts here ends before {line}", seen.root
        hint = "keys of one map start in the same column; a key needs ': '"
    else:
        if context == "while scanning a simple key":
            at = _mark(error, "context_mark", at)
        hint = next((hint for part, hint in _HINTS.items() if part in problem), _QUOTE)
    return Fault("syntax", f"not valid YAML: {problem}", hint, at=at)


def _unclosed(error: Any, problem: str, at: Place, seen: Seen) -> tuple[Place, str]:
    """Return the quote or bracket that seems to lack its other end, if one does."""
    context = getattr(error, "context", None)
    if context in _CONTEXTS:
        return _mark(error, "context_mark", at), _CONTEXTS[context]
    if "node content" in problem and seen.opened:
        return seen.opened[-1]
    if problem.startswith("did not find expected") and seen.quote_end == at[0]:
        return seen.quoted, "quote"
    return at, ""


def _mark(error: Any, name: str, otherwise: Place) -> Place:
    """Return a place the parser names; it counts a line too many after the last."""
    mark = getattr(error, name, None)
    return min((mark.line, mark.column), otherwise) if mark is not None else otherwise
