"""Recordings: the answers of a run in a file, for runs without a key.

A recording is JSONL: a first line that says what it is, then one canonical line for each answer,
sorted by address. It holds neither prompts nor headers.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from edison_ci.documents.decoding import text_lines
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import hidden
from edison_ci.errors import Location, StoreError, UsageError
from edison_ci.records import Completion, FinishReason, canonical_json
from edison_ci.store.answers import answers_of_run, text_hash

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from edison_ci.records import Json

FIRST_LINE = '{"edison_recording": 1}'
MAX_BYTES = 1_000_000_000
MAX_LINE_BYTES = 25_000_000
_HINT = "make it again with: edison run --record PATH"
_COUNTS = ("take", "latency_ms", "cost_microusd")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer of a recording."""

    address: str
    take: int
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
        """Its one line in a recording."""
        return canonical_json(asdict(self))

    @property
    def completion(self) -> Completion:
        """The answer as a call returned it."""
        return Completion(
            text=self.text,
            finish_reason=FinishReason(self.finish_reason),
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            latency_ms=self.latency_ms,
            served_model=self.served_model,
            tool_calls=self.tool_calls,
        )


_KEYS = frozenset(Recorded.__slots__)


# --- writing --------------------------------------------------------------------------------------


def refuse_unwritable(path: Path) -> None:
    """Refuse a place where no recording could be written, before anything is paid for."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"no recording can be written to {path}", hint="is there such a folder?")
    if not os.access(path.absolute().parent, os.W_OK):
        raise UsageError(f"{path.absolute().parent} cannot be written", hint="write it elsewhere")


def write_recording(connection: sqlite3.Connection, run_id: str, path: Path) -> int:
    """Write the answers of a run to a file, all or nothing, and return how many there are."""
    count = 0
    with _replacing(path) as stream:
        stream.write(f"{FIRST_LINE}\n".encode())
        for answer in answers_of(connection, run_id):
            stream.write(f"{hidden(answer.line)}\n".encode())
            count += 1
    return count


def answers_of(connection: sqlite3.Connection, run_id: str) -> Iterator[Recorded]:
    """Yield the answers that the cells of a run point to, and those it bought besides."""
    for *values, checksum in answers_of_run(connection, run_id):
        if checksum != text_hash(values[2], values[3]):
            message = f"the stored answer {values[0][:12]} is not what it was when it was stored"
            raise StoreError(message, hint="run: edison db check")
        values[3] = json.loads(values[3]) if values[3] else None
        yield Recorded(*values)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of another when all of it is on the disk."""
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


# --- reading --------------------------------------------------------------------------------------


def read_recording(stream: BinaryIO, name: str) -> Iterator[Recorded]:
    """Yield the answers of a recording; raises UsageError naming the line that is wrong."""
    read, number = 0, 0
    for number, line in enumerate(text_lines(stream, longest=MAX_LINE_BYTES), start=1):
        where = Location(name, number)
        if isinstance(line, Fault):
            raise UsageError(line.message, where=where, hint=line.hint or _HINT)
        read += len(line)
        if read > MAX_BYTES:
            raise UsageError("the recording is larger than 1 GB", where=where, hint=_HINT)
        value = _parsed(line, where)
        if number > 1:
            yield _recorded(value, where)
        elif value != {"edison_recording": 1}:
            raise UsageError(f"a recording starts with {FIRST_LINE}", where=where, hint=_HINT)
    if number == 0:
        raise UsageError("the recording is empty", where=Location(name), hint=_HINT)


def _parsed(line: str, where: Location) -> dict[str, Json]:
    try:
        value = parse_json(line)
    except Fault as fault:
        raise UsageError(fault.message, where=where, hint=fault.hint or _HINT) from None
    if not isinstance(value, dict):
        raise UsageError("a line of a recording is an object", where=where, hint=_HINT)
    return value


def _recorded(value: dict[str, Json], where: Location) -> Recorded:
    for what, keys in (("lacks", _KEYS - value.keys()), ("has an unknown", value.keys() - _KEYS)):
        if keys:
            raise UsageError(f"the answer {what} {min(keys)!r}", where=where, hint=_HINT)
    wrong = next((key for key in value if not _fits(key, value[key])), None)
    if wrong is not None:
        raise UsageError(
            f"{wrong!r} of the answer is not what it should be", where=where, hint=_HINT
        )
    return Recorded(**value)  # type: ignore[arg-type]  # each value fits its key


def _fits(key: str, value: Json) -> bool:
    """Whether a value can stand under a key."""
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
