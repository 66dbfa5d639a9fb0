"""The search for a better prompt, generation by generation.

    measure ──► children ──► a few cases ──► all training cases ──► selection ─────┐
      (base)       ▲          (or drop)                                            │
                   └───────────────────────────────────────────────────────────────┘

A new version is either a mutation (a refiner sees a random sample of training cases that its parent
failed and writes one small change) or a crossover (the changes of two versions are combined,
without a call). A mutation keeps the limits of `edison refine` against its parent, and together
with all earlier changes the wider limits of a search against the current prompt.

Only training cases are used here; held-out cases are neither shown nor measured. A child is first
screened on a few random cases and continues only if it does no worse there than its parent, so that
bad versions cost little. The best version is replaced only by a gain beyond chance (STATS 16), or
the search would drift on noise. All random choices come from the seed and answers are stored: the
same command takes the same path.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from dataclasses import field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError
from edison_ci.documents.text_diff import PatchRefused, diff_of, parse_patch
from edison_ci.errors import CallFailed, OutOfBudget
from edison_ci.features.refine.population import (
    How,
    Member,
    cross,
    front,
    pick_parent,
    rank,
    survivors,
)
from edison_ci.features.refine.refiner import RefinePrompt, RejectedSuggestion, ask_refiner
from edison_ci.features.refine.trials import open_clients, run_async, trial_name
from edison_ci.features.refine.weaknesses import WeaknessScope, quarantined_cases, weaknesses
from edison_ci.numeric import mean, reaches, snap
from edison_ci.proposals.candidate import Change, RefineTarget, with_prompt
from edison_ci.proposals.guardrails import GuardrailContext, check_change, check_diff
from edison_ci.providers.budget import BudgetExhausted
from edison_ci.providers.resilience import ClientClosed
from edison_ci.records import Side
from edison_ci.results.metrics import metric_of
from edison_ci.results.samples import TwoSidedSample
from edison_ci.stats.arrays import generator_for
from edison_ci.stats.convergence import accept, converged
from edison_ci.stats.sentences import points
from edison_ci.store.database import open_reader
from edison_ci.store.suggestions import Guardrail, MadeBy

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from edison_ci.config.prompt import Prompt
    from edison_ci.features.refine.refiner import RefinerReply
    from edison_ci.features.refine.suggestions import History
    from edison_ci.features.refine.trials import SearchBudget, TrialRunner
    from edison_ci.features.refine.weaknesses import Weakness
    from edison_ci.judges.judge import Judge
    from edison_ci.proposals.candidate import Candidate
    from edison_ci.records import Case


SAMPLE_CASES = 12
"""Random training cases from which a refiner sees failures. Few, so that questions differ and no
version is fitted to one set of cases."""
CROSS_EVERY = 4
"""Every n-th child is a crossover, once the front has two members."""
_MOST_FAILED = 3
"""Failed children of a parent that are shown to the refiner."""
_KNOWN = "the search has this version already"


@dataclass(frozen=True, slots=True)
class Offspring:
    """A new version that passed every guardrail and is not measured yet."""

    prompt: Prompt
    text: str
    how: How
    parents: tuple[Member, ...]
    notes: tuple[str, ...]

    @property
    def version(self) -> str:
        """The version of the prompt."""
        return self.prompt.version


class GuardrailRefusal(NamedTuple):
    """A refiner's reply that broke a guardrail, with its question."""

    question: RefinePrompt
    reply: RefinerReply


@dataclass(slots=True)
class GenerationResult:
    """The children of a generation, with refused replies and failed calls."""

    children: list[Offspring] = field(default_factory=list)
    refused: list[GuardrailRefusal] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    replies: int = 0
    exhausted: str = ""
    """The budget that had no room for another call."""

    @property
    def crossed(self) -> int:
        """Number of crossovers."""
        return sum(child.how == "crossover" for child in self.children)


class _MutationRequest(NamedTuple):
    """A mutation to ask the refiner for."""

    parent: Member
    question: RefinePrompt
    repeat: int
    background: GuardrailContext


