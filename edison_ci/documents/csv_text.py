"""What do the rows of this CSV text say, and on which line does each start?"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.marks import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_FIELD = 1_000_000


class CsvRow(NamedTuple):
    """One record: its number (the first row after the header is 1), its line and its fields."""

    number: int
    line: int
    """Line on which the record starts, counted from 0."""
    fields: list[str]


class CsvTable:
    """A CSV text with a header, read row by row."""

    def __init__(self, lines: Iterable[str]) -> None:
        csv.field_size_limit(_MAX_FIELD)
        self._lines = _Counted(lines)
        self._reader = csv.reader(self._lines, strict=True)
        self.header = self._header()

    def rows(self) -> Iterator[CsvRow]:
        """Yield the rows; empty lines are passed over, a row of another width is a fault."""
        number = 0
        while (record := self._record()) is not None:
            line, fields = record
            if not fields:
                continue
            number += 1
            if len(fields) != len(self.header):
                raise Fault(
                    "ragged-row",
                    f"row {number} has {len(fields)} fields, the header has {len(self.header)}",
                    "quote fields that contain commas",
                    at=(line, 0),
                )
            yield CsvRow(number, line, fields)

    def _header(self) -> list[str]:
        record = self._record()
        if record is None:
            raise Fault("empty", "the file is empty", "the first line names the columns")
        header = [name.strip() for name in record[1]]
        for index, name in enumerate(header):
            if not name:
                raise Fault("header", f"column {index + 1} has no name", at=(record[0], 0))
            if name in header[:index]:
                raise Fault("header", f"column {name!r} is named twice", at=(record[0], 0))
        if len(header) == 1 and (";" in header[0] or "\t" in header[0]):
            raise Fault(
                "header", "one column only", "separate columns with commas", at=(record[0], 0)
            )
        return header

    def _record(self) -> tuple[int, list[str]] | None:
        start = self._lines.count
        try:
            return start, next(self._reader)
        except StopIteration:
            return None
        except csv.Error as error:
            raise _syntax(str(error), start) from None


class _Counted:
    """Counts the physical lines that went by, quoted newlines included."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.count = 0

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.count += 1
        return line


def _syntax(message: str, line: int) -> Fault:
    hint = ""
    if "unexpected end" in message:
        hint = "a quote is opened and never closed"
    elif "delimiter expected" in message:
        hint = 'write a quote inside a quoted field as ""'
    elif "new-line character" in message:
        hint = "lines end with \\n or \\r\\n"
    elif "field larger" in message:
        hint = f"a field holds at most {_MAX_FIELD:,} characters; is a quote left open?"
    return Fault("syntax", f"not valid CSV: {message}", hint, at=(line, 0))
