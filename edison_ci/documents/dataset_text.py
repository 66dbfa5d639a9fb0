"""Edits of the rows of a dataset file that keep the rest of the file unchanged.

A changed row is written in the format of its file, and as far as possible in the style it had; all
other bytes stay, with comments, order and line ends. The caller reads the result again and compares
it before saving it.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.documents.csv_text import CsvTable
from edison_ci.documents.decoding import decode
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_edit import Edit, YamlList, applied, block_yaml, newline_of
from edison_ci.documents.yaml_text import ListSpans, as_yaml, stream_yaml_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.documents.marks import Json

Row: TypeAlias = "dict[str, Json]"

_BOM = "\ufeff"
_RETURN = "\r"


@dataclass(slots=True)
class DatasetText:
    """The text of a dataset file, with the place and the raw value of each row."""

    text: str
    """Without a byte order mark."""
    bom: str
    rows: list[Row] = field(default_factory=list)
    """Values as they are written: keys before they are renamed, cells of CSV as texts."""
    header: list[str] = field(default_factory=list)
    """Columns of a CSV file; empty for other formats."""

    @property
    def newline(self) -> str:
        """How lines end."""
        return newline_of(self.text)

    def edited(self, edits: Sequence[Edit]) -> bytes:
        """Return the content of the file after some edits, which are in order."""
        return (self.bom + applied(self.text, edits)).encode("utf-8")

    def diff(self, path: str, edits: Sequence[Edit]) -> str:
        """Return the edits as a unified diff without context."""
        pieces, line, at, shift = [f"--- a/{path}\n+++ b/{path}\n"], 1, 0, 0
        for start, end, changed in self._changed_lines(edits):
            line += self.text.count("\n", at, start)
            at = start
            old, new = self.text[start:end].split("\n"), changed.split("\n")
            old, new = (lines[:-1] if not lines[-1] else lines for lines in (old, new))
            same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
                        min(len(old), len(new)))  # fmt: skip
            old, new = old[same:], new[same:]
            while old and new and old[-1] == new[-1]:
                old, new = old[:-1], new[:-1]
            first = line + same
            numbers = (first - (not old), len(old), first + shift - (not new), len(new))
            pieces.append("@@ -{},{} +{},{} @@\n".format(*numbers))
            pieces += [f"{sign}{row.rstrip(_RETURN)}\n" for sign, lines in (("-", old), ("+", new))
                       for row in lines]  # fmt: skip
            shift += len(new) - len(old)
        return "".join(pieces)

    def _changed_lines(self, edits: Sequence[Edit]) -> Iterator[tuple[int, int, str]]:
        """Yield whole lines, from one offset to another, and what they become."""
        text, waiting = self.text, list[Edit]()
        start = end = 0
        for edit in edits:
            first = text.rfind("\n", 0, edit.start) + 1
            if waiting and first >= end:
                yield start, end, applied(self.text, waiting, start, end)
                waiting = []
            if not waiting:
                start = first
            waiting.append(edit)
            whole = edit.end > first and text[edit.end - 1] == "\n"
            stop = edit.end if whole else text.find("\n", edit.end) + 1
            end = max(end, stop or len(text))
        if waiting:
            yield start, end, applied(self.text, waiting, start, end)

    def removal(self, index: int) -> Edit:
        """Return the edit that removes a row."""
        raise NotImplementedError

    def change(self, index: int, row: Row) -> Edit:
        """Return the edit that replaces a row."""
        raise NotImplementedError

    def changes(self, rows: Mapping[int, Row]) -> list[Edit]:
        """Return the edits that replace rows, in order."""
        return [self.change(index, rows[index]) for index in sorted(rows)]

    def rewritten(self, rows: Mapping[int, Row]) -> list[Edit]:
        """Return the edits that rewrite rows, for those that cannot be changed key by key."""
        return self.changes(rows)

    def addition(self, rows: Sequence[Row]) -> Edit:
        """Return the edit that adds rows at the end."""
        raise NotImplementedError

    def _at_end(self, lines: Sequence[str]) -> Edit:
        newline, end = self.newline, len(self.text)
        start = newline if self.text and not self.text.endswith("\n") else ""
        return Edit(end, end, start + "".join(f"{line}{newline}" for line in lines))


def read_dataset_text(path: str, data: bytes) -> DatasetText:
    """Return the rows of a dataset file that is valid; raises Fault."""
    text = decode(data)
    bom = _BOM if data.startswith(_BOM.encode()) else ""
    if path.endswith(".csv"):
        return _Csv.read(text, bom)
    return _Lines.read(text, bom) if path.endswith(".jsonl") else _Yaml.read(text, bom)


def new_dataset_text(path: str, rows: Sequence[Row]) -> bytes:
    """Return the content of a new file with these rows; those of CSV have texts only."""
    start = ""
    if path.endswith(".csv"):
        start = _record(dict.fromkeys(name for row in rows for name in row)) + "\n"
    text = read_dataset_text(path, start.encode())
    return text.edited([text.addition(rows)])


def _lines_of(text: str) -> list[str]:
    """Return the lines with their ends; only a line feed ends one."""
    return list(io.StringIO(text, newline="\n"))


def _line_end(line: str) -> str:
    return "\r\n" if line.endswith("\r\n") else "\n" if line.endswith("\n") else ""


@dataclass(slots=True)
class _Spanned(DatasetText):
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Each row without its line end."""

    def removal(self, index: int) -> Edit:
        start, end = self.spans[index]
        line_feed = self.text.find("\n", end)
        return Edit(start, len(self.text) if line_feed < 0 else line_feed + 1, "")


