"""JSON texts read as values with line and column.

A strict reader for dataset rows, schemas and recordings: duplicate keys, NaN and Infinity, numbers
out of range, lone surrogates and deep nesting are refused. Positions are computed only when a
problem needs one, so reading costs little more than the parser of the standard library.
"""

from __future__ import annotations

import bisect
import json
import math
import re
from typing import NoReturn

from edison_ci.documents.decoding import decode, place
from edison_ci.documents.marks import Document, Fault, Json, Mark, duplicate_key

_MAX_DEPTH = 50
_MAX_DIGITS = 400
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ATOM = re.compile(r"[^\s,\]}]+")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]|[^\s\[\]{},:"]+', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


class _DuplicateKeyError(ValueError):
    pass


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _DuplicateKeyError
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(text)
    return int(text)


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_integer
)


# Python and others write these where a number is missing or has no bounds.
_lenient_decoder = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=lambda name: None,
    parse_float=_float,
    parse_int=_integer,
)


def parse_json(text: str, *, first_line: int = 1, constants: bool = False) -> Json:
    """Return the value of a JSON text; raises Fault with its position.

    With `constants`, NaN and Infinity are read as null, for files of other tools.
    """
    try:
        value: Json = (_lenient_decoder if constants else _decoder).decode(text)
    except json.JSONDecodeError as error:
        raise _syntax(text, error) from None
    except _DuplicateKeyError:
        raise _duplicate(text, first_line) from None
    except RecursionError:
        raise _too_deep(text) from None
    except ValueError as error:
        raise _number(text, str(error)) from None
    if text.count("[") + text.count("{") > _MAX_DEPTH and _depth(value) > _MAX_DEPTH:
        raise _too_deep(text)
    if "\\u" in text:
        _refuse_surrogates(text, value)
    return value


def read_json(data: bytes | str, file: str, *, first_line: int = 1) -> Document:
    """Return a JSON file as a document with positions."""
    text = decode(data) if isinstance(data, bytes) else data
    return Document(file, parse_json(text, first_line=first_line), json_marks(text), first_line)


def json_marks(text: str) -> Mark:
    """Return the position of every value in a valid JSON text."""
    return _Scanner(text).value(_skip(text, 0), (0, 0))[0]


def _depth(value: Json) -> int:
    deepest, stack = 0, [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, dict | list):
            deepest = max(deepest, depth)
            stack.extend(
                (v, depth + 1) for v in (item.values() if isinstance(item, dict) else item)
            )
    return deepest


def _refuse_surrogates(text: str, value: Json) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        message = "a lone surrogate is not a character"
        hint = "write both halves, or the character itself"
        raise Fault("encoding", message, hint, at=place(text, _lone_surrogate(text))) from None


def _lone_surrogate(text: str) -> int:
    """Return the position of the first surrogate without its other half."""
    high: re.Match[str] | None = None
    for escape in _ESCAPE.finditer(text):
        code = int(escape.group(1), 16) if escape.group(1) else 0
        low = 0xDC00 <= code <= 0xDFFF
        if low and high is not None and high.end() == escape.start():
            high = None
        elif high is not None:
            return high.start()
        elif low:
            return escape.start()
        else:
            high = escape if 0xD800 <= code <= 0xDBFF else None
    return high.start() if high is not None else 0


_HINTS = {
    "Expecting value": "write a value; texts need double quotes",
    "Expecting property name": "keys need double quotes",
    "Unterminated string": "end the text with a quote",
    "Invalid control character": "write it as an escape, such as \\n or \\t",
    "Invalid \\": "write a backslash as \\\\",
    "Extra data": "a file, or a line of a .jsonl file, holds one value",
}


