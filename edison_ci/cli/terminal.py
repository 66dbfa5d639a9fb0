"""The terminal: how results and errors reach people, scripts and GitHub.

Results go to stdout, everything else to stderr, and whatever comes from files is made harmless on
the way: a command hands over plain texts and says which of them are to be coloured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from edison_ci.errors import (
    ConfigError,
    EdisonError,
    ExitCode,
    Location,
    Problem,
    Severity,
    UsageError,
)
from edison_ci.report.workflow import command
from edison_ci.sanitize import in_actions, json_text, line, lines, without_commands, without_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from edison_ci.cli.options import State


_MAX = 9
"""GitHub shows ten of a level in a step; the tenth says how many more there are."""


def workflow_commands(problems: Sequence[Problem], root: Path | None) -> Iterator[str]:
    """Yield problems as workflow commands, errors first; `root` is the project they are in."""
    ranked = sorted(problems, key=lambda p: (p.severity is Severity.WARNING, p.where.order))
    folder = folder_in_checkout(root)
    for problem in ranked[:_MAX]:
        yield annotation(problem, folder)
    if len(ranked) > _MAX:
        yield f"::{ranked[_MAX].severity}::{len(ranked) - _MAX} more problems, see the log"


def annotation(problem: Problem, folder: str = "") -> str:
    """Return a problem as a workflow command; its file is in `folder` of the checkout."""
    where = problem.where
    properties = {
        "file": folder + where.file if where.file else None,
        "line": where.line,
        "col": where.column,
        "title": f"edison: {problem.code}",
    }
    text = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    return command(str(problem.severity), text, properties)


def folder_in_checkout(root: Path | None) -> str:
    """Return where the project is in the checkout, as paths of annotations start there."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if root is None or not workspace:
        return ""
    folder = os.path.relpath(root.resolve(), os.path.realpath(workspace))
    return "" if folder == "." or folder.startswith("..") else f"{folder}/"


SCHEMA_VERSION = 1


class Ink(NamedTuple):
    """A text and how it looks where there is colour."""

    text: str
    color: str | None = None
    bold: bool | None = None


BAD, ODD, GOOD = "red", "yellow", "green"


