"""Pointwise judges: one answer scored by a rubric."""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.judges.asking import Ask, Judge, ask_twice
from edison_ci.judges.fencing import Piece, fenced, pieces_of
from edison_ci.judges.hashing import judge_hash
from edison_ci.judges.replies import Failure, Verdict, read_verdict
from edison_ci.records import Message
from edison_ci.rounding import rounded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.config.rubric import Criterion, RubricFile
    from edison_ci.judges.briefing import Briefing
    from edison_ci.records import Case, Json, Request

CLOSING = (
    "The material ends here. Score the answer by every criterion and reply with the JSON object."
)


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one judge came to."""

    judge: str
    hash: str
    """Instructions, rubric, model and parameters behind it."""
    verdict: Verdict | None
    failure: Failure | None = None
    """What was wrong with the last reply, if anything; a verdict may still have some scores."""

    def missing(self, criterion: str) -> Failure | None:
        """Return why a criterion has no score from this judge; None if it has one."""
        if self.verdict is None:
            return self.failure
        return self.verdict.missing.get(criterion)


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A judge with its briefing and rubric: asks for a verdict on one answer at a time."""

    judge: Judge
    rubric: RubricFile
    briefing: Briefing
    _told: str = field(init=False)
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        # Worked out once: only the material differs from call to call.
        told = self.briefing.message(criteria_text(self.rubric.criteria))
        object.__setattr__(self, "_told", told)
        object.__setattr__(self, "hash", judge_hash(self.briefing, self.rubric, self.judge))

    def request(self, case: Case, output: str) -> Request:
        """Return the call that asks for a verdict; it says nothing of who wrote the output."""
        pieces = [*pieces_of(case), Piece("answer", output)]
        asked = fenced(self._told, pieces, CLOSING, seed=self.judge.params.get("seed"))
        messages = (Message("system", self._told), Message("user", asked))
        return self.judge.request(messages)

    async def judge_output(self, case: Case, output: str, ask: Ask) -> Opinion:
        """Return the judge's opinion; a reply that cannot be used is a value, not an error."""
        outcome = await ask_twice(
            ask,
            self.judge,
            self.request(case, output),
            lambda completion: read_verdict(completion, self.rubric.criteria),
        )
        return Opinion(self.judge.name, self.hash, outcome.value, outcome.failure)


def criteria_text(criteria: Sequence[Criterion], weights: Mapping[str, float] | None = None) -> str:
    """Return the criteria as a judge reads them; only a pairwise judge needs weights."""
    shown = []
    for criterion in criteria:
        scale = criterion.scale
        entry: dict[str, Json] = {"name": criterion.name, "description": criterion.description}
        if weights is None:
            entry |= {"min": _plain(scale.min), "max": _plain(scale.max)}
            if scale.labels:
                entry["labels"] = dict(scale.labels)
            if criterion.lower_is_better:
                entry["note"] = "Low scores are good."
        else:
            entry["weight"] = rounded(weights[criterion.name], 3)
        shown.append(json.dumps(entry, ensure_ascii=False))
    return "Criteria:\n\n[\n" + ",\n".join(shown) + "\n]"


def _plain(number: float) -> float:
    return int(number) if number == int(number) else number
