"""YAML texts read as values with line and column.

YAML is read like JSON with comments: scalars resolve as in JSON, so `no`, `010`, `1:30` and dates
are strings; one document; no tags, no merge keys, no duplicate keys; aliases within a limit. Values
are built from the events of the C parser, so that depth, size and alias expansion are bounded while
reading.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

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

from edison_ci._dataclass import dataclass
from edison_ci.documents.decoding import TextBlocks, decode, place, refused_character
from edison_ci.documents.marks import Document, Fault, Json, Mark, duplicate_key
from edison_ci.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# The parser reports where it stops. An unclosed quote or bracket has to be fixed where it opens,
# often many lines above.
Place = tuple[int, int]

_NO_TOKEN = "cannot start any token"
_HINTS = {
    "'\\t'": "indent with spaces, not with tabs",
    "tab character": "indent with spaces, not with tabs",
    _NO_TOKEN: "quote a text that starts with @, ` or %",
    "mapping values are not allowed": "check the indentation; quote a text that contains ': '",
    "could not find expected ':'": "a key needs ': ' and a value; long texts go after '>-' or '|'",
    "did not find expected key": (
        "keys of one map start in the same column; text after a quoted value is not part of it"
    ),
    "did not find expected '-'": "entries of one list start with '- ' in the same column",
    "did not find expected node content": "a value is missing here",
    "did not find expected ','": "separate with ',' and close each bracket with its own kind",
    "unknown escape character": "write a backslash as \\\\, or use single quotes",
}
_QUOTE = "quote a text that has special characters"
_CLOSING = {
    "quote": "end the text with a quote",
    "[": "separate with ',', end with ']'",
    "{": "separate with ',', end with '}'",
}
_CONTEXTS = {
    "while scanning a quoted scalar": "quote",
    "while parsing a quoted scalar": "quote",
    "while parsing a flow sequence": "[",
    "while parsing a flow mapping": "{",
}


@dataclass(slots=True)
class ParseProgress:
    """What was read before the parser failed."""

    root: Place | None = None
    opened: list[tuple[Place, str]] = field(default_factory=list)
    """Open lists and maps, with their opening bracket, if any."""
    quoted: Place = (0, 0)
    """Start of the last quoted text of several lines."""
    quote_end: int = -1


def syntax_fault(error: Any, end: Place, first_line: int, seen: ParseProgress) -> Fault:
    """Return the error of the parser, at the position where it has to be fixed."""
    problem = str(getattr(error, "problem", None) or error)
    context = getattr(error, "context", None)
    at = _mark(error, "problem_mark", end)
    at_end = at == end and first_line == 1  # front matter ends before the file
    line = "the end of the file" if at_end else f"line {at[0] + first_line}"
    opened, what = _unclosed(error, problem, at, seen)
    if what and (opened[0] != at[0] or at == end):
        problem, hint = f"this {what} is not closed by {line}", _CLOSING[what]
        at = opened
    elif "<document start>" in problem and seen.root is not None:
        problem, at = f"the value that starts here ends before {line}", seen.root
        hint = "keys of one map start in the same column; a key needs ': '"
    else:
        if context == "while scanning a simple key":
            at = _mark(error, "context_mark", at)
        hint = next((hint for part, hint in _HINTS.items() if part in problem), _QUOTE)
    return Fault("syntax", f"not valid YAML: {problem}", hint, at=at)


def _unclosed(error: Any, problem: str, at: Place, seen: ParseProgress) -> tuple[Place, str]:
    """Return the quote or bracket that is probably not closed, if any."""
    context = getattr(error, "context", None)
    if context in _CONTEXTS:
        return _mark(error, "context_mark", at), _CONTEXTS[context]
    if "node content" in problem and seen.opened:
        return seen.opened[-1]
    if problem.startswith("did not find expected") and seen.quote_end == at[0]:
        return seen.quoted, "quote"
    return at, ""


def _mark(error: Any, name: str, otherwise: Place) -> Place:
    """Return a position of the parser, which counts one line too many at the end."""
    mark = getattr(error, name, None)
    return min((mark.line, mark.column), otherwise) if mark is not None else otherwise


try:
    from yaml import CSafeLoader as _Parser
except ImportError:  # PyYAML built without libyaml: same events, ten times slower
    from yaml import SafeLoader as _Parser  # type: ignore[assignment]

_NUMBER_START = frozenset("-0123456789")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_CONSTANTS: dict[str, Json] = {"": None, "~": None, "null": None, "true": True, "false": False}
_MAX_DIGITS = 400
_MAX_FAULTS = 100

# Characters that YAML forbids, and line ends that only YAML knows: editors and reviews show them
# inside a line, so that a key could hide behind one, and later line numbers would be wrong. A
# negated set of the allowed characters would be equivalent, but takes ten times as long to compile.
_REFUSED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]|\r(?!\n)"
)


class YamlLimits(NamedTuple):
    """Limits of reading."""

    depth: int = 50
    nodes: int = 50_000
    """Maximum values in the document, including those repeated by aliases."""
    repeated: int = 1_000_000
    """Maximum characters and values that all aliases together may repeat."""
    merge: bool = False
    """Whether merge keys (<<) are supported, for files of other tools."""


def read_yaml(
    data: bytes | str, file: str, *, first_line: int = 1, limits: YamlLimits | None = None
) -> Document:
    """Return the document with its recoverable problems; raises Fault for others."""
    text = decode(data) if isinstance(data, bytes) else data
    if refused := _REFUSED.search(text):
        raise refused_character(refused.group(), place(text, refused.start()))
    builder = _Builder(_Source(text, place(text, len(text))), limits or YamlLimits(), first_line)
    value, mark = builder.document()
    document = Document(file, value, mark, first_line)
    document.problems.extend(_placed(document, fault) for fault in builder.faults)
    return document


@cache
def read_beside(module: str, name: str) -> Any:
    """Return the data of a YAML file beside a module of this package, given by its `__file__`."""
    return read_yaml((Path(module).parent / name).read_bytes(), name).value


class YamlItem(NamedTuple):
    """One entry of a top-level list with its position and faults."""

    value: Json
    mark: Mark
    faults: list[Fault]


def stream_yaml_list(stream: BinaryIO, *, limits: YamlLimits | None = None) -> Iterator[YamlItem]:
    """Yield the entries of a top-level list one by one, each within the limits."""
    yield from _Builder(TextBlocks(stream, _REFUSED), limits or YamlLimits()).items()


class KeySpan(NamedTuple):
    """Offsets of a key, of its value, and of the end of the value."""

    start: int
    value: int
    end: int


class ItemSpan(NamedTuple):
    """Offsets of an entry of a list, and of its keys if it is a map."""

    start: int
    end: int
    flow: bool
    """Whether it is written in brackets."""
    keys: dict[str, KeySpan]


class ListSpans(NamedTuple):
    """Where the entries of a list are: that of the whole text, or one under a key."""

    flow: bool
    items: list[ItemSpan]
    start: int
    """Offset of the opening bracket, or of the first dash."""
    end: int
    """Offset of the closing bracket of a list in brackets."""
    key_end: int = 0
    """Offset after the key."""


def list_spans(text: str, key: str | None = None) -> ListSpans | None:
    """Return where the entries of a list are in a valid text; None if there is no such list.

    It is the list that the text is, or the one under a top-level key.
    """
    parser: Any = _Parser(text)  # PyYAML's event API has no stubs.
    following, key_end = parser.get_event, 0
    while not isinstance(event := following(), SequenceStartEvent | MappingStartEvent):
        if isinstance(event, StreamEndEvent):
            return None
    if key is not None and isinstance(event, MappingStartEvent):
        while not isinstance(event := following(), MappingEndEvent):
            name, key_end, event = event.value, _span(event)[1], following()
            if name == key:
                break
            _value_end(text, event, following)
    if not isinstance(event, SequenceStartEvent):
        return None
    flow, items, list_start = bool(event.flow_style), list[ItemSpan](), _span(event)[0]
    while not isinstance(event := following(), SequenceEndEvent):
        (start, end), keys = _span(event), dict[str, KeySpan]()
        if not isinstance(event, MappingStartEvent):
            items.append(ItemSpan(start, _value_end(text, event, following), True, keys))
            continue
        in_brackets = bool(event.flow_style)
        while not isinstance(key := following(), MappingEndEvent):
            value = following()
            end = _value_end(text, value, following)
            keys[key.value] = KeySpan(_span(key)[0], _span(value)[0], end)
        end = _span(key)[1] if in_brackets else end
        items.append(ItemSpan(start, end, in_brackets, keys))
    return ListSpans(flow, items, list_start, _span(event)[0], key_end)


def _span(event: Any) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index


def _value_end(text: str, event: Any, following: Callable[[], Any]) -> int:
    """Consume the events of a value; return the offset after its last visible character."""
    start, end = _span(event)
    if not isinstance(event, ScalarEvent | AliasEvent):
        while not isinstance(inner := following(), SequenceEndEvent | MappingEndEvent):
            end = _value_end(text, inner, following)
        end = _span(inner)[1] if event.flow_style else end
    while end > start and text[end - 1] in " \t\r\n":  # of a block scalar
        end -= 1
    return end


def as_yaml(value: Json) -> str:
    """Return a value as JSON that is YAML, too, for a value in brackets or on one line."""
    text = json.dumps(value, ensure_ascii=False)
    return _REFUSED.sub(lambda character: f"\\u{ord(character.group()):04x}", text)


def _placed(document: Document, fault: Fault) -> Problem:
    return Problem(document.at(*fault.at), fault.code, fault.message, fault.hint)


class _Source(NamedTuple):
    """A text that is in memory."""

    text: str
    end: tuple[int, int]


@dataclass(slots=True)
class _Anchor:
    """The value of an anchor, and the size that an alias to it adds."""

    value: Json
    nodes: int = 1
    characters: int = 0
    height: int = 0
    """Levels of lists and maps inside."""


class _Builder:
    """Turns parser events into values and marks."""

    def __init__(
        self, source: _Source | TextBlocks, limits: YamlLimits, first_line: int = 1
    ) -> None:
        self._source, self._limits, self._first_line = source, limits, first_line
        # PyYAML's event API has no stubs.
        self._parser: Any = _Parser(source.text if isinstance(source, _Source) else source)
        self._anchors: dict[str, _Anchor] = {}
        self._nodes = self._characters = self._repeated = self._deepest = 0
        self._seen = ParseProgress()
        self.faults: list[Fault] = []

    def document(self) -> tuple[Json, Mark]:
        self._next()  # stream start
        if isinstance(self._next(), StreamEndEvent):
            return None, Mark(0, 0, 0, 0, None)
        event = self._next()
        self._seen.root = _at(event)
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
            raise Fault("syntax", "the document does not end here", "remove it", at=_at(event))
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
            fault = syntax_fault(error, self._source.end, self._first_line, self._seen)
            raise self._at_tab(fault) from None

    def _at_tab(self, fault: Fault) -> Fault:
        """Return the fault of a character as that of the tab it is, which nobody sees."""
        if not isinstance(self._source, _Source) or _NO_TOKEN not in fault.message:
            return fault
        line = self._source.text.splitlines()[fault.at[0]]
        before = line[: fault.at[1] + 1]
        if "\t" not in before or before.strip():
            return fault
        message = "not valid YAML: a tab is in the indentation of this line"
        hint = "indent with spaces, not with tabs"
        return Fault("syntax", message, hint, at=(fault.at[0], line.index("\t")))

    def _value(self, event: Any, key_at: tuple[int, int], depth: int) -> tuple[Json, Mark]:
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            message = f"more than {self._limits.nodes:,} values"
            raise Fault("size", message, "split or shorten the file", at=_at(event))
        if isinstance(event, ScalarEvent):
            return self._scalar(event), Mark(*_at(event), *key_at, None)
        if isinstance(event, AliasEvent):
            return self._alias(event, depth), Mark(*_at(event), *key_at, None)
        self._refuse_depth(event, depth)
        self._refuse_tag(event)
        if event.anchor is None:
            value, children = self._collection(event, depth)
        else:
            value, children = self._anchored_collection(event, depth)
        return value, Mark(*_at(event), *key_at, children)

    def _collection(
        self, event: Any, depth: int
    ) -> tuple[Json, dict[str, Mark]] | tuple[Json, list[Mark]]:
        opener = "{" if isinstance(event, MappingStartEvent) else "["
        self._seen.opened.append((_at(event), opener if event.flow_style else ""))
        built = self._mapping(depth) if opener == "{" else self._sequence(depth)
        self._seen.opened.pop()
        return built

    def _anchored_collection(
        self, event: Any, depth: int
    ) -> tuple[Json, dict[str, Mark]] | tuple[Json, list[Mark]]:
        """Build a collection and remember the size that an alias to it adds."""
        nodes, characters, deepest = self._nodes, self._characters, self._deepest
        self._deepest = depth
        value, _ = built = self._collection(event, depth)
        self._anchors[event.anchor] = _Anchor(
            value,
            self._nodes - nodes + 1,
            self._characters - characters,
            self._deepest - depth + 1,
        )
        self._deepest = max(deepest, self._deepest)
        return built

    def _mapping(self, depth: int) -> tuple[dict[str, Json], dict[str, Mark]]:
        value: dict[str, Json] = {}
        marks: dict[str, Mark] = {}
        merged: list[tuple[Json, Mark]] = []
        while not isinstance(event := self._next(), MappingEndEvent):
            key, at = self._key(event), _at(event)
            item, mark = self._value(self._next(), at, depth + 1)
            if key == "<<" and not event.style:
                merged.append((item, mark))
                continue
            if key in value:
                first = marks[key]
                self._fault(
                    duplicate_key(key, at, (first.key_line, first.key_column), self._first_line)
                )
                continue
            value[key] = item
            marks[key] = mark
        for item, mark in merged:
            self._merge(item, mark, value, marks)
        return value, marks

    def _merge(
        self, item: Json, mark: Mark, value: dict[str, Json], marks: dict[str, Mark]
    ) -> None:
        """Add the missing keys of one or several maps, at the position of <<."""
        for merged in item if isinstance(item, list) else [item]:
            if not isinstance(merged, dict):
                message = "a merge key (<<) takes a map or a list of maps"
                raise Fault("merge-key", message, "write <<: *NAME", at=(mark.line, mark.column))
            for key in merged.keys() - value.keys():
                marks[key] = Mark(*mark[:4], None)
            value.update((key, held) for key, held in merged.items() if key not in value)

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
            message = "a key must be a plain word or a quoted string"
            raise Fault("key", message, "write KEY: VALUE", at=_at(event))
        self._refuse_tag(event)
        text: str = event.value
        if text == "<<" and not event.style and not self._limits.merge:
            raise Fault(
                "merge-key", "merge keys (<<) are not allowed", "write the keys out", at=_at(event)
            )
        self._text(event, text)
        return text

    def _scalar(self, event: Any) -> Json:
        self._refuse_tag(event)
        text: str = event.value
        value: Json = text if event.style else self._plain(text, event)
        self._text(event, value)
        return value

    def _text(self, event: Any, value: Json) -> None:
        """Count a scalar, and store it if it has an anchor."""
        characters = len(event.value)
        self._characters += characters
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(value, characters=characters)
        if event.style in ("'", '"') and event.end_mark.line > event.start_mark.line:
            self._seen.quoted, self._seen.quote_end = _at(event), event.end_mark.line

    def _plain(self, text: str, event: Any) -> Json:
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in _NUMBER_START:
            return text
        if _INTEGER.match(text):
            if len(text) > _MAX_DIGITS:
                message = "number has too many digits"
                self._fault(Fault("number", message, "quote it if it is a text", at=_at(event)))
                return 0
            return int(text)
        if _FLOAT.match(text):
            number = float(text)
            if math.isinf(number):
                message = f"number {text[:20]!r} is too large"
                self._fault(Fault("number", message, "quote it if it is a text", at=_at(event)))
                return 0.0
            return number
        return text

    def _alias(self, event: Any, depth: int) -> Json:
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            name = event.anchor[:100]
            message = f"alias *{name} has no anchor before it"
            raise Fault("alias", message, "write the value out, or quote a text", at=_at(event))
        self._nodes += anchor.nodes
        self._characters += anchor.characters
        self._repeated += anchor.nodes + anchor.characters
        if self._nodes > self._limits.nodes or self._repeated > self._limits.repeated:
            too_many = self._nodes > self._limits.nodes
            size = (
                f"{self._limits.nodes:,} values"
                if too_many
                else (f"{self._limits.repeated:,} characters")
            )
            raise Fault(
                "alias-budget",
                f"aliases expand to more than {size}",
                "write the values out",
                at=_at(event),
            )
        if anchor.height:
            self._refuse_depth(event, depth + anchor.height - 1)
        return anchor.value

    def _refuse_depth(self, event: Any, depth: int) -> None:
        if depth > self._limits.depth:
            message = f"nested deeper than {self._limits.depth} levels"
            raise Fault("depth", message, "flatten it", at=_at(event))
        self._deepest = max(self._deepest, depth)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            raise Fault(
                "tag",
                f"tag {event.tag[:100]!r} is not allowed",
                "write the plain value",
                at=_at(event),
            )

    def _fault(self, fault: Fault) -> None:
        if len(self.faults) < _MAX_FAULTS:
            self.faults.append(fault)


def _at(event: Any) -> tuple[int, int]:
    mark = event.start_mark
    return mark.line, mark.column
