"""Optimization: a search over prompt versions, turned into one suggestion with evidence.

    search (training cases) ──► winner ──► all guardrails ──► measure on all cases ──► store

The winner is the best of many versions on the training cases, so its gain there is biased upwards.
The held-out cases are used once, for the winner alone, and must show a gain by themselves. A search
is identified by its inputs, so the same command continues it; its budget includes earlier starts,
and a part of the budget is reserved for the final check.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, closing
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.errors import BusyError, UsageError
from edison_ci.features.refine import evidence as refine_evidence
from edison_ci.features.refine import refiner as refine_refiner
from edison_ci.features.refine import suggestions as refine_suggestions
from edison_ci.features.refine import trials as refine_trials
from edison_ci.features.refine import weaknesses as refine_weaknesses
from edison_ci.features.refine.population import rank
from edison_ci.features.refine.search import Generation, OffspringMaker, Search, SearchLimits
from edison_ci.plan import plan as planning
from edison_ci.plan import selection as plan_selection
from edison_ci.proposals import guardrails
from edison_ci.records import canonical_json
from edison_ci.stats import convergence
from edison_ci.store import database, liveness, runs
from edison_ci.store import suggestions as store_suggestions

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from edison_ci.execute.run_options import RunContext
    from edison_ci.features.refine.population import Member
    from edison_ci.features.refine.search import SearchResult
    from edison_ci.features.refine.weaknesses import Weakness
    from edison_ci.judges.judge import Judge
    from edison_ci.proposals.candidate import RefineTarget
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.ledger import SpendingCap
    from edison_ci.store.suggestions import Suggestion

    ContextFactory = Callable[[SpendingCap], AbstractContextManager[RunContext]]


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """Options of a search."""

    limits: SearchLimits = field(default_factory=SearchLimits)
    budget_microusd: int | None = None
    force: bool = False
    """Whether to propose the winner even without evidence that it helps."""
    allow_code: bool = False
    on_step: Callable[[str], None] = lambda _: None
    on_generation: Callable[[Generation], None] = lambda _: None
    audit: Callable[[Sequence[Suggestion]], AuditEntry] | None = None
    """Makes the audit entry of the suggestions."""
    on_stored: Callable[[sqlite3.Connection, Sequence[Suggestion]], None] = lambda *_: None
    """Called in the transaction that stores the suggestions."""


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """Outcome of a search."""

    id: str
    weakness: Weakness
    """Of the base prompt."""
    search: SearchResult
    simulation: str
    cost_microusd: int
    """Cost of the whole search, earlier starts included."""
    suggestions: tuple[Suggestion, ...] = ()
    """The winner, if there is one, then the refused candidates."""


def optimize(
    target: RefineTarget, refiner: Judge, open_context: ContextFactory, options: OptimizeOptions
) -> OptimizeResult:
    """Search for a better prompt, check the winner on held-out cases, and store it."""
    require_enough_cases(target)
    locks = target.project.root / ".edison" / "locks"
    name = target.experiment.id
    with ExitStack() as stack:
        try:
            stack.enter_context(
                liveness.experiment_lock(locks, f"{name}.search", f"search for {name}")
            )
        except BusyError:
            raise BusyError(
                f"another search for {name} is running", hint="stop it with Ctrl-C, or wait"
            ) from None
        return SearchContext.of(target, refiner, open_context, options).run()


def require_enough_cases(target: RefineTarget) -> tuple[int, int]:
    """Return the numbers of training and held-out cases; raise UsageError if they are too few."""
    train, holdout = (
        cases - refine_weaknesses.quarantined_cases(target)
        for cases in refine_evidence.split_cases(target)
    )
    if not holdout:
        raise UsageError(
            f"{target.experiment.id} has no held-out cases, so a gain cannot be verified",
            hint="set split: {holdout: 0.4} in the experiment, or add cases",
        )
    if len(train) < convergence.FEWEST_SEARCH_CASES:
        raise UsageError(
            f"a search needs {convergence.FEWEST_SEARCH_CASES} training cases, "
            f"but there are {len(train)}",
            hint="add cases, or use edison refine, which works with fewer",
        )
    return len(train), len(holdout)


@dataclass(frozen=True, slots=True)
class SearchContext:
    """Dependencies, budget and options of one search."""

    id: str
    trials: refine_trials.TrialRunner
    refiner: Judge
    history: refine_suggestions.History
    budget: refine_trials.SearchBudget
    options: OptimizeOptions

    @classmethod
    def of(
        cls,
        target: RefineTarget,
        refiner: Judge,
        open_context: ContextFactory,
        options: OptimizeOptions,
    ) -> SearchContext:
        """Return the context of a search, with the history of the prompt and its budget."""
        results = target.project.root / target.project.file.results
        history = refine_suggestions.History((), {})
        if results.exists():
            with closing(database.open_reader(results)) as reader:
                history = refine_suggestions.history_of(reader, target, force=options.force)
        name = _identity(target, refiner, history, options.limits)
        budget = refine_trials.SearchBudget.of(target, name, options.budget_microusd)
        trials = refine_trials.TrialRunner(
            target,
            lambda: open_context(budget.cap),
            refine_trials.Allowance(None),
            allow_code=options.allow_code,
        )
        return cls(name, trials, refiner, history, budget, options)

    def run(self) -> OptimizeResult:
        """Search, check the winner on all cases, and store the suggestions."""
        options, target = self.options, self.trials.target
        seed = f"{options.limits.seed} {target.prompt.version}"
        offspring = OffspringMaker(self.trials, self.refiner, self.history, seed=seed)
        search = Search(
            self.trials,
            offspring,
            options.limits,
            seed,
            self.budget,
            options.on_step,
            options.on_generation,
        )
        before = self.budget.spent()
        options.on_step("measuring the current prompt on the training cases")
        course = search.measure_base()
        self.budget.reserve()
        with closing(database.open_reader(self.trials.results)) as reader:
            run = runs.find_run(reader, course.base.run_id)
            view = refine_weaknesses.WeaknessScope(refine_trials.trial_name(target.prompt))
            weakness = refine_weaknesses.weaknesses(reader, target, course.base.run_id, view)
        simulation = refine_suggestions.simulation_of(run, self.refiner)
        if not weakness.targets:
            course.stopped_by = "flawless"
        else:
            search.run(course)
        question = refine_refiner.RefinePrompt(target, self.refiner, weakness)
        made = [*self._winner(question, course, offspring, simulation, before)]
        now = utc.timestamp(utc.now())
        made += _refusals(course, simulation, now)
        record = refine_suggestions.SuggestionRecord(
            course.base.run_id, now, options.audit, options.on_stored
        )
        stored = refine_suggestions.store(self.trials.results, made, record) if made else ()
        spent = self.budget.spent()
        return OptimizeResult(self.id, weakness, course, simulation, spent, stored)

    def _winner(
        self,
        question: refine_refiner.RefinePrompt,
        course: SearchResult,
        offspring: OffspringMaker,
        simulation: str,
        before: int,
    ) -> Iterator[Suggestion]:
        """Yield the suggestion of the winner, measured on all cases, if there is a winner."""
        best = course.best
        if best is course.base and self.options.force:
            others = [member for member in course.measured.values() if member is not course.base]
            best = next(iter(rank(others)), best)
            course.best = best
        if best is course.base:
            return
        candidate = offspring.as_one_change(best.text, best.notes)
        assert candidate.change is not None, "each of its steps was applied"
        self.budget.release()
        self.options.on_step("measuring the winner on all cases, including the held-out ones")
        trials = replace(self.trials, repeats=self.budget.final_repeats())
        trial = trials.try_out(candidate.change)
        earlier, counted_before = self._earlier_checks(candidate.version)
        with closing(database.open_reader(self.trials.results)) as reader:
            evidence = refine_evidence.evidence_of(reader, candidate.change, trial.run_id)
        total = self.budget.spent() - (before if counted_before else 0)
        extra = {"search": {**self._summary(course), "earlier_comparisons": earlier}}
        now = utc.timestamp(utc.now())
        maker = refine_suggestions.SuggestionMaker(
            question, simulation, now, store_suggestions.MadeBy.OPTIMIZE, extra
        )
        reply = refine_refiner.RefinerReply(candidate, max(total - trial.cost_microusd, 0))
        final = refine_suggestions.Trial(reply, trial, replace(evidence, from_search=True))
        yield maker.from_trial(final, forced=self.options.force)

    def _earlier_checks(self, version: str | None) -> tuple[int, bool]:
        """Return for how many other changes the held-out cases were used before.

        And whether the earlier cost of this search is already in a stored suggestion.
        """
        target = self.trials.target
        with closing(database.open_reader(self.trials.results)) as reader:
            earlier = store_suggestions.list_suggestions(reader, experiment=target.experiment.id)
        checked = {made.new_hash for made in earlier if made.evidence.get("holdout")}
        searches = [made.evidence.get("search") for made in earlier]
        stored = any(
            isinstance(search, dict) and search.get("id") == self.id for search in searches
        )
        return len(checked - {version}), stored

    def _summary(self, course: SearchResult) -> dict[str, Any]:
        limits, done = self.options.limits, course.generations
        return {
            "id": self.id,
            "seed": limits.seed,
            "population": limits.population,
            "most_generations": limits.generations,
            "generations": len(done),
            "stopped_by": course.stopped_by,
            "asked": sum(generation.asked for generation in done),
            "refused": sum(generation.refused for generation in done),
            "crossed": sum(generation.crossed for generation in done),
            "tried": sum(generation.tried for generation in done),
            "measured": sum(generation.measured for generation in done),
            "wider": guardrails.WIDER[store_suggestions.MadeBy.OPTIMIZE],
            "lineage": [_member_json(member) for member in course.lineage()],
        }


def _member_json(member: Member) -> dict[str, Any]:
    return {
        "version": member.version,
        "how": member.how,
        "generation": member.born,
        "score": member.mean,
    }


def _refusals(course: SearchResult, simulation: str, now: str) -> Iterator[Suggestion]:
    """Yield the replies that broke a guardrail, except those that only repeat a known version."""
    for refusal in course.refused:
        broken = {rail.rule for rail in refusal.reply.candidate.guardrails if not rail.ok}
        if broken != {"new"}:
            yield refine_suggestions.SuggestionMaker(
                refusal.question, simulation, now, store_suggestions.MadeBy.OPTIMIZE
            ).from_refusal(refusal.reply)


def _identity(
    target: RefineTarget, refiner: Judge, history: refine_suggestions.History, limits: SearchLimits
) -> str:
    """Return the id of a search: a hash of everything that decides its path, but not its length."""
    part = plan_selection.Selection(part=refine_weaknesses.split_part(target, "train"))
    parts = [
        target.experiment.id,
        str(target.prompt.id),
        target.prompt.version,
        planning.bare_plan(target.project, target.experiment, selection=part).hash,
        refiner.model.key,
        refine_refiner.instructions_version(),
        sorted(history.known),
        limits.population,
        limits.seed,
    ]
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:12]