class OffspringMaker:
    """Makes the children of each generation, reproducibly from the seed."""

    def __init__(self, trials: TrialRunner, refiner: Judge, history: History, *, seed: str) -> None:
        self._trials, self._refiner, self._history, self._seed = trials, refiner, history, seed
        self._known = {trials.target.prompt.version: _KNOWN, **history.known}
        self._asked: Counter[str] = Counter()
        self._failed: dict[str, list[RejectedSuggestion]] = {}
        self._answers: dict[str, None] = {}

    def make(self, number: int, members: Sequence[Member], size: int) -> GenerationResult:
        """Make the children of a generation; refused replies and failed calls are results too."""
        result, requests = GenerationResult(), []
        ahead = front(members)
        with closing(open_reader(self._trials.results)) as reader:
            for slot in range(size):
                rng = Random(f"{self._seed} {number} {slot}")
                child = None
                if slot % CROSS_EVERY == CROSS_EVERY - 1 and len(ahead) > 1:
                    child = self._cross(ahead, rng)
                if child is not None:
                    result.children.append(child)
                    continue
                request = self._mutation(reader, pick_parent(members, rng), rng)
                requests += [request] if request is not None else []
        if requests:
            run_async(self._ask(requests, result))
        return result

    def learn(self, child: Offspring, reason: str) -> None:
        """Remember that a child was no better than its parent, to inform the refiner."""
        for parent in child.parents[:1] if child.how == "mutation" else ():
            diff = diff_of(child.prompt.path, parent.text, child.text)
            past = RejectedSuggestion(child.notes[-1], diff, "tried, and not shown to help", reason)
            self._failed.setdefault(parent.version, []).append(past)

    def as_one_change(self, text: str, notes: Sequence[str]) -> Candidate:
        """Return a version as one change of the base prompt, checked against all guardrails."""
        target = self._trials.target
        diff = diff_of(target.prompt.path, target.text, text)
        background = self._background(dict(self._history.known), made_by=MadeBy.OPTIMIZE)
        return check_diff(target, diff, "\n".join(dict.fromkeys(notes)), background)

    def _cross(self, members: Sequence[Member], rng: Random) -> Offspring | None:
        first = pick_parent(members, rng)
        second = pick_parent([member for member in members if member.version != first.version], rng)
        text = cross(self._trials.target.text, first.text, second.text)
        if text is None:
            return None
        notes = tuple(dict.fromkeys((*first.notes, *second.notes)))
        candidate = self.as_one_change(text, notes)
        change = candidate.change
        if change is None or change.prompt is None or not candidate.ok:
            return None
        if change.prompt.version in self._known:
            return None
        self._known[change.prompt.version] = _KNOWN
        return Offspring(change.prompt, text, "crossover", (first, second), notes)

    def _mutation(
        self, reader: sqlite3.Connection, parent: Member, rng: Random
    ) -> _MutationRequest | None:
        """Return the question about a parent; None if it has no weakness."""
        target = self._target_of(parent)
        weakness = self._weakness_in_sample(reader, target, parent, rng)
        if not weakness.targets:
            return None
        past = (*self._history.past, *self._failed.get(parent.version, [])[-_MOST_FAILED:])
        question = RefinePrompt(target, self._refiner, weakness, past)
        self._answers |= dict.fromkeys(example.answer for example in weakness.examples)
        repeat = self._asked[parent.version]
        self._asked[parent.version] += 1
        background = self._background(dict(self._known), parent=parent)
        return _MutationRequest(parent, question, repeat, background)

    def _target_of(self, member: Member) -> RefineTarget:
        base = self._trials.target
        assert member.prompt is not None, "members of a search have been parsed"
        experiment = with_prompt(base.experiment, member.prompt)
        return RefineTarget(base.project, experiment, member.text, base.holdout)

    def _weakness_in_sample(
        self, reader: sqlite3.Connection, target: RefineTarget, parent: Member, rng: Random
    ) -> Weakness:
        cases = sorted(parent.scores)
        sample = frozenset(rng.sample(cases, min(SAMPLE_CASES, len(cases))))
        name = trial_name(target.prompt)
        weakness = weaknesses(reader, target, parent.run_id, WeaknessScope(name, sample))
        return (
            weakness
            if weakness.targets
            else weaknesses(reader, target, parent.run_id, WeaknessScope(name))
        )

    def _background(
        self,
        excluded: dict[str, str],
        *,
        made_by: MadeBy = MadeBy.REFINE,
        parent: Member | None = None,
    ) -> GuardrailContext:
        target = self._trials.target

        def cases() -> Iterator[Case]:
            return iter(target.project.cases(target.experiment))

        def further(change: Change) -> list[Guardrail]:
            return self._too_far(change) if parent is not None and parent.parents else []

        return GuardrailContext(cases, tuple(self._answers), excluded, made_by, further)

    def _too_far(self, step: Change) -> list[Guardrail]:
        """Return the rules that a step breaks together with all earlier steps."""
        target = self._trials.target
        path = target.prompt.path
        try:
            patch = parse_patch(diff_of(path, target.text, step.text), path)
        except PatchRefused as refused:
            return [Guardrail("whole", False, f"with all changes before it: {refused.reason}")]
        change = Change(target, patch, step.text, step.experiment, step.problems)
        background = self._background({}, made_by=MadeBy.OPTIMIZE)
        return [
            Guardrail(f"whole_{rail.rule}", False, f"with all changes before it: {rail.detail}")
            for rail in check_change(change, background)
            if not rail.ok
        ]

    async def _ask(self, requests: Sequence[_MutationRequest], result: GenerationResult) -> None:
        async with open_clients(self._trials) as clients:
            answer = clients.of(self._refiner.model, "refine").answer
            # Concurrently: replies of one generation do not depend on each other.
            replies = await asyncio.gather(
                *(
                    ask_refiner(request.question, request.repeat, answer, request.background)
                    for request in requests
                ),
                return_exceptions=True,
            )
        for request, reply in zip(requests, replies, strict=True):
            if isinstance(reply, BudgetExhausted):
                result.exhausted = reply.refused.cap.name
            elif isinstance(reply, CallError | ClientClosed):
                result.failures.append(str(reply) or type(reply).__name__)
            elif isinstance(reply, BaseException):
                raise reply
            else:
                self._add(request, reply, result)

    def _add(
        self, request: _MutationRequest, replies: Sequence[RefinerReply], result: GenerationResult
    ) -> None:
        result.replies += len(replies)
        result.refused += [
            GuardrailRefusal(request.question, other) for other in replies if not other.candidate.ok
        ]
        candidate = replies[-1].candidate
        change = candidate.change
        if not candidate.ok or change is None or change.prompt is None:
            return
        if change.prompt.version in self._known:  # made twice in this generation
            return
        self._known[change.prompt.version] = _KNOWN
        notes = (*request.parent.notes, candidate.note)
        child = Offspring(change.prompt, change.text, "mutation", (request.parent,), notes)
        result.children.append(child)


