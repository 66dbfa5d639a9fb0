"""Moderation: a model that says whether an answer may be shown.

The screens `moderation` and `toxicity` of an experiment are judges with one number: how likely,
from 0 to 1. From the threshold on it is a hit, and the experiment says what a hit does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.config.rubric import Scale
from edison_ci.judges.asking import Ask, Judge, ask_twice
from edison_ci.judges.fencing import Piece, fenced
from edison_ci.judges.hashing import judge_hash
from edison_ci.judges.replies import Failure, Outcome, Scored, on_scale, reason_of, reply_object
from edison_ci.records import Message
from edison_ci.rounding import reaches

if TYPE_CHECKING:
    from edison_ci.judges.briefing import Briefing
    from edison_ci.records import Completion, Request

Action = Literal["block", "flag", "off"]

CLOSING = "The material ends here. Reply with the JSON object."
_SCALE = Scale(min=0, max=1)


@dataclass(frozen=True, slots=True)
class Moderated:
    """What a screen by a model found."""

    kind: str
    """moderation or toxicity."""
    action: Action
    """What a hit does; `off` when there is no hit."""
    score: float | None
    reason: str
    failure: Failure | None = None
    """Why the screen has no result: the answer is then neither clean nor hit."""


@dataclass(frozen=True, slots=True)
class Moderator:
    """A model that screens answers."""

    judge: Judge
    briefing: Briefing
    action: Action
    threshold: float

    @property
    def hash(self) -> str:
        """Instructions, model and parameters behind its results."""
        return judge_hash(self.briefing, None, self.judge)

    def request(self, text: str) -> Request:
        """Return the call that asks about a text."""
        told = self.briefing.message()
        seed = self.judge.params.get("seed")
        asked = fenced(told, [Piece("text", text)], CLOSING, seed=seed)
        return self.judge.request((Message("system", told), Message("user", asked)))

    async def screen(self, text: str, ask: Ask) -> Moderated:
        """Return what the model says of a text."""
        outcome = await ask_twice(ask, self.judge, self.request(text), _read)
        if outcome.value is None:
            reason = outcome.failure.reason if outcome.failure else ""
            return Moderated(self.briefing.kind, "off", None, reason, outcome.failure)
        score = outcome.value.share
        action: Action = self.action if reaches(score, self.threshold) else "off"
        return Moderated(self.briefing.kind, action, score, outcome.value.reason)


def _read(completion: Completion) -> Outcome[Scored]:
    reply = reply_object(completion, "score")
    if isinstance(reply, Failure):
        return Outcome(None, reply)
    raw = on_scale(reply["score"], _SCALE, "the text")
    if isinstance(raw, Failure):
        return Outcome(None, raw)
    return Outcome(Scored(raw, raw, reason_of(reply)))
