"""What does this YAML text say, and on which line?

YAML is read as if it were JSON with comments: scalars resolve as in JSON, so `no`, `010`, `1:30`
and dates are strings; one document; no tags, no merge keys, no duplicate keys; anchors within a
budget. The values are built from the C parser's events, so that depth, size and alias expansion
are bounded while reading, whatever the text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from edison_ci.documents.decoding import decode, place
from edison_ci.documents.marks import Document, Fault, Json, Mark
from edison_ci.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    from yaml import CSafeLoader as _Parser
except ImportError:  # PyYAML built without libyaml: same events, ten times slower
    from yaml import SafeLoader as _Parser  # type: ignore[assignment]

_NUMBER_START = frozenset("-0123456789")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_CONSTANTS: dict[str, Json] = {"": None, "~": None, "null": None, "true": True, "false": False}
_MAX_DIGITS = 400


class YamlLimits(NamedTuple):
    """How large a text may grow while it is read."""

    depth: int = 50
    nodes: int = 50_000
    """Values in the document, those repeated by aliases counted each time."""


def read_yaml(
    data: bytes | str, file: str, *, first_line: int = 1, limits: YamlLimits | None = None
) -> Document:
    """Return the document; what is wrong but readable past is in its `problems`, else a Fault."""
    builder = _Builder(data, limits or YamlLimits())
    value, mark = builder.document()
    document = Document(file, value, mark, first_line)
    document.problems.extend(_placed(document, fault) for fault in builder.faults)
    return document


class YamlItem(NamedTuple):
    """One entry of a top-level list, its place, and the faults inside it."""

    value: Json
    mark: Mark
    faults: list[Fault]


def stream_yaml_list(data: bytes | str, *, limits: YamlLimits | None = None) -> Iterator[YamlItem]:
    """Yield the entries of a top-level list one by one, each within the limits."""
    builder = _Builder(data, limits or YamlLimits())
    yield from builder.items()


def _placed(document: Document, fault: Fault) -> Problem:
    return Problem(document.at(*fault.at), fault.code, fault.message, fault.hint)


@dataclass(slots=True)
class _Anchored:
    value: Json
    nodes: int


class _Builder:
    """Turns parser events into values and marks."""

    def __init__(self, data: bytes | str, limits: YamlLimits) -> None:
        text = self._text = decode(data) if isinstance(data, bytes) else data
        self._parser: Any = None  # PyYAML's event API has no stubs
        try:
            self._parser = _Parser(text)
        except yaml.YAMLError as error:
            raise _syntax(error, text) from None
        self._limits = limits
        self._anchors: dict[str, _Anchored] = {}
        self._nodes = 0
        self.faults: list[Fault] = []

    def document(self) -> tuple[Json, Mark]:
        self._next()  # stream start
        if isinstance(event := self._next(), StreamEndEvent):
            return None, Mark(0, 0, 0, 0, None)
        event = self._next()
        value, mark = self._value(event, (0, 0), 1)
        self._end_of_document()
        return value, mark

    def items(self) -> Iterator[YamlItem]:
        self._next()
        if isinstance(self._next(), StreamEndEvent):
            return
        event = self._next()
        if not isinstance(event, SequenceStartEvent):
            raise Fault(
                "type",
                "a YAML dataset is a list of cases",
                "start each case with '- '",
                at=_at(event),
            )
        self._refuse_tag(event)
        while not isinstance(event := self._next(), SequenceEndEvent):
            self._nodes, self.faults = 0, []
            value, mark = self._value(event, (0, 0), 2)
            yield YamlItem(value, mark, self.faults)
        self._end_of_document()

    def _end_of_document(self) -> None:
        if not isinstance(
            event := self._next(), DocumentEndEvent
        ):  # pragma: no cover - parser's own
            raise Fault("syntax", "the document does not end here", at=_at(event))
        if not isinstance(event := self._next(), StreamEndEvent):
            raise Fault(
                "documents",
                "a second document starts here",
                "keep one document per file",
                at=_at(event),
            )

    def _next(self) -> Any:
        try:
            return self._parser.get_event()
        except yaml.YAMLError as error:
            raise _syntax(error, self._text) from None

    def _value(self, event: Any, key_at: tuple[int, int], depth: int) -> tuple[Json, Mark]:
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            raise Fault("size", f"more than {self._limits.nodes:,} values", at=_at(event))
        if isinstance(event, ScalarEvent):
            return self._scalar(event), Mark(*_at(event), *key_at, None)
        if isinstance(event, AliasEvent):
            return self._alias(event), Mark(*_at(event), *key_at, None)
        if depth > self._limits.depth:
            raise Fault("depth", f"nested deeper than {self._limits.depth} levels", at=_at(event))
        self._refuse_tag(event)
        before = self._nodes
        value: Json
        children: dict[str, Mark] | list[Mark]
        if isinstance(event, MappingStartEvent):
            value, children = self._mapping(depth)
        else:
            value, children = self._sequence(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, self._nodes - before + 1)
        return value, Mark(*_at(event), *key_at, children)

    def _mapping(self, depth: int) -> tuple[dict[str, Json], dict[str, Mark]]:
        value: dict[str, Json] = {}
        marks: dict[str, Mark] = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            key, at = self._key(event), _at(event)
            item, mark = self._value(self._next(), at, depth + 1)
            if key in value:
                first = marks[key].key_line + 1
                self.faults.append(
                    Fault(
                        "duplicate-key", f"key {key!r} is given twice, first in line {first}", at=at
                    )
                )
                continue
            value[key] = item
            marks[key] = mark
        return value, marks

    def _sequence(self, depth: int) -> tuple[list[Json], list[Mark]]:
        value: list[Json] = []
        marks: list[Mark] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            item, mark = self._value(event, _at(event), depth + 1)
            value.append(item)
            marks.append(mark)
        return value, marks

    def _key(self, event: Any) -> str:
        if not isinstance(event, ScalarEvent):
            raise Fault("key", "a key must be a plain word or a quoted string", at=_at(event))
        self._refuse_tag(event)
        text: str = event.value
        if text == "<<" and not event.style:
            raise Fault(
                "merge-key", "merge keys (<<) are not allowed", "write the keys out", at=_at(event)
            )
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(text, 1)
        return text

    def _scalar(self, event: Any) -> Json:
        self._refuse_tag(event)
        text: str = event.value
        value: Json = text if event.style else self._plain(text, event)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, 1)
        return value

    def _plain(self, text: str, event: Any) -> Json:
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in _NUMBER_START:
            return text
        if _INTEGER.match(text):
            if len(text) > _MAX_DIGITS:
                self.faults.append(Fault("number", "number has too many digits", at=_at(event)))
                return 0
            return int(text)
        if _FLOAT.match(text):
            number = float(text)
            if math.isinf(number):
                self.faults.append(
                    Fault("number", f"number {text[:20]!r} is too large", at=_at(event))
                )
                return 0.0
            return number
        return text

    def _alias(self, event: Any) -> Json:
        found = self._anchors.get(event.anchor)
        if found is None:
            raise Fault("alias", f"alias *{event.anchor} names nothing above it", at=_at(event))
        self._nodes += found.nodes
        if self._nodes > self._limits.nodes:
            raise Fault(
                "alias-budget",
                f"aliases expand to more than {self._limits.nodes:,} values",
                "write the values out",
                at=_at(event),
            )
        return found.value

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            raise Fault(
                "tag", f"tag {event.tag!r} is not allowed", "write the plain value", at=_at(event)
            )


def _at(event: Any) -> tuple[int, int]:
    mark = event.start_mark
    return mark.line, mark.column


def _syntax(error: yaml.YAMLError, text: str = "") -> Fault:
    if isinstance(error, yaml.reader.ReaderError):
        code = error.character if isinstance(error.character, int) else ord(error.character)
        message = f"character U+{code:04X} is not allowed in YAML"
        return Fault(
            "syntax",
            message,
            "write it as an escape in double quotes",
            at=place(text, error.position),
        )
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    at = (mark.line, mark.column) if mark is not None else (0, 0)
    problem = getattr(error, "problem", None) or str(error)
    hint = ""
    if "'\\t'" in problem or "tab character" in problem or "cannot start any token" in problem:
        hint = "indent with spaces; quote text that starts with a tab, @, ` or %"
    elif "mapping values are not allowed" in problem:
        hint = "quote a text that contains ': '"
    elif "could not find expected ':'" in problem:
        hint = "a key needs ': ' and a value; long texts go after '>-' or '|'"
    return Fault("syntax", f"not valid YAML: {problem}", hint, at=at)