SCREEN_CASES = 10
"""Training cases on which a child is screened before it is measured on all of them."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Limits of a search."""

    population: int = 8
    """Size of the population, and number of children per generation."""
    generations: int = 10
    target: float | None = None
    """Score on the training cases (0-1) at which the search stops."""
    seed: int = 0


class Generation(NamedTuple):
    """Statistics of one generation, as they are stored and printed."""

    number: int
    asked: int
    """Replies of the refiner."""
    refused: int
    """Replies that broke a guardrail."""
    crossed: int
    """Crossovers, which need no call."""
    tried: int
    """Children that were screened on a few cases."""
    measured: int
    """Children that were measured on all training cases."""
    best: float
    """Best score so far on the training cases, 0-1."""
    front: int
    """Size of the Pareto front."""
    spent_microusd: int
    """Total cost of the search so far, earlier starts included."""


@dataclass(slots=True)
class SearchResult:
    """State and outcome of a search."""

    base: Member
    best: Member
    """The best version whose gain is beyond chance; the base if there is none."""
    members: list[Member]
    measured: dict[str, Member]
    """All versions that were measured on every training case."""
    generations: list[Generation] = field(default_factory=list)
    refused: list[GuardrailRefusal] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stopped_by: str = ""

    def lineage(self) -> list[Member]:
        """Return the best version and its ancestors, oldest first."""
        by_version: dict[str, Member] = {}
        open_names = [self.best.version]
        while open_names:
            member = self.measured[open_names.pop()]
            if member.version not in by_version:
                by_version[member.version] = member
                open_names += member.parents
        return sorted(by_version.values(), key=lambda member: (member.born, member.version))


