"""Core records and enums: cases, requests, completions, statuses and verdicts."""

from __future__ import annotations

import json
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, NewType, TypeAlias

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

CaseId = NewType("CaseId", str)
PromptId = NewType("PromptId", str)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Role = Literal["system", "user", "assistant"]


class CaseKind(StrEnum):
    """Where a case comes from."""

    GOLDEN = "golden"
    SYNTHETIC = "synthetic"
    ADVERSARIAL = "adversarial"


class RunStatus(StrEnum):
    """Where a run stands. `store.runs.MOVES` lists which status may follow which."""

    PENDING = "PENDING"
    EXECUTING = "EXECUTING"
    JUDGING = "JUDGING"
    AGGREGATING = "AGGREGATING"
    REFINING = "REFINING"
    REVIEWING = "REVIEWING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


ACTION_WORDS = {"block": "blocked", "flag": "flagged", "redact": "redacted"}
"""What was done to an answer, by the action of a safety screen."""


class CellStatus(StrEnum):
    """How a cell ended, or one component of its grade."""

    OK = "ok"
    MALFORMED = "malformed"
    """The answer does not have the form that the prompt declares."""
    ERROR = "error"
    BLOCKED = "blocked"
    """A safety screen withheld the answer."""
    SKIPPED = "skipped"


class Side(StrEnum):
    """Side of a comparison that a cell belongs to."""

    HEAD = "head"
    BASE = "base"


class Move(StrEnum):
    """How a case changed. A changed pass is distinguished from a changed score."""

    NEWLY_FAILING = "newly_failing"
    FIXED = "fixed"
    LOWER = "lower"
    """Its score fell clearly, but it passes or fails as before."""
    HIGHER = "higher"

    @property
    def words(self) -> str:
        """As texts have it."""
        return _MOVES[self]

    @property
    def better(self) -> bool:
        """Whether it changed for the better."""
        return self in (Move.FIXED, Move.HIGHER)


_MOVES = {
    Move.NEWLY_FAILING: "newly failing",
    Move.FIXED: "fixed",
    Move.LOWER: "scoring lower",
    Move.HIGHER: "scoring higher",
}


class SuggestionStatus(StrEnum):
    """Status of a suggestion. `store.suggestions.MOVES` lists which status may follow which."""

    REFUSED = "refused"
    """It broke a guardrail."""
    TRIED = "tried"
    """It was measured, and not shown to help."""
    PROPOSED = "proposed"
    """It was shown to help, or was proposed with --force: it waits for a decision."""
    APPROVED = "approved"
    """It is approved, but not in the repository yet."""
    APPLIED = "applied"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    """The prompt changed meanwhile, or a person edited the suggestion into another one."""


OPEN_STATUSES = frozenset(
    {SuggestionStatus.TRIED, SuggestionStatus.PROPOSED, SuggestionStatus.APPROVED}
)
"""Statuses of suggestions that wait for a decision."""


class Verdict(StrEnum):
    """What the gates of a run, or one of them, concluded."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"
    """The gate does not apply, or there is no base to compare with."""
    ERROR = "error"
    """Too little could be measured. Only a run has this verdict, never a single gate."""


@dataclass(slots=True)
class Case:
    """One input of an experiment.

    Not frozen, although it is never changed: a frozen one takes three times as long to create, and
    a dataset may have a million.
    """

    id: CaseId
    inputs: Mapping[str, Json]
    expected: Json = None
    """None if the case has no expected output."""
    tags: tuple[str, ...] = ()
    difficulty: int | None = None
    cluster: str | None = None
    """Cases of one cluster are not independent and stay together in splits."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    kind: str = "golden"
    line: int = 0
    """First line of the case in its file."""

    @property
    def variables(self) -> dict[str, Json]:
        """Variables of a template over the case."""
        values = dict(self.inputs)
        if self.expected is not None:
            values["expected"] = self.expected
        return values


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Role
    content: str


class FinishReason(StrEnum):
    """Why a model stopped."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    TOOL_CALLS = "tool_calls"
    OTHER = "other"


@dataclass(frozen=True)
class Request:
    """One call to a model. Requests with the same hash would get the same kind of answer."""

    provider: str
    endpoint: str
    """Address, protocol and options of the model, as far as they can change an answer."""
    model: str
    messages: tuple[Message, ...]
    params: Mapping[str, Json]
    tools: Json = None
    response_format: Json = None
    repeat: int = 0
    not_before: str = ""
    """Older stored answers are not used; not part of the request hash."""
    left_out: tuple[str, ...] = ()
    """Parameters that were wanted and are not sent; not part of the request hash."""
    embedding: bool = False
    """Whether the embedding of the only message is wanted, not an answer to it."""

    @cached_property
    def request_hash(self) -> str:
        """Return the sha256 of everything that determines the answer."""
        identity = [
            self.provider,
            self.endpoint,
            self.model,
            [[message.role, message.content] for message in self.messages],
            self.tools,
            dict(self.params),
            self.response_format,
            self.repeat,
            *(["embedding"] if self.embedding else []),
        ]
        return sha256(canonical_json(identity).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Completion:
    """What a call returned."""

    text: str
    finish_reason: FinishReason = FinishReason.STOP
    tokens_in: int | None = None
    """None if the provider did not report it."""
    tokens_out: int | None = None
    cached_in: int = 0
    """Input tokens that were read from the cache of the provider."""
    latency_ms: int = 0
    served_model: str = ""
    tool_calls: Json = None
    written_in: int = 0
    """Input tokens that were written to the cache of the provider."""
    written_hour_in: int = 0
    """Of these, those that are kept for an hour."""
    left_out: tuple[str, ...] = ()
    """Parameters that were wanted and not sent, because the model does not accept them."""
    cost_microusd: int | None = None
    """What the call cost, if an application says so; else the price decides."""
    details: Json = None
    """What an application reports about its answer: retrieved context, steps."""


def canonical_json(value: object) -> str:
    """Return the canonical JSON text of a value: sorted keys, no blanks, no escapes."""
    return _canonical(value)


def plain_text(value: Json) -> str:
    """Return a value as the text that is shown and counted: a text as it is, else its JSON."""
    return value if isinstance(value, str) else canonical_json(value)


# Created once, because `json.dumps` would create an encoder for each call.
_canonical = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


class BaselineDoubt(NamedTuple):
    """A reason for which a run is inconclusive at best."""

    metric: str
    """`coverage`: the base gates more than was measured; `provenance`: answers prove nothing."""
    sentence: str