def _syntax(text: str, error: json.JSONDecodeError) -> Fault:
    here, before = text[error.pos : error.pos + 1], text[: error.pos].rstrip()
    # Before Python 3.13 the position is the bracket, and the message is about a missing value.
    if error.msg.startswith("Illegal trailing comma"):
        before, here = text[: error.pos + 1], "}"
    if here in ("}", "]") and before.endswith(","):
        message = "not valid JSON: nothing follows this comma"
        return Fault("syntax", message, "remove it", at=place(text, len(before) - 1))
    fitting = (hint for start, hint in _HINTS.items() if error.msg.startswith(start))
    hint = next(fitting, "check brackets, commas and quotes")
    if here == "'":
        hint = "JSON strings take double quotes"
    elif here in ("#", "/"):
        hint = "JSON has no comments"
    message = error.msg[0].lower() + error.msg[1:]
    return Fault("syntax", f"not valid JSON: {message}", hint, at=place(text, error.pos))


def _duplicate(text: str, first_line: int) -> Fault:
    scanner = _Scanner(text)
    try:
        scanner.value(_skip(text, 0), (0, 0))
    except RecursionError:
        return _too_deep(text)
    at, key, first = min(scanner.duplicates, default=((0, 0), "?", (0, 0)))
    return duplicate_key(key, at, first, first_line)


def _number(text: str, token: str) -> Fault:
    starts = (match.start() for match in _TOKEN.finditer(text) if match.group() == token)
    at = place(text, next(starts, 0))
    if token in {"NaN", "Infinity", "-Infinity"}:
        return Fault(
            "number", f"{token} is not a JSON number", "use null for a missing value", at=at
        )
    message = f"number {token[:20]!r} is out of range"
    return Fault("number", message, "quote it if it is a text", at=at)


def _too_deep(text: str) -> Fault:
    depth = 0
    at = (0, 0)
    for match in _TOKEN.finditer(text):
        token = match.group()
        depth += (token in ("[", "{")) - (token in ("]", "}"))
        if depth > _MAX_DEPTH:
            at = place(text, match.start())
            break
    return Fault("depth", f"nested deeper than {_MAX_DEPTH} levels", "flatten it", at=at)


def _skip(text: str, offset: int) -> int:
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


class _Scanner:
    """Scans a valid JSON text again for positions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.duplicates: list[tuple[tuple[int, int], str, tuple[int, int]]] = []
        """Position, name and first position of each duplicate key."""

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._line_starts, offset) - 1
        return line, offset - self._line_starts[line]

    def value(self, offset: int, key_at: tuple[int, int]) -> tuple[Mark, int]:
        text = self._text
        at = self._place(offset)
        opener = text[offset : offset + 1]
        children: dict[str, Mark] | list[Mark] | None = None
        if opener == "{":
            children, offset = self._mapping(offset)
        elif opener == "[":
            children, offset = self._sequence(offset)
        else:
            match = (_STRING if opener == '"' else _ATOM).match(text, offset)
            offset = match.end() if match else offset + 1
        return Mark(*at, *key_at, children), offset

    def _mapping(self, offset: int) -> tuple[dict[str, Mark], int]:
        text, marks = self._text, dict[str, Mark]()
        offset = _skip(text, offset + 1)
        while offset < len(text) and text[offset] != "}":
            match = _STRING.match(text, offset)
            if match is None:
                break
            key, at = str(json.loads(match.group(), strict=False)), self._place(offset)
            offset = _skip(text, _skip(text, match.end()) + 1)
            mark, offset = self.value(offset, at)
            if key in marks:
                first = marks[key]
                self.duplicates.append((at, key, (first.key_line, first.key_column)))
            else:
                marks[key] = mark
            offset = self._after(offset)
        return marks, offset + 1

    def _sequence(self, offset: int) -> tuple[list[Mark], int]:
        text, marks = self._text, list[Mark]()
        offset = _skip(text, offset + 1)
        while offset < len(text) and text[offset] != "]":
            mark, offset = self.value(offset, self._place(offset))
            marks.append(mark)
            offset = self._after(offset)
        return marks, offset + 1

    def _after(self, offset: int) -> int:
        offset = _skip(self._text, offset)
        if self._text[offset : offset + 1] == ",":
            offset = _skip(self._text, offset + 1)
        return offset
