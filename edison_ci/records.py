"""The values that travel through the program."""

from __future__ import annotations

import json
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NewType, TypeAlias

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

CaseId = NewType("CaseId", str)
ExperimentId = NewType("ExperimentId", str)
PromptId = NewType("PromptId", str)
ModelName = NewType("ModelName", str)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Role = Literal["system", "user", "assistant"]


class CaseKind(StrEnum):
    """Where a case comes from."""

    GOLDEN = "golden"
    SYNTHETIC = "synthetic"
    ADVERSARIAL = "adversarial"


@dataclass(slots=True)
class Case:
    """One input of an experiment.

    Not frozen, though nobody changes one: a frozen one takes three times as long to make, and a
    dataset may have a million.
    """

    id: CaseId
    inputs: Mapping[str, Json]
    expected: Json = None
    """None means that the case has no expected output."""
    tags: tuple[str, ...] = ()
    difficulty: int | None = None
    cluster: str | None = None
    """Cases of one cluster are not independent and are never split apart."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    kind: str = "golden"
    line: int = 0
    """Line of its file on which the case starts."""

    @property
    def variables(self) -> dict[str, Json]:
        """What a template over the case may use."""
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
    """One call to a model. Two requests with the same address would get the same kind of answer."""

    provider: str
    endpoint: str
    """`base_url` as written, or `env:NAME`."""
    model: str
    messages: tuple[Message, ...]
    params: Mapping[str, Json]
    tools: Json = None
    response_format: Json = None
    draw: int = 0
    not_before: str = ""
    """A stored answer that is older than this is not good enough; not part of the address."""

    @cached_property
    def address(self) -> str:
        """Return the name of the call: sha256 over everything that decides the answer."""
        identity = [
            self.provider,
            self.endpoint,
            self.model,
            [[message.role, message.content] for message in self.messages],
            self.tools,
            dict(self.params),
            self.response_format,
            self.draw,
        ]
        return sha256(canonical_json(identity).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Completion:
    """What a call returned."""

    text: str
    finish_reason: FinishReason = FinishReason.STOP
    tokens_in: int | None = None
    """None when the provider did not say."""
    tokens_out: int | None = None
    cached_in: int = 0
    """How many of the input tokens the provider had cached."""
    latency_ms: int = 0
    served_model: str = ""
    tool_calls: Json = None
    write_surcharge_in: float = 0.0
    """What writing to the provider's cache is charged beyond `tokens_in`, in tokens of input."""


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no blanks, characters as they are."""
    return _canonical(value)


# Made once: `json.dumps` would make an encoder for each call.
_canonical = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode
