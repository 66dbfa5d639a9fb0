"""Answers of the simulated models, and the qualities that they have."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.features.simulator import code_task as code
from edison_ci.features.simulator import extraction_task as extraction
from edison_ci.features.simulator import story_task as story
from edison_ci.features.simulator import support_task as support
from edison_ci.features.simulator.assignment import AnswerDraft, read_assignment
from edison_ci.features.simulator.options import (
    Pace,
    SimOptions,
    case_normals,
    draw_key,
    logit,
    make_completion,
    normal_cdf,
    probability_of,
    random_stream,
)
from edison_ci.features.simulator.tasks import Stance, Task, task_data, understanding_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from edison_ci.features.simulator.assignment import Assignment
    from edison_ci.features.simulator.tasks import Feature
    from edison_ci.records import Completion, Json, Request


@dataclass(frozen=True, slots=True)
class Skill:
    """The quality, verbosity and speed of a model."""

    lift: float
    """Added to the log odds of all qualities."""
    courtesy: float
    """Probability of an extra sentence."""
    mishaps: float
    """Probability of an empty answer or a refusal."""
    pace: Pace


SKILLS = {
    "small": Skill(lift=0.0, courtesy=0.25, mishaps=0.006, pace=Pace(180.0, 5.0)),
    "large": Skill(lift=0.28, courtesy=0.85, mishaps=0.003, pace=Pace(420.0, 13.0)),
}


@dataclass(frozen=True, slots=True)
class AnswerNoise:
    """The randomness of one answer."""

    rng: Random
    seed: int
    temperature: float = 1.0

    def of(self, leaning: float) -> float:
        """Return a standard normal number that is correlated with that of the case."""
        steady = min(0.9, max(0.1, 0.9 - 0.25 * self.temperature))
        return _mix(leaning, self.rng.gauss(0, 1), steady)


_CONFUSED = 2.2
"""Log odds that a hardly readable prompt costs."""
_COMMON = 0.18
"""Share of the variance that all qualities of an answer have in common."""


def draw_qualities(assignment: Assignment, skill: Skill, luck: AnswerNoise) -> dict[str, bool]:
    """Return which qualities the answer has.

    Part of the randomness belongs to the case and not to the prompt, as hard cases are hard for
    every wording; with a higher temperature more of it belongs to the single answer. That does not
    change the probabilities.
    """
    features = task_data(assignment.task).features
    understanding = understanding_of(assignment.task, assignment.instructions)
    shift = skill.lift - _CONFUSED * understanding.confusion - hardness(assignment)
    own = case_normals("case", assignment.key, luck.seed, count=len(features) + 1)
    common = luck.of(own[-1])
    drawn: dict[str, bool] = {}
    for feature, lean in zip(features, own, strict=False):
        chance = probability_of(
            logit(_chance(feature, understanding.stances[feature.name])) + shift
        )
        drawn[feature.name] = normal_cdf(_mix(common, luck.of(lean), _COMMON)) < chance
    return drawn


def hardness(assignment: Assignment) -> float:
    """Return the log odds that a case costs."""
    return 0.1 * (assignment.difficulty - 2) + (0.25 if assignment.adversarial else 0.0)


def _mix(first: float, second: float, share: float) -> float:
    """Return a standard normal number made of two; `share` is the variance of the first."""
    return float(share**0.5 * first + (1 - share) ** 0.5 * second)


def _chance(feature: Feature, stance: Stance) -> float:
    if stance is Stance.ASKED:
        return feature.chance_if_asked
    if stance is Stance.AGAINST:
        return feature.chance_if_silent * 0.35
    return feature.chance_if_silent


_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w'-]+")
_SALIENT = re.compile(r"\"([^\"\n]{2,60})\"|\b(\d[\d.,:%-]*\d|\d)\b|(?<=[a-z,:] )([A-Z][\w'-]+)")
_SPOKEN = re.compile(r"[^\W\d_][\w'-]*")
_GREETING = re.compile(r"\b(?:hello|greet|welcome|good morning)\b", re.I)
_CHOICE = re.compile(r"\b(yes or no|true or false|positive or negative)\b", re.I)
_JSON = re.compile(r"\bjson\b", re.I)
_READ_CHARS = 4_000
_TEXTS = task_data(Task.OTHER).texts


def write(writing: AnswerDraft) -> str:
    """Return a short answer about the topic of the message."""
    message = writing.assignment.message[:_READ_CHARS]
    if choice := _CHOICE.search(message):
        return writing.pick(choice[1].lower().split(" or ")).capitalize()
    if _GREETING.search(message):
        names = _NAME.findall(message)
        return writing.pick(_TEXTS["hello"]).format(name=names[0] if names else "and welcome")
    salient = list(dict.fromkeys("".join(groups) for groups in _SALIENT.findall(message)))[:4]
    topic = ", ".join(salient) or " ".join(_SPOKEN.findall(message)[-3:]) or "this"
    answer = writing.pick(_TEXTS["answers"]).format(topic=topic)
    return json.dumps({"answer": answer}, ensure_ascii=False) if _JSON.search(message) else answer


WRITERS = {
    Task.SUPPORT: support.write,
    Task.STORY: story.write,
    Task.EXTRACTION: extraction.write,
    Task.CODE: code.write,
    Task.OTHER: write,
}
_RESPONSE_TAGS = re.compile(r"<response>", re.IGNORECASE)


def generate(request: Request, options: SimOptions | None = None) -> Completion:
    """Return the answer of `small` or `large`, determined by request hash and seed.

    The model sees the rendered messages only. Faults are added elsewhere, by `draw_failure` and
    `draw_breakage`.
    """
    options = options or SimOptions()
    skill = SKILLS.get(request.model)
    if skill is None:
        raise UsageError(
            f"the simulator has no generating model {request.model!r}",
            hint=f"use {', '.join(SKILLS)}, echo or script",
        )
    rng = random_stream(draw_key(request), options.seed, "generate")
    text = _answer(request, options, skill, rng)
    return make_completion(request, options, text, skill.pace, rng)


def _answer(request: Request, options: SimOptions, skill: Skill, rng: Random) -> str:
    assignment = read_assignment(request.messages)
    luck = AnswerNoise(rng, options.seed, _temperature(request.params))
    has = draw_qualities(assignment, skill, luck)
    if rng.random() < skill.mishaps * (3 if assignment.adversarial else 1):
        return "" if rng.random() < 0.35 else rng.choice(_TEXTS["refusals"])
    text = WRITERS[assignment.task](AnswerDraft(assignment, has, rng, skill.courtesy))
    if _RESPONSE_TAGS.search(assignment.instructions):
        return f"<response>\n{text}\n</response>"
    return text


def _temperature(params: Mapping[str, Json]) -> float:
    value = params.get("temperature", 1.0)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 1.0
