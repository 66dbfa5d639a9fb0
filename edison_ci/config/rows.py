"""The rows of a dataset file, JSONL, CSV or YAML, read one at a time with their problems.

A bad row becomes a problem with line and column, and reading continues; memory does not grow with
the number of rows.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.documents import csv_text
from edison_ci.documents.decoding import text_lines
from edison_ci.documents.json_text import json_marks, parse_json
from edison_ci.documents.marks import Document, Fault, Json, Mark
from edison_ci.documents.yaml_text import YamlLimits, stream_yaml_list
from edison_ci.errors import Location, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.experiment import DatasetEntry
    from edison_ci.documents.files import Tree

MAX_ROW_BYTES = 1_000_000
MAX_PROBLEMS = 20
_GIVE_UP = 10_000
"""Reading of a file stops after this number of bad rows."""

Columns: TypeAlias = "dict[str, Json]"

RESERVED = ("id", "input", "expected", "tags", "difficulty", "cluster", "metadata")
CSV_RESERVED = ("id", "expected", "tags", "difficulty", "cluster")
_TAG_SEPARATOR = re.compile(r"[;|]")
_YAML_ROW = YamlLimits(nodes=10_000, repeated=10_000_000)


@dataclass(slots=True)
class RowReader:
    """Reads the rows of one dataset file as mappings."""

    tree: Tree
    entry: DatasetEntry
    types: dict[str, str]
    """Declared types of inputs; other CSV cells are texts."""
    problems: list[Problem]
    form: str = ""
    """.csv, .jsonl or .yaml, if the name of the file does not say so."""
    delimiter: str = ","
    """Between the fields of a CSV file."""
    number: int = 0
    """Number of the last row read, counted from 1."""
    line: int = 0
    """Its first line."""
    suppressed: int = 0
    _count: int = 0
    _told_by: str | Mark | csv_text.CsvRow = ""
    """Source of positions inside it: its JSON text, marks or record."""
    _header: list[str] = field(default_factory=list)
    """Columns of a CSV file, by the names that `map` gives them."""

    def locate(self, place: tuple[str | int, ...], *, key: bool = False) -> Location:
        """Return the location of a value (or its key) of the last row read."""
        path, told_by = self.entry.path, self._told_by
        if self._count >= MAX_PROBLEMS:
            return Location(path, self.line, 1)  # it will not be shown
        if isinstance(told_by, Mark):
            return Document(path, None, told_by).locate(place, key=key)
        if isinstance(told_by, str):
            return Document(path, None, json_marks(told_by), self.line).locate(place, key=key)
        named = [self._header.index(str(step)) for step in place if step in self._header]
        line, column = told_by.place(named[-1] if named else 0)
        return Location(path, line + 1, column + 1)

    def __iter__(self) -> Iterator[Columns]:
        try:
            stream = self.tree.open(self.entry.path)
        except Fault as fault:
            self._problem(Location(self.entry.path), fault)
            return
        with stream:
            try:
                for row in self._rows(stream):
                    yield row
                    if self._count > _GIVE_UP:
                        raise self._nonsense()
            except Fault as fault:
                where = Location(self.entry.path, fault.at[0] + 1, fault.at[1] + 1)
                self.problems.append(Problem(where, fault.code, fault.message, fault.hint))

    def _rows(self, stream: BinaryIO) -> Iterator[Columns]:
        limits = self.entry.limits
        size = stream.seek(0, 2)
        stream.seek(0)
        if size > limits.max_bytes:
            raise Fault(
                "size",
                f"{self.entry.path} has {size:,} bytes; at most {limits.max_bytes:,}",
                "raise limits: {max_bytes: ...} of the dataset in the experiment",
            )
        form = self.form or self.entry.path
        if form.endswith(".csv"):
            return self._csv(stream)
        rows = self._jsonl(stream) if form.endswith(".jsonl") else self._yaml(stream)
        return self._renamed(rows) if self.entry.map else rows

    def _renamed(self, rows: Iterator[Columns]) -> Iterator[Columns]:
        for row in rows:
            nested = row.get("input")
            try:
                if isinstance(
                    nested, dict
                ):  # a copy, because a YAML alias repeats the same mapping
                    row = {**row, "input": self._with_names(nested)}
                else:
                    row = self._with_names(row)
            except Fault as fault:
                self._bad_row(self.locate(()), fault)
            else:
                yield row

    def _with_names(self, row: Columns) -> Columns:
        return dict(zip(self._checked_names(list(row)), row.values(), strict=True))

    def _checked_names(self, columns: list[str]) -> list[str]:
        """Return the columns renamed by `map`; two must not get the same name."""
        names = [self.entry.map.get(column, column) for column in columns]
        if len(set(names)) < len(names):
            name = next(name for index, name in enumerate(names) if name in names[:index])
            hint = "rename the other column in map too"
            raise Fault("map", f"map makes two columns {name!r}", hint)
        return names

    def _jsonl(self, stream: BinaryIO) -> Iterator[Columns]:
        path, most = self.entry.path, self.entry.limits.max_rows
        for line, text in enumerate(text_lines(stream, longest=MAX_ROW_BYTES), 1):
            if not isinstance(text, Fault) and text.isspace():
                continue
            self.number, self.line = self.number + 1, line
            if self.number > most:
                raise self._too_many()
            try:
                if isinstance(text, Fault):
                    raise text
                self._told_by = source = text.rstrip("\r\n")
                value = parse_json(source)
                if not isinstance(value, dict):
                    at = (0, len(source) - len(source.lstrip()))
                    raise Fault("type", "the row is not an object", 'write {"input": {...}}', at=at)
            except Fault as fault:
                if fault.code == "syntax" and fault.at[1] >= len(source.rstrip()):
                    fault.hint = "each row is one JSON object on one line"
                self._bad_row(Location(path, line, fault.at[1] + 1), fault)
            else:
                yield value

    def _csv(self, stream: BinaryIO) -> Iterator[Columns]:
        most = self.entry.limits.max_rows
        table = csv_text.CsvTable(text_lines(stream, longest=MAX_ROW_BYTES), self.delimiter)
        for name in sorted(self.entry.map.keys() - set(table.header)):
            raise Fault(
                "map",
                f"map names a column {name!r} that is not there",
                f"columns: {', '.join(table.header)}",
            )
        self._header = self._checked_names(table.header)
        for record in table.rows():
            self.number, self.line, self._told_by = record.number, record.line + 1, record
            if self.number > most:
                raise self._too_many()
            try:
                if record.fault is not None:
                    raise record.fault
                row = self._csv_row(dict(zip(self._header, record.fields, strict=True)))
            except _BadCellError as bad:
                self._bad_row(self.locate((bad.column,)), bad.fault)
            except Fault as fault:
                self._bad_row(self.locate(()), fault)
            else:
                yield row

    def _csv_row(self, cells: dict[str, str]) -> dict[str, Json]:
        row: dict[str, Json] = {"input": {}}
        inputs: dict[str, Json] = {}
        for name, cell in cells.items():
            if name not in CSV_RESERVED:
                kind = self.types.get(name, "string")
                if kind == "string":
                    inputs[name] = cell
                elif cell.strip():
                    inputs[name] = _typed(name, cell, kind)
            elif name == "tags":
                row["tags"] = [tag.strip() for tag in _TAG_SEPARATOR.split(cell) if tag.strip()]
            elif name == "difficulty" and cell.strip():
                row["difficulty"] = _typed(name, cell, "number")
            elif cell and name != "difficulty":
                row[name] = cell
        row["input"] = inputs
        return row

    def _yaml(self, stream: BinaryIO) -> Iterator[Columns]:
        path, most = self.entry.path, self.entry.limits.max_rows
        for number, item in enumerate(stream_yaml_list(stream, limits=_YAML_ROW), 1):
            self.number, self.line, self._told_by = number, item.mark.line + 1, item.mark
            if number > most:
                raise self._too_many()
            for fault in item.faults:
                self._bad_row(Location(path, fault.at[0] + 1, fault.at[1] + 1), fault)
            if item.faults:
                continue
            if isinstance(item.value, dict):
                yield item.value
            else:
                fault = Fault("type", "the row is not a map", "write - input: {...}")
                self._bad_row(self.locate(()), fault)

    def _problem(self, where: Location, fault: Fault) -> None:
        self.report(Problem(where, fault.code, fault.message, fault.hint))

    def _bad_row(self, where: Location, fault: Fault) -> None:
        message = f"row {self.number}: {fault.message}"
        self.report(Problem(where, fault.code, message, fault.hint))
        if self._count > _GIVE_UP:
            raise self._nonsense()

    def _nonsense(self) -> Fault:
        message = "too many bad rows; the rest is not read"
        return Fault("more", message, "fix the first ones", at=(self.line - 1, 0))

    def _too_many(self) -> Fault:
        return Fault(
            "size",
            f"{self.entry.path} has more than {self.entry.limits.max_rows:,} rows",
            "raise limits: {max_rows: ...} of the dataset in the experiment",
            at=(self.line - 1, 0),
        )

    def report(self, problem: Problem) -> None:
        """Add a problem; after the first twenty of a file, only count it."""
        self._count += 1
        if self._count <= MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.suppressed += 1


def _typed(name: str, cell: str, kind: str) -> Json:
    try:
        value = parse_json(cell)
    except Fault:
        value = None
    types = {"number": (int, float), "boolean": (bool,), "list": (list,), "object": (dict,)}[kind]
    if not isinstance(value, types) or (kind == "number" and isinstance(value, bool)):
        message = f"{name} is {cell[:40]!r}, not a {kind}"
        raise _BadCellError(name, Fault("type", message, "written as in JSON"))
    return value


class _BadCellError(Exception):
    """A cell that does not have the type of its column."""

    def __init__(self, column: str, fault: Fault) -> None:
        super().__init__(fault.message)
        self.column, self.fault = column, fault
