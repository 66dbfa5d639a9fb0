"""OpenTelemetry spans of model calls, read as cases of a dataset.

The file is OTLP JSON, as the file exporter of a collector writes it: one document, or one for each
line. Spans and log records of one call belong together. Messages are read from the attributes
`gen_ai.input.messages` and `gen_ai.output.messages` of the GenAI conventions, from the older
`gen_ai.prompt` and `gen_ai.completion`, and from events such as `gen_ai.user.message`.

Texts of production are hostile and private: control characters are removed, secrets are masked, and
personal data is redacted before a text is shown or written.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.config.rows import MAX_ROW_BYTES
from edison_ci.documents.decoding import decode
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault, Json
from edison_ci.documents.secrets import redacted
from edison_ci.errors import Location, UsageError
from edison_ci.records import canonical_json
from edison_ci.safety.names import PII_KINDS
from edison_ci.safety.pii import redact_pii
from edison_ci.sanitize import json_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.records import Case

MAX_BYTES = 100_000_000
_OPERATIONS = frozenset({"chat", "generate_content", "text_completion", None})
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "tool": "tool",
}
_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_INDEXED = re.compile(r"gen_ai\.(prompt|completion)\.([0-9]{1,4})\.(role|content)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_PLAIN = ("message", "text", "input_text", "output_text", None)
_SECRET = "secret"
_TRACE_ID = re.compile(r"[0-9A-Za-z+/=]{1,64}")
_LONGEST_NAME = 200
_MOST_CHARACTERS = MAX_ROW_BYTES // 8
"""A row of a dataset is limited in bytes, and a character takes up to six of them."""
_MOST_TOKENS = 10**9
_HINT = (
    "the application must record contents: "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true for most libraries"
)


class Message(NamedTuple):
    """A message of a call."""

    role: str
    text: str


@dataclass(slots=True)
class _Call:
    """What the spans and log records of one call say."""

    trace_id: Json = None
    nanoseconds: Json = None
    ended: Json = None
    attributes: dict[str, Json] = field(default_factory=dict)
    events: list[tuple[str, dict[str, Json]]] = field(default_factory=list)


@dataclass(slots=True)
class TracedCases:
    """The cases of a file of traces, and what was left out or masked."""

    calls: int = 0
    """Calls of models in the file."""
    empty: int = 0
    """Calls without the text of a user, most often because contents were not recorded."""
    too_large: int = 0
    duplicates: int = 0
    """Cases that are in the file or in the dataset already."""
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The cases by id."""
    masked: dict[str, Counter[str]] = field(default_factory=dict)
    """What was masked in each case: personal data by kind, and secrets."""

    @property
    def personal(self) -> dict[str, int]:
        """Redacted personal data of the cases, by kind."""
        return {kind: number for kind in PII_KINDS if (number := self._count(kind))}

    @property
    def secrets(self) -> int:
        """Texts of the cases with a masked secret."""
        return self._count(_SECRET)

    def _count(self, what: str) -> int:
        return sum(self.masked[key][what] for key in self.rows)

    def text(self) -> str:
        """Return the cases as lines of a dataset."""
        return "".join(f"{json_text(row, indent=None)}\n" for row in self.rows.values())


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How calls become cases."""

    name: str = "message"
    """Input that gets the last message of the user."""
    expected: bool = False
    """Whether the answer becomes the expected output."""
    redact: bool = True
    """Whether personal data is redacted."""


def read_traces(data: bytes, file: str, options: TraceOptions) -> TracedCases:
    """Return the calls of a file as cases; raises UsageError with the line."""
    cases = TracedCases()
    for call in _calls(data, file):
        _add_case(cases, call, options)
    if not cases.calls:
        hint = "spans need attributes of the GenAI conventions, such as gen_ai.request.model"
        raise UsageError("there is no call of a model in it", where=Location(file), hint=hint)
    if not cases.rows and not cases.too_large:
        message = f"no message of a user is recorded in its {cases.calls:,} calls"
        raise UsageError(message, where=Location(file), hint=_HINT)
    return cases


def read_calls(data: bytes, file: str, options: TraceOptions) -> Iterator[dict[str, Any]]:
    """Yield each call with an answer, as a case with `expected` and `latency_ms`."""
    for call in _calls(data, file):
        cases = TracedCases()
        _add_case(cases, call, options)
        for row in cases.rows.values():
            if "expected" in row:
                begun, ended = _integer(call.nanoseconds), _integer(call.ended)
                took = ended - begun if begun and ended and ended > begun else None
                yield {**row, "latency_ms": None if took is None else took / 1e6}


def _calls(data: bytes, file: str) -> Iterator[_Call]:
    """Yield the calls of models in a file; raises UsageError with the line."""
    calls: dict[tuple[str, str], _Call] = {}
    for value, where in _documents(data, file):
        if not is_traces(value):
            message = "this is not OTLP JSON: it has neither resourceSpans nor resourceLogs"
            raise UsageError(message, where=where, hint="export traces with the OTLP file exporter")
        _collect(value, calls)
    for call in calls.values():
        if _string(call.attributes.get("gen_ai.operation.name")) in _OPERATIONS:
            yield call


def is_traces(value: Json) -> TypeGuard[dict[str, Json]]:
    """Whether a document is OTLP JSON."""
    return isinstance(value, dict) and bool(value.keys() & {"resourceSpans", "resourceLogs"})


def without_known(cases: TracedCases, stored: Iterable[Case]) -> TracedCases:
    """Leave out the cases that a dataset has already, by their input or id; return the rest."""
    inputs = {input_id(row["input"]): key for key, row in cases.rows.items()}
    for case in stored:
        for key in {str(case.id), inputs.get(input_id(dict(case.inputs)), "")}:
            if cases.rows.pop(key, None) is not None:
                cases.duplicates += 1
    return cases


def appended(before: bytes, cases: TracedCases) -> bytes:
    """Return the content of a dataset with the cases added at its end."""
    newline = b"\n" if before and not before.endswith(b"\n") else b""
    return before + newline + cases.text().encode()


def _documents(data: bytes, file: str) -> Iterator[tuple[Json, Location]]:
    """Yield the documents: those of the lines, or that of the whole file."""
    try:
        text = decode(data)
        first, _, rest = text.partition("\n")
        try:
            value = parse_json(first)
        except Fault:
            yield parse_json(text), Location(file)  # one document on several lines
            return
        yield value, Location(file, 1)
    except Fault as fault:
        where = Location(file, fault.at[0] + 1, fault.at[1] + 1)
        raise UsageError(fault.message, where=where, hint=fault.hint) from None
    for number, line in enumerate(rest.split("\n"), 2):
        if not line.strip():
            continue
        try:
            yield parse_json(line), Location(file, number)
        except Fault as fault:
            where = Location(file, number, fault.at[1] + 1)
            raise UsageError(fault.message, where=where, hint=fault.hint) from None


def _collect(document: dict[str, Json], calls: dict[tuple[str, str], _Call]) -> None:
    """Add the spans and log records of a document to their calls."""
    for resource in _dicts(document.get("resourceSpans")):
        for scope in _dicts(resource.get("scopeSpans")):
            for span in _dicts(scope.get("spans")):
                call = _call_of(span, calls)
                call.attributes |= _attributes(span)
                call.nanoseconds = span.get("startTimeUnixNano")
                call.ended = span.get("endTimeUnixNano")
                for event in _dicts(span.get("events")):
                    call.events.append((_string(event.get("name")) or "", _attributes(event)))
    for resource in _dicts(document.get("resourceLogs")):
        for scope in _dicts(resource.get("scopeLogs")):
            for record in _dicts(scope.get("logRecords")):
                values, body = _attributes(record), _value(record.get("body"))
                name = _string(record.get("eventName")) or _string(values.get("event.name")) or ""
                if name.startswith("gen_ai."):
                    call = _call_of(record, calls)
                    call.nanoseconds = call.nanoseconds or record.get("timeUnixNano")
                    content = body if isinstance(body, dict) else {"content": body}
                    call.events.append((name, {**values, **content}))


def _call_of(record: dict[str, Json], calls: dict[tuple[str, str], _Call]) -> _Call:
    trace, span = _string(record.get("traceId")), _string(record.get("spanId"))
    # Without ids, nothing can belong to the same call.
    key = (trace, span) if trace and span else ("", str(len(calls)))
    return calls.setdefault(key, _Call(trace))


def _attributes(record: dict[str, Json]) -> dict[str, Json]:
    return {
        key: _value(attribute.get("value"))
        for attribute in _dicts(record.get("attributes"))
        if (key := _string(attribute.get("key"))) is not None
    }


def _value(value: Json) -> Json:
    """Return the value of an OTLP attribute; the depth of the file limits the recursion."""
    if not isinstance(value, dict):
        return None
    if isinstance(items := value.get("arrayValue"), dict):
        return [_value(item) for item in _dicts(items.get("values"))]
    if isinstance(items := value.get("kvlistValue"), dict):
        return _attributes({"attributes": items.get("values")})
    return next((v for v in value.values() if isinstance(v, str | int | float)), None)


def _dicts(value: Json) -> list[dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _string(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _input(call: _Call) -> list[Message]:
    """Return the messages that were sent: those of the newest convention that is recorded."""
    every = [call.attributes, *(values for _, values in call.events)]
    for key in ("gen_ai.input.messages", "gen_ai.prompt"):
        for values in every:
            if messages := messages_of(values.get(key), "user"):
                start = messages_of(values.get("gen_ai.system_instructions"), "system")
                return [*start, *messages]
        if key == "gen_ai.input.messages" and (indexed := _indexed(call, "prompt")):
            return indexed
    return [
        message
        for name, values in call.events
        if (named := _EVENT.fullmatch(name))
        for message in messages_of([{"role": named[1], **_content(values)}], named[1])
    ]


def _answer(call: _Call) -> str:
    """Return the text of the answer; empty if it has none."""
    every = [call.attributes, *(values for _, values in call.events)]
    for key in ("gen_ai.output.messages", "gen_ai.completion"):
        for values in every:
            if messages := messages_of(values.get(key), "assistant", marks=False):
                return messages[0].text
        if key == "gen_ai.output.messages" and (indexed := _indexed(call, "completion")):
            return indexed[0].text
    for name, values in call.events:
        if name == "gen_ai.choice":
            content = _content(values)
            message = _parsed(content.get("message", content))
            if messages := messages_of([message], "assistant", marks=False):
                return messages[0].text
    return ""


def _content(values: dict[str, Json]) -> dict[str, Json]:
    """Return the content of an event; some libraries write it as JSON into one attribute."""
    content = _parsed(values.get("gen_ai.event.content"))
    return content if isinstance(content, dict) else values


def _indexed(call: _Call, what: str) -> list[Message]:
    """Return the messages of attributes such as `gen_ai.prompt.0.content`."""
    by_index: dict[int, dict[str, Json]] = {}
    for key, value in call.attributes.items():
        if (named := _INDEXED.fullmatch(key)) and named[1] == what:
            by_index.setdefault(int(named[2]), {})[named[3]] = _parsed(value)
    role = "user" if what == "prompt" else "assistant"
    return messages_of([by_index[index] for index in sorted(by_index)], role)


def messages_of(value: Json, role: str, *, marks: bool = True) -> list[Message]:
    """Return a list of messages, or of the parts of one; a text is one message.

    With `marks`, parts without a text are named, such as `[tool_call]`.
    """
    value = _parsed(value)
    if isinstance(value, dict):
        nested = value.get("messages")
        value = nested if isinstance(nested, list) else [value]
    items = value if isinstance(value, list) else [value]
    messages = []
    for item in items:
        named = item.get("role", role) if isinstance(item, dict) else role
        known_role = _ROLES.get(named) if isinstance(named, str) else None
        text = _text(item, marks=marks)
        if known_role and text.strip():
            messages.append(Message(known_role, text))
    return messages


class Conversation(NamedTuple):
    """The messages of a call, as inputs of a case."""

    message: str
    """The last one of the user; what follows it is left out."""
    system: str
    history: list[Message]


def conversation(messages: list[Message]) -> Conversation | None:
    """Return the last message of the user with what came before; None if there is none."""
    asked = max((i for i, message in enumerate(messages) if message.role == "user"), default=None)
    if asked is None:
        return None
    system = "\n\n".join(message.text for message in messages if message.role == "system")
    history = [message for message in messages[:asked] if message.role != "system"]
    return Conversation(messages[asked].text, system, history)


def _parsed(value: Json) -> Json:
    """Return the value of a JSON text; another text stays as it is."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            return parse_json(value)
        except Fault:
            return value
    return value


