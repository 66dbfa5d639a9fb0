"""Output of the commands: results on stdout, notes and errors on stderr, JSON and annotations.

Commands pass plain texts with their colors. Texts that come from files and models are sanitized
here, so that they cannot control a terminal or a workflow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import sys
import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

import click
from click import termui

from edison_ci.errors import (
    ConfigError,
    EdisonError,
    ExitCode,
    Location,
    Problem,
    Severity,
    UsageError,
)
from edison_ci.numeric import counted, whole
from edison_ci.sanitize import (
    folder_in_checkout,
    in_actions,
    json_text,
    line,
    lines,
    without_commands,
    without_pieces,
    workflow_command,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from edison_ci.cli.options import CliState


_MAX = 9
"""GitHub shows ten annotations per level and step; the tenth gives the number of others."""


def workflow_commands(problems: Sequence[Problem], root: Path | None) -> Iterator[str]:
    """Yield problems as workflow commands, errors first; `root` is the root of the project."""
    ranked = sorted(problems, key=lambda p: (p.severity is Severity.WARNING, p.where.order))
    folder = folder_in_checkout(root)
    for problem in ranked[:_MAX]:
        yield annotation(problem, folder)
    if len(ranked) > _MAX:
        yield f"::{ranked[_MAX].severity}::{len(ranked) - _MAX} more problems, see the log"


def annotation(problem: Problem, folder: str = "") -> str:
    """Return a problem as a workflow command; `folder` is the project in the checkout."""
    where = problem.where
    properties = {
        "file": folder + where.file if where.file else None,
        "line": where.line,
        "col": where.column,
        "title": f"edison: {problem.code}",
    }
    text = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    return workflow_command(str(problem.severity), text, properties)


SCHEMA_VERSION = 1


MOST_LISTED = 50
"""Rows of a list on a terminal; files and pipes are given all of them."""
MOST_BLOCKS = 15
"""The same of a list whose items take several lines."""
Item = TypeVar("Item")


class StyledText(NamedTuple):
    """A text with its color, if the stream shows colors."""

    text: str
    color: str | None = None
    bold: bool | None = None


BAD, ODD, GOOD = "red", "yellow", "green"
_COLORS: dict[str, str] = {Severity.ERROR: BAD, Severity.WARNING: ODD}


class Terminal:
    """Writes what a command prints."""

    def __init__(self, state: CliState) -> None:
        self._state = state

    @property
    def json(self) -> bool:
        """Whether --json is set."""
        return self._state.json

    @property
    def quiet(self) -> bool:
        """Whether --quiet is set."""
        return self._state.quiet

    @property
    def root(self) -> Path | None:
        """The root of the project that was entered."""
        return self._state.root

    @property
    def offline(self) -> bool:
        """Whether --offline is set."""
        return self._state.offline

    @property
    def color(self) -> bool:
        """Whether stderr shows colors."""
        return _color_wanted(self._state, sys.stderr)

    def result(self, *parts: str | StyledText, hang: int | None = None) -> None:
        """Print a line of the result, unless --json or --quiet is set.

        `hang` is the column in which its further lines begin, where it has to be wrapped.
        """
        if not self._state.json and not self._state.quiet:
            self._print(sys.stdout, parts, hang)

    def document(self, value: dict[str, Any]) -> None:
        """Print the one JSON document."""
        self.compact({"schema_version": SCHEMA_VERSION, **value}, indent=2)

    def compact(self, value: Any, *, indent: int | None = None) -> None:
        """Print a value as JSON on one line."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        ascii_only = not encoding.lower().replace("-", "").startswith("utf")
        write(sys.stdout, json_text(value, indent=indent, ascii_only=ascii_only))

    def commands(self, made: Iterable[str]) -> None:
        """Print workflow commands, which are escaped already."""
        for text in made:
            write(sys.stdout, text, obey=True)

    def raw(self, text: str) -> None:
        """Print a document that is sanitized already, unchanged."""
        write(sys.stdout, text.removesuffix("\n"))

    def table(
        self,
        rows: Sequence[Sequence[str]],
        *,
        right: Iterable[int] = (),
        drop: Sequence[int] = (),
        indent: int = 0,
        totals: int | None = None,
    ) -> None:
        """Print rows as aligned columns, those in `right` aligned right.

        On a terminal that is too narrow, columns are left out: first those in `drop`, in this
        order, then from the right. With `totals`, a terminal shows the first rows of a long list,
        and its last `totals` rows.
        """
        cut = 0
        if totals is not None and _on_screen():
            end = len(rows) - totals
            cut = max(0, end - 1 - MOST_LISTED)
            rows = [*rows[: end - cut], *rows[end:]]
        width = screen_width(sys.stdout)
        kept = [*range(len(rows[0]))] if width is None else fitting(rows, width - indent, drop)
        places = frozenset(place for place, column in enumerate(kept) if column in frozenset(right))
        for row in aligned([[row[column] for column in kept] for row in rows], right=places):
            self.result(" " * indent + row)
        left = len(rows[0]) - len(kept)
        if left:
            self.note(" " * indent + f"({counted(left, 'column')} left out: widen the terminal)")
        self._note_cut(cut)

    def listed(self, items: Sequence[Item], *, most: int = MOST_LISTED) -> Iterator[Item]:
        """Yield items to print; a terminal shows the first ones, and a note of the others."""
        visible = items[:most] if _on_screen() else items
        yield from visible
        self._note_cut(len(items) - len(visible))

    def _note_cut(self, count: int) -> None:
        if count:
            self.note(f"and {count:,} more; see all with --json, or in a pipe: | less")

    def note(self, *parts: str | StyledText) -> None:
        """Print a note to stderr, unless --quiet is set."""
        if not self._state.quiet:
            self._print(sys.stderr, parts)

    def warnings(self, problems: Iterable[Problem]) -> None:
        """Print warnings to stderr, unless --quiet is set."""
        if not self._state.quiet:
            self._list(problems, sys.stderr)

    def complaint(self, error: EdisonError) -> None:
        """Print an error to stderr that does not stop the command."""
        message = f"{error.message}; {error.hint}" if error.hint else error.message
        self._print(
            sys.stderr, (StyledText("error:", BAD, bold=True), f" {without_pieces(message)}")
        )

    def problems(self, problems: Iterable[Problem]) -> None:
        """Print problems as the result, each with its hint; with --quiet, only errors."""
        if self._state.quiet:
            self._list((p for p in problems if p.severity is Severity.ERROR), sys.stderr)
        else:
            self._list(problems, sys.stdout)

    def failure(self, problem: Problem, exit_code: ExitCode, **more: Any) -> int:
        """Print why the command failed, with `more` fields in JSON; return its exit code."""
        problem = _sanitized(problem)
        if self._state.json:
            self.document({"error": _error_json(problem), **more, "exit_code": int(exit_code)})
        else:
            place = f"{self.place(problem.where)}: " if problem.where.file else ""
            self._print(
                sys.stderr, (StyledText("error:", BAD, bold=True), f" {place}{problem.message}")
            )
            if problem.hint:
                self._print(sys.stderr, (f"  {problem.hint}",))
        self.annotate([problem])
        return int(exit_code)

    def error(self, error: EdisonError) -> int:
        """Print why the command failed, or every problem in the files; return the exit code."""
        if not isinstance(error, ConfigError):
            return self.failure(_problem_of(error), error.exit_code)
        if self._state.json:
            self.document({**self.error_fields(error), "exit_code": int(error.exit_code)})
        else:
            self._list(error.problems, sys.stderr)
            done = "" if self._state.started else "; nothing was done"
            self.note(f"{counted(len(error.problems), 'error')}{done}")
        self.annotate(error.problems)
        return int(error.exit_code)

    def error_fields(self, error: EdisonError) -> dict[str, Any]:
        """Return an error as fields of a JSON document."""
        fields: dict[str, Any] = {"error": _error_json(_sanitized(_problem_of(error)))}
        if isinstance(error, ConfigError):
            fields["problems"] = list(map(as_json, error.problems))
        return fields

    def annotate(self, problems: Sequence[Problem]) -> None:
        """Print annotations for GitHub when running in an action."""
        if in_actions():
            for command in workflow_commands([*map(_sanitized, problems)], self._state.root):
                write(sys.stderr, command, obey=True)

    def traceback(self, error: BaseException) -> None:
        """Print the traceback of an error."""
        import traceback

        write(sys.stderr, lines("".join(traceback.format_exception(error)).rstrip()))

    def place(self, where: Location) -> str:
        """Return a location in the project, relative to the working folder."""
        if self._state.root is None or not where.file:
            return str(where)
        path = os.path.relpath(self._state.root / where.file, self._state.folder.resolve())
        return str(Location(path, where.line, where.column))

    def _list(self, problems: Iterable[Problem], stream: TextIO | None) -> None:
        for problem in map(_sanitized, problems):
            word = StyledText(problem.severity, _COLORS.get(problem.severity))
            place = StyledText(self.place(problem.where), bold=True)
            self._print(stream, (place, ": ", word, f": {problem.message}"))
            if problem.hint:
                self._print(stream, (f"    {problem.hint}",))

    def _print(
        self, stream: TextIO | None, parts: Iterable[str | StyledText], hang: int | None = None
    ) -> None:
        color, width = _color_wanted(self._state, stream), screen_width(stream)
        texts = [
            StyledText(line(part)) if isinstance(part, str) else part._replace(text=line(part.text))
            for part in parts
        ]
        if width is not None:
            texts = wrapped(texts, width, hang)
        write(stream, "".join(_painted(part, color=color) for part in texts))


