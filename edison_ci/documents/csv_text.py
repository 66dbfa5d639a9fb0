"""CSV texts read as rows with their line."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.marks import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_ROW = 1_000_000
_MAX_COLUMNS = 1_000
_MAX_NAME = 200
_EMPTY = ("\n", "\r\n")


class CsvRow(NamedTuple):
    """One record: its number (1 after the header), position and fields."""

    number: int
    line: int
    """First line of the record, counted from 0."""
    fields: list[str]
    text: tuple[str, ...]
    """The lines of the record, unchanged."""
    fault: Fault | None = None
    """The fault, if the number of fields is wrong."""
    delimiter: str = ","

    def place(self, column: int) -> tuple[int, int]:
        """Return line and column, counted from 0, at which a field of the record starts."""
        line, start, quoted = 0, 0, False
        for line, text in enumerate(self.text):
            if not quoted:
                start = 0
            for offset, character in enumerate(text):
                if column == 0 and not quoted:
                    return self.line + line, start
                if character == '"':
                    quoted = not quoted
                elif character == self.delimiter and not quoted:
                    column, start = column - 1, offset + 1
        return (self.line + line, start) if column == 0 else (self.line, 0)


class CsvTable:
    """A CSV text with a header, read row by row."""

    def __init__(self, lines: Iterable[str | Fault], delimiter: str = ",") -> None:
        csv.field_size_limit(_MAX_ROW)
        self._text: list[str] = []
        self._start = self._size = 0
        self._delimiter = delimiter
        self._reader = csv.reader(self._bounded_lines(lines), strict=True, delimiter=delimiter)
        self.header = self._header()

    def rows(self) -> Iterator[CsvRow]:
        """Yield the rows; empty lines are skipped."""
        width, number = len(self.header), 0
        while (fields := self._record()) is not None:
            number += 1
            fault = None if len(fields) == width else _ragged(len(fields), width, self._start)
            yield CsvRow(number, self._start, fields, tuple(self._text), fault, self._delimiter)

    def _header(self) -> list[str]:
        names = self._record()
        if names is None:
            raise Fault("empty", "the file is empty", "the first line names the columns")
        at = (self._start, 0)
        header = [name.strip() for name in names]
        if len(header) > _MAX_COLUMNS:
            message = f"{len(header):,} columns; at most {_MAX_COLUMNS:,}"
            raise Fault("header", message, "remove columns that no prompt uses", at=at)
        if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
            raise Fault("header", "one column only", "separate columns with commas", at=at)
        row = CsvRow(0, self._start, header, tuple(self._text), None, self._delimiter)
        for index, name in enumerate(header):
            if not name:
                hint = "name it in the first line, or remove it"
                raise Fault("header", f"column {index + 1} has no name", hint, at=row.place(index))
            if len(name) > _MAX_NAME:
                message = f"column {index + 1} has a name of more than {_MAX_NAME} characters"
                raise Fault("header", message, "shorten it", at=row.place(index))
            if name in header[:index]:
                message = f"column {name!r} is named twice"
                raise Fault("header", message, "rename one of them", at=row.place(index))
        return header

    def _record(self) -> list[str] | None:
        """Return the fields of the next record; sets `_start`, its line, and `_text`, its lines."""
        self._size = 0
        self._text.clear()
        try:
            return next(self._reader)
        except StopIteration:
            return None
        except csv.Error as error:
            raise _syntax(str(error), self._start) from None

    def _bounded_lines(self, lines: Iterable[str | Fault]) -> Iterator[str]:
        """Yield the lines without empty ones; raises Fault if a record is too long."""
        for number, line in enumerate(lines):
            if isinstance(line, Fault):
                raise line
            if not self._text:
                if line in _EMPTY:
                    continue
                self._start = number
            self._size += len(line)
            if self._size > _MAX_ROW:
                message = f"the row is longer than {_MAX_ROW:,} characters"
                hint = "is a quote left open?" if self._text else "shorten it"
                raise Fault("size", message, hint, at=(self._start, 0))
            self._text.append(line)
            yield line


def _ragged(fields: int, width: int, line: int) -> Fault:
    return Fault(
        "ragged-row",
        f"{fields} field{'s' * (fields != 1)}, the header has {width}",
        "quote fields that contain the separator"
        if fields > width
        else "an empty field needs a separator too",
        at=(line, 0),
    )


def _syntax(message: str, line: int) -> Fault:
    hint = "quote fields that contain commas, quotes or newlines"
    if "unexpected end" in message:
        hint = "a quote is not closed"
    elif "expected after" in message:
        hint = 'write a quote inside a quoted field as ""'
    elif "new-line character" in message:
        hint = "lines end with \\n or \\r\\n"
    return Fault("syntax", f"not valid CSV: {message}", hint, at=(line, 0))
