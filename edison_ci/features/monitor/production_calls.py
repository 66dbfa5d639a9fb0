"""Answers of production, of which a sample is graded.

A file has traces (OTLP JSON), or a row for each answer: `input` (the variables, or the text of the
one that `production.input` names), `text`, and optionally `time`, `model`, `latency_ms`,
`tokens_in`, `tokens_out` and `cost_usd`. Only answers after those that were graded before are read,
so each fire sees new traffic. The sample is chosen by the hash of an answer, not by a person.

Texts of production are hostile and private: they are cleaned as those of traces are.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import utc
from edison_ci.api.traces import (
    MAX_BYTES,
    TraceOptions,
    clean_inputs,
    clean_text,
    input_id,
    is_traces,
    read_calls,
)
from edison_ci.config.case_facts import length_of
from edison_ci.documents import files
from edison_ci.documents.decoding import decode
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import Location, UsageError
from edison_ci.records import Completion, canonical_json, plain_text
from edison_ci.store.answers import Settlement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.config.sections import Production
    from edison_ci.documents.files import Tree
    from edison_ci.records import Json

MODEL = "production"
"""Name of the model of a run with answers of production, whichever models gave them."""
_MOST_FILES = 1_000
_MOST_NUMBER = 10**12


class ProductionCall(NamedTuple):
    """An answer of production."""

    id: str
    """Of its input."""
    inputs: dict[str, Json]
    text: str
    time: str
    """Empty if it is not known."""
    model: str = ""
    latency_ms: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None

    @property
    def key(self) -> str:
        """What distinguishes it from every other answer."""
        return canonical_json([self.id, self.time, self.text])

    def settlement(self, now: str) -> Settlement:
        """Return it as an answer to be stored."""
        details: dict[str, Json] = {"input": dict(self.inputs)}
        if self.time:
            details["time"] = self.time
        completion = Completion(
            self.text,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            latency_ms=0 if self.latency_ms is None else max(1, round(self.latency_ms)),
            served_model=self.model or MODEL,
            details=details,
        )
        cost = math.ceil((self.cost_usd or 0) * 1e6)
        return Settlement(completion, cost, "imported", self.time or now)


class ProductionSample(NamedTuple):
    """The answers that are graded, and what they were chosen from."""

    calls: tuple[ProductionCall, ...]
    new: int
    """Answers that were given since the last sample."""
    files: int
    until: str
    """The time of the newest of them; empty if none has one."""

    def origin(self, name: str, prompt: str) -> dict[str, Json]:
        """Return where the answers come from, as it is stored with the run."""
        keys = "".join(sorted(call.key for call in self.calls))
        return {
            "file": name,
            "sha256": hashlib.sha256(keys.encode("utf-8", "surrogatepass")).hexdigest(),
            "answers": len(self.calls),
            "without_cost": sum(call.cost_usd is None for call in self.calls),
            "without_latency": sum(call.latency_ms is None for call in self.calls),
            "models": [MODEL],
            "prompts": [prompt],
            "new": self.new,
            "until": self.until,
        }


def sample_of(
    tree: Tree, production: Production, *, after: str, graded: frozenset[str]
) -> ProductionSample:
    """Return a sample of the answers after a time; raises UsageError for a file that is wrong.

    `graded` has the ids of cases that were graded before: an answer without a time is new if its
    input is.
    """
    paths = _paths(tree, production.files)
    calls: dict[str, ProductionCall] = {}
    until, new = after, 0
    for path in paths:
        for call in _read(tree, path, production):
            if call.time <= after if call.time else call.id in graded:
                continue
            new += 1
            until = max(until, call.time)
            calls[call.id] = max(calls.get(call.id, call), call, key=lambda call: call.time)
    chosen = sorted(calls.values(), key=_draw)[: production.sample]
    ordered = sorted(chosen, key=lambda call: (call.time, call.id))
    return ProductionSample(tuple(ordered), new, len(paths), until)


def _draw(call: ProductionCall) -> str:
    return hashlib.sha256(call.key.encode("utf-8", "surrogatepass")).hexdigest()


def _paths(tree: Tree, pattern: str) -> list[str]:
    folder, _, name = pattern.rpartition("/")
    names = [file for file in tree.names(folder or ".") if fnmatchcase(file, name)]
    if len(names) > _MOST_FILES:
        raise UsageError(
            f"{pattern} names {len(names):,} files", hint=f"move old ones; {_MOST_FILES:,} fit"
        )
    return [f"{folder}/{file}" if folder else file for file in names]


def _read(tree: Tree, path: str, production: Production) -> Iterator[ProductionCall]:
    try:
        data = files.read(tree, path, max_bytes=MAX_BYTES)
        text = decode(data)
        first = next((line for line in text.split("\n") if line.strip()), "")
        try:
            traces = is_traces(parse_json(first))
        except Fault:
            traces = True  # one document on several lines
    except Fault as fault:
        raise UsageError(fault.message, where=Location(path), hint=fault.hint) from None
    if not first:
        return
    options = TraceOptions(production.input, expected=True)
    if traces:
        for row in read_calls(data, path, options):
            metadata = row["metadata"]
            yield ProductionCall(
                row["id"],
                row["input"],
                row["expected"],
                metadata.get("time", ""),
                metadata.get("model", ""),
                row["latency_ms"],
                metadata.get("tokens_in"),
                metadata.get("tokens_out"),
            )
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _row(line, Location(path, number), options)


_KEYS = ("input", "text", "time", "model", "latency_ms", "tokens_in", "tokens_out", "cost_usd")


def _row(line: str, where: Location, options: TraceOptions) -> ProductionCall:
    try:
        row = parse_json(line)
    except Fault as fault:
        raise UsageError(fault.message, where=where, hint=fault.hint) from None
    inputs_or_text, text = (
        (row.get("input"), row.get("text")) if isinstance(row, dict) else (None, None)
    )
    if (
        not isinstance(row, dict)
        or not isinstance(inputs_or_text, dict | str)
        or not isinstance(text, str)
    ):
        hint = 'write {"input": {"message": "..."}, "text": "..."}'
        raise UsageError("this is not an answer with input and text", where=where, hint=hint)
    if unknown := sorted(row.keys() - set(_KEYS)):
        raise UsageError(f"unknown key {unknown[0]!r}", where=where, hint=f"allowed: {_KEYS}")
    inputs = clean_inputs(
        {options.name: inputs_or_text} if isinstance(inputs_or_text, str) else inputs_or_text,
        options,
    )
    model = row.get("model")
    return ProductionCall(
        input_id(inputs),
        inputs,
        clean_text(text, options),
        _time(row.get("time"), where),
        clean_text(model, options)[:100] if isinstance(model, str) else "",
        _number(row, "latency_ms", where),
        _whole(row, "tokens_in", where),
        _whole(row, "tokens_out", where),
        _number(row, "cost_usd", where),
    )


def _time(value: Any, where: Location) -> str:
    if value is None:
        return ""
    try:
        time = dt.datetime.fromisoformat(value)
        if time.tzinfo is None:
            raise ValueError
        return utc.timestamp(time)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"time is {str(value)[:40]!r}", where=where, hint="write 2026-07-31T12:00:00Z"
        ) from None


def _number(row: dict[str, Json], key: str, where: Location) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= _MOST_NUMBER
    ):
        raise UsageError(f"{key} is {str(value)[:40]!r}", where=where, hint="write a number")
    return float(value)


def _whole(row: dict[str, Json], key: str, where: Location) -> int | None:
    value = _number(row, key, where)
    return None if value is None else round(value)


def dataset_rows(calls: Iterable[ProductionCall], languages: dict[str, str | None]) -> str:
    """Return the cases of answers as lines of a dataset; tags describe the traffic."""
    lines = []
    for call in calls:
        words = sum(len(plain_text(value).split()) for value in call.inputs.values())
        tags = [f"length:{length_of(words)}"]
        if language := languages.get(call.id):
            tags.append(f"language:{language}")
        lines.append(canonical_json({"id": call.id, "input": call.inputs, "tags": tags}))
    return "".join(f"{line}\n" for line in lines)
