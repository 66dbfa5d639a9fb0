"""Pairwise judges: which of two answers is preferred, asked in both orders.

Both orders are asked. The answers are called first and second, by the order in which they are
shown, and nothing else tells them apart. A judge that changes its mind with the order has said
nothing: that is a tie (STATS.md section 11).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.judges.asking import Ask, Judge, ask_twice, side_by_side
from edison_ci.judges.fencing import Piece, fenced, pieces_of
from edison_ci.judges.hashing import judge_hash
from edison_ci.judges.pointwise import criteria_text
from edison_ci.judges.replies import Failure, Missing, Outcome, reason_of, reply_object
from edison_ci.records import Message

if TYPE_CHECKING:
    from edison_ci.config.rubric import RubricFile
    from edison_ci.judges.briefing import Briefing
    from edison_ci.records import Case, Completion, Request

Winner = Literal["a", "b", "tie"]
Place = Literal["first", "second", "tie"]

CLOSING = "The material ends here. Say which answer is better and reply with the JSON object."
_VALUE: dict[Winner, float] = {"a": 1.0, "tie": 0.5, "b": 0.0}
_PLACES: tuple[Place, ...] = ("first", "second", "tie")


@dataclass(frozen=True, slots=True)
class Preference:
    """What a judge says in one order."""

    winner: Winner | None
    """`a` or `b`, wherever it was shown; None without a usable reply."""
    reason: str
    failure: Failure | None = None

    @property
    def value(self) -> float | None:
        """1 if `a` wins, 0.5 for a tie, 0 if `b` wins."""
        return None if self.winner is None else _VALUE[self.winner]

    def turned(self) -> Preference:
        """Return the same with a and b having changed their names."""
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
    """Lengths of the answers: judges like long ones, and that is measured."""
    asked: bool = True
    """False where nobody had to be asked."""

    def turned(self) -> Comparison:
        """Return the same with a and b having changed their names."""
        return Comparison(
            self.judge,
            self.hash,
            self.ba.turned(),
            self.ab.turned(),
            self.chars_b,
            self.chars_a,
            self.asked,
        )

    @property
    def value(self) -> float | None:
        """What the case is worth to `a`: mean of both orders; None if one of them is missing."""
        if self.ab.value is None or self.ba.value is None:
            return None
        return (self.ab.value + self.ba.value) / 2

    @property
    def winner(self) -> Winner | None:
        """Who won the case: a judge must say the same in both orders, else it is a tie."""
        if self.ab.winner is None or self.ba.winner is None:
            return None
        return self.ab.winner if self.ab.winner == self.ba.winner else "tie"

    @property
    def consistent(self) -> bool | None:
        """Whether the order made no difference."""
        if self.value is None:
            return None
        return self.ab.winner == self.ba.winner

    @property
    def order_effect(self) -> float | None:
        """How much the place counted: +0.5 when whatever is read first wins, -0.5 the reverse."""
        if self.ab.value is None or self.ba.value is None:
            return None
        return (self.ab.value + 1 - self.ba.value) / 2 - 0.5


@dataclass(frozen=True, slots=True)
class Pairwise:
    """A judge that compares answers."""

    judge: Judge
    briefing: Briefing
    rubric: RubricFile | None = None
    objective: str = ""
    """What a good answer achieves: the yardstick when there is no rubric."""
    _told: str = field(init=False)
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        rubric = self.rubric
        criteria = f"What a good answer achieves: {self.objective}"
        if rubric is not None:
            criteria = criteria_text(rubric.criteria, rubric.weights())
        object.__setattr__(self, "_told", self.briefing.message(criteria))
        found = judge_hash(self.briefing, rubric, self.judge, objective=self.objective)
        object.__setattr__(self, "hash", found)

    def request(self, case: Case, first: str, second: str) -> Request:
        """Return the call that shows the answers in this order."""
        pieces = [*pieces_of(case), Piece("first", first), Piece("second", second)]
        asked = fenced(self._told, pieces, CLOSING, seed=self.judge.params.get("seed"))
        return self.judge.request((Message("system", self._told), Message("user", asked)))

    async def compare(self, case: Case, a: str, b: str, ask: Ask) -> Comparison:
        """Return what the judge says in both orders; equal answers are a tie nobody is paid for."""
        if a == b:
            same = Preference("tie", "the answers are the same")
            return Comparison(self.judge.name, self.hash, same, same, len(a), len(b), asked=False)
        ab, ba = await side_by_side(
            [self._prefer(case, a, b, ask), self._prefer(case, b, a, ask, swapped=True)]
        )
        return Comparison(self.judge.name, self.hash, ab, ba, len(a), len(b))

    async def _prefer(
        self, case: Case, first: str, second: str, ask: Ask, *, swapped: bool = False
    ) -> Preference:
        request = self.request(case, first, second)
        outcome = await ask_twice(ask, self.judge, request, read_place)
        if outcome.value is None:
            reason = outcome.failure.reason if outcome.failure else ""
            return Preference(None, reason, outcome.failure)
        place, reason = outcome.value
        if place == "tie":
            return Preference("tie", reason)
        return Preference("a" if (place == "first") != swapped else "b", reason)


def read_place(completion: Completion) -> Outcome[tuple[Place, str]]:
    """Return which place a reply prefers, and why."""
    reply = reply_object(completion, "winner")
    if isinstance(reply, Failure):
        return Outcome(None, reply)
    for place in _PLACES:
        if reply["winner"] == place:
            return Outcome((place, reason_of(reply)))
    said = "the winner is not first, second or tie"
    return Outcome(None, Failure(Missing.JUDGE_ERROR, said))
