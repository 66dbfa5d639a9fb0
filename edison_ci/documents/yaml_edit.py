"""Edits of a list or a text in a YAML file that keep the rest of the file unchanged.

Comments, order and blanks stay. The text is changed by lines and positions instead of being written
again; the caller must parse the result and compare it before saving it.
"""

from __future__ import annotations

import json
import re
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_text import as_yaml, list_spans, read_yaml
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from edison_ci.documents.marks import Json
    from edison_ci.documents.yaml_text import ItemSpan, ListSpans
    from edison_ci.errors import Location

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+()-]+)*|\d{4}-\d{2}-\d{2}")
_WIDTH = 96
_DASH = re.compile(r"^ *-(?=\s)", re.M)
_RETURN = "\r"
_LITERAL = re.compile(r"(?![ \n])[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]+")
Write: TypeAlias = "Callable[[Json], str]"
Given: TypeAlias = "str | float | bool | list[str] | dict[str, int]"
_WORDS = frozenset({"null", "true", "false"})
_COMMENT = re.compile(r"[ \t](#.*)\Z")


def scalar(text: str) -> str:
    """Return a text as YAML, quoted if necessary."""
    if _PLAIN.fullmatch(text) and text not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)


def value(item: Given) -> str:
    """Return a text or number, or a list of texts or a map of numbers in brackets, as YAML."""
    if isinstance(item, str):
        return scalar(item)
    if isinstance(item, bool | int | float):
        return json.dumps(item)
    if isinstance(item, dict):
        return f"{{{', '.join(f'{name}: {number}' for name, number in item.items())}}}"
    return f"[{', '.join(json.dumps(text, ensure_ascii=False) for text in item)}]"


class Edit(NamedTuple):
    """A piece of a text and what replaces it."""

    start: int
    end: int
    text: str


