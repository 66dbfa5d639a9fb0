"""Recordings: the answers of a run in a file, and their replay without key and network.

A recording is JSONL: a first line with its format, then one canonical line for each answer, sorted
by request hash. It contains neither prompts nor headers. A call that is not in the recording has no
answer, which is not an error of a model.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from edison_ci.contracts import ErrorKind, NotAsked
from edison_ci.documents.decoding import text_lines
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import hidden
from edison_ci.errors import Location, StoreError, UsageError
from edison_ci.records import Completion, FinishReason, canonical_json
from edison_ci.store.answers import answers_of_run, text_hash

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from edison_ci.documents.files import Tree
    from edison_ci.records import Json, Request


FIRST_LINE = '{"edison_recording": 1}'
MAX_BYTES = 1_000_000_000
MAX_LINE_BYTES = 25_000_000
_HINT = "create it again with: edison run --record PATH"
_COUNTS = ("answer_no", "latency_ms", "cost_microusd")


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One answer of a recording."""

    request_hash: str
    answer_no: int
    text: str
    tool_calls: Json
    finish_reason: str
    tokens_in: int | None
    tokens_out: int | None
    latency_ms: int
    served_model: str
    cost_microusd: int

    @property
    def line(self) -> str:
        """Its line in a recording."""
        return canonical_json(asdict(self))

    @property
    def completion(self) -> Completion:
        """The answer as a completion."""
        return Completion(
            text=self.text,
            finish_reason=FinishReason(self.finish_reason),
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            latency_ms=self.latency_ms,
            served_model=self.served_model,
            tool_calls=self.tool_calls,
        )


_KEYS = frozenset(RecordedAnswer.__slots__)


def refuse_unwritable(path: Path) -> None:
    """Raise UsageError if a recording cannot be written to a path, before calls are paid for."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(
            f"no recording can be written to {path}",
            hint="name a file in an existing folder",
        )
    if not os.access(path.absolute().parent, os.W_OK):
        raise UsageError(
            f"the folder {path.absolute().parent} is not writable", hint="choose another path"
        )


def write_recording(path: Path, lines: Iterable[str]) -> int:
    """Write answers, each as its line, to a file atomically; return their number."""
    count = 0
    with _atomic_writer(path) as stream:
        stream.write(f"{FIRST_LINE}\n".encode())
        for line in lines:
            stream.write(f"{hidden(line)}\n".encode())
            count += 1
    return count


def run_answers(connection: sqlite3.Connection, run_id: str) -> Iterator[RecordedAnswer]:
    """Yield the answers that the cells of a run refer to, and others that it bought."""
    for *values, checksum in answers_of_run(connection, run_id):
        if checksum != text_hash(values[2], values[3]):
            message = f"the stored answer {values[0][:12]} is damaged: its checksum does not match"
            raise StoreError(message, hint="run: edison admin db check")
        values[3] = json.loads(values[3]) if values[3] else None
        yield RecordedAnswer(*values)


@contextlib.contextmanager
def _atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when it is completely written."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_recording(stream: BinaryIO, name: str) -> Iterator[RecordedAnswer]:
    """Yield the answers of a recording; raises UsageError with the line."""
    read, number = 0, 0
    for number, line in enumerate(text_lines(stream, longest=MAX_LINE_BYTES), start=1):
        where = Location(name, number)
        if isinstance(line, Fault):
            raise UsageError(line.message, where=where, hint=line.hint or _HINT)
        read += len(line)
        if read > MAX_BYTES:
            raise UsageError("the recording is larger than 1 GB", where=where, hint=_HINT)
        value = _parse_line(line, where)
        if number > 1:
            yield _read_answer(value, where)
        elif value != {"edison_recording": 1}:
            raise UsageError(
                f"this is not a recording: it must start with {FIRST_LINE}",
                where=where,
                hint=_HINT,
            )
    if number == 0:
        raise UsageError("the recording is empty", where=Location(name), hint=_HINT)


def _parse_line(line: str, where: Location) -> dict[str, Json]:
    try:
        value = parse_json(line)
    except Fault as fault:
        raise UsageError(fault.message, where=where, hint=fault.hint or _HINT) from None
    if not isinstance(value, dict):
        raise UsageError("the line is not a JSON object", where=where, hint=_HINT)
    return value


def _read_answer(value: dict[str, Json], where: Location) -> RecordedAnswer:
    for what, keys in (("lacks", _KEYS - value.keys()), ("has an unknown", value.keys() - _KEYS)):
        if keys:
            raise UsageError(f"the answer {what} {min(keys)!r}", where=where, hint=_HINT)
    wrong = next((key for key in value if not _fits(key, value[key])), None)
    if wrong is not None:
        raise UsageError(f"{wrong!r} of the answer is not valid", where=where, hint=_HINT)
    return RecordedAnswer(**value)  # type: ignore[arg-type]  # each value fits its key


def _fits(key: str, value: Json) -> bool:
    """Whether a value is valid for a key."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if key in _COUNTS:
        return whole
    if key in ("tokens_in", "tokens_out"):
        return whole or value is None
    if key == "tool_calls":
        return value is None or isinstance(value, list)
    if key == "finish_reason":
        return value in list(FinishReason)
    return isinstance(value, str)


