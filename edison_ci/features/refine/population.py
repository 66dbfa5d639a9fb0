"""The population of a search: versions of a prompt, their selection, and crossovers.

A version that is best on a few cases can do something that the best one on average cannot. So the
population is a Pareto front over cases (as in GEPA, Agrawal et al. 2025), and a version becomes a
parent in proportion to the cases on which no other version beats it.

Both versions of a crossover are changes of one base text. A change that only one of them makes is
kept. Where both add lines at the same place, both additions follow each other without duplicate
lines. Where both rewrite the same lines, the first version wins.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.text_diff import matcher
from edison_ci.numeric import exceeds, mean, mean_or_none, reaches, snap

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
    """The purpose of each change since the base prompt."""
    born: int = 0
    """The generation that made it; 0 for the base prompt."""
    prompt: Prompt | None = field(default=None, compare=False, repr=False)
    run_id: str = field(default="", compare=False)
    """The run that measured it."""

    @property
    def mean(self) -> float:
        """Mean over the cases that have a score; -1 without any, below every real score."""
        return mean(self.scores.values()) if self.scores else -1.0

    def mean_on(self, cases: Iterable[str]) -> float | None:
        """Return the mean over some cases; None if none of them has a score."""
        return mean_or_none([self.scores[case] for case in cases if case in self.scores])


def rank(members: Iterable[Member]) -> list[Member]:
    """Sort members by mean score, best first; ties by shorter text, then by age."""
    return sorted(members, key=lambda m: (-snap(m.mean), len(m.text), m.born, m.version))


def dominates(one: Member, other: Member) -> bool:
    """Whether `one` is nowhere worse than `other`, and somewhere better."""
    if not other.scores.keys() <= one.scores.keys():
        return False
    gains = [one.scores[case] - score for case, score in other.scores.items()]
    more = len(one.scores) > len(other.scores)
    return all(reaches(gain, 0) for gain in gains) and (
        more or any(exceeds(gain, 0) for gain in gains)
    )


def front(members: Sequence[Member]) -> list[Member]:
    """Return the Pareto front: the members that no other member dominates."""
    return [member for member in members if not any(dominates(other, member) for other in members)]


def champions(members: Sequence[Member]) -> dict[str, list[Member]]:
    """Return for each case the members with the best score on it."""
    best: dict[str, float] = {}
    for member in members:
        for case, score in member.scores.items():
            best[case] = max(score, best.get(case, -math.inf))
    return {
        case: [member for member in members if reaches(member.scores.get(case, -math.inf), score)]
        for case, score in sorted(best.items())
    }


def shares(members: Sequence[Member]) -> dict[str, float]:
    """Return, by version, how many cases each member of the front leads; ties are split.

    The shares add up to the number of cases.
    """
    ahead = front(members)
    share_by_version = dict.fromkeys((member.version for member in ahead), 0.0)
    for holders in champions(ahead).values():
        for member in holders:
            share_by_version[member.version] += 1 / len(holders)
    return share_by_version


def pick_parent(members: Sequence[Member], rng: Random) -> Member:
    """Draw a member of the front with probability proportional to the cases that it leads."""
    share_by_version = shares(members)
    by_version = {member.version: member for member in members}
    if not any(share_by_version.values()):
        return rank(members)[0]
    versions = sorted(share_by_version)
    weights = [share_by_version[version] for version in versions]
    return by_version[rng.choices(versions, weights)[0]]


def survivors(members: Sequence[Member], most: int, *, always: str) -> list[Member]:
    """Return at most `most` members, best first, `always` among them.

    After `always`, each pick is the member that leads most cases not led by the earlier picks; ties
    go to the better mean.
    """
    held = {
        case: {member.version for member in holders} for case, holders in champions(members).items()
    }
    left = rank({member.version: member for member in members}.values())
    kept = [member for member in left if member.version == always]
    while left and len(kept) < most:
        names = {member.version for member in kept}
        left = [member for member in left if member.version not in names]
        open_cases = [holders for holders in held.values() if not holders & names]
        if not left:
            break
        leads = Counter(version for holders in open_cases for version in holders)
        # `max` takes the first of equals, which is the one with the best mean.
        kept.append(max(left, key=lambda member: leads[member.version]))
    return rank(kept)


_WORD = re.compile(r"\w+")


class Edit(NamedTuple):
    """A replacement of lines `start` to `stop` (exclusive); an insertion where they are equal."""

    start: int
    stop: int
    lines: tuple[str, ...]

    @property
    def adds(self) -> bool:
        """Whether it removes nothing."""
        return self.start == self.stop

    def clashes(self, other: Edit) -> bool:
        """Whether both edits change the same lines."""
        if self.adds and other.adds:
            return False
        if self.adds:
            return other.start < self.start < other.stop
        if other.adds:
            return self.start < other.start < self.stop
        return self.start < other.stop and other.start < self.stop


def edits(before: str, after: str) -> list[Edit]:
    """Return the edits from one text to another, in line order."""
    old, new = before.split("\n"), after.split("\n")
    return [
        Edit(start, stop, tuple(new[new_start:new_stop]))
        for tag, start, stop, new_start, new_stop in matcher(old, new).get_opcodes()
        if tag != "equal"
    ]


def apply_edits(text: str, changes: Sequence[Edit]) -> str:
    """Apply edits that do not clash and are in line order."""
    lines, at = text.split("\n"), 0
    changed: list[str] = []
    for edit in changes:
        changed += lines[at : edit.start]
        changed += edit.lines
        at = edit.stop
    return "\n".join([*changed, *lines[at:]])


def cross(base: str, first: str, second: str) -> str | None:
    """Return the base text with the changes of both versions; None if that is no new text."""
    text = apply_edits(base, _merge_edits(edits(base, first), edits(base, second)))
    return None if text in (base, first, second) else text


def _merge_edits(own: Sequence[Edit], others: Sequence[Edit]) -> list[Edit]:
    """Return the edits of both in line order; insertions come before replacements."""
    by_place = {(edit.start, edit.stop): edit for edit in own}
    own_words = {_words(line) for edit in own for line in edit.lines}
    for edit in others:
        if edit in own or any(edit.clashes(mine) for mine in own):
            continue
        lines = edit.lines
        if edit.adds:
            lines = tuple(
                line for line in lines if not line.strip() or _words(line) not in own_words
            )
            if lines != edit.lines and not any(line.strip() for line in lines):
                continue
        place = (edit.start, edit.stop)
        before = by_place[place].lines if place in by_place else ()
        by_place[place] = Edit(*place, (*before, *lines))
    return sorted(by_place.values())


def _words(line: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(line.casefold()))