def applied(text: str, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> str:
    """Return a text, or a part of it, after some edits in it, which are in order."""
    pieces, done = list[str](), start
    for edit in edits:
        pieces += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join([*pieces, text[done:end]])


class YamlList(NamedTuple):
    """A list in a YAML text, and edits of its entries."""

    text: str
    spans: ListSpans

    @classmethod
    def find(cls, text: str, key: str | None = None) -> YamlList | None:
        """Return the list that a valid text is, or that under a key; None if there is none."""
        spans = list_spans(text, key)
        return None if spans is None else cls(text, spans)

    @property
    def newline(self) -> str:
        """How lines end."""
        return newline_of(self.text)

    def indent(self) -> int:
        """Return the column of the dashes."""
        start, _ = self.lines_of(0)
        return self.text.find("-", start) - start

    def lines_of(self, index: int) -> tuple[int, int]:
        """Return the start of the line with the dash of an entry, and the end of its last line."""
        items = self.spans.items
        start = items[index - 1].end if index else self.spans.key_end
        dashes = [*_DASH.finditer(self.text, start, items[index].start)]
        start = dashes[-1].start() if dashes else items[index].start
        return start, self.line_end(items[index].end)

    def line_end(self, offset: int) -> int:
        """Return the end of a line, without its line end."""
        end = self.text.find("\n", offset)
        return len(self.text) if end < 0 else end - (self.text[end - 1] == "\r")

    def removal(self, index: int) -> Edit:
        """Return the edit that removes an entry."""
        items = self.spans.items
        if not self.spans.flow:
            start, end = self.lines_of(index)
            line_feed = self.text.find("\n", end)
            return Edit(start, len(self.text) if line_feed < 0 else line_feed + 1, "")
        start, end = items[index].start, items[index].end
        if index + 1 < len(items):
            return Edit(start, items[index + 1].start, "")
        if index:
            return Edit(self.text.rfind(",", 0, start), end, "")
        return Edit(start, max(end, self.text.find(",", end, self.spans.end) + 1), "")

    def change(self, index: int, changed: Mapping[str, Json], write: Write = as_yaml) -> Edit:
        """Return the edit that sets some keys of an entry; `write` is for those in brackets."""
        item = self.spans.items[index]
        if item.flow:
            return Edit(item.start, item.end, self._in_brackets(item, changed, write))
        end = self.line_end(item.end)  # new keys come after a comment on the last line
        indent = item.start - (self.text.rfind("\n", 0, item.start) + 1)
        edits, new = list[Edit](), list[str]()
        for name, value in changed.items():
            written = block_yaml({name: value}, indent).replace("\n", self.newline)
            if (span := item.keys.get(name)) is not None:
                edits.append(Edit(span.start, span.end, written))
            else:
                new.append(f"{self.newline}{' ' * indent}{written}")
        if new:
            edits.append(Edit(end, end, "".join(new)))
        return Edit(item.start, end, applied(self.text, sorted(edits), item.start, end))

    def _in_brackets(self, item: ItemSpan, changed: Mapping[str, Json], write: Write) -> str:
        edits = [Edit(item.keys[name].value, item.keys[name].end, write(value))
                 for name, value in changed.items() if name in item.keys]  # fmt: skip
        new = [f"{write(name)}: {write(value)}" for name, value in changed.items()
               if name not in item.keys]  # fmt: skip
        if new:
            end = max((span.end for span in item.keys.values()), default=item.end - 1)
            comma = ", " if item.keys else ""
            edits.append(Edit(end, end, comma + ", ".join(new)))
        return applied(self.text, sorted(edits), item.start, item.end)


def values_of(text: str, path: str) -> dict[str, Any]:
    """Return the values of a file that is a map, or empty; raises Fault."""
    value = read_yaml(text, path).value
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Fault("type", f"{path} is not a map", "write key: value")
    return value


def not_editable(path: str, *, hint: str, where: Location | None = None) -> UsageError:
    """Return the refusal of an edit of a file."""
    message = f"{path} is written in a way that cannot be edited safely"
    return UsageError(message, hint=hint, where=where)


def edited(
    before: str, edit: Callable[[str], str], goal: Mapping[str, Any], refusal: UsageError
) -> str:
    """Return the text of a file after an edit that makes its values `goal`, or raise."""
    with suppress(Fault, ValueError, IndexError, AssertionError):
        after = edit(before)
        if values_of(after, "") == goal:
            return after
    raise refusal


def newline_of(text: str) -> str:
    """Return how the lines of a text end."""
    return "\r\n" if "\r\n" in text else "\n"


def with_entry(text: str, key: str, entry: Mapping[str, Given]) -> str:
    """Return the text with an entry appended to the list under a key."""
    listed, newline = YamlList.find(text, key), newline_of(text)
    if listed is None:
        body = text if not text or text.endswith("\n") else text + newline
        return f"{body}{key}:{newline}{_block(entry, 2, newline)}"
    spans = listed.spans
    if not spans.flow:
        _, end = listed.lines_of(len(spans.items) - 1)
        before, line, after = text[:end], newline, text[end:].removeprefix(newline)
        return f"{before}{line}{_block(entry, listed.indent(), newline)}{after}"
    if spans.items:
        pairs = ", ".join(f"{name}: {value(item)}" for name, item in entry.items())
        before = text[: spans.end].rstrip()
        comma = "" if before.endswith(",") else ","
        return f"{before}{comma} {{{pairs}}}{text[spans.end :]}"
    tail, _, after = text[spans.end + 1 :].partition("\n")
    before = f"{text[: spans.start].rstrip(' ')}{tail.rstrip(_RETURN)}"
    return f"{before}{newline}{_block(entry, 2, newline)}{after}"


def with_listed(text: str, single: str, key: str, entry: Mapping[str, Given]) -> str:
    """Return the text with an entry appended to the list under a key.

    A single value under another key becomes the first entry of the list, with its comment.
    """
    children = read_yaml(text, "").root.children
    mark = children.get(single) if isinstance(children, dict) else None
    if mark is None:
        return with_entry(text, key, entry)
    lines = text.splitlines(keepends=True)
    lines[mark.key_line : mark.line + 1] = [
        f"{key}:{newline_of(text)}",
        f"  - {lines[mark.line][mark.column :]}",
    ]
    return with_entry("".join(lines), key, entry)


def without_entry(text: str, key: str, index: int) -> str:
    """Return the text without one entry of the list under a key."""
    listed = YamlList.find(text, key)
    assert listed is not None, "there is an entry to remove"
    edits = [listed.removal(index)]
    if not listed.spans.flow and len(listed.spans.items) == 1:  # an empty list stays
        colon = text.index(":", listed.spans.key_end) + 1
        edits.insert(0, Edit(colon, colon, " []"))
    return applied(text, edits)


def with_values(text: str, key: str, index: int, changed: Mapping[str, Json]) -> str:
    """Return the text with other values in one entry of the list under a key."""
    whole = text if text.endswith("\n") else text + newline_of(text)
    listed = YamlList.find(whole, key)
    assert listed is not None, "there is an entry to change"
    return applied(whole, [listed.change(index, changed, flow)])


def with_text(text: str, key: str, new_text: str, *, after: str) -> str:
    """Return the text of a file with a long text under a key, in the place of the former one.

    Without a former one it comes after another key.
    """
    folded = textwrap.wrap(" ".join(new_text.split()), _WIDTH, break_long_words=False)
    return _with_block(text, key, [f"{key}: >-", *(f"  {line}" for line in folded)], after)


def with_value(text: str, key: str, new_value: Json, *, after: str) -> str:
    """Return the text of a file with a value under a key, on one line; its comment stays."""
    return _with_block(text, key, [f"{key}: {flow(new_value)}"], after)


def with_members(text: str, key: str, members: Mapping[str, Json], *, after: str) -> str:
    """Return the text of a file with values in the map under a key; its other members stay."""
    document = read_yaml(text, "")
    marks, values = document.root.children, document.value
    assert isinstance(marks, dict), "the file is a mapping"
    assert isinstance(values, dict), "the file is a mapping"
    mark, lines = marks.get(key), text.splitlines()
    former = values.get(key)
    if mark is None or not isinstance(former, dict) or not isinstance(mark.children, dict):
        return with_value(text, key, dict(members), after=after)
    if mark.line == mark.key_line or not former:
        return with_value(text, key, {**former, **members}, after=after)
    newline = newline_of(text)
    column = next(iter(mark.children.values())).key_column
    last = _extent(lines, max(child.key_line for child in mark.children.values()), column)
    edits = []
    for member, value in members.items():
        row = f"{' ' * column}{member}: {flow(value)}"
        if (place := mark.children.get(member)) is None:
            edits.append((last, last, row))
            continue
        end = _extent(lines, place.key_line, column)
        former_row = lines[place.key_line] if end == place.key_line + 1 else ""
        edits.append((place.key_line, end, _with_comment(row, former_row)))
    edits.reverse()  # new members are inserted at the same line, the last one first
    for start, end, row in sorted(edits, key=lambda edit: edit[0], reverse=True):
        lines[start:end] = [row]
    return newline.join([*lines, ""])


def flow(item: Json) -> str:
    """Return a value as YAML on one line."""
    if isinstance(item, dict):
        return f"{{{', '.join(f'{scalar(name)}: {flow(inner)}' for name, inner in item.items())}}}"
    if isinstance(item, list):
        return f"[{', '.join(map(flow, item))}]"
    return scalar(item) if isinstance(item, str) else json.dumps(item)


def _with_block(text: str, key: str, block: list[str], after: str) -> str:
    """Return the text with lines in the place of a key and its value, or after another key."""
    newline = newline_of(text)
    marks = read_yaml(text, "").root.children
    assert isinstance(marks, dict), "the file is a mapping"
    lines = text.splitlines()
    mark = marks.get(key)
    start = (mark or marks[after]).key_line
    end = _extent(lines, start, 0)
    if mark is not None and end == start + 1 and len(block) == 1:
        block = [_with_comment(block[0], lines[start])]
    return newline.join([*lines[: start if mark else end], *block, *lines[end:], ""])


def _extent(lines: list[str], start: int, indent: int) -> int:
    """Return the line after a key and its value; later comments and blanks are not part of it."""
    end = start + 1
    for place in range(start + 1, len(lines)):
        line = lines[place].strip()
        inner = len(lines[place]) - len(lines[place].lstrip())
        # The items of a list may start in the column of their key.
        if line and inner <= indent and not (inner == indent and line.startswith("- ")):
            break
        end = place + 1 if line and not line.startswith("#") else end
    return end


def _with_comment(row: str, former: str) -> str:
    """Return a line with the comment of the former one, in the same column if there is room."""
    comment = _COMMENT.search(former)
    if comment is None or any(quote in former for quote in "\"'"):
        return row
    return f"{row.ljust(comment.start(1) - 2)}  {comment[1]}"


def _block(entry: Mapping[str, Given], indent: int, newline: str) -> str:
    rows = [f"{name}: {value(item)}" for name, item in entry.items()]
    blank = " " * indent
    return "".join(
        f"{blank}{'- ' if place == 0 else '  '}{row}{newline}" for place, row in enumerate(rows)
    )


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
        return f"{key}: {plain if plain == value else as_yaml(value)}"
    lines = (f"{' ' * (indent + 2)}{line}" if line else "" for line in body.split("\n"))
    sign = "|" if value != body else "|-"
    return "\n".join([f"{key}: {sign}", *lines])