_RECORDED_AS = (
    ("openai", "https://api.openai.com/v1"),
    ("openai", "https://api.openai.com/v1 responses"),
    ("anthropic", "https://api.anthropic.com"),
    ("ollama", "http://localhost:11434/v1"),
    ("litellm", ""),
    ("sim", ""),
    ("local", ""),
)
"""Providers at default addresses, without options. Answers of others can be replayed by `--replay`
only."""


class MissingRecording(NotAsked):
    """The recording or imported file has no answer to this request; its cell is skipped."""

    def __init__(self, request_hash: str, message: str = "") -> None:
        message = message or f"the recording has no answer to request {request_hash[:12]}"
        super().__init__(ErrorKind.BAD_RESPONSE, message, charged=False)
        self.request_hash = request_hash


class ReplayProvider:
    """Answers from a recording, with the newest answer to each request hash."""

    recorded: ClassVar[bool] = True
    """Whether it answers without asking a model."""

    def __init__(self, answers: Iterable[RecordedAnswer]) -> None:
        self._answers: dict[str, RecordedAnswer] = {}
        for answer in answers:
            earlier = self._answers.get(answer.request_hash)
            if earlier is None or earlier.answer_no <= answer.answer_no:
                self._answers[answer.request_hash] = answer

    def __len__(self) -> int:
        return len(self._answers)

    async def complete(self, request: Request) -> Completion:
        """Return the recorded answer; raises MissingRecording."""
        answer = self.find(request)
        if answer is None:
            raise MissingRecording(request.request_hash)
        return answer.completion

    def find(self, request: Request) -> RecordedAnswer | None:
        """Return the recorded answer to a request, with its cost; None if there is none."""
        recorded = self._answers.get(request.request_hash)
        if recorded is None and request.provider == "replay":
            others = (
                self._answers.get(request_hash) for request_hash in _other_request_hashes(request)
            )
            recorded = next((answer for answer in others if answer is not None), None)
        return recorded


def _other_request_hashes(request: Request) -> Iterator[str]:
    """Yield the hashes of the same request to other providers."""
    for provider, endpoint in _RECORDED_AS:
        yield replace(request, provider=provider, endpoint=endpoint).request_hash


def open_recording(path: Path) -> ReplayProvider:
    """Return the replay of a recording anywhere on this machine."""
    try:
        with path.open("rb") as stream:
            return ReplayProvider(read_recording(stream, str(path)))
    except OSError as error:
        hint = "create one with: edison run --record FILE"
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from None


def open_replay(path: str, tree: Tree) -> ReplayProvider:
    """Return the replay of a recording in the project; raises UsageError with file and line."""
    return ReplayProvider(read_project_recording(path, tree))


def read_project_recording(path: str, tree: Tree) -> Iterator[RecordedAnswer]:
    """Yield the answers of a recording in the project; raises UsageError with file and line."""
    try:
        with tree.open(path, max_bytes=MAX_BYTES) as stream:
            yield from read_recording(stream, path)
    except Fault as fault:
        raise UsageError(fault.message, where=Location(path), hint=fault.hint) from None
