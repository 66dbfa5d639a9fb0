"""The search for a better prompt, generation by generation.

    measure ──► children ──► a few cases ──► all training cases ──► who lives on ──┐
      (base)       ▲          (or drop)                                            │
                   └───────────────────────────────────────────────────────────────┘

Only training cases are measured here. A child is first tried on a few of them, drawn by lot, and
goes on if it does no worse there than its parent: most that do not help cost little. The best so
far is replaced only by what gains more than luck (STATS 16), or a search would drift on noise. All
lots are drawn from the seed, and what was answered is stored: the same command walks the same way.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import field
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import CallFailed, OutOfBudget
from edison_ci.refine.trying import trial_name
from edison_ci.refine.weaknesses import aside_in
from edison_ci.results.samples import TwoSidedSample, metric_of
from edison_ci.rounding import exceeds, mean, mean_or_none, reaches, snap
from edison_ci.stats.arrays import generator_for
from edison_ci.stats.convergence import accept, converged
from edison_ci.stats.sentences import points
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from edison_ci.config.prompt import Prompt
    from edison_ci.refine.breeding import Breeder, Child, Litter, Refusal
    from edison_ci.refine.search_budget import SearchBudget
    from edison_ci.refine.trying import Bench


# A version that is best on a few cases knows something that the best one on average does not. So
# versions are kept by the cases on which nobody is better (a Pareto front over cases, as GEPA
# does, Agrawal et al. 2025), and have children as often as they hold such cases.
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


SIEVE = 10
"""Training cases on which a child has to hold its own before it is measured on all of them."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a search goes."""

    population: int = 8
    """Versions that live on, and children of each generation."""
    generations: int = 10
    target: float | None = None
    """Score on the training cases at which it stops, 0-1."""
    seed: int = 0


class Generation(NamedTuple):
    """What a generation did."""

    number: int
    asked: int
    """Replies of the refiner."""
    refused: int
    """Of these, those that broke a guardrail."""
    crossed: int
    """Children of two parents, for which nobody was asked."""
    tried: int
    """Children that were tried on a few cases."""
    measured: int
    """Of these, those that were measured on all training cases."""
    best: float
    """Score of the best so far on the training cases, 0-1."""
    front: int
    """Versions that no other one beats on every case."""
    spent_microusd: int
    """By the search until then, its earlier starts included."""

    def as_json(self) -> dict[str, Any]:
        """Return it as it is stored and printed."""
        return self._asdict()


@dataclass(slots=True)
class Course:
    """How a search went."""

    base: Member
    best: Member
    """The best so far that gained more than luck; the base if none did."""
    members: list[Member]
    measured: dict[str, Member]
    """All versions that answered every training case."""
    generations: list[Generation] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stopped_by: str = ""

    def lineage(self) -> list[Member]:
        """Return the best one and all that it comes from, oldest first."""
        found: dict[str, Member] = {}
        open_names = [self.best.version]
        while open_names:
            one = self.measured[open_names.pop()]
            if one.version not in found:
                found[one.version] = one
                open_names += one.parents
        return sorted(found.values(), key=lambda one: (one.born, one.version))


