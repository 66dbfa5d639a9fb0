"""The models `echo` and `script`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.patterns import find
from edison_ci.errors import UsageError
from edison_ci.records import Completion, FinishReason
from edison_ci.simulator.options import Fault
from edison_ci.simulator.pace import tokens_of, tokens_of_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.records import Json, Request


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a script: what to look for in a request, and what to answer."""

    match: str
    """A text that the messages contain, or `/pattern/`. Empty: every request."""
    text: str = ""
    finish_reason: FinishReason = FinishReason.STOP
    latency_ms: int = 0
    error: str = ""
    """An error kind such as RATE_LIMIT; then there is no answer."""

    def fits(self, said: str) -> bool:
        """Return whether the line answers a request that says this."""
        if len(self.match) > 2 and self.match.startswith("/") and self.match.endswith("/"):
            try:
                return find(self.match[1:-1], said) is not None
            except EvaluationError as error:
                raise UsageError(f"a row of the script cannot be matched: {error}") from None
        return self.match in said


def parse_script(rows: Iterable[Mapping[str, Json]]) -> tuple[Line, ...]:
    """Return the lines of a script; raises UsageError naming the row that is wrong."""
    return tuple(_line(number, row) for number, row in enumerate(rows, start=1))


def _line(number: int, row: Mapping[str, Json]) -> Line:
    unknown = sorted(set(row) - {"match", "text", "finish_reason", "latency_ms", "error"})
    if unknown:
        raise UsageError(f"script row {number} has an unknown key {unknown[0]!r}")
    match, text, error = row.get("match", ""), row.get("text", ""), row.get("error", "")
    latency_ms = row.get("latency_ms", 0)
    if not (isinstance(match, str) and isinstance(text, str) and isinstance(error, str)):
        raise UsageError(f"script row {number}: match, text and error are texts")
    if not isinstance(latency_ms, int | float) or isinstance(latency_ms, bool) or latency_ms < 0:
        raise UsageError(f"script row {number}: latency_ms is a number from 0")
    try:
        reason = FinishReason(str(row.get("finish_reason", "stop")))
        line = Line(match, text, reason, int(latency_ms), error)
        line.fits("")
    except (ValueError, UsageError) as problem:
        raise UsageError(f"script row {number}: {problem}") from None
    return line


def echo(request: Request) -> Completion:
    """Return the last user message as the answer."""
    said = [message.content for message in request.messages if message.role == "user"]
    text = said[-1] if said else ""
    return _completion(request, text, FinishReason.STOP, 0)


def script(request: Request, lines: Sequence[Line]) -> Completion | Fault:
    """Return the answer, or the fault, of the first line that fits the request."""
    said = "\n".join(message.content for message in request.messages)
    for line in lines:
        if line.fits(said):
            if line.error:
                return Fault(line.error, line.text or f"scripted: {line.error}")
            return _completion(request, line.text, line.finish_reason, line.latency_ms)
    return Fault("BAD_REQUEST", "no line of the script fits this request")


def _completion(request: Request, text: str, reason: FinishReason, latency_ms: int) -> Completion:
    return Completion(
        text,
        reason,
        tokens_in=tokens_of_messages(request.messages),
        tokens_out=tokens_of(text),
        latency_ms=latency_ms,
        served_model=f"sim/{request.model}",
    )
