"""Cases judged as questions, whatever is answered to them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.rubric import Criterion, Scale
from edison_ci.judges.asking import Ask, Judge, ask_twice
from edison_ci.judges.fencing import Piece, fenced, pieces_of
from edison_ci.judges.hashing import question_hash
from edison_ci.judges.pointwise import Opinion, criteria_text
from edison_ci.judges.replies import read_verdict
from edison_ci.records import Message

if TYPE_CHECKING:
    from edison_ci.judges.briefing import Briefing
    from edison_ci.records import Case, Request

OVERALL = "overall"
"""The criterion by which questions are sorted."""
CLOSING = (
    "The material ends here. Score the question by every criterion and reply with the JSON object."
)


def _criterion(name: str, description: str, low: str, high: str) -> Criterion:
    scale = Scale(min=1, max=10, labels={"1": low, "10": high})
    return Criterion(name=name, description=description, weight=0.2, scale=scale)


CRITERIA = (
    _criterion(
        "clarity",
        "Whether it is clear what is asked, and whether a right answer can be told from a wrong "
        "one with what the question and its reference say.",
        "nobody could say what is wanted",
        "it can be understood in one way only",
    ),
    _criterion(
        "difficulty",
        "How hard it is to answer well. Hard is neither good nor bad.",
        "any model gets it right",
        "an expert has to think about it",
    ),
    _criterion(
        "relevance",
        "Whether it tests what the objective is about, as it would come up in real use.",
        "it has nothing to do with the objective",
        "exactly what the objective is for",
    ),
    _criterion(
        "originality",
        "Whether it asks something that a usual question for this objective does not.",
        "the first question that anybody would write",
        "it shows something that others do not",
    ),
    _criterion(
        OVERALL,
        "How much the test set gains by this question, all in all.",
        "it should be taken out",
        "it should be in every test set for this objective",
    ),
)
"""What questions are judged by unless somebody brings criteria of their own."""


@dataclass(frozen=True, slots=True)
class QuestionJudge:
    """A judge with its briefing and criteria: asks for a verdict on one case at a time."""

    judge: Judge
    criteria: tuple[Criterion, ...]
    objective: str
    briefing: Briefing
    _told: str = field(init=False)
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        told = self.briefing.message(criteria_text(self.criteria))
        object.__setattr__(self, "_told", told)
        made = question_hash(self.briefing, self.criteria, self.objective, self.judge)
        object.__setattr__(self, "hash", made)

    def request(self, case: Case) -> Request:
        """Return the call that asks for a verdict on a case."""
        pieces = [Piece("text", self.objective, "objective"), *pieces_of(case)]
        asked = fenced(self._told, pieces, CLOSING, seed=self.judge.params.get("seed"))
        return self.judge.request((Message("system", self._told), Message("user", asked)))

    async def judge_case(self, case: Case, ask: Ask) -> Opinion:
        """Return the judge's opinion; a reply that cannot be used is a value, not an error."""
        outcome = await ask_twice(
            ask,
            self.judge,
            self.request(case),
            lambda completion: read_verdict(completion, self.criteria),
        )
        return Opinion(self.judge.name, self.hash, outcome.value, outcome.failure)