@dataclass(frozen=True, slots=True)
class Search:
    """A search for better versions of a prompt."""

    bench: Bench
    breeder: Breeder
    reach: Reach
    seed: str
    """From which every lot is drawn."""
    budget: SearchBudget
    on_step: Callable[[str], None] = lambda _: None
    on_generation: Callable[[Generation], None] = lambda _: None

    def begin(self) -> Course:
        """Measure the prompt as it is."""
        subject = self.bench.subject
        tried = self.bench.measure_versions([subject.prompt])
        scores = self._scores(tried.run_id, subject.prompt)
        base = Member(
            subject.prompt.version, subject.text, scores, prompt=subject.prompt, run_id=tried.run_id
        )
        return Course(base, base, [base], {base.version: base})

    def go(self, course: Course) -> None:
        """Search until a rule stops it."""
        while not course.stopped_by:
            try:
                exhausted = self._generation(course, len(course.generations) + 1)
            except OutOfBudget:
                exhausted = True
            course.stopped_by = "budget" if exhausted else self._stop_rule(course)

    def _stop_rule(self, course: Course) -> str:
        reach, stop = self.reach, self.bench.subject.experiment.file.stop
        if reach.target is not None and reaches(course.best.mean, reach.target):
            return "target"
        scores = [course.base.mean, *(one.best for one in course.generations)]
        if converged(scores, min_delta=stop.min_delta, window=stop.window).value:
            return "converged"
        return "generations" if len(course.generations) >= reach.generations else ""

    # --- a generation -----------------------------------------------------------------------------

    def _generation(self, course: Course, number: int) -> bool:
        """Go through one generation; return whether the budget has no room for another."""
        most = self.reach.generations
        self.on_step(f"generation {number} of {most}: asking for {self.reach.population} versions")
        litter = self.breeder.litter(number, course.members, self.reach.population)
        course.refused += litter.refused
        course.failures += litter.failures
        if litter.failures and not litter.asked and not litter.children:
            raise CallFailed(
                f"the refiner could not be asked: {litter.failures[0]}",
                hint="see: edison models test; then the same command again",
            )
        passed = self._sieved(course, litter, number)
        room = self.budget.room(len(course.base.scores))
        grown = self._grown(passed[:room], number)
        course.measured |= {one.version: one for one in grown}
        self._select(course, grown)
        told = self._told(course, litter, number, len(grown))
        course.generations.append(told)
        self.on_generation(told)
        return bool(litter.exhausted) or room < len(passed)

    def _sieved(self, course: Course, litter: Litter, number: int) -> list[Child]:
        """Return the children that do no worse than their parents on a few cases, best first."""
        cases = sorted(course.base.scores)
        children = litter.children
        if not children or len(cases) <= SIEVE:
            return children
        rng = Random(f"{self.seed} {number} sieve")
        batch = frozenset(rng.sample(cases, SIEVE))
        self.on_step(f"  trying {len(children)} on {SIEVE} training cases")
        tried = self.bench.measure_versions([child.prompt for child in children], batch)
        passed: list[tuple[float, Child]] = []
        for child in children:
            after, before = _compared(child, self._scores(tried.run_id, child.prompt))
            if reaches(after, before):
                passed.append((snap(before - after), child))
            else:
                said = f"{points(after)} points after {points(before)} before"
                self.breeder.learn(child, f"{said}, on {SIEVE} training cases")
        return [child for _, child in sorted(passed, key=lambda one: one[0])]

    def _grown(self, children: Sequence[Child], number: int) -> list[Member]:
        """Return children as members, measured on all training cases."""
        if not children:
            return []
        self.on_step(f"  measuring {len(children)} on all training cases")
        tried = self.bench.measure_versions([child.prompt for child in children])
        return [
            Member(
                version=child.version,
                text=child.text,
                scores=self._scores(tried.run_id, child.prompt),
                how=child.how,
                parents=tuple(parent.version for parent in child.parents),
                notes=child.notes,
                born=number,
                prompt=child.prompt,
                run_id=tried.run_id,
            )
            for child in children
        ]

    def _select(self, course: Course, grown: Sequence[Member]) -> None:
        for one in ranked(grown):
            if gained(course.best, one):
                course.best = one
                break
        everybody = [*course.members, *(one for one in grown if one.scores)]
        most = self.reach.population
        course.members = survivors(everybody, most, always=course.best.version)

    def _told(self, course: Course, litter: Litter, number: int, measured: int) -> Generation:
        return Generation(
            number=number,
            asked=litter.asked,
            refused=len(litter.refused),
            crossed=litter.crossed,
            tried=len(litter.children),
            measured=measured,
            best=course.best.mean,
            front=len(front(course.members)),
            spent_microusd=self.budget.spent(),
        )

    def _scores(self, run_id: str, prompt: Prompt) -> dict[str, float]:
        """Return the composite of each case that a version has one for, as a run measured it."""
        name, aside = trial_name(prompt), aside_in(self.bench.subject)
        with closing(open_reader(self.bench.results)) as reader:
            cells = TwoSidedSample.of_run(reader, run_id, aside)
            own = [one for one in cells.subjects("head") if one.prompt == name]
            found = cells.sample(metric_of(cells, "composite"), own)
        return dict(zip(found.cases, found.values, strict=True))


def gained(best: Member, one: Member) -> bool:
    """Whether a member gains more than luck over the best so far, on the cases of both."""
    cases = sorted(best.scores.keys() & one.scores.keys())
    differences = [one.scores[case] - best.scores[case] for case in cases]
    return accept(differences, rng=generator_for(cases)).value


def _compared(child: Child, scores: dict[str, float]) -> tuple[float, float]:
    """Return the mean of a child and of its better parent, on the cases that all have."""
    cases = [case for case in scores if all(case in one.scores for one in child.parents)]
    bars = [bar for one in child.parents if (bar := one.mean_on(cases)) is not None]
    if not bars:
        return -1.0, 0.0  # nothing speaks for a child without a score
    return mean([scores[case] for case in cases]), max(bars)
