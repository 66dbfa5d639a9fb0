"""Answers of the simulated models."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.simulator import code_task as code
from edison_ci.simulator import extraction_task as extraction
from edison_ci.simulator import story_task as story
from edison_ci.simulator import support_task as support
from edison_ci.simulator.assignment import Task, read
from edison_ci.simulator.options import SimOptions
from edison_ci.simulator.pace import spoken, stream
from edison_ci.simulator.qualities import SKILLS, Luck, Skill, draw_qualities
from edison_ci.simulator.writing import Writing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from edison_ci.records import Completion, Json, Request


_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w'-]+")
_SALIENT = re.compile(r"\"([^\"\n]{2,60})\"|\b(\d[\d.,:%-]*\d|\d)\b|(?<=[a-z,:] )([A-Z][\w'-]+)")
_GREETING = re.compile(r"\b(?:hello|greet|welcome|good morning)\b", re.I)
_CHOICE = re.compile(r"\b(yes or no|true or false|positive or negative)\b", re.I)
_JSON = re.compile(r"\bjson\b", re.I)
_READ_CHARS = 4_000
_HELLO = (
    "Hello {name}, lovely to have you here today.",
    "Hello {name}, a warm welcome to you.",
    "Hello {name}, I hope your day has started well.",
    "Hello {name}, how good to see you.",
)
_ANSWERS = (
    "In short, {topic} comes down to one thing, and the rest follows from it.",
    "The point about {topic} is simple once it is put plainly.",
    "As for {topic}, the plain answer is the best one here.",
    "What matters for {topic} can be said in a sentence or two.",
)


def write(writing: Writing) -> str:
    """Return a short answer that takes up what the message is about."""
    said = writing.assignment.said[:_READ_CHARS]
    if choice := _CHOICE.search(said):
        return writing.pick(choice[1].lower().split(" or ")).capitalize()
    if _GREETING.search(said):
        names = _NAME.findall(said)
        return writing.pick(_HELLO).format(name=names[0] if names else "and welcome")
    salient = list(dict.fromkeys("".join(found) for found in _SALIENT.findall(said)))[:4]
    topic = ", ".join(salient) if salient else _last_words(said)
    answer = writing.pick(_ANSWERS).format(topic=topic or "this")
    return json.dumps({"answer": answer}, ensure_ascii=False) if _JSON.search(said) else answer


def _last_words(said: str) -> str:
    words = re.findall(r"[^\W\d_][\w'-]*", said)
    return " ".join(words[-3:])


_WRITERS = {
    Task.SUPPORT: support.write,
    Task.STORY: story.write,
    Task.EXTRACTION: extraction.write,
    Task.CODE: code.write,
    Task.OTHER: write,
}
_REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I am not able to assist with this request.",
    "Sorry, that is something I cannot do.",
)
_RESPONSE_TAGS = re.compile(r"<response>", re.IGNORECASE)


def generate(request: Request, options: SimOptions | None = None) -> Completion:
    """Return the answer of `small` or `large`, decided by the request's address and the seed.

    The model sees the rendered messages and nothing else. Faults are not its business: see
    `faults.failure` and `faults.breakage`.
    """
    options = options or SimOptions()
    skill = SKILLS.get(request.model)
    if skill is None:
        raise UsageError(
            f"the simulator has no generating model {request.model!r}",
            hint=f"it has {', '.join(SKILLS)}, echo and script",
        )
    rng = stream(request.address, options.seed, "generate")
    text = _answer(request, options, skill, rng)
    return spoken(request, options, text, skill.pace, rng)


def _answer(request: Request, options: SimOptions, skill: Skill, rng: Random) -> str:
    assignment = read(request.messages)
    luck = Luck(rng, options.seed, _temperature(request.params))
    has = draw_qualities(assignment, skill, luck)
    if rng.random() < skill.mishaps * (3 if assignment.adversarial else 1):
        return "" if rng.random() < 0.35 else rng.choice(_REFUSALS)
    text = _WRITERS[assignment.task](Writing(assignment, has, rng, skill.courtesy))
    if _RESPONSE_TAGS.search(assignment.instructions):
        return f"<response>\n{text}\n</response>"
    return text


def _temperature(params: Mapping[str, Json]) -> float:
    value = params.get("temperature", 1.0)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 1.0
