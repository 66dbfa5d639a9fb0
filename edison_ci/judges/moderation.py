"""Moderation: screens of answers by a model.

The screens `moderation` and `toxicity` of an experiment are judges with one number, a probability
from 0 to 1. From the threshold on it is a hit, and the experiment sets the action.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.config.rubric import Scale
from edison_ci.judges.instructions import FencedText, fence_message, judge_hash
from edison_ci.judges.judge import Ask, Judge, ask_with_retry
from edison_ci.judges.replies import (
    CriterionReply,
    Failure,
    Outcome,
    check_scale,
    read_reason,
    reply_object,
)
from edison_ci.numeric import reaches
from edison_ci.records import Message

if TYPE_CHECKING:
    from edison_ci.judges.instructions import Instructions
    from edison_ci.records import Completion, Request

Action = Literal["block", "flag", "off"]

CLOSING = "The material ends here. Reply with the JSON object."
_SCALE = Scale(min=0, max=1)


@dataclass(frozen=True, slots=True)
class ModerationResult:
    """The result of a screen by a model."""

    kind: str
    """moderation or toxicity."""
    action: Action
    """The action of a hit; `off` without a hit."""
    score: float | None
    reason: str
    failure: Failure | None = None
    """Why the screen has no result; the answer is then neither clean nor a hit."""


@dataclass(frozen=True, slots=True)
class Moderator:
    """A model that screens answers."""

    judge: Judge
    instructions: Instructions
    action: Action
    threshold: float

    @property
    def hash(self) -> str:
        """Hash of instructions, model and parameters."""
        return judge_hash(self.instructions, None, self.judge)

    def request(self, text: str) -> Request:
        """Return the request for a text."""
        told = self.instructions.message()
        seed = self.judge.params.get("seed")
        asked = fence_message(told, [FencedText("text", text)], CLOSING, seed=seed)
        return self.judge.request((Message("system", told), Message("user", asked)))

    async def screen(self, text: str, ask: Ask) -> ModerationResult:
        """Return the result for a text."""
        outcome = await ask_with_retry(ask, self.judge, self.request(text), _read)
        if outcome.value is None:
            reason = outcome.failure.reason if outcome.failure else ""
            return ModerationResult(self.instructions.kind, "off", None, reason, outcome.failure)
        score = outcome.value.share
        action: Action = self.action if reaches(score, self.threshold) else "off"
        return ModerationResult(self.instructions.kind, action, score, outcome.value.reason)


def _read(completion: Completion) -> Outcome[CriterionReply]:
    reply = reply_object(completion, "score")
    if isinstance(reply, Failure):
        return Outcome(None, reply)
    raw = check_scale(reply["score"], _SCALE, "the text")
    if isinstance(raw, Failure):
        return Outcome(None, raw)
    return Outcome(CriterionReply(raw, raw, read_reason(reply)))
