"""Edits of a list or a text in a YAML file that keep the rest of the file unchanged.

Comments, order and blanks stay. The text is changed by lines and positions instead of being written
again; the caller must parse the result and compare it before saving it.
"""

from __future__ import annotations

import json
import re
import textwrap
from itertools import accumulate
from typing import TYPE_CHECKING

from edison_ci.documents.yaml_text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.documents.marks import Mark

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+()-]+)*|\d{4}-\d{2}-\d{2}")
_WIDTH = 96
_WORDS = frozenset({"null", "true", "false"})


def scalar(text: str) -> str:
    """Return a text as YAML, quoted if necessary."""
    if _PLAIN.fullmatch(text) and text not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)


def value(given: str | list[str]) -> str:
    """Return a text, or a list of texts in brackets, as YAML."""
    if isinstance(given, str):
        return scalar(given)
    return f"[{', '.join(json.dumps(text, ensure_ascii=False) for text in given)}]"


def with_entry(text: str, key: str, entry: Mapping[str, str | list[str]]) -> str:
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


def with_text(text: str, key: str, given: str, *, after: str) -> str:
    """Return the text of a file with a long text under a key, in the place of the former one.

    Without a former one it comes after another key.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    marks = read_yaml(text, "").root.children
    assert isinstance(marks, dict), "the file is a mapping"
    folded = textwrap.wrap(" ".join(given.split()), _WIDTH, break_long_words=False)
    block = [f"{key}: >-{newline}", *(f"  {line}{newline}" for line in folded)]
    lines = text.splitlines(keepends=True)
    known = marks.get(key)
    start = (known or marks[after]).key_line
    end = start + 1
    for place in range(start + 1, len(lines)):
        if lines[place].strip() and not lines[place].startswith((" ", "\t")):
            break
        end = place + 1 if lines[place].strip() else end
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += newline
    return "".join([*lines[: start if known else end], *block, *lines[end:]])


def _list(text: str, key: str) -> Mark | None:
    children = read_yaml(text, "").root.children
    return children.get(key) if isinstance(children, dict) else None


def _items(mark: Mark) -> list[Mark]:
    return mark.children if isinstance(mark.children, list) else []


def _block(entry: Mapping[str, str | list[str]], indent: int, newline: str) -> str:
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
    entry: Mapping[str, str | list[str]],
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
