"""What does a simulated model answer?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.providers.sim import other
from edison_ci.providers.sim.assignment import read
from edison_ci.providers.sim.code import writer as code
from edison_ci.providers.sim.extraction import writer as extraction
from edison_ci.providers.sim.knowledge import Task
from edison_ci.providers.sim.options import SimOptions
from edison_ci.providers.sim.qualities import SKILLS, Luck, Skill, draw_qualities
from edison_ci.providers.sim.seeds import stream
from edison_ci.providers.sim.speaking import spoken
from edison_ci.providers.sim.story import writer as story
from edison_ci.providers.sim.support import writer as support
from edison_ci.providers.sim.writing import Writing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from edison_ci.records import Completion, Json, Request

_WRITERS = {
    Task.SUPPORT: support.write,
    Task.STORY: story.write,
    Task.EXTRACTION: extraction.write,
    Task.CODE: code.write,
    Task.OTHER: other.write,
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