class Terminal:
    """Where a command's words go."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def json(self) -> bool:
        """Whether JSON is asked for."""
        return self._state.json

    @property
    def color(self) -> bool:
        """Whether remarks are coloured."""
        return _color_wanted(self._state, sys.stderr)

    # --- results ----------------------------------------------------------------------------------

    def result(self, *parts: str | Ink) -> None:
        """Print a line of the result, unless JSON is asked for or quiet."""
        if not self._state.json and not self._state.quiet:
            self._print(sys.stdout, parts)

    def document(self, value: dict[str, Any]) -> None:
        """Print the one JSON document."""
        self.compact({"schema_version": SCHEMA_VERSION, **value}, indent=2)

    def compact(self, value: Any, *, indent: int | None = None) -> None:
        """Print a value as JSON on one line."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        ascii_only = not encoding.lower().replace("-", "").startswith("utf")
        write(sys.stdout, json_text(value, indent=indent, ascii_only=ascii_only))

    def commands(self, made: Iterable[str]) -> None:
        """Print lines that GitHub is meant to act on; they were escaped where they were made."""
        for text in made:
            write(sys.stdout, text, obey=True)

    def raw(self, text: str) -> None:
        """Print a document that was made harmless already, as it is."""
        write(sys.stdout, text.removesuffix("\n"))

    def table(self, rows: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> None:
        """Print rows as aligned columns, those in `right` flush right."""
        for row in aligned(rows, right=frozenset(right)):
            self.result(row)

    # --- remarks ----------------------------------------------------------------------------------

    def note(self, *parts: str | Ink) -> None:
        """Print a remark to stderr, unless quiet."""
        if not self._state.quiet:
            self._print(sys.stderr, parts)

    def warnings(self, problems: Iterable[Problem]) -> None:
        """Print problems that stop nothing to stderr, unless quiet."""
        if not self._state.quiet:
            self._list(problems, sys.stderr)

    # --- errors -----------------------------------------------------------------------------------

    def complaint(self, error: EdisonError) -> None:
        """Print an error to stderr that does not keep the command from telling its result."""
        said = f"{error.message}; {error.hint}" if error.hint else error.message
        self._print(sys.stderr, (Ink("error:", BAD, bold=True), f" {without_pieces(said)}"))

    def problems(self, problems: Iterable[Problem]) -> None:
        """Print problems as the result, one a line with its hint below; quiet keeps the errors."""
        if self._state.quiet:
            self._list((p for p in problems if p.severity is Severity.ERROR), sys.stderr)
        else:
            self._list(problems, sys.stdout)

    def failure(self, problem: Problem, exit_code: ExitCode, **more: Any) -> int:
        """Print why the command failed, with `more` in JSON; return its exit code."""
        problem = _told(problem)
        if self._state.json:
            self._failed(problem, exit_code, **more)
        else:
            place = f"{self.place(problem.where)}: " if problem.where.file else ""
            self._print(sys.stderr, (Ink("error:", BAD, bold=True), f" {place}{problem.message}"))
            if problem.hint:
                self._print(sys.stderr, (f"  {problem.hint}",))
        self.annotate([problem])
        return int(exit_code)

    def invalid(self, error: ConfigError) -> int:
        """Print every problem of the project's files; return the exit code."""
        if self._state.json:
            problem = Problem(error.problems[0].where, error.code, error.message, error.hint)
            self._failed(
                _told(problem), error.exit_code, problems=list(map(as_json, error.problems))
            )
        else:
            self._list(error.problems, sys.stderr)
            self.note(f"{counted(len(error.problems), 'error')}; nothing was done")
        self.annotate(error.problems)
        return int(error.exit_code)

    def annotate(self, problems: Sequence[Problem]) -> None:
        """Print annotations for GitHub when running in an action."""
        if in_actions():
            for command in workflow_commands([*map(_told, problems)], self._state.root):
                write(sys.stderr, command, obey=True)

    def traceback(self, error: BaseException) -> None:
        """Print where an error came from."""
        import traceback

        write(sys.stderr, lines("".join(traceback.format_exception(error)).rstrip()))

    def place(self, where: Location) -> str:
        """Return a place in the project as seen from the folder we work in."""
        if self._state.root is None or not where.file:
            return str(where)
        path = os.path.relpath(self._state.root / where.file, self._state.folder.resolve())
        return str(Location(path, where.line, where.column))

    def _failed(self, problem: Problem, exit_code: ExitCode, **more: Any) -> None:
        where = problem.where
        error = {
            "code": problem.code,
            "message": problem.message,
            "file": where.file or None,
            "line": where.line,
            "column": where.column,
            "hint": problem.hint,
        }
        self.document({"error": error, **more, "exit_code": int(exit_code)})

    def _list(self, problems: Iterable[Problem], stream: TextIO | None) -> None:
        for problem in map(_told, problems):
            warning = problem.severity is Severity.WARNING
            word = Ink("warning", ODD) if warning else Ink("error", BAD)
            place = Ink(self.place(problem.where), bold=True)
            self._print(stream, (place, ": ", word, f": {problem.message}"))
            if problem.hint:
                self._print(stream, (f"    {problem.hint}",))

    def _print(self, stream: TextIO | None, parts: Iterable[str | Ink]) -> None:
        color = _color_wanted(self._state, stream)
        write(stream, "".join(_painted(part, color=color) for part in parts))


def _painted(part: str | Ink, *, color: bool) -> str:
    if isinstance(part, str):
        return line(part)
    text = line(part.text)
    return click.style(text, fg=part.color, bold=part.bold) if color else text


def _color_wanted(state: State, stream: TextIO | None) -> bool:
    if state.no_color or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and stream is not None and stream.isatty()


# --- streams --------------------------------------------------------------------------------------


def write(stream: TextIO | None, text: str, *, obey: bool = False) -> None:
    """Write a line to a stream that may be closed, narrow, full, or read by GitHub.

    `obey` says that GitHub is meant to act on it.
    """
    if stream is None:
        return  # closed before we started
    if in_actions() and not obey:
        text = without_commands(text)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    shown = text.encode(encoding, errors="backslashreplace").decode(encoding)
    if stream is sys.stderr:
        flush(sys.stdout)  # so that both are read in the order in which they were written
    try:
        stream.write(shown + "\n")
    except OSError as error:
        _given_up(stream, error)


def flush(stream: TextIO | None) -> None:
    """Hand on what was written; a reader that went away is no error, a full disk is."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError as error:
        _given_up(stream, error)


def _given_up(stream: TextIO, error: OSError) -> None:
    with contextlib.suppress(OSError, ValueError):  # a stream of a test has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if stream is not sys.stderr and not isinstance(error, BrokenPipeError):
        raise UsageError(
            f"the result cannot be written: {error.strerror}", hint="write it somewhere else"
        ) from None


# --- words ----------------------------------------------------------------------------------------


def aligned(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as aligned lines; columns in `right` are flush right."""
    shown = [[line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in shown
    ]


def counted(number: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _told(problem: Problem) -> Problem:
    """Return a problem as it may be shown to anybody."""
    message, hint = without_pieces(problem.message), without_pieces(problem.hint)
    return dataclasses.replace(problem, message=message, hint=hint)


def as_json(problem: Problem) -> dict[str, object]:
    """Return a problem as it appears in JSON."""
    problem = _told(problem)
    return {
        "file": problem.where.file,
        "line": problem.where.line,
        "column": problem.where.column,
        "code": problem.code,
        "message": problem.message,
        "hint": problem.hint,
        "severity": str(problem.severity),
    }
