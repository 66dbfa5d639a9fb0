"""What do the rows of a dataset file say?

Rows are read one at a time, whatever the format, so that a million of them need no more memory than
one. A bad row is a problem with its line and column, and the next row is read all the same.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from edison_ci.documents.csv_text import CsvTable
from edison_ci.documents.decoding import decode
from edison_ci.documents.json_text import json_marks, parse_json
from edison_ci.documents.marks import Document, Fault, Json, Mark
from edison_ci.documents.yaml_text import YamlLimits, stream_yaml_list
from edison_ci.errors import Location, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edison_ci.config.dataset_entry import DatasetEntry
    from edison_ci.documents.files import Tree

MAX_ROW_BYTES = 1_000_000
MAX_PROBLEMS = 20

RESERVED = ("id", "input", "expected", "tags", "difficulty", "cluster", "metadata")
_CSV_RESERVED = ("id", "expected", "tags", "difficulty", "cluster")
_TAG_SEPARATOR = re.compile(r"[;|]")
_BOM = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One row: the mapping it stands for, its line, and how to find a place inside it."""

    number: int
    line: int
    value: dict[str, Json]
    locate: Callable[[tuple[str | int, ...]], Location]


@dataclass(slots=True)
class RowReader:
    """Reads the rows of one dataset file and keeps what was wrong."""

    tree: Tree
    entry: DatasetEntry
    types: dict[str, str]
    """Declared types of inputs; a CSV cell is text unless its column is declared otherwise."""
    problems: list[Problem]
    _count: int = 0
    suppressed: int = 0

    def __iter__(self) -> Iterator[Row]:
        try:
            stream = self.tree.open(self.entry.path)
        except Fault as fault:
            self._problem(Location(self.entry.path), fault)
            return
        with stream:
            try:
                yield from self._rows(stream)
            except Fault as fault:
                where = Location(self.entry.path, fault.at[0] + 1, fault.at[1] + 1)
                self._problem(where, fault)

    def _rows(self, stream: BinaryIO) -> Iterator[Row]:
        limits = self.entry.limits
        size = stream.seek(0, 2)
        stream.seek(0)
        if size > limits.max_bytes:
            raise Fault(
                "size",
                f"{self.entry.path} has {size:,} bytes; at most {limits.max_bytes:,}",
                "raise limits: {max_bytes: ...} of the dataset in the experiment",
            )
        path = self.entry.path
        if path.endswith(".jsonl"):
            rows = self._jsonl(stream)
        elif path.endswith(".csv"):
            rows = self._csv(stream)
        else:
            rows = self._yaml(stream)
        for row in rows:
            if row.number > limits.max_rows:
                raise Fault(
                    "size",
                    f"{path} has more than {limits.max_rows:,} rows",
                    "raise limits: {max_rows: ...} of the dataset in the experiment",
                    at=(row.line - 1, 0),
                )
            yield self._mapped(row)

    def _mapped(self, row: Row) -> Row:
        renames = self.entry.map
        if not renames or self.entry.path.endswith(".csv"):
            return row
        nested = row.value.get("input")
        if isinstance(nested, dict):
            renamed: Json = {renames.get(key, key): item for key, item in nested.items()}
            return row._replace(value={**row.value, "input": renamed})
        return row._replace(value={renames.get(k, k): v for k, v in row.value.items()})

    # --- formats ----------------------------------------------------------------------------------

    def _jsonl(self, stream: BinaryIO) -> Iterator[Row]:
        path, number = self.entry.path, 0
        for line, data in enumerate(_lines(stream), 1):
            text = data.strip(b" \t\r\n")
            if not text:
                continue
            number += 1
            try:
                source = decode(data)
                value = parse_json(source.rstrip("\r\n"))
                if not isinstance(value, dict):
                    raise Fault("type", f"row {number} is not an object", 'write {"input": {...}}')
            except Fault as fault:
                self._problem(Location(path, line, fault.at[1] + 1), fault)
                continue

            def locate(
                place: tuple[str | int, ...], line: int = line, source: str = source
            ) -> Location:
                return Document(path, None, json_marks(source), line).locate(place)

            yield Row(number, line, value, locate)

    def _csv(self, stream: BinaryIO) -> Iterator[Row]:
        path = self.entry.path
        table = CsvTable(_decoded(_lines(stream)))
        renames = self.entry.map
        for name in renames.keys() - set(table.header):
            raise Fault(
                "map",
                f"map names a column {name!r} that is not there",
                f"columns: {', '.join(table.header)}",
            )
        header = [renames.get(name, name) for name in table.header]
        for record in table.rows():

            def locate(_place: tuple[str | int, ...], line: int = record.line + 1) -> Location:
                return Location(path, line, 1)

            try:
                value = self._csv_row(dict(zip(header, record.fields, strict=True)))
            except Fault as fault:
                self._problem(locate(()), fault)
                continue
            yield Row(record.number, record.line + 1, value, locate)

    def _csv_row(self, cells: dict[str, str]) -> dict[str, Json]:
        row: dict[str, Json] = {"input": {}}
        inputs: dict[str, Json] = {}
        for name, cell in cells.items():
            if name not in _CSV_RESERVED:
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

    def _yaml(self, stream: BinaryIO) -> Iterator[Row]:
        path = self.entry.path
        limits = YamlLimits(nodes=10_000)
        for number, item in enumerate(stream_yaml_list(stream.read(), limits=limits), 1):
            line = item.mark.line + 1
            for fault in item.faults:
                self._problem(Location(path, fault.at[0] + 1, fault.at[1] + 1), fault)
            if item.faults:
                continue

            def locate(place: tuple[str | int, ...], mark: Mark = item.mark) -> Location:
                return Document(path, None, mark).locate(place)

            if not isinstance(item.value, dict):
                fault = Fault("type", f"row {number} is not a map", "write - input: {...}")
                self._problem(locate(()), fault)
                continue
            yield Row(number, line, item.value, locate)

    # --- problems ---------------------------------------------------------------------------------

    def _problem(self, where: Location, fault: Fault) -> None:
        self.report(Problem(where, fault.code, fault.message, fault.hint))

    def report(self, problem: Problem) -> None:
        """Keep a problem; after the first twenty of a file only their number is kept."""
        self._count += 1
        if self._count <= MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.suppressed += 1


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    first = True
    number = 0
    while line := stream.readline(MAX_ROW_BYTES + 1):
        if len(line) > MAX_ROW_BYTES:
            raise Fault("size", f"the line is longer than {MAX_ROW_BYTES:,} bytes", at=(number, 0))
        if first:
            line, first = line.removeprefix(_BOM), False
        yield line
        number += 1


def _decoded(lines: Iterator[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines):
        try:
            yield decode(line)
        except Fault as fault:
            fault.at = (number, fault.at[1])
            raise


def _typed(name: str, cell: str, kind: str) -> Json:
    try:
        value = json.loads(cell) if kind != "string" else cell
    except (ValueError, RecursionError):
        value = None
    wanted = {"number": (int, float), "boolean": (bool,), "list": (list,), "object": (dict,)}[kind]
    if not isinstance(value, wanted) or (kind == "number" and isinstance(value, bool)):
        raise Fault("type", f"{name} is {cell[:40]!r}, not a {kind}", "written as in JSON")
    return value
