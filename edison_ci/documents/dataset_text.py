"""Edits of the rows of a dataset file that keep the rest of the file unchanged.

A changed row is written in the format of its file, and as far as possible in the style it had; all
other bytes stay, with comments, order and line ends. The caller reads the result again and compares
it before saving it.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.documents.csv_text import CsvTable
from edison_ci.documents.decoding import decode
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_edit import scalar
from edison_ci.documents.yaml_text import as_yaml, list_spans, stream_yaml_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.documents.marks import Json
    from edison_ci.documents.yaml_text import ItemSpan, ListSpans

Row: TypeAlias = "dict[str, Json]"

_BOM = "\ufeff"
_RETURN = "\r"
_DASH = re.compile(r"^ *-(?=\s)", re.M)
_QUOTE = '"'
_LITERAL = re.compile(r"(?![ \n])[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]+")


class Edit(NamedTuple):
    """A piece of the text and what replaces it."""

    start: int
    end: int
    text: str


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
        return "\r\n" if "\r\n" in self.text else "\n"

    def edited(self, edits: Sequence[Edit]) -> bytes:
        """Return the content of the file after some edits, which are in order."""
        return (self.bom + self._applied(0, len(self.text), edits)).encode("utf-8")

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
            pieces += [f"{sign}{each.rstrip(_RETURN)}\n" for sign, lines in (("-", old), ("+", new))
                       for each in lines]  # fmt: skip
            shift += len(new) - len(old)
        return "".join(pieces)

    def _changed_lines(self, edits: Sequence[Edit]) -> Iterator[tuple[int, int, str]]:
        """Yield whole lines, from one offset to another, and what they become."""
        text, waiting = self.text, list[Edit]()
        start = end = 0
        for edit in edits:
            first = text.rfind("\n", 0, edit.start) + 1
            if waiting and first >= end:
                yield start, end, self._applied(start, end, waiting)
                waiting = []
            if not waiting:
                start = first
            waiting.append(edit)
            whole = edit.end > first and text[edit.end - 1] == "\n"
            stop = edit.end if whole else text.find("\n", edit.end) + 1
            end = max(end, stop or len(text))
        if waiting:
            yield start, end, self._applied(start, end, waiting)

    def _applied(self, start: int, end: int, edits: Sequence[Edit]) -> str:
        pieces, done = list[str](), start
        for edit in edits:
            pieces += [self.text[done : edit.start], edit.text]
            done = edit.end
        return "".join([*pieces, self.text[done:end]])

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
        """Return the edits that write rows anew, for those that cannot be changed key by key."""
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


# --- JSONL ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Lines(DatasetText):
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Each line without its end."""

    @classmethod
    def read(cls, text: str, bom: str) -> _Lines:
        found, offset = cls(text, bom), 0
        for line in _lines_of(text):
            if not line.isspace():
                value = parse_json(line.rstrip("\r\n"))
                assert isinstance(value, dict), "the file is valid"
                found.rows.append(value)
                found.spans.append((offset, offset + len(line) - len(_line_end(line))))
            offset += len(line)
        return found

    def removal(self, index: int) -> Edit:
        start, end = self.spans[index]
        line_feed = self.text.find("\n", end)
        return Edit(start, len(self.text) if line_feed < 0 else line_feed + 1, "")

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


