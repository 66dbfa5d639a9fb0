"""Edits of a list or a text in a YAML file that keep the rest of the file unchanged.

Comments, order and blanks stay. The text is changed by lines and positions instead of being written
again; the caller must parse the result and compare it before saving it.
"""

from __future__ import annotations

import json
import re
import textwrap
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from edison_ci.documents.yaml_text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.documents.marks import Json, Mark

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+()-]+)*|\d{4}-\d{2}-\d{2}")
_WIDTH = 96
Given: TypeAlias = "str | float | bool | list[str] | dict[str, int]"
_WORDS = frozenset({"null", "true", "false"})
_COMMENT = re.compile(r"[ \t](#.*)\Z")


def scalar(text: str) -> str:
    """Return a text as YAML, quoted if necessary."""
    if _PLAIN.fullmatch(text) and text not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)


def value(given: Given) -> str:
    """Return a text or number, or a list of texts or a map of numbers in brackets, as YAML."""
    if isinstance(given, str):
        return scalar(given)
    if isinstance(given, bool | int | float):
        return json.dumps(given)
    if isinstance(given, dict):
        return f"{{{', '.join(f'{name}: {number}' for name, number in given.items())}}}"
    return f"[{', '.join(json.dumps(text, ensure_ascii=False) for text in given)}]"


def with_entry(text: str, key: str, entry: Mapping[str, Given]) -> str:
    """Return the text with an entry appended to the list under a key."""
    newline = "\r\n" if "\r\n" in text else "\n"
    mark = _list(text, key)
    if mark is None:
        body = text if not text or text.endswith("\n") else text + newline
        return f"{body}{key}:{newline}" + _block(entry, 2, newline)
    lines, items = text.splitlines(keepends=True), _items(mark)
    if _is_flow(lines, mark):
        return _with_flow(text, lines, mark, entry, newline=newline)
    last = len(items) - 1
    indent = _dash(lines, items[last])
    end = _end(lines, items, last)
    if end and not lines[end - 1].endswith("\n"):
        lines[end - 1] += newline
    return "".join([*lines[:end], _block(entry, indent, newline), *lines[end:]])


def with_listed(text: str, single: str, key: str, entry: Mapping[str, Given]) -> str:
    """Return the text with an entry appended to the list under a key.

    A single value under another key becomes the first entry of the list, with its comment.
    """
    mark = _list(text, single)
    if mark is None:
        return with_entry(text, key, entry)
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines[mark.key_line : mark.line + 1] = [
        f"{key}:{newline}",
        f"  - {lines[mark.line][mark.column :]}",
    ]
    return with_entry("".join(lines), key, entry)


def without_entry(text: str, key: str, index: int) -> str:
    """Return the text without one entry of the list under a key."""
    mark = _list(text, key)
    assert mark is not None, "there is an entry to remove"
    lines, items = text.splitlines(keepends=True), _items(mark)
    if _is_flow(lines, mark):
        return _without_flow(text, lines, mark, index)
    start, end = items[index].line, _end(lines, items, index)
    if len(items) > 1:
        return "".join([*lines[:start], *lines[end:]])
    # An empty list stays.
    line = lines[mark.key_line]
    at = line.index(":", mark.key_column) + 1
    lines[mark.key_line] = f"{line[:at]} []{line[at:]}"
    return "".join([*lines[:start], *lines[end:]])


def with_flag(text: str, key: str, index: int, name: str, *, to: bool) -> str:
    """Return the text with a yes/no value in one entry of the list under a key."""
    mark = _list(text, key)
    assert mark is not None, "there is an entry to change"
    lines, items = text.splitlines(keepends=True), _items(mark)
    known = items[index].children
    assert isinstance(known, dict), "the entry is a map"
    if (place := known.get(name)) is not None:
        start = _offset(lines, place.line, place.column)
        return text[:start] + re.sub(r"\A(?:true|false)", json.dumps(to), text[start:])
    row = f"{name}: {json.dumps(to)}"
    item = items[index]
    if lines[item.line][item.column :].startswith("{"):
        last = max((child.line, child.column) for child in known.values())
        closing = text.index("}", _offset(lines, *last))
        return f"{text[:closing].rstrip()}, {row}{text[closing:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    end = _end(lines, items, index)
    if not lines[end - 1].endswith("\n"):
        lines[end - 1] += newline
    column = next(iter(known.values())).key_column
    return "".join([*lines[:end], f"{' ' * column}{row}{newline}", *lines[end:]])


def with_word(text: str, key: str, index: int, name: str, to: str) -> str:
    """Return the text with another plain word as a value in one entry of the list under a key."""
    mark = _list(text, key)
    assert mark is not None, "there is an entry to change"
    lines, known = text.splitlines(keepends=True), _items(mark)[index].children
    assert isinstance(known, dict), "the entry is a map"
    start = _offset(lines, known[name].line, known[name].column)
    return text[:start] + re.sub(r"""\A(["']?)[a-z]+\1""", to, text[start:])


def with_text(text: str, key: str, given: str, *, after: str) -> str:
    """Return the text of a file with a long text under a key, in the place of the former one.

    Without a former one it comes after another key.
    """
    folded = textwrap.wrap(" ".join(given.split()), _WIDTH, break_long_words=False)
    return _with_block(text, key, [f"{key}: >-", *(f"  {line}" for line in folded)], after)


def with_value(text: str, key: str, given: Json, *, after: str) -> str:
    """Return the text of a file with a value under a key, on one line; its comment stays."""
    return _with_block(text, key, [f"{key}: {flow(given)}"], after)


