"""The values that travel through the program."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NewType, TypeAlias

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


@dataclass(frozen=True, slots=True)
class Case:
    """One input of an experiment."""

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
