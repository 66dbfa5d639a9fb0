"""Moderation: screens of answers by a model.

The screens `moderation` and `toxicity` of an experiment are judges with one number, a probability
from 0 to 1. From the threshold on it is a hit, and the experiment sets the action. A chat model
gets the categories in its prompt and replies with its number. A model of a vendor's moderation
endpoint gets the text alone and replies with a score for each of its own categories, of which the
highest counts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.config.rubric import Scale
from edison_ci.contracts import CallError
from edison_ci.judges.instructions import FencedText, fence_message, judge_hash
from edison_ci.judges.judge import Ask, Judge, ask_with_retry
from edison_ci.judges.replies import (
    CriterionReply,
    Failure,
    Missing,
    Outcome,
    call_failure,
    check_scale,
    read_reason,
    reply_object,
)
from edison_ci.numeric import fixed, reaches
from edison_ci.records import Message, Request

if TYPE_CHECKING:
    from edison_ci.config.models import Model
    from edison_ci.judges.instructions import Instructions
    from edison_ci.records import Completion

Action = Literal["block", "flag", "off"]

CLOSING = "The material ends here. Reply with the JSON object."
_SCALE = Scale(min=0, max=1)
_TOXIC = ("harassment", "hate")
"""How the categories of toxicity begin, at OpenAI and at Mistral."""
_NAMED = 3
"""Categories that a reason names."""


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
        if self.judge.model.moderates:
            return moderation_request(self.judge.model, text)
        system = self.instructions.message()
        seed = self.judge.params.get("seed")
        asked = fence_message(system, [FencedText("text", text)], CLOSING, seed=seed)
        return self.judge.request((Message("system", system), Message("user", asked)))

    async def screen(self, text: str, ask: Ask) -> ModerationResult:
        """Return the result for a text."""
        request = self.request(text)
        if self.judge.model.moderates:
            outcome = await self._scores(request, ask)
        else:
            outcome = await ask_with_retry(ask, self.judge, request, _read)
        if outcome.value is None:
            reason = outcome.failure.reason if outcome.failure else ""
            return ModerationResult(self.instructions.kind, "off", None, reason, outcome.failure)
        score = outcome.value.share
        action: Action = self.action if reaches(score, self.threshold) else "off"
        return ModerationResult(self.instructions.kind, action, score, outcome.value.reason)

    async def _scores(self, request: Request, ask: Ask) -> Outcome[CriterionReply]:
        """Return the scores of a moderation endpoint; a malformed reply is an error of the call."""
        try:
            completion = await ask(self.judge.name, request)
        except CallError as error:
            return Outcome(None, call_failure(error))
        return read_categories(completion, self.instructions.kind)


def moderation_request(model: Model, text: str) -> Request:
    """Return the request to a moderation endpoint, which refuses an empty text."""
    return Request(
        provider=model.provider,
        endpoint=model.endpoint,
        model=model.model,
        messages=(Message("user", text or " "),),
        params={},
    )


def read_categories(completion: Completion, kind: str) -> Outcome[CriterionReply]:
    """Return the highest score of the categories that a screen is about, which the reason names."""
    try:
        scores = json.loads(completion.text)["scores"]
        categories = {str(name): float(score) for name, score in scores.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return Outcome(None, Failure(Missing.JUDGE_ERROR, "the reply has no scores of categories"))
    if kind == "toxicity":
        categories = {
            name: score for name, score in categories.items() if name.startswith(_TOXIC)
        } or categories
    if not categories:
        return Outcome(None, Failure(Missing.JUDGE_ERROR, "the reply has no scores of categories"))
    highest = sorted(categories.items(), key=lambda entry: (-entry[1], entry[0]))[:_NAMED]
    score = highest[0][1]
    reason = ", ".join(f"{name} {fixed(value, 2)}" for name, value in highest)
    return Outcome(CriterionReply(score, score, reason))


def _read(completion: Completion) -> Outcome[CriterionReply]:
    reply = reply_object(completion, "score")
    if isinstance(reply, Failure):
        return Outcome(None, reply)
    raw = check_scale(reply["score"], _SCALE, "the text")
    if isinstance(raw, Failure):
        return Outcome(None, raw)
    return Outcome(CriterionReply(raw, raw, read_reason(reply)))
