"""How does a simulated judge score an answer, and which of two does it prefer?"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.providers.sim import plain_text
from edison_ci.providers.sim.code import observer as code
from edison_ci.providers.sim.exhibit import Exhibit, Seen, clamped
from edison_ci.providers.sim.extraction import observer as extraction
from edison_ci.providers.sim.knowledge import Task
from edison_ci.providers.sim.story import observer as story
from edison_ci.providers.sim.support import observer as support
from edison_ci.rounding import mean, mean_or_none, weighted_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from edison_ci.records import Json

CEILING = 0.94
"""Mean share of the scale that a faultless answer gets: no judge is that easily pleased."""
_EAGERNESS = 9.0
"""How steeply a difference in quality turns into a preference."""
_TIE = 0.06
_READ_CHARS = 20_000
"""A judge reads no further."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing to score, as a rubric names it."""

    name: str
    description: str = ""
    minimum: float = 0.0
    maximum: float = 5.0
    lower_is_better: bool = False


class Score(NamedTuple):
    """A score on its criterion's scale, and why."""

    score: float
    reason: str


class Preference(NamedTuple):
    """Which of two answers is better: `first`, `second` (as shown) or `tie`."""

    winner: str
    reason: str


_OBSERVERS = {
    Task.SUPPORT: support.observe,
    Task.STORY: story.observe,
    Task.EXTRACTION: extraction.observe,
    Task.CODE: code.observe,
}
_CRITERIA = {
    Task.SUPPORT: support.CRITERIA,
    Task.STORY: story.CRITERIA,
    Task.EXTRACTION: extraction.CRITERIA,
    Task.CODE: code.CRITERIA,
}
_ALIASES = {
    Task.SUPPORT: support.ALIASES,
    Task.STORY: story.ALIASES,
    Task.EXTRACTION: extraction.ALIASES,
    Task.CODE: code.ALIASES,
}
_INPUT_SIGNS = (
    (Task.SUPPORT, {"message"}),
    (Task.STORY, {"brief"}),
    (Task.EXTRACTION, {"document"}),
    (Task.CODE, {"task", "signature"}),
)


def task_of(inputs: Mapping[str, Json]) -> Task:
    """Return the task whose cases have inputs like these."""
    for task, names in _INPUT_SIGNS:
        if names <= set(inputs):
            return task
    return Task.OTHER


def observe(exhibit: Exhibit) -> dict[str, Seen]:
    """Return how much of each quality an answer shows; nothing for an unknown task."""
    observer = _OBSERVERS.get(exhibit.task)
    if observer is None:
        return {}
    shortened = replace(exhibit, output=exhibit.output[:_READ_CHARS])
    return observer(shortened)


def score(
    exhibit: Exhibit, criteria: Sequence[Criterion], rng: Random, *, noise: float = 0.05
) -> dict[str, Score]:
    """Return the score of each criterion, from the text alone.

    `noise` is a standard deviation as a share of the scale. Rounding to the steps of the scale is
    left to chance in proportion, so that it moves no mean.
    """
    seen = observe(exhibit)
    scores: dict[str, Score] = {}
    for criterion in criteria:
        value, remark = _quality(exhibit, criterion, seen)
        share = clamped(CEILING * value + rng.gauss(0.0, noise))
        if criterion.lower_is_better:
            share = 1.0 - share
        scores[criterion.name] = Score(_on_scale(criterion, share, rng), remark)
    return scores


def pairwise(
    shown: tuple[Exhibit, Exhibit],
    criteria: Sequence[Criterion],
    rng: Random,
    *,
    noise: float = 0.05,
    position_bias: float = 0.0,
) -> Preference:
    """Return which of two answers to one case is better, in the order in which they are shown.

    `position_bias` is added to the chance that the first one wins.
    """
    first, second = shown
    one, other = (_overall(exhibit, criteria) + rng.gauss(0.0, noise) for exhibit in shown)
    chance = clamped(1.0 / (1.0 + math.exp(-_EAGERNESS * (one - other))) + position_bias)
    draw = rng.random()
    if abs(draw - chance) < _TIE * (1.0 - 2.0 * abs(0.5 - chance)):
        return Preference("tie", "both do the same well")
    winner = "first" if draw < chance else "second"
    better, worse = (first, second) if winner == "first" else (second, first)
    return Preference(winner, _difference(better, worse, criteria))


def _overall(exhibit: Exhibit, criteria: Sequence[Criterion]) -> float:
    seen = observe(exhibit)
    if not criteria:
        return mean_or_none([value.value for value in seen.values()]) or 0.0
    return mean([_quality(exhibit, criterion, seen).value for criterion in criteria])


def _difference(better: Exhibit, worse: Exhibit, criteria: Sequence[Criterion]) -> str:
    mine, theirs = observe(better), observe(worse)
    gaps = [
        (_quality(better, c, mine).value - _quality(worse, c, theirs).value, c) for c in criteria
    ]
    if not gaps:
        return "the better answer as a whole"
    gap, criterion = max(gaps, key=lambda pair: pair[0])
    if gap <= 0:
        return "close, but the better answer as a whole"
    return f"better in {criterion.name}: {_quality(better, criterion, mine).remark}"


def _quality(exhibit: Exhibit, criterion: Criterion, seen: Mapping[str, Seen]) -> Seen:
    """Return how well an answer meets a criterion, with what weighs most against it."""
    parts = _parts_of(exhibit.task, criterion)
    if not parts or not seen:
        return plain_text.quality(exhibit, criterion.name, criterion.description)
    value = weighted_mean([(weight, seen[name].value) for name, weight in parts.items()])
    losses = {name: weight * (1 - seen[name].value) for name, weight in parts.items()}
    return Seen(value or 0.0, seen[max(losses, key=lambda name: losses[name])].remark)


def _parts_of(task: Task, criterion: Criterion) -> Mapping[str, float]:
    """Return what a criterion is made of: by its name, else by what its words say."""
    known = _CRITERIA.get(task, {})
    name = criterion.name.lower().strip()
    if name in known:
        return known[name]
    for text in (name, criterion.description.lower()):
        for alias, pattern in _ALIASES.get(task, {}).items():
            if pattern.search(text):
                return known[alias]
    return {}


def _on_scale(criterion: Criterion, share: float, rng: Random) -> float:
    low, high = criterion.minimum, criterion.maximum
    step = _step(high - low)
    steps = (high - low) * share / step
    whole = math.floor(steps)
    rounded = whole + (rng.random() < steps - whole)
    return min(high, max(low, round(low + rounded * step, 6)))


def _step(width: float) -> float:
    """Return the distance between two scores that a judge tells apart."""
    if width <= 1:
        return width / 10 or 1.0
    return 0.5 if width <= 10 else 1.0