def _text(item: Json, *, marks: bool) -> str:
    """Return the text of a message or a part of it."""
    if isinstance(item, str):
        return item
    if not isinstance(item, dict):
        return ""
    parts = item.get("parts", item.get("content", item.get("text")))
    kind = item.get("type")
    if kind not in _PLAIN:
        return f"[{kind}]"[:_LONGEST_NAME] if marks and isinstance(kind, str) else ""
    if isinstance(parts, list):
        return "\n".join(filter(None, (_text(part, marks=marks) for part in parts)))
    return parts if isinstance(parts, str) else ""


def _add_case(cases: TracedCases, call: _Call, options: TraceOptions) -> None:
    """Add the case of a call, unless it says nothing or is known."""
    messages, answer = _input(call), _answer(call) if options.expected else ""
    if not messages and not any(key.startswith("gen_ai.") for key in call.attributes):
        return
    cases.calls += 1
    spoken = conversation(messages)
    if spoken is None:
        cases.empty += 1
        return
    if sum(len(message.text) for message in messages) + len(answer) > _MOST_CHARACTERS:
        cases.too_large += 1
        return
    screen = _Screen(options)
    inputs: dict[str, Json] = {options.name: screen.clean(spoken.message)}
    if spoken.system:
        inputs["system"] = screen.clean(spoken.system)
    if spoken.history:
        inputs["history"] = [
            {"role": message.role, "content": screen.clean(message.text)}
            for message in spoken.history
        ]
    key = input_id(inputs)
    row: dict[str, Any] = {"id": key, "input": inputs, "metadata": _metadata(call)}
    stored = cases.rows.setdefault(key, row)
    if answer and "expected" not in stored:  # an agent asks several times before it answers
        stored["expected"] = screen.clean(answer)
    if stored is row:
        cases.masked[key] = screen.masked
    else:
        cases.duplicates += 1


