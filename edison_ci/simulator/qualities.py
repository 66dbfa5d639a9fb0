"""Qualities that a simulated answer will have, by task and instructions."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.simulator import code_task as code
from edison_ci.simulator import extraction_task as extraction
from edison_ci.simulator import story_task as story
from edison_ci.simulator import support_task as support
from edison_ci.simulator.assignment import Task
from edison_ci.simulator.features import Playbook, Stance, Understanding, any_of, understand
from edison_ci.simulator.pace import Pace, chance_of, leanings, logit, share_below

if TYPE_CHECKING:
    from random import Random

    from edison_ci.simulator.assignment import Assignment
    from edison_ci.simulator.features import Feature


PLAYBOOKS = {
    Task.SUPPORT: support.PLAYBOOK,
    Task.STORY: story.PLAYBOOK,
    Task.EXTRACTION: extraction.PLAYBOOK,
    Task.CODE: code.PLAYBOOK,
    Task.OTHER: Playbook((), any_of(r"\w+")),
}


@lru_cache(maxsize=1_024)
def understood(task: Task, instructions: str) -> Understanding:
    """Return what a model makes of the instructions for a task."""
    return understand(instructions, PLAYBOOKS[task])


def asked_for(task: Task, instructions: str) -> frozenset[str]:
    """Return the features that the instructions ask for without taking it back."""
    stances = understood(task, instructions).stances
    return frozenset(name for name, stance in stances.items() if stance is Stance.ASKED)


@dataclass(frozen=True, slots=True)
class Skill:
    """How good, how talkative and how fast a model is."""

    lift: float
    """Added to the log odds of every quality."""
    courtesy: float
    """Chance of one sentence more than needed."""
    mishaps: float
    """Chance of an answer that is empty or a refusal."""
    pace: Pace


SKILLS = {
    "small": Skill(lift=0.0, courtesy=0.25, mishaps=0.006, pace=Pace(180.0, 5.0)),
    "large": Skill(lift=0.28, courtesy=0.85, mishaps=0.003, pace=Pace(420.0, 13.0)),
}


@dataclass(frozen=True, slots=True)
class Luck:
    """The chance of one answer."""

    rng: Random
    seed: int
    temperature: float = 1.0

    def of(self, leaning: float) -> float:
        """Return a standard normal number that leans towards the case's own."""
        steady = min(0.9, max(0.1, 0.9 - 0.25 * self.temperature))
        return _mixed(leaning, self.rng.gauss(0, 1), steady)


_CONFUSED = 2.2
"""Log odds lost when a prompt is hardly readable."""
_COMMON = 0.18
"""Share of an answer's luck that all its qualities have in common."""


def draw_qualities(assignment: Assignment, skill: Skill, luck: Luck) -> dict[str, bool]:
    """Return which qualities the answer has.

    Part of the luck stays with the case whatever the prompt says, as hard cases are hard for every
    wording; a higher temperature leaves more of it to the draw. Chances are not changed by that.
    """
    features = PLAYBOOKS[assignment.task].features
    understanding = understood(assignment.task, assignment.instructions)
    shift = skill.lift - _CONFUSED * understanding.confusion - hardness(assignment)
    own = leanings("case", assignment.key, luck.seed, count=len(features) + 1)
    common = luck.of(own[-1])
    drawn: dict[str, bool] = {}
    for feature, lean in zip(features, own, strict=False):
        chance = chance_of(logit(_chance(feature, understanding.stances[feature.name])) + shift)
        drawn[feature.name] = share_below(_mixed(common, luck.of(lean), _COMMON)) < chance
    return drawn


def hardness(assignment: Assignment) -> float:
    """Return the log odds that a case takes away."""
    return 0.1 * (assignment.difficulty - 2) + (0.25 if assignment.adversarial else 0.0)


def _mixed(one: float, other: float, share: float) -> float:
    """Return a standard normal number made of two, the first with this share of the variance."""
    return float(share**0.5 * one + (1 - share) ** 0.5 * other)


def _chance(feature: Feature, stance: Stance) -> float:
    if stance is Stance.ASKED:
        return feature.asked
    if stance is Stance.AGAINST:
        return feature.silent * 0.35
    return feature.silent
