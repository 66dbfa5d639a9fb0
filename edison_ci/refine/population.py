"""Which versions of a prompt live on in a search, and which of them has children?

A version that is best on a few cases knows something that the best one on average does not. So
versions are kept by the cases on which nobody is better (a Pareto front over cases, as GEPA does,
Agrawal et al. 2025), and have children as often as they hold such cases.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from edison_ci.frozen import dataclass
from edison_ci.rounding import exceeds, mean, mean_or_none, reaches, snap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from edison_ci.config.prompt import Prompt

How = Literal["base", "mutation", "crossover"]


@dataclass(frozen=True, slots=True)
class Member:
    """A version of the prompt that has answered the training cases."""

    version: str
    text: str
    """Of the prompt's file."""
    scores: Mapping[str, float]
    """Composite of each training case that has one, 0-1."""
    how: How = "base"
    parents: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What each change since the prompt as it is was meant to do."""
    born: int = 0
    """The generation that made it; 0 for the prompt as it is."""
    prompt: Prompt | None = field(default=None, compare=False, repr=False)
    run_id: str = field(default="", compare=False)
    """The run that measured it."""

    @property
    def mean(self) -> float:
        """Its mean over the cases that have a score; nothing is worth less than no score."""
        return mean(self.scores.values()) if self.scores else -1.0

    def mean_on(self, cases: Iterable[str]) -> float | None:
        """Return its mean over some cases; None if none of them has a score."""
        return mean_or_none([self.scores[case] for case in cases if case in self.scores])


def ranked(members: Iterable[Member]) -> list[Member]:
    """Return members by their mean, best first; of equals the shorter text, then the older."""
    return sorted(members, key=lambda one: (-snap(one.mean), len(one.text), one.born, one.version))


def dominates(one: Member, other: Member) -> bool:
    """Whether one is nowhere worse than another, and somewhere better."""
    if not other.scores.keys() <= one.scores.keys():
        return False
    gains = [one.scores[case] - score for case, score in other.scores.items()]
    more = len(one.scores) > len(other.scores)
    return all(reaches(gain, 0) for gain in gains) and (
        more or any(exceeds(gain, 0) for gain in gains)
    )


def front(members: Sequence[Member]) -> list[Member]:
    """Return the members that no other one dominates, in their order."""
    return [one for one in members if not any(dominates(other, one) for other in members)]


def champions(members: Sequence[Member]) -> dict[str, list[Member]]:
    """Return for each case the members that nobody beats on it."""
    best: dict[str, float] = {}
    for one in members:
        for case, score in one.scores.items():
            best[case] = max(score, best.get(case, -math.inf))
    return {
        case: [one for one in members if reaches(one.scores.get(case, -math.inf), score)]
        for case, score in sorted(best.items())
    }


def shares(members: Sequence[Member]) -> dict[str, float]:
    """Return by version how many cases a member of the front holds; a tie is divided.

    The shares add up to the number of cases.
    """
    ahead = front(members)
    found = dict.fromkeys((one.version for one in ahead), 0.0)
    for holders in champions(ahead).values():
        for one in holders:
            found[one.version] += 1 / len(holders)
    return found


def picked(members: Sequence[Member], rng: Random) -> Member:
    """Return a member of the front, each as likely as the share of cases that it holds."""
    held = shares(members)
    known = {one.version: one for one in members}
    if not any(held.values()):
        return ranked(members)[0]
    versions = sorted(held)
    return known[rng.choices(versions, [held[version] for version in versions])[0]]


def survivors(members: Sequence[Member], most: int, *, always: str) -> list[Member]:
    """Return at most so many members, best first, `always` among them.

    After it, each is the one that adds most cases on which nobody is better; then the best means.
    """
    held = {case: {one.version for one in holders} for case, holders in champions(members).items()}
    left = ranked({one.version: one for one in members}.values())
    kept = [one for one in left if one.version == always]
    while left and len(kept) < most:
        names = {one.version for one in kept}
        left = [one for one in left if one.version not in names]
        open_cases = [holders for holders in held.values() if not holders & names]
        if not left:
            break
        # `max` takes the first of equals, which is the one with the best mean.
        kept.append(max(left, key=lambda one: sum(one.version in each for each in open_cases)))
    return ranked(kept)