@dataclass(frozen=True, slots=True)
class Search:
    """A search for better versions of a prompt."""

    trials: TrialRunner
    offspring: OffspringMaker
    limits: SearchLimits
    seed: str
    """Seed of every random choice."""
    budget: SearchBudget
    on_step: Callable[[str], None] = lambda _: None
    on_generation: Callable[[Generation], None] = lambda _: None

    def measure_base(self) -> SearchResult:
        """Measure the base prompt on the training cases."""
        target = self.trials.target
        tried = self.trials.measure_versions([target.prompt])
        scores = self._scores(tried.run_id, target.prompt)
        base = Member(
            target.prompt.version, target.text, scores, prompt=target.prompt, run_id=tried.run_id
        )
        return SearchResult(base, base, [base], {base.version: base})

    def run(self, course: SearchResult) -> None:
        """Run generations until a stop rule applies."""
        while not course.stopped_by:
            try:
                exhausted = self._generation(course, len(course.generations) + 1)
            except OutOfBudget:
                exhausted = True
            course.stopped_by = "budget" if exhausted else self._stop_rule(course)

    def _stop_rule(self, course: SearchResult) -> str:
        limits, stop = self.limits, self.trials.target.experiment.file.stop
        if limits.target is not None and reaches(course.best.mean, limits.target):
            return "target"
        scores = [course.base.mean, *(generation.best for generation in course.generations)]
        if converged(scores, min_delta=stop.min_delta, window=stop.window).value:
            return "converged"
        return "generations" if len(course.generations) >= limits.generations else ""

    def _generation(self, course: SearchResult, number: int) -> bool:
        """Run one generation; return whether the budget has no room for another."""
        most = self.limits.generations
        self.on_step(f"generation {number} of {most}: asking for {self.limits.population} versions")
        made = self.offspring.make(number, course.members, self.limits.population)
        course.refused += made.refused
        course.failures += made.failures
        if made.failures and not made.replies and not made.children:
            raise CallFailed(
                f"every call to the refiner failed: {made.failures[0]}",
                hint="check the model with edison models test, then repeat the command",
            )
        passed = self._screen(course, made.children, number)
        room = self.budget.room(len(course.base.scores))
        grown = self._measure(passed[:room], number)
        course.measured |= {member.version: member for member in grown}
        self._select(course, grown)
        record = self._record(course, made, number, len(grown))
        course.generations.append(record)
        self.on_generation(record)
        return bool(made.exhausted) or room < len(passed)

    def _screen(
        self, course: SearchResult, children: list[Offspring], number: int
    ) -> list[Offspring]:
        """Return the children that do no worse than their parents on a few cases, best first."""
        cases = sorted(course.base.scores)
        if not children or len(cases) <= SCREEN_CASES:
            return children
        rng = Random(f"{self.seed} {number} sieve")
        batch = frozenset(rng.sample(cases, SCREEN_CASES))
        self.on_step(f"  trying {len(children)} on {SCREEN_CASES} training cases")
        tried = self.trials.measure_versions([child.prompt for child in children], batch)
        passed: list[tuple[float, Offspring]] = []
        for child in children:
            after, before = _means_on_shared_cases(child, self._scores(tried.run_id, child.prompt))
            if reaches(after, before):
                passed.append((snap(before - after), child))
            else:
                change = f"{points(after)} points after {points(before)} before"
                self.offspring.learn(child, f"{change}, on {SCREEN_CASES} training cases")
        return [child for _, child in sorted(passed, key=lambda pair: pair[0])]

    def _measure(self, children: Sequence[Offspring], number: int) -> list[Member]:
        """Measure children on all training cases and return them as members."""
        if not children:
            return []
        self.on_step(f"  measuring {len(children)} on all training cases")
        tried = self.trials.measure_versions([child.prompt for child in children])
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

    def _select(self, course: SearchResult, grown: Sequence[Member]) -> None:
        for one in rank(grown):
            if is_gain(course.best, one):
                course.best = one
                break
        everybody = [*course.members, *(one for one in grown if one.scores)]
        most = self.limits.population
        course.members = survivors(everybody, most, always=course.best.version)

    def _record(
        self, course: SearchResult, made: GenerationResult, number: int, measured: int
    ) -> Generation:
        return Generation(
            number=number,
            asked=made.replies,
            refused=len(made.refused),
            crossed=made.crossed,
            tried=len(made.children),
            measured=measured,
            best=course.best.mean,
            front=len(front(course.members)),
            spent_microusd=self.budget.spent(),
        )

    def _scores(self, run_id: str, prompt: Prompt) -> dict[str, float]:
        """Return the composite score by case that a run measured for a version."""
        name, aside = trial_name(prompt), quarantined_cases(self.trials.target)
        with closing(open_reader(self.trials.results)) as reader:
            cells = TwoSidedSample.of_run(reader, run_id, aside)
            own = [variant for variant in cells.variants(Side.HEAD) if variant.prompt == name]
            sample = cells.sample(metric_of(cells, "composite"), own)
        return dict(zip(sample.cases, sample.values, strict=True))


def is_gain(best: Member, one: Member) -> bool:
    """Whether a member gains beyond chance over the best so far, on the cases of both."""
    cases = sorted(best.scores.keys() & one.scores.keys())
    differences = [one.scores[case] - best.scores[case] for case in cases]
    return accept(differences, rng=generator_for(cases)).value


def _means_on_shared_cases(child: Offspring, scores: dict[str, float]) -> tuple[float, float]:
    """Return the means of a child and of its better parent on the cases that all have."""
    cases = [case for case in scores if all(case in parent.scores for parent in child.parents)]
    bars = [bar for parent in child.parents if (bar := parent.mean_on(cases)) is not None]
    if not bars:
        return -1.0, 0.0  # a child without a score is dropped
    return mean([scores[case] for case in cases]), max(bars)