# --- CSV ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Csv(DatasetText):
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Each record without its line end."""
    header_end: int = 0

    @classmethod
    def read(cls, text: str, bom: str) -> _Csv:
        lines, found = _lines_of(text), cls(text, bom)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        table = CsvTable(lines)
        found.header = table.header
        first = next(number for number, line in enumerate(lines) if line.strip("\r\n"))
        found.header_end = starts[first + 1] - len(_line_end(lines[first]))
        for record in table.rows():
            if record.fault is not None:
                raise record.fault
            found.rows.append(dict(zip(table.header, record.fields, strict=True)))
            end = starts[record.line + len(record.text)] - len(_line_end(record.text[-1]))
            found.spans.append((starts[record.line], end))
        return found

    def removal(self, index: int) -> Edit:
        start, end = self.spans[index]
        line_feed = self.text.find("\n", end)
        return Edit(start, len(self.text) if line_feed < 0 else line_feed + 1, "")

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


# --- YAML -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Yaml(DatasetText):
    spans: ListSpans = field(default_factory=lambda: list_spans(""))

    @classmethod
    def read(cls, text: str, bom: str) -> _Yaml:
        found = cls(text, bom)
        for item in stream_yaml_list(io.BytesIO(text.encode())):
            for fault in item.faults:
                raise fault
            if not isinstance(item.value, dict):
                raise Fault("type", "the row is not a map", at=(item.mark.line, item.mark.column))
            found.rows.append(item.value)
        found.spans = list_spans(text)
        return found

    def removal(self, index: int) -> Edit:
        items = self.spans.items
        if not self.spans.flow:
            start, end = self._whole(index)
            line_feed = self.text.find("\n", end)
            return Edit(start, len(self.text) if line_feed < 0 else line_feed + 1, "")
        if index + 1 < len(items):
            return Edit(items[index].start, items[index + 1].start, "")
        comma = self.text.rfind(",", 0, items[index].start) if index else items[index].start
        return Edit(comma, items[index].end, "")

    def change(self, index: int, row: Row) -> Edit:
        item, before = self.spans.items[index], self.rows[index]
        changed = {name: value for name, value in row.items() if before.get(name, row) != value}
        # A key is not removed, because its line may have a comment: an empty value is the same.
        changed |= dict.fromkeys(before.keys() - row.keys())
        if item.flow:
            return Edit(item.start, item.end, self._flow(item, changed))
        end = self._line_end(item.end)  # new keys come after a comment on the last line
        return Edit(item.start, end, self._block(item, changed, end))

    def rewritten(self, rows: Mapping[int, Row]) -> list[Edit]:
        return [self._rewritten(index, rows[index]) for index in sorted(rows)]

    def _rewritten(self, index: int, row: Row) -> Edit:
        item = self.spans.items[index]
        if self.spans.flow:
            return Edit(item.start, item.end, as_yaml(row))
        start, end = self._whole(index)
        indent = len(self.text[start:]) - len(self.text[start:].lstrip(" "))
        return Edit(start, end, self._item(row, indent, flow=item.flow))

    def addition(self, rows: Sequence[Row]) -> Edit:
        items = self.spans.items
        if not self.spans.flow:
            indent = 0
            if items:
                start, _ = self._whole(0)
                indent = self.text.find("-", start) - start
            flow = bool(items) and items[-1].flow
            return self._at_end([self._item(row, indent, flow=flow) for row in rows])
        texts = [as_yaml(row) for row in rows]
        if not items:
            return Edit(self.spans.end, self.spans.end, ", ".join(texts))
        last, end = items[-1], items[-1].end
        line = self.text.rfind("\n", 0, last.start) + 1
        alone = not self.text[line : last.start].strip()  # each row on a line of its own
        between = f",{self.newline}{self.text[line : last.start]}" if alone else ", "
        return Edit(end, end, "".join(f"{between}{text}" for text in texts))

    def _whole(self, index: int) -> tuple[int, int]:
        """Return the start of the line with the dash of an entry, and the end of its last line."""
        items = self.spans.items
        start = items[index - 1].end if index else 0
        dashes = [*_DASH.finditer(self.text, start, items[index].start)]
        start = dashes[-1].start() if dashes else items[index].start
        return start, self._line_end(items[index].end)

    def _line_end(self, offset: int) -> int:
        end = self.text.find("\n", offset)
        return len(self.text) if end < 0 else end - (self.text[end - 1] == "\r")

    def _flow(self, item: ItemSpan, changed: Mapping[str, Json]) -> str:
        edits = [Edit(item.keys[name].value, item.keys[name].end, as_yaml(value))
                 for name, value in changed.items() if name in item.keys]  # fmt: skip
        new = [f"{as_yaml(name)}: {as_yaml(value)}" for name, value in changed.items()
               if name not in item.keys]  # fmt: skip
        if new:
            end = max((span.end for span in item.keys.values()), default=item.end - 1)
            comma = ", " if item.keys else ""
            edits.append(Edit(end, end, comma + ", ".join(new)))
        return self._applied(item.start, item.end, sorted(edits))

    def _block(self, item: ItemSpan, changed: Mapping[str, Json], stop: int) -> str:
        indent = item.start - (self.text.rfind("\n", 0, item.start) + 1)
        edits, new = [], []
        for name, value in changed.items():
            written = self._pair(name, value, indent)
            if (span := item.keys.get(name)) is not None:
                edits.append(Edit(span.start, span.end, written))
            else:
                new.append(f"{self.newline}{' ' * indent}{written}")
        if new:
            edits.append(Edit(stop, stop, "".join(new)))
        return self._applied(item.start, stop, sorted(edits))

    def _item(self, row: Row, indent: int, *, flow: bool) -> str:
        dash = f"{' ' * indent}- "
        if flow:
            return dash + as_yaml(row)
        text = block_yaml(row, len(dash))
        return dash + (text if self.newline == "\n" else text.replace("\n", self.newline))

    def _pair(self, name: str, value: Json, indent: int) -> str:
        text = block_yaml({name: value}, indent)
        return text if self.newline == "\n" else text.replace("\n", self.newline)


def block_yaml(row: Mapping[str, Json], indent: int = 0) -> str:
    """Return a map as lines of YAML without the first indent; texts of several lines stay so."""
    return f"\n{' ' * indent}".join(_pair(name, value, indent) for name, value in row.items())


def _pair(name: str, value: Json, indent: int) -> str:
    key = scalar(name)
    if isinstance(value, dict) and value:
        return f"{key}:\n{' ' * (indent + 2)}{block_yaml(value, indent + 2)}"
    if not isinstance(value, str):
        return f"{key}: {as_yaml(value)}"
    body = value.removesuffix("\n")
    if "\n" not in body or not _LITERAL.fullmatch(value) or body.endswith("\n"):
        plain = scalar(value)
        return f"{key}: {as_yaml(value) if plain.startswith(_QUOTE) else plain}"
    lines = (f"{' ' * (indent + 2)}{line}" if line else "" for line in body.split("\n"))
    sign = "|" if value != body else "|-"
    return "\n".join([f"{key}: {sign}", *lines])