def with_members(text: str, key: str, given: Mapping[str, Json], *, after: str) -> str:
    """Return the text of a file with values in the map under a key; its other members stay."""
    document = read_yaml(text, "")
    marks, known = document.root.children, document.value
    assert isinstance(marks, dict), "the file is a mapping"
    assert isinstance(known, dict), "the file is a mapping"
    mark, lines = marks.get(key), text.splitlines()
    former = known.get(key)
    if mark is None or not isinstance(former, dict) or not isinstance(mark.children, dict):
        return with_value(text, key, dict(given), after=after)
    if mark.line == mark.key_line or not former:
        return with_value(text, key, {**former, **given}, after=after)
    newline = "\r\n" if "\r\n" in text else "\n"
    column = next(iter(mark.children.values())).key_column
    last = _extent(lines, max(child.key_line for child in mark.children.values()), column)
    edits = []
    for member, value in given.items():
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


def flow(given: Json) -> str:
    """Return a value as YAML on one line."""
    if isinstance(given, dict):
        return f"{{{', '.join(f'{scalar(name)}: {flow(each)}' for name, each in given.items())}}}"
    if isinstance(given, list):
        return f"[{', '.join(map(flow, given))}]"
    return scalar(given) if isinstance(given, str) else json.dumps(given)


def _with_block(text: str, key: str, block: list[str], after: str) -> str:
    """Return the text with lines in the place of a key and its value, or after another key."""
    newline = "\r\n" if "\r\n" in text else "\n"
    marks = read_yaml(text, "").root.children
    assert isinstance(marks, dict), "the file is a mapping"
    lines = text.splitlines()
    known = marks.get(key)
    start = (known or marks[after]).key_line
    end = _extent(lines, start, 0)
    if known is not None and end == start + 1 and len(block) == 1:
        block = [_with_comment(block[0], lines[start])]
    return newline.join([*lines[: start if known else end], *block, *lines[end:], ""])


def _extent(lines: list[str], start: int, indent: int) -> int:
    """Return the line after a key and its value; later comments and blanks are not part of it."""
    end = start + 1
    for place in range(start + 1, len(lines)):
        line = lines[place].strip()
        inner = len(lines[place]) - len(lines[place].lstrip())
        # The items of a list may stand in the column of their key.
        if line and inner <= indent and not (inner == indent and line.startswith("- ")):
            break
        end = place + 1 if line and not line.startswith("#") else end
    return end


def _with_comment(row: str, former: str) -> str:
    """Return a line with the comment of the former one, in the same column if there is room."""
    found = _COMMENT.search(former)
    if found is None or any(quote in former for quote in "\"'"):
        return row
    return f"{row.ljust(found.start(1) - 2)}  {found[1]}"


def _list(text: str, key: str) -> Mark | None:
    children = read_yaml(text, "").root.children
    return children.get(key) if isinstance(children, dict) else None


def _items(mark: Mark) -> list[Mark]:
    return mark.children if isinstance(mark.children, list) else []


def _block(entry: Mapping[str, Given], indent: int, newline: str) -> str:
    rows = [f"{name}: {value(given)}" for name, given in entry.items()]
    blank = " " * indent
    return "".join(
        f"{blank}{'- ' if place == 0 else '  '}{row}{newline}" for place, row in enumerate(rows)
    )


def _dash(lines: list[str], item: Mark) -> int:
    """Return the column of the dash before an entry."""
    return lines[item.line].index("-")


def _end(lines: list[str], items: list[Mark], index: int) -> int:
    """Return the line after an entry; later comments and blanks belong to what follows."""
    first, dash = items[index].line, _dash(lines, items[index])
    end = first + 1
    for place in range(first + 1, len(lines)):
        line = lines[place].strip()
        if not line or line.startswith("#"):
            continue
        if len(lines[place]) - len(lines[place].lstrip(" ")) <= dash:
            break
        end = place + 1
    return end


# --- lists in brackets ----------------------------------------------------------------------------


def _is_flow(lines: list[str], mark: Mark) -> bool:
    return lines[mark.line][mark.column :].startswith("[")


def _offset(lines: list[str], line: int, column: int) -> int:
    return [0, *accumulate(map(len, lines))][line] + column


def _closing(text: str, lines: list[str], mark: Mark) -> int:
    """Return the position of the closing bracket: the first one that keeps the rest valid.

    Brackets inside texts make this a guess; the caller compares the result.
    """
    items = _items(mark)
    start = (items[-1] if items else mark).line, (items[-1] if items else mark).column
    return text.index("]", _offset(lines, *start))


def _with_flow(
    text: str,
    lines: list[str],
    mark: Mark,
    entry: Mapping[str, Given],
    *,
    newline: str,
) -> str:
    closing = _closing(text, lines, mark)
    if not _items(mark):
        start = _offset(lines, mark.line, mark.column)
        rest = text[closing + 1 :]
        tail, _, after = rest.partition("\n")
        tail = tail.rstrip("\r")
        return f"{text[:start].rstrip(' ')}{tail}{newline}{_block(entry, 2, newline)}{after}"
    shown = ", ".join(f"{name}: {value(given)}" for name, given in entry.items())
    before = text[:closing].rstrip()
    comma = "" if before.endswith(",") else ","
    return f"{before}{comma} {{{shown}}}{text[closing:]}"


def _without_flow(text: str, lines: list[str], mark: Mark, index: int) -> str:
    items = _items(mark)
    starts = [_offset(lines, item.line, item.column) for item in items]
    closing = _closing(text, lines, mark)
    if index + 1 < len(items):
        return text[: starts[index]] + text[starts[index + 1] :]
    if index:
        return text[: text.rindex(",", 0, starts[index])] + text[closing:]
    return text[: starts[0]] + text[closing:]