@dataclass(slots=True)
class _Lines(_Spanned):
    @classmethod
    def read(cls, text: str, bom: str) -> _Lines:
        dataset, offset = cls(text, bom), 0
        for line in _lines_of(text):
            if not line.isspace():
                value = parse_json(line.rstrip("\r\n"))
                assert isinstance(value, dict), "the file is valid"
                dataset.rows.append(value)
                dataset.spans.append((offset, offset + len(line) - len(_line_end(line))))
            offset += len(line)
        return dataset

    def change(self, index: int, row: Row) -> Edit:
        start, end = self.spans[index]
        return Edit(start, end, _in_style(row, self.rows[index], self.text[start:end]))

    def addition(self, rows: Sequence[Row]) -> Edit:
        return self._at_end([json.dumps(row, ensure_ascii=False) for row in rows])


def _in_style(row: Row, before: Row, written: str) -> str:
    """Return a row as JSON, with the blanks and escapes that it had."""
    for ascii_only in (False, True):
        for separators in ((", ", ": "), (",", ":")):
            if json.dumps(before, ensure_ascii=ascii_only, separators=separators) == written:
                return json.dumps(row, ensure_ascii=ascii_only, separators=separators)
    return json.dumps(row, ensure_ascii=False)


@dataclass(slots=True)
class _Csv(_Spanned):
    header_end: int = 0

    @classmethod
    def read(cls, text: str, bom: str) -> _Csv:
        lines, dataset = _lines_of(text), cls(text, bom)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        table = CsvTable(lines)
        dataset.header = table.header
        first = next(number for number, line in enumerate(lines) if line.strip("\r\n"))
        dataset.header_end = starts[first + 1] - len(_line_end(lines[first]))
        for record in table.rows():
            if record.fault is not None:
                raise record.fault
            dataset.rows.append(dict(zip(table.header, record.fields, strict=True)))
            end = starts[record.line + len(record.text)] - len(_line_end(record.text[-1]))
            dataset.spans.append((starts[record.line], end))
        return dataset

    def change(self, index: int, row: Row) -> Edit:
        start, end = self.spans[index]
        all_quoted = _record(self.rows[index].values(), quote_all=True) == self.text[start:end]
        cells = [row.get(name, "") for name in self.header]
        return Edit(start, end, _record(cells, quote_all=all_quoted))

    def addition(self, rows: Sequence[Row]) -> Edit:
        return self._at_end([_record(row.get(name, "") for name in self.header) for row in rows])

    def changes(self, rows: Mapping[int, Row]) -> list[Edit]:
        # A column that is not there is added to all rows.
        new = [*dict.fromkeys(name for row in rows.values() for name in row)]
        new = [name for name in new if name not in self.header]
        edits = [self.change(index, rows[index]) for index in sorted(rows)]
        if not new:
            return edits
        wider = [Edit(self.header_end, self.header_end, "".join(f",{name}" for name in new))]
        changed = dict(zip(sorted(rows), edits, strict=True))
        for index, (_, end) in enumerate(self.spans):
            edit = changed.get(index, Edit(end, end, ""))
            cells = _record(str(rows.get(index, {}).get(name, "")) for name in ["", *new])
            wider.append(edit._replace(text=edit.text + cells))
        return wider


