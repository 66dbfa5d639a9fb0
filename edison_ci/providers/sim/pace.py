"""How many tokens is a text, where is it cut off, and how long does an answer pretend to take?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from edison_ci.records import Message

BYTES_PER_TOKEN = 4
PER_MESSAGE = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a model pretends to be."""

    first_token_ms: float
    per_token_ms: float

    def latency_ms(self, tokens_out: int, rng: Random) -> float:
        """Return how long so many tokens take, with the scatter of a real service."""
        return (self.first_token_ms + self.per_token_ms * tokens_out) * rng.lognormvariate(0, 0.25)


def tokens_of(text: str) -> int:
    """Return the simulator's own count: a token is four bytes."""
    return -(-len(text.encode(errors="surrogatepass")) // BYTES_PER_TOKEN)


def tokens_of_messages(messages: Iterable[Message]) -> int:
    """Return the tokens of a chat, with what each message adds around its text."""
    return sum(tokens_of(message.content) + PER_MESSAGE for message in messages)


def cut_to(text: str, max_tokens: int) -> str:
    """Return as much of the text as fits into so many tokens."""
    data = text.encode(errors="surrogatepass")[: max_tokens * BYTES_PER_TOKEN]
    return data.decode(errors="ignore")
