"""Pairwise judges: the preference between two answers, judged in both orders.

The answers are called first and second, by the order in which they are shown, and nothing else
distinguishes them. If the preference changes with the order, it is a tie (STATS.md section 11).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.judges.instructions import (
    FencedText,
    case_pieces,
    fence_message,
    judge_hash,
    objective_pieces,
)
from edison_ci.judges.judge import Ask, Judge, ask_with_retry, run_concurrently
from edison_ci.judges.pointwise import criteria_text
from edison_ci.judges.replies import (
    WINNER_SCHEMA,
    Failure,
    Missing,
    Outcome,
    read_reason,
    reply_object,
)
from edison_ci.records import Message

if TYPE_CHECKING:
    from edison_ci.config.rubric import RubricFile
    from edison_ci.judges.instructions import Instructions
    from edison_ci.records import Case, Completion, Request

Winner = Literal["a", "b", "tie"]
Place = Literal["first", "second", "tie"]

CLOSING = "The material ends here. Say which answer is better and reply with the JSON object."
NO_CRITERIA = (
    "There are no written criteria: the better answer is the one that serves the objective better."
)
_VALUE: dict[Winner, float] = {"a": 1.0, "tie": 0.5, "b": 0.0}
_PLACES: tuple[Place, ...] = ("first", "second", "tie")


@dataclass(frozen=True, slots=True)
class Preference:
    """The preference of a judge in one order."""

    winner: Winner | None
    """`a` or `b`, in any position; None without a usable reply."""
    reason: str
    failure: Failure | None = None

    @property
    def value(self) -> float | None:
        """1 if `a` wins, 0.5 for a tie, 0 if `b` wins."""
        return None if self.winner is None else _VALUE[self.winner]

    def swap(self) -> Preference:
        """Return the same with a and b exchanged."""
        other: dict[Winner, Winner] = {"a": "b", "b": "a", "tie": "tie"}
        winner = None if self.winner is None else other[self.winner]
        return Preference(winner, self.reason, self.failure)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One case, two answers, both orders."""

    judge: str
    hash: str
    ab: Preference
    """`a` was shown first."""
    ba: Preference
    """`b` was shown first."""
    chars_a: int
    chars_b: int
    """Lengths of the answers, to measure the preference of judges for long ones."""
    asked: bool = True
    """False for equal answers, which are a tie without a call."""

    def swap(self) -> Comparison:
        """Return the same with a and b exchanged."""
        return Comparison(
            self.judge,
            self.hash,
            self.ba.swap(),
            self.ab.swap(),
            self.chars_b,
            self.chars_a,
            self.asked,
        )

    @property
    def value(self) -> float | None:
        """The score of `a`: mean of both orders; None if one of them is missing."""
        if self.ab.value is None or self.ba.value is None:
            return None
        return (self.ab.value + self.ba.value) / 2

    @property
    def winner(self) -> Winner | None:
        """The winner in both orders, else a tie; None if one of them is missing."""
        if self.ab.winner is None or self.ba.winner is None:
            return None
        return self.ab.winner if self.ab.winner == self.ba.winner else "tie"

    @property
    def consistent(self) -> bool | None:
        """Whether both orders have the same winner."""
        if self.value is None:
            return None
        return self.ab.winner == self.ba.winner

    @property
    def order_effect(self) -> float | None:
        """Effect of the position: +0.5 if the first answer always wins, -0.5 if the second does."""
        if self.ab.value is None or self.ba.value is None:
            return None
        return (self.ab.value + 1 - self.ba.value) / 2 - 0.5


@dataclass(frozen=True, slots=True)
class Pairwise:
    """A judge that compares answers."""

    judge: Judge
    instructions: Instructions
    rubric: RubricFile | None = None
    objective: str = ""
    """What the answers are for: context for the criteria, and without them what decides."""
    _system: str = field(init=False)
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        rubric = self.rubric
        criteria = criteria_text(rubric.criteria, rubric.weights()) if rubric else NO_CRITERIA
        system = self.instructions.message(criteria, objective=self.objective)
        object.__setattr__(self, "_system", system)
        digest = judge_hash(self.instructions, rubric, self.judge, objective=self.objective)
        object.__setattr__(self, "hash", digest)

    def request(self, case: Case, first: str, second: str) -> Request:
        """Return the request with the answers in this order."""
        pieces = [
            *objective_pieces(self.objective),
            *case_pieces(case),
            FencedText("first", first),
            FencedText("second", second),
        ]
        asked = fence_message(self._system, pieces, CLOSING, seed=self.judge.params.get("seed"))
        messages = (Message("system", self._system), Message("user", asked))
        return self.judge.request(messages, schema=WINNER_SCHEMA)

    async def compare(self, case: Case, a: str, b: str, ask: Ask) -> Comparison:
        """Return the preferences in both orders; equal answers are a tie without a call."""
        if a == b:
            same = Preference("tie", "the answers are the same")
            return Comparison(self.judge.name, self.hash, same, same, len(a), len(b), asked=False)
        ab, ba = await run_concurrently(
            [self._prefer(case, a, b, ask), self._prefer(case, b, a, ask, swapped=True)]
        )
        return Comparison(self.judge.name, self.hash, ab, ba, len(a), len(b))

    async def _prefer(
        self, case: Case, first: str, second: str, ask: Ask, *, swapped: bool = False
    ) -> Preference:
        request = self.request(case, first, second)
        outcome = await ask_with_retry(ask, self.judge, request, read_place)
        if outcome.value is None:
            reason = outcome.failure.reason if outcome.failure else ""
            return Preference(None, reason, outcome.failure)
        place, reason = outcome.value
        if place == "tie":
            return Preference("tie", reason)
        return Preference("a" if (place == "first") != swapped else "b", reason)


def read_place(completion: Completion) -> Outcome[tuple[Place, str]]:
    """Return the position that a reply prefers, and the reason."""
    reply = reply_object(completion, "winner")
    if isinstance(reply, Failure):
        return Outcome(None, reply)
    for place in _PLACES:
        if reply["winner"] == place:
            return Outcome((place, read_reason(reply)))
    reason = "the winner is not first, second or tie"
    return Outcome(None, Failure(Missing.JUDGE_ERROR, reason))
