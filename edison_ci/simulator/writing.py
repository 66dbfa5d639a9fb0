"""What a simulated writer works from, and what a simulated judge looks at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.simulator.assignment import KnownCase, Task, case_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from edison_ci.records import Json
    from edison_ci.simulator.assignment import Assignment


class Seen(NamedTuple):
    """One thing seen in a text: how much of it, from 0 to 1, and in words."""

    value: float
    remark: str


@dataclass(frozen=True, slots=True)
class Exhibit:
    """An answer and the case it answers."""

    task: Task
    inputs: Mapping[str, Json]
    output: str

    @property
    def case(self) -> KnownCase | None:
        """The known case with these inputs."""
        return case_of(self.task, self.inputs)

    def text(self, name: str) -> str:
        """Return an input as text; empty if there is none."""
        value = self.inputs.get(name, "")
        return value if isinstance(value, str) else ""


def clamped(value: float) -> float:
    """Return the value, but not below 0 and not above 1."""
    return min(1.0, max(0.0, value))


_SENTENCE = re.compile(r"(?<=[.!?。！？])[\"”'’)]*\s+|(?<=[。！？])|\n+")  # noqa: RUF001  # Japanese
_WORD = re.compile(r"\w[\w'’-]*")  # noqa: RUF001  # the apostrophe of typeset text


@dataclass(frozen=True, slots=True)
class Writing:
    """One answer on its way to the page."""

    assignment: Assignment
    has: Mapping[str, bool]
    """Which qualities it shows."""
    rng: Random
    courtesy: float
    """Chance of one sentence more than needed."""

    def pick(self, sentences: Sequence[str]) -> str:
        """Return one of the sentences; an empty text if there are none."""
        return self.rng.choice(sentences) if sentences else ""

    def some(self, sentences: Sequence[str], count: int) -> list[str]:
        """Return so many different sentences."""
        return self.rng.sample(sentences, min(count, len(sentences)))

    def chance(self, share: float) -> bool:
        """Return True in this share of the answers."""
        return self.rng.random() < share


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [part.strip() for part in _SENTENCE.split(text) if part and part.strip()]


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return _WORD.findall(text.lower())


def paragraphs(*parts: Sequence[str]) -> str:
    """Return sentences joined into paragraphs, empty ones left out."""
    joined = (" ".join(sentence for sentence in part if sentence) for part in parts)
    return "\n\n".join(text for text in joined if text)
