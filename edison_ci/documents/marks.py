"""Documents: values read from a file, with the position of each."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.errors import Location, Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Path: TypeAlias = "Sequence[str | int]"


class Mark(NamedTuple):
    """Position of one value (counted from 0), of its key, and of what it contains."""

    line: int
    column: int
    key_line: int
    key_column: int
    children: dict[str, Mark] | list[Mark] | None


class Fault(Exception):
    """A fault in a text, with its position counted from 0."""

    def __init__(self, code: str, message: str, hint: str = "", *, at: tuple[int, int] = (0, 0)):
        super().__init__(message)
        self.code, self.at = code, at
        self.message, self.hint = shortened(message), shortened(hint)


def shortened(text: str, longest: int = 500) -> str:
    """Return a text shortened for a report; texts of files may be a megabyte long."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def duplicate_key(
    key: str, at: tuple[int, int], first: tuple[int, int], first_line: int = 1
) -> Fault:
    """Return the fault of a duplicate key, with both positions."""
    near = f"column {first[1] + 1}" if first[0] == at[0] else f"line {first[0] + first_line}"
    written = shortened(repr(key), 100)
    message = f"key {written} is given twice, first in {near}"
    return Fault("duplicate-key", message, "remove one of them", at=at)


@dataclass(slots=True)
class Document:
    """A value read from a file, with line and column of every part."""

    file: str
    value: Json
    root: Mark
    first_line: int = 1
    """Number of the first line of this text inside `file` (front matter starts later)."""
    first_column: int = 1
    problems: list[Problem] = field(default_factory=list)

    def locate(self, path: Path = (), *, key: bool = False) -> Location:
        """Return the location of the value at `path`, or of its key; if absent, of its parent."""
        mark, on_key = self.root, False
        for step in path:
            child = _child(mark, step)
            if child is None:
                on_key = False
                break
            mark, on_key = child, key
        line, column = (mark.key_line, mark.key_column) if on_key else (mark.line, mark.column)
        return self.at(line, column)

    def at(self, line: int, column: int) -> Location:
        """Return the location in the file of a position in this text."""
        shift = self.first_column if line == 0 else 1
        return Location(self.file, line + self.first_line, column + shift)

    def problem(self, path: Path, code: str, message: str, hint: str = "") -> Problem:
        """Return an error at the value at `path`."""
        return Problem(self.locate(path), code, shortened(message), shortened(hint))

    def warning(self, path: Path, code: str, message: str, hint: str = "") -> Problem:
        """Return a warning at the value at `path`."""
        where = self.locate(path)
        return Problem(where, code, shortened(message), shortened(hint), Severity.WARNING)


def _child(mark: Mark, step: str | int) -> Mark | None:
    children = mark.children
    if isinstance(children, dict) and isinstance(step, str):
        return children.get(step)
    if isinstance(children, list) and isinstance(step, int) and 0 <= step < len(children):
        return children[step]  # type: ignore[no-any-return]  # the tuple type is recursive
    return None
