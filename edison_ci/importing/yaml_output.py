"""Values written as YAML that people like to read and our own loader reads back."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.documents.marks import Json

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./+ -]*(?<! )\Z")
_LINE = re.compile(r"[A-Za-z_][A-Za-z0-9_./+,;'()!? -]*(?<! )\Z")
"""What may stand plain outside of brackets."""
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that some reader of YAML takes for something else than a text."""
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_BLOCK = re.compile("[\t\x20-\x7e\n\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]+\\Z")
_WIDTH = 96


def yaml_text(value: dict[str, Json]) -> str:
    """Return a map as a YAML document."""
    return "".join(f"{line}\n" for line in _mapping(value, ""))


def _mapping(value: dict[str, Json], indent: str) -> Iterator[str]:
    for key, item in value.items():
        yield from _entry(f"{indent}{scalar(key)}:", item, indent)


def _entry(start: str, item: Json, indent: str) -> Iterator[str]:
    """Yield the lines of a value that follows a key or a dash."""
    if isinstance(item, str) and "\n" in item:
        yield from _text(start, item, indent)
        return
    flow = None if _is_table(item) or isinstance(item, str) else _flow(item)
    if flow is not None and len(start) + 1 + len(flow) <= _WIDTH:
        yield f"{start} {flow}"
    elif isinstance(item, dict):
        yield start
        yield from _mapping(item, f"{indent}  ")
    elif isinstance(item, list):
        yield start
        yield from _sequence(item, f"{indent}  ")
    elif isinstance(item, str) and _LINE.match(item) and item.lower() not in _WORDS:
        yield f"{start} {item}"
    else:
        yield f"{start} {scalar(item)}"


def _is_table(item: Json) -> bool:
    """Whether a value is a list of maps, which read better one below the other."""
    return isinstance(item, list) and any(isinstance(each, dict) for each in item)


def _sequence(value: list[Json], indent: str) -> Iterator[str]:
    for item in value:
        if isinstance(item, dict) and item:
            lines = list(_mapping(item, f"{indent}  "))
            flow = _flow(item)
            short = len(item) > 1 and flow is not None and len(indent) + len(flow) + 2 <= _WIDTH
            lines = [f"{indent}  {flow}"] if short else lines
            yield f"{indent}- {lines[0][len(indent) + 2 :]}"
            yield from lines[1:]
        else:
            yield from _entry(f"{indent}-", item, f"{indent}  ")


def _text(start: str, text: str, indent: str) -> Iterator[str]:
    """Yield a text of several lines as a block, if a block can hold it."""
    lines = text.removesuffix("\n").split("\n")
    fits = (
        _BLOCK.match(text)
        and lines[0].strip()
        and lines[-1].strip()
        and not lines[0].startswith((" ", "\t"))
    )
    if not fits:
        yield f"{start} {scalar(text)}"
        return
    yield f"{start} {'|' if text.endswith(chr(10)) else '|-'}"
    yield from (f"{indent}  {line}" if line else "" for line in lines)


def _flow(value: Json) -> str | None:
    """Return a value on one line; None if it holds a text of several lines."""
    if isinstance(value, dict):
        pairs = [(scalar(key), _flow(item)) for key, item in value.items()]
        if any(item is None for _, item in pairs):
            return None
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    if isinstance(value, list):
        items = [_flow(item) for item in value]
        return None if None in items else "[" + ", ".join(map(str, items)) + "]"
    if isinstance(value, str) and "\n" in value:
        return None
    return scalar(value)


def scalar(value: Json) -> str:
    """Return a text, number, true, false or null on one line."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", quoted)