def _problem_of(error: EdisonError) -> Problem:
    if isinstance(error, ConfigError):
        return Problem(error.problems[0].where, error.code, error.message, error.hint)
    return Problem(error.where or Location(""), error.code, error.message, error.hint)


def _error_json(problem: Problem) -> dict[str, Any]:
    where = problem.where
    return {
        "code": problem.code,
        "message": problem.message,
        "file": where.file or None,
        "line": where.line,
        "column": where.column,
        "hint": problem.hint,
    }


def _painted(part: StyledText, *, color: bool) -> str:
    if not color or (part.color is None and part.bold is None):
        return part.text
    return click.style(part.text, fg=part.color, bold=part.bold)


def screen_width(stream: TextIO | None) -> int | None:
    """Return the columns of the terminal that a stream writes to; None if it is none."""
    if stream is None or not stream.isatty():
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return None
    return columns if columns >= _NARROWEST else None


def _on_screen() -> bool:
    """Whether results are written to a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


_NARROWEST = 20
"""Columns below which nothing is wrapped."""


def wrapped(parts: Sequence[StyledText], width: int, hang: int | None = None) -> list[StyledText]:
    """Return a line with breaks between words, so that it fits a terminal.

    Further lines are indented to `hang`, else two columns more than the first one.
    """
    text = "".join(part.text for part in parts)
    indent = len(text) - len(text.lstrip()) + 2 if hang is None else hang
    indent = min(indent, width // 2)
    breaks, column, space = set(), 0, None
    for place, character in enumerate(text):
        if character == " " and place and text[place - 1] != " ":
            space = place, column
        column += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if column > width and space is not None and space[1] > indent:
            # Of several spaces in a row, as between columns, the line ends with the first.
            ends = len(text[space[0] :]) - len(text[space[0] :].lstrip())
            breaks |= {space[0] + index for index in range(ends)}
            column, space = indent + column - space[1] - ends, None
    done, broken = 0, []
    for part in parts:
        made = "".join(
            character
            if done + index not in breaks
            else ""
            if done + index - 1 in breaks
            else "\n" + " " * indent
            for index, character in enumerate(part.text)
        )
        broken.append(part._replace(text=made))
        done += len(part.text)
    return broken


def fitting(rows: Sequence[Sequence[str]], width: int, drop: Sequence[int] = ()) -> list[int]:
    """Return the columns of a table that fit a width; at least the first two stay."""
    widths = [max(len(line(row[column])) for row in rows) for column in range(len(rows[0]))]
    kept = [*range(len(widths))]
    last = [column for column in reversed(kept) if column > 1 and column not in drop]
    for column in (*drop, *last):
        if sum(widths[place] + 2 for place in kept) - 2 <= width:
            break
        kept.remove(column)
    return kept


def _color_wanted(state: CliState, stream: TextIO | None) -> bool:
    if state.no_color or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and stream is not None and stream.isatty()


def write(stream: TextIO | None, text: str, *, obey: bool = False) -> None:
    """Write a line to a stream that may be closed, full, of a narrow encoding, or read by GitHub.

    With `obey`, workflow commands in it stay active.
    """
    if stream is None:
        return  # closed before the process started
    if in_actions() and not obey:
        text = without_commands(text)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    encodable = text.encode(encoding, errors="backslashreplace").decode(encoding)
    if stream is sys.stderr:
        flush(sys.stdout)  # keeps the order of both streams
    try:
        stream.write(encodable + "\n")
    except OSError as error:
        _close_broken(stream, error)


def flush(stream: TextIO | None) -> None:
    """Flush a stream; a closed pipe is not an error, a full disk is."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError as error:
        _close_broken(stream, error)


