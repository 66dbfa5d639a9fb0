"""Which instructions matter for which task?"""

from __future__ import annotations

from functools import lru_cache

from edison_ci.providers.sim.code import instructions as code
from edison_ci.providers.sim.extraction import instructions as extraction
from edison_ci.providers.sim.features import Playbook, Stance, Understanding, any_of, understand
from edison_ci.providers.sim.knowledge import Task
from edison_ci.providers.sim.story import instructions as story
from edison_ci.providers.sim.support import instructions as support

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
