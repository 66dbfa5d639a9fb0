"""A search made into one suggestion, with evidence that it did not choose itself.

    search (training cases) ──► winner ──► all its guardrails ──► try on all cases ──► store

The winner is the best of many on the training cases, so that their gain proves little. The cases
that are held out are looked at once, for the winner alone, and they must show a gain by themselves.
A search is known by what it starts from, so the same command goes on with it: its budget counts
what it spent before, whatever stopped it. A part of the budget is kept for that last look.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, closing
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.errors import BusyError, UsageError
from edison_ci.plan.plan import bare_plan
from edison_ci.plan.selection import Selection
from edison_ci.records import canonical_json
from edison_ci.refine.asking import Question, Reply, instructions_version
from edison_ci.refine.breeding import Breeder
from edison_ci.refine.evidence import evidence_of, split_cases
from edison_ci.refine.guardrails import WIDER
from edison_ci.refine.search_budget import SearchBudget
from edison_ci.refine.searching import Generation, Reach, Search, ranked
from edison_ci.refine.suggesting import History, Keeping, Maker, Trial, history_of, keep
from edison_ci.refine.trying import Bench, Wallet, trial_name
from edison_ci.refine.weaknesses import View, aside_in, part_of, weaknesses
from edison_ci.stats.convergence import FEWEST_SEARCH_CASES
from edison_ci.store.database import open_reader
from edison_ci.store.owners import only_one
from edison_ci.store.runs import find_run
from edison_ci.store.suggestions import MadeBy, list_suggestions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from edison_ci.execute.run_options import Tools
    from edison_ci.judges.asking import Judge
    from edison_ci.refine.candidate import Subject
    from edison_ci.refine.searching import Course, Member
    from edison_ci.refine.weaknesses import Weakness
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.ledger import Cap
    from edison_ci.store.suggestions import Suggestion

    Opened = Callable[[Cap], AbstractContextManager[Tools]]


@dataclass(frozen=True, slots=True)
class Orders:
    """What is asked of a search."""

    reach: Reach = field(default_factory=Reach)
    budget_microusd: int | None = None
    force: bool = False
    """Whether the winner is proposed although nothing shows that it helps."""
    allow_code: bool = False
    on_step: Callable[[str], None] = lambda _: None
    on_generation: Callable[[Generation], None] = lambda _: None
    audit: Callable[[Sequence[Suggestion]], AuditEntry] | None = None
    """Says who wanted the suggestion."""


@dataclass(frozen=True, slots=True)
class Optimized:
    """What came of a search."""

    id: str
    weakness: Weakness
    """Of the prompt as it is."""
    course: Course
    simulated: bool
    cost_microusd: int
    """Of the whole search, its earlier starts included."""
    suggestions: tuple[Suggestion, ...] = ()
    """The winner, if there is one; then what was refused."""


def optimize(subject: Subject, refiner: Judge, opened: Opened, orders: Orders) -> Optimized:
    """Search for a better prompt, look at the winner on unseen cases, and store it."""
    refuse_too_few(subject)
    locks = subject.project.root / ".edison" / "locks"
    name = subject.experiment.id
    with ExitStack() as stack:
        try:
            stack.enter_context(only_one(locks, f"{name}.search", f"search for {name}"))
        except BusyError:
            said = f"a search for a better prompt of {name} is at work already"
            raise BusyError(said, hint="stop it with Ctrl-C there, or wait") from None
        return _Desk.of(subject, refiner, opened, orders).work()


def refuse_too_few(subject: Subject) -> tuple[int, int]:
    """Return how many cases there are to learn from and to look at; raise if they do not do."""
    train, holdout = (cases - aside_in(subject) for cases in split_cases(subject))
    if not holdout:
        raise UsageError(
            f"no case of {subject.experiment.id} is held out, so nothing could prove a gain",
            hint="set split: {holdout: 0.4} in the experiment, or add cases",
        )
    if len(train) < FEWEST_SEARCH_CASES:
        raise UsageError(
            f"a search needs {FEWEST_SEARCH_CASES} training cases, and there are {len(train)}",
            hint="add cases; edison refine makes a small change from fewer",
        )
    return len(train), len(holdout)


@dataclass(frozen=True, slots=True)
class _Desk:
    """Everything that a search works with."""

    id: str
    bench: Bench
    refiner: Judge
    history: History
    budget: SearchBudget
    orders: Orders

    @classmethod
    def of(cls, subject: Subject, refiner: Judge, opened: Opened, orders: Orders) -> _Desk:
        results = subject.project.root / subject.project.file.results
        history = History((), {})
        if results.exists():
            with closing(open_reader(results)) as reader:
                history = history_of(reader, subject, force=orders.force)
        name = _identity(subject, refiner, history, orders.reach)
        budget = SearchBudget.of(subject, name, orders.budget_microusd)
        bench = Bench(
            subject,
            lambda: opened(budget.cap),
            Wallet(None),
            allow_code=orders.allow_code,
        )
        return cls(name, bench, refiner, history, budget, orders)

    def work(self) -> Optimized:
        """Search, then look at the winner, then store what came of it."""
        orders, subject = self.orders, self.bench.subject
        seed = f"{orders.reach.seed} {subject.prompt.version}"
        breeder = Breeder(self.bench, self.refiner, self.history, seed=seed)
        search = Search(
            self.bench,
            breeder,
            orders.reach,
            seed,
            self.budget,
            orders.on_step,
            orders.on_generation,
        )
        before = self.budget.spent()
        orders.on_step("measuring the prompt as it is, on the training cases")
        course = search.begin()
        self.budget.keep()
        with closing(open_reader(self.bench.results)) as reader:
            run = find_run(reader, course.base.run_id)
            view = View(trial_name(subject.prompt))
            weakness = weaknesses(reader, subject, course.base.run_id, view)
        simulated = run.simulated or self.refiner.model.simulated
        if not weakness.targets:
            course.stopped_by = "flawless"
        else:
            search.go(course)
        question = Question(subject, self.refiner, weakness)
        made = [*self._winner(question, course, breeder, simulated, before)]
        now = formatting.stamp(formatting.now())
        made += _refusals(course, simulated=simulated, now=now)
        keeping = Keeping(course.base.run_id, now, orders.audit)
        stored = keep(self.bench.results, made, keeping) if made else ()
        spent = self.budget.spent()
        return Optimized(self.id, weakness, course, simulated, spent, stored)

    def _winner(
        self, question: Question, course: Course, breeder: Breeder, simulated: bool, before: int
    ) -> Iterator[Suggestion]:
        """Yield what the winner shows on all cases, if there is one."""
        best = course.best
        if best is course.base and self.orders.force:
            others = [one for one in course.measured.values() if one is not course.base]
            best = next(iter(ranked(others)), best)
            course.best = best
        if best is course.base:
            return
        candidate = breeder.whole(best.text, best.notes)
        assert candidate.change is not None, "each step of it was applied"
        self.budget.release()
        self.orders.on_step("looking at the winner on all cases, those held out for the first time")
        bench = replace(self.bench, draws=self.budget.last_draws())
        tried = bench.try_out(candidate.change)
        earlier, known = self._earlier(candidate.version)
        with closing(open_reader(self.bench.results)) as reader:
            evidence = evidence_of(reader, candidate.change, tried.run_id)
        total = self.budget.spent() - (before if known else 0)
        told = {"search": {**self._told(course), "earlier_looks": earlier}}
        now = formatting.stamp(formatting.now())
        maker = Maker(question, simulated, now, MadeBy.OPTIMIZE, told)
        reply = Reply(candidate, max(total - tried.cost_microusd, 0))
        trial = Trial(reply, tried, replace(evidence, searched=True))
        yield maker.measured(trial, forced=self.orders.force)

    def _earlier(self, version: str | None) -> tuple[int, bool]:
        """Return how many other changes the held-out cases were looked at for.

        And whether what this search cost until now is in the results already.
        """
        subject = self.bench.subject
        with closing(open_reader(self.bench.results)) as reader:
            found = list_suggestions(reader, experiment=subject.experiment.id)
        looked = {one.new_hash for one in found if one.evidence.get("holdout")}
        searches = [one.evidence.get("search") for one in found]
        known = any(isinstance(one, dict) and one.get("id") == self.id for one in searches)
        return len(looked - {version}), known

    def _told(self, course: Course) -> dict[str, Any]:
        reach, done = self.orders.reach, course.generations
        return {
            "id": self.id,
            "seed": reach.seed,
            "population": reach.population,
            "most_generations": reach.generations,
            "generations": len(done),
            "stopped_by": course.stopped_by,
            "asked": sum(one.asked for one in done),
            "refused": sum(one.refused for one in done),
            "crossed": sum(one.crossed for one in done),
            "tried": sum(one.tried for one in done),
            "measured": sum(one.measured for one in done),
            "wider": WIDER[MadeBy.OPTIMIZE],
            "lineage": [_shown(one) for one in course.lineage()],
        }


def _shown(one: Member) -> dict[str, Any]:
    return {"version": one.version, "how": one.how, "generation": one.born, "score": one.mean}


def _refusals(course: Course, *, simulated: bool, now: str) -> Iterator[Suggestion]:
    """Yield what broke a guardrail; what was only there before is no suggestion of anything."""
    for one in course.refused:
        broken = {rail.rule for rail in one.reply.candidate.guardrails if not rail.ok}
        if broken != {"new"}:
            yield Maker(one.question, simulated, now, MadeBy.OPTIMIZE).refused(one.reply)


def _identity(subject: Subject, refiner: Judge, history: History, reach: Reach) -> str:
    """Return what a search is known by: all that decides the way it goes, but not how far."""
    part = Selection(part=part_of(subject.experiment, "train"))
    told = [
        subject.experiment.id,
        str(subject.prompt.id),
        subject.prompt.version,
        bare_plan(subject.project, subject.experiment, selection=part).hash,
        refiner.model.key,
        instructions_version(),
        sorted(history.known),
        reach.population,
        reach.seed,
    ]
    return hashlib.sha256(canonical_json(told).encode()).hexdigest()[:12]