def input_id(inputs: dict[str, Json]) -> str:
    """Return an id that depends on the input only, so that a case is recognised again."""
    digest = hashlib.sha256(canonical_json(inputs).encode("utf-8", "surrogatepass"))
    return f"trace-{digest.hexdigest()[:16]}"


def _metadata(call: _Call) -> dict[str, Json]:
    """Return what is known of a call besides its texts."""
    values, metadata = call.attributes, dict[str, Json]()
    model = values.get("gen_ai.request.model") or values.get("gen_ai.response.model")
    if isinstance(model, str):
        metadata["model"] = redacted(_CONTROL.sub("", model))[:_LONGEST_NAME]
    if isinstance(call.trace_id, str) and _TRACE_ID.fullmatch(call.trace_id):
        metadata["trace_id"] = call.trace_id
    if time := _time(call.nanoseconds):
        metadata["time"] = time
    for name, keys in (
        ("tokens_in", ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")),
        ("tokens_out", ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")),
    ):
        tokens = next((t for key in keys if (t := _integer(values.get(key))) is not None), None)
        if tokens is not None and tokens <= _MOST_TOKENS:
            metadata[name] = tokens
    return metadata


def _integer(value: Json) -> int | None:
    """Return a whole number, which OTLP JSON writes as a text."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value):
        return int(value)
    return value if type(value) is int and value >= 0 else None


def _time(nanoseconds: Json) -> str | None:
    count = _integer(nanoseconds)
    try:
        return utc.timestamp(dt.datetime.fromtimestamp(count / 1e9, dt.UTC)) if count else None
    except (ValueError, OverflowError, OSError):
        return None


def clean_text(text: str, options: TraceOptions) -> str:
    """Return a text without control characters, secrets and personal data."""
    return _Screen(options).clean(text)


def clean_inputs(inputs: dict[str, Json], options: TraceOptions) -> dict[str, Json]:
    """Return inputs whose texts are clean, at any depth."""

    def cleaned(value: Json) -> Json:
        if isinstance(value, str):
            return clean_text(value, options)
        if isinstance(value, list):
            return [cleaned(item) for item in value]
        if isinstance(value, dict):
            return {str(key): cleaned(item) for key, item in value.items()}
        return value

    return {str(key): cleaned(value) for key, value in inputs.items()}


class _Screen:
    """Cleans the texts of one case, and counts what it masked."""

    def __init__(self, options: TraceOptions) -> None:
        self._options, self.masked = options, Counter[str]()

    def clean(self, text: str) -> str:
        """Return a text without control characters, secrets and personal data."""
        plain = _CONTROL.sub("", text)
        safe = redacted(plain)
        self.masked[_SECRET] += safe != plain
        if not self._options.redact:
            return safe
        clean = redact_pii(safe)
        for kind in PII_KINDS:
            mark = f"[{kind.upper()}]"
            self.masked[kind] += clean.count(mark) - safe.count(mark)
        return clean
