"""Graders: prompts that grade an answer.

The prompt is the user's own: it sees the case's variables, the output and the expected output. Its
reply is a number on its scale, yes or no, pass or fail, true or false, or JSON with a score.
Anything else is a judge error.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.rubric import Scale
from edison_ci.judges.asking import Ask, Judge, ask_twice
from edison_ci.judges.fencing import visible
from edison_ci.judges.hashing import grader_hash
from edison_ci.judges.replies import (
    MAX_REPLY,
    Failure,
    Missing,
    Outcome,
    Scored,
    on_scale,
    reason_of,
    reply_object,
    share_of,
    without_thinking,
)
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from edison_ci.config.models import Model
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case, Completion, Json, Request

_WORDS = {"yes": 1.0, "pass": 1.0, "true": 1.0, "no": 0.0, "fail": 0.0, "false": 0.0}
_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_FENCE = re.compile(r"```[a-z]{0,10}\n(.*)\n```", re.DOTALL)
_TRIMMED = " \t\r\n\"'`*_."
_LONGEST_WORD = 100


@dataclass(frozen=True, slots=True)
class GraderGrade:
    """What a grader says of one answer."""

    score: float | None
    """0-1; None without one."""
    reason: str
    status: str
    """ok, error, or skipped: the case lacks what the prompt needs."""


@dataclass(frozen=True, slots=True)
class PromptGrader:
    """A grader prompt and the model it runs on."""

    name: str
    prompt: Prompt
    judge: Judge
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", grader_hash(self.prompt, self.judge))

    @classmethod
    def of(cls, name: str, prompt: Prompt, model: Model) -> PromptGrader:
        """Return a grader; front matter counts over models.yaml over the defaults of judges."""
        return cls(name, prompt, Judge.of(model, prompt.header.params.written()))

    @property
    def scale(self) -> Scale:
        """The scale of the reply."""
        return self.prompt.header.scale or Scale()

    def request(self, case: Case, output: str) -> Request:
        """Return the call; raises MissingValueError or RenderError."""
        # The output is never parsed as a template, and nothing in it can be invisible.
        variables: dict[str, Json] = {**case.variables, "output": visible(output)}
        return self.judge.request(self.prompt.render(variables), form=self.prompt.output)

    async def grade(self, case: Case, output: str, ask: Ask) -> GraderGrade:
        """Return the grade; a reply that cannot be used is a value, not an error."""
        try:
            request = self.request(case, output)
        except MissingValueError as error:
            return GraderGrade(None, str(error), "skipped")
        except RenderError as error:
            return GraderGrade(None, str(error), "error")
        outcome = await ask_twice(
            ask, self.judge, request, lambda completion: read_grade(completion, self.scale)
        )
        if outcome.value is None:
            failure = outcome.failure
            said = f"{failure.kind}: {failure.reason}" if failure else "no score"
            return GraderGrade(None, said, "error")
        return GraderGrade(outcome.value.share, outcome.value.reason, "ok")


def read_grade(completion: Completion, scale: Scale) -> Outcome[Scored]:
    """Return what a grader's reply says."""
    if len(completion.text) > MAX_REPLY:
        said = f"the reply has {len(completion.text):,} characters"
        return Outcome(None, Failure(Missing.JUDGE_ERROR, said))
    text = without_thinking(completion.text)
    fenced = _FENCE.fullmatch(text)
    word = (fenced[1] if fenced else text).strip(_TRIMMED)
    if len(word) <= _LONGEST_WORD:
        if word.lower() in _WORDS:
            share = _WORDS[word.lower()]
            return Outcome(Scored(scale.min + share * (scale.max - scale.min), share))
        if _NUMBER.fullmatch(word):
            return _scored(float(word), scale)
    reply = reply_object(completion, "score")
    if isinstance(reply, Failure):
        return Outcome(None, reply if "{" in text else _not_a_grade(reply, scale))
    return _scored(reply["score"], scale, reason_of(reply))


def _scored(value: Json, scale: Scale, reason: str = "") -> Outcome[Scored]:
    raw = on_scale(value, scale, "the answer")
    if isinstance(raw, Failure):
        return Outcome(None, raw)
    return Outcome(Scored(raw, share_of(raw, scale), reason))


def _not_a_grade(failure: Failure, scale: Scale) -> Failure:
    if not failure.reason.startswith("the reply holds no"):
        return failure
    said = (
        f"the reply is not a number from {scale.min:g} to {scale.max:g}, yes or no, "
        'pass or fail, true or false, or JSON {"score", "reason"}'
    )
    return Failure(failure.kind, said)