def _close_broken(stream: TextIO, error: OSError) -> None:
    with contextlib.suppress(OSError, ValueError):  # streams of tests have no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if stream is not sys.stderr and not isinstance(error, BrokenPipeError):
        raise UsageError(
            f"the result cannot be written: {error.strerror}", hint="write to another place"
        ) from None


def aligned(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as aligned lines; columns in `right` are aligned right."""
    cells = [[line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _sanitized(problem: Problem) -> Problem:
    """Return a problem without pieces of secrets."""
    message, hint = without_pieces(problem.message), without_pieces(problem.hint)
    return dataclasses.replace(problem, message=message, hint=hint)


def as_json(problem: Problem) -> dict[str, object]:
    """Return a problem as it appears in JSON."""
    problem = _sanitized(problem)
    return {
        "file": problem.where.file,
        "line": problem.where.line,
        "column": problem.where.column,
        "code": problem.code,
        "message": problem.message,
        "hint": problem.hint,
        "severity": str(problem.severity),
    }


_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
_LONGEST_SPARKLINE = 60


def sparkline(values: Sequence[float | None], *, from_zero: bool = False) -> str:
    """Return the last 60 numbers as a line of bars; a missing number is a blank."""
    values = values[-_LONGEST_SPARKLINE:]
    numbers = [value for value in values if value is not None]
    if not numbers:
        return ""
    bars = _BARS if _can_encode(_BARS) else _PLAIN_BARS
    low, high = (0.0 if from_zero else min(numbers)), max(numbers)
    width = high - low
    if width <= 0:
        return "".join(" " if value is None else bars[3 if high else 0] for value in values)
    top = len(bars) - 1
    return "".join(
        " " if value is None else bars[whole(top * (value - low) / width)] for value in values
    )


def _can_encode(text: str) -> bool:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def simulated_mark(simulated: int, of: int) -> str:
    """Return the label of numbers some of which come from the simulator."""
    if not simulated:
        return ""
    return "simulated" if simulated >= of else "partly simulated"


def simulated_label(simulated: bool | str) -> tuple[StyledText, ...]:
    """Return the label of a line whose numbers come from a simulator, or in the parts named."""
    if not simulated:
        return ()
    return (StyledText(f"  {simulated if isinstance(simulated, str) else 'simulated'}", ODD),)


_PIECE_S = 0.2


def wait_for_answers_in_pieces() -> None:
    """Let Ctrl-C stop a question at any moment."""
    termui.visible_prompt_func = read_line


def read_line(prompt: str) -> str:
    """Return a typed line, like `input`, but Ctrl-C ends it at any moment."""
    try:
        terminals = [sys.stdin.fileno()] if sys.stdin.isatty() else []
    except (OSError, ValueError):  # closed, or no file
        terminals = []
    if terminals:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        _wait_for_input(terminals[0])
        prompt = ""
    return input(prompt)


def read_keys(most: int) -> bytes:
    """Return what was typed, limited in bytes; raises KeyboardInterrupt at Ctrl-C."""
    _wait_for_input(sys.stdin.fileno())
    return os.read(sys.stdin.fileno(), most)


def _wait_for_input(descriptor: int) -> None:
    """Wait in short pieces: a signal just before a wait is noticed only after it."""
    while not select.select([descriptor], [], [], _PIECE_S)[0]:
        pass
