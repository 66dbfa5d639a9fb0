"""How do results and errors reach people, scripts and GitHub?

Results go to stdout, everything else to stderr. Text that comes from files or models is made
harmless first: no control characters, no bidirectional tricks, no workflow commands.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from edison_ci.config.secrets_in_files import redacted
from edison_ci.errors import ConfigError, ExitCode, Location, Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edison_ci.cli.options import State

SCHEMA_VERSION = 1
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
_MAX_ANNOTATIONS = 9


def clean(text: str) -> str:
    """Return a text that a terminal shows and does not obey."""
    return _UNSAFE.sub(lambda found: f"\\u{{{ord(found.group()):x}}}", text)


def safe(text: str) -> str:
    """Return a text about somebody's files: harmless, and without what looks like a secret."""
    return clean(redacted(text))


class Terminal:
    """Where a command's words go."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.color = _color_wanted(state)

    # --- results ----------------------------------------------------------------------------------

    def result(self, text: str = "") -> None:
        """Print a line of the result, unless JSON is asked for."""
        if not self._state.json:
            _write(sys.stdout, clean(text) if not self.color else _clean_styled(text))

    def document(self, value: dict[str, Any]) -> None:
        """Print the one JSON document."""
        body = {"schema_version": SCHEMA_VERSION, **value}
        _write(sys.stdout, json.dumps(body, indent=2, ensure_ascii=False))

    @property
    def json(self) -> bool:
        """Whether JSON is asked for."""
        return self._state.json

    def note(self, text: str) -> None:
        """Print a remark to stderr, unless quiet."""
        if not self._state.quiet:
            _write(sys.stderr, clean(text) if not self.color else _clean_styled(text))

    def style(self, text: str, **styles: Any) -> str:
        """Return the text with colour where colour is wanted; data in it is made harmless."""
        safe = clean(text)
        return click.style(safe, **styles) if self.color else safe

    # --- errors -----------------------------------------------------------------------------------

    def failure(
        self,
        code: str,
        message: str,
        exit_code: ExitCode,
        *,
        where: Location | None = None,
        hint: str = "",
    ) -> int:
        """Print why the command failed; return its exit code."""
        if self._state.json:
            error = {
                "code": code,
                "message": redacted(message),
                "file": where.file if where else None,
                "line": where.line if where else None,
                "column": where.column if where else None,
                "hint": redacted(hint),
            }
            self.document({"error": error, "exit_code": int(exit_code)})
        else:
            place = f"{where}: " if where else ""
            head = self.style("error:", fg="red", bold=True)
            _write(sys.stderr, f"{head} {safe(place + message)}")
            if hint:
                _write(sys.stderr, f"  {safe(hint)}")
        self.annotate([Problem(where or Location(""), code, message, hint)])
        return int(exit_code)

    def invalid(self, error: ConfigError) -> int:
        """Print every problem of the project's files; return the exit code."""
        if len(error.problems) == 1 or self._state.json:
            return self.failure(
                error.code, error.message, error.exit_code, where=error.where, hint=error.hint
            )
        self.problems(error.problems, to=sys.stderr)
        self.annotate(error.problems)
        return int(error.exit_code)

    def problems(self, problems: Iterable[Problem], *, to: Any = None) -> None:
        """Print problems, one a line with its hint below."""
        stream = to or sys.stdout
        for problem in problems:
            warning = problem.severity is Severity.WARNING
            word = self.style("warning" if warning else "error", fg="yellow" if warning else "red")
            place = self.style(str(problem.where), bold=True)
            _write(stream, f"{place}: {word}: {safe(problem.message)}")
            if problem.hint:
                _write(stream, f"    {safe(problem.hint)}")

    def annotate(self, problems: Sequence[Problem]) -> None:
        """Print annotations for GitHub when running in an action."""
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return
        ranked = sorted(problems, key=lambda p: (p.severity is Severity.WARNING, p.where.order))
        for problem in ranked[:_MAX_ANNOTATIONS]:
            _write(sys.stderr, annotation(problem, self._prefix()))
        if len(ranked) > _MAX_ANNOTATIONS:
            _write(
                sys.stderr, f"::error::{len(ranked) - _MAX_ANNOTATIONS} more problems, see the log"
            )

    def _prefix(self) -> str:
        workspace = os.environ.get("GITHUB_WORKSPACE", "")
        folder = os.path.relpath(self._state.folder, workspace) if workspace else "."
        return "" if folder == "." or folder.startswith("..") else folder + "/"


def annotation(problem: Problem, prefix: str = "") -> str:
    """Return a problem as a workflow command."""
    where = problem.where
    values = {
        "file": prefix + where.file if where.file else None,
        "line": where.line,
        "col": where.column,
        "title": f"edison: {problem.code}",
    }
    listed = ",".join(f"{k}={_property(str(v))}" for k, v in values.items() if v is not None)
    text = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    return f"::{problem.severity} {listed}::{_data(safe(text))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _color_wanted(state: State) -> bool:
    if state.no_color or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and sys.stdout.isatty() and sys.stderr.isatty()


_STYLE = re.compile("(\x1b\\[[0-9;]*m)")


def _clean_styled(text: str) -> str:
    """Make a text harmless but keep the colours we put in ourselves with `style`."""
    return "".join(part if _STYLE.fullmatch(part) else clean(part) for part in _STYLE.split(text))


def _write(stream: Any, text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, errors="backslashreplace").decode(encoding) + "\n")


def table(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as aligned lines; columns in `right` are flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
