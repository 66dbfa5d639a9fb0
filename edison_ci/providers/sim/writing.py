"""What does a writer have in hand: the assignment, the qualities to show, and chance?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from edison_ci.providers.sim.assignment import Assignment

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