def _record(cells: Iterable[Json], *, quote_all: bool = False) -> str:
    text = io.StringIO()
    # With a line end, fields that contain one are quoted.
    csv.writer(
        text,
        lineterminator="\r\n",
        quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL,
    ).writerow(cells)
    return text.getvalue().removesuffix("\r\n")


@dataclass(slots=True)
class _Yaml(DatasetText):
    listed: YamlList = YamlList("", ListSpans(False, [], 0, 0))

    @classmethod
    def read(cls, text: str, bom: str) -> _Yaml:
        dataset = cls(text, bom)
        for item in stream_yaml_list(io.BytesIO(text.encode())):
            for fault in item.faults:
                raise fault
            if not isinstance(item.value, dict):
                raise Fault("type", "the row is not a map", at=(item.mark.line, item.mark.column))
            dataset.rows.append(item.value)
        dataset.listed = YamlList.find(text) or dataset.listed
        return dataset

    def removal(self, index: int) -> Edit:
        return self.listed.removal(index)

    def change(self, index: int, row: Row) -> Edit:
        before = self.rows[index]
        changed = {name: value for name, value in row.items() if before.get(name, row) != value}
        # A key is not removed, because its line may have a comment: an empty value is the same.
        return self.listed.change(index, changed | dict.fromkeys(before.keys() - row.keys()))

    def rewritten(self, rows: Mapping[int, Row]) -> list[Edit]:
        return [self._rewritten(index, rows[index]) for index in sorted(rows)]

    def _rewritten(self, index: int, row: Row) -> Edit:
        item = self.listed.spans.items[index]
        if self.listed.spans.flow:
            return Edit(item.start, item.end, as_yaml(row))
        start, end = self.listed.lines_of(index)
        indent = len(self.text[start:]) - len(self.text[start:].lstrip(" "))
        return Edit(start, end, self._item(row, indent, flow=item.flow))

    def addition(self, rows: Sequence[Row]) -> Edit:
        spans = self.listed.spans
        if not spans.flow:
            indent = self.listed.indent() if spans.items else 0
            flow = bool(spans.items) and spans.items[-1].flow
            return self._at_end([self._item(row, indent, flow=flow) for row in rows])
        texts = [as_yaml(row) for row in rows]
        if not spans.items:
            return Edit(spans.end, spans.end, ", ".join(texts))
        last, end = spans.items[-1], spans.items[-1].end
        line = self.text.rfind("\n", 0, last.start) + 1
        alone = not self.text[line : last.start].strip()  # each row on its own line
        between = f",{self.newline}{self.text[line : last.start]}" if alone else ", "
        return Edit(end, end, "".join(f"{between}{text}" for text in texts))

    def _item(self, row: Row, indent: int, *, flow: bool) -> str:
        dash = f"{' ' * indent}- "
        text = as_yaml(row) if flow else block_yaml(row, len(dash))
        return dash + text.replace("\n", self.newline)
