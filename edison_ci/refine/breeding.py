"""Where do the next versions of a prompt come from, in a search?

From a version that holds cases on which nobody is better: a refiner is shown some training cases,
drawn by lot, on which it did badly, and writes one small change (a mutation); or from two of them,
whose changes are put together (a crossover), for which nobody is asked. A mutation keeps the limits
of `edison refine` against the version that it changes, and together with all changes before it the
wider ones of a search against the prompt as it is. No case that is held out is shown or looked at.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from dataclasses import field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.contracts import CallError
from edison_ci.frozen import dataclass
from edison_ci.providers.budgeting import BudgetExhausted
from edison_ci.providers.resilience import LaneClosed
from edison_ci.refine.asking import Past, Question, ask_for
from edison_ci.refine.calling import calling, waited_for
from edison_ci.refine.candidate import Change, Subject, with_prompt
from edison_ci.refine.crossing import crossed
from edison_ci.refine.guardrails import Background, judged, rails_of
from edison_ci.refine.patch import PatchRefused, diff_of, parse_patch
from edison_ci.refine.population import front, picked
from edison_ci.refine.trying import trial_name
from edison_ci.refine.weaknesses import View, weaknesses
from edison_ci.store.database import open_reader
from edison_ci.store.suggestions import Guardrail, MadeBy

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.config.prompt import Prompt
    from edison_ci.judges.asking import Judge
    from edison_ci.records import Case
    from edison_ci.refine.asking import Reply
    from edison_ci.refine.candidate import Candidate
    from edison_ci.refine.population import How, Member
    from edison_ci.refine.suggesting import History
    from edison_ci.refine.trying import Bench
    from edison_ci.refine.weaknesses import Weakness

LESSON = 12
"""Training cases, drawn by lot, from which a refiner is shown what went wrong. Few, so that no two
questions are the same and no version is made for one set of cases."""
CROSS_EVERY = 4
"""One in so many children has two parents, once there are two to choose from."""
_MOST_VAIN = 3
"""Children that were no better, of which a refiner is told when the same parent is asked for."""
_KNOWN = "the search has this version already"


@dataclass(frozen=True, slots=True)
class Child:
    """A version that kept every guardrail, and has answered nothing yet."""

    prompt: Prompt
    text: str
    how: How
    parents: tuple[Member, ...]
    notes: tuple[str, ...]

    @property
    def version(self) -> str:
        """The version of the prompt."""
        return self.prompt.version


class Refusal(NamedTuple):
    """A reply that broke a guardrail, and what it was asked."""

    question: Question
    reply: Reply


@dataclass(slots=True)
class Litter:
    """The children of a generation, and what did not become one."""

    children: list[Child] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    asked: int = 0
    exhausted: str = ""
    """The budget that had no room for another question."""

    @property
    def crossed(self) -> int:
        """Children of two parents."""
        return sum(child.how == "crossover" for child in self.children)


class _Wish(NamedTuple):
    """A mutation that a refiner is asked for."""

    parent: Member
    question: Question
    draw: int
    background: Background


class Breeder:
    """Makes the children of each generation; the same seed makes the same ones again."""

    def __init__(self, bench: Bench, refiner: Judge, history: History, *, seed: str) -> None:
        self._bench, self._refiner, self._history, self._seed = bench, refiner, history, seed
        self._known = {bench.subject.prompt.version: _KNOWN, **history.known}
        self._asked: Counter[str] = Counter()
        self._vain: dict[str, list[Past]] = {}
        self._answers: dict[str, None] = {}

    def litter(self, number: int, members: Sequence[Member], size: int) -> Litter:
        """Return the children of a generation; raises nothing for what a refiner does wrong."""
        found, wishes = Litter(), []
        ahead = front(members)
        with closing(open_reader(self._bench.results)) as reader:
            for slot in range(size):
                rng = Random(f"{self._seed} {number} {slot}")
                child = None
                if slot % CROSS_EVERY == CROSS_EVERY - 1 and len(ahead) > 1:
                    child = self._cross(ahead, rng)
                if child is not None:
                    found.children.append(child)
                    continue
                wish = self._wish(reader, picked(members, rng), rng)
                wishes += [wish] if wish is not None else []
        if wishes:
            waited_for(self._ask(wishes, found))
        return found

    def learn(self, child: Child, reason: str) -> None:
        """Take note that a child was no better than its parent."""
        for parent in child.parents[:1] if child.how == "mutation" else ():
            diff = diff_of(child.prompt.path, parent.text, child.text)
            past = Past(child.notes[-1], diff, "tried, and not shown to help", reason)
            self._vain.setdefault(parent.version, []).append(past)

    def whole(self, text: str, notes: Sequence[str]) -> Candidate:
        """Return a version as one change of the prompt as it is, with all guardrails."""
        subject = self._bench.subject
        diff = diff_of(subject.prompt.path, subject.text, text)
        background = self._background(dict(self._history.known), made_by=MadeBy.OPTIMIZE)
        return judged(subject, diff, "\n".join(dict.fromkeys(notes)), background)

    # --- two parents ------------------------------------------------------------------------------

    def _cross(self, members: Sequence[Member], rng: Random) -> Child | None:
        first = picked(members, rng)
        second = picked([one for one in members if one.version != first.version], rng)
        text = crossed(self._bench.subject.text, first.text, second.text)
        if text is None:
            return None
        notes = tuple(dict.fromkeys((*first.notes, *second.notes)))
        whole = self.whole(text, notes)
        change = whole.change
        if change is None or change.prompt is None or not whole.ok:
            return None
        if change.prompt.version in self._known:
            return None
        self._known[change.prompt.version] = _KNOWN
        return Child(change.prompt, text, "crossover", (first, second), notes)

    # --- one parent -------------------------------------------------------------------------------

    def _wish(self, reader: sqlite3.Connection, parent: Member, rng: Random) -> _Wish | None:
        """Return what a refiner is asked about a parent; None if it has no fault."""
        subject = self._subject(parent)
        weakness = self._lesson(reader, subject, parent, rng)
        if not weakness.targets:
            return None
        past = (*self._history.past, *self._vain.get(parent.version, [])[-_MOST_VAIN:])
        question = Question(subject, self._refiner, weakness, past)
        self._answers |= dict.fromkeys(example.answer for example in weakness.examples)
        draw = self._asked[parent.version]
        self._asked[parent.version] += 1
        background = self._background(dict(self._known), parent=parent)
        return _Wish(parent, question, draw, background)

    def _subject(self, member: Member) -> Subject:
        base = self._bench.subject
        assert member.prompt is not None, "members of a search have been read"
        return Subject(base.project, with_prompt(base.experiment, member.prompt), member.text)

    def _lesson(
        self, reader: sqlite3.Connection, subject: Subject, parent: Member, rng: Random
    ) -> Weakness:
        cases = sorted(parent.scores)
        lesson = frozenset(rng.sample(cases, min(LESSON, len(cases))))
        name = trial_name(subject.prompt)
        found = weaknesses(reader, subject, parent.run_id, View(name, lesson))
        return found if found.targets else weaknesses(reader, subject, parent.run_id, View(name))

    def _background(
        self,
        known: dict[str, str],
        *,
        made_by: MadeBy = MadeBy.REFINE,
        parent: Member | None = None,
    ) -> Background:
        subject = self._bench.subject

        def cases() -> Iterator[Case]:
            return iter(subject.project.cases(subject.experiment))

        def further(change: Change) -> list[Guardrail]:
            return self._too_far(change) if parent is not None and parent.parents else []

        return Background(cases, tuple(self._answers), known, made_by, further)

    def _too_far(self, step: Change) -> list[Guardrail]:
        """Return the rules that a step breaks together with all steps before it."""
        subject = self._bench.subject
        path = subject.prompt.path
        try:
            patch = parse_patch(diff_of(path, subject.text, step.text), path)
        except PatchRefused as refused:
            return [Guardrail("whole", False, f"with all changes before it: {refused.reason}")]
        change = Change(subject, patch, step.text, step.experiment, step.problems)
        background = self._background({}, made_by=MadeBy.OPTIMIZE)
        return [
            Guardrail(f"whole_{rail.rule}", False, f"with all changes before it: {rail.detail}")
            for rail in rails_of(change, background)
            if not rail.ok
        ]

    async def _ask(self, wishes: Sequence[_Wish], found: Litter) -> None:
        async with calling(self._bench) as lanes:
            answer = lanes.of(self._refiner.model, "refine").answer
            # Side by side; what one replies changes nothing for the others of its generation.
            replies = await asyncio.gather(
                *(ask_for(one.question, one.draw, answer, one.background) for one in wishes),
                return_exceptions=True,
            )
        for wish, said in zip(wishes, replies, strict=True):
            if isinstance(said, BudgetExhausted):
                found.exhausted = said.refused.cap.name
            elif isinstance(said, CallError | LaneClosed):
                found.failures.append(str(said) or type(said).__name__)
            elif isinstance(said, BaseException):
                raise said
            else:
                self._take(wish, said, found)

    def _take(self, wish: _Wish, replies: Sequence[Reply], found: Litter) -> None:
        found.asked += len(replies)
        found.refused += [Refusal(wish.question, one) for one in replies if not one.candidate.ok]
        candidate = replies[-1].candidate
        change = candidate.change
        if not candidate.ok or change is None or change.prompt is None:
            return
        if change.prompt.version in self._known:  # another one of this generation
            return
        self._known[change.prompt.version] = _KNOWN
        notes = (*wish.parent.notes, candidate.note)
        child = Child(change.prompt, change.text, "mutation", (wish.parent,), notes)
        found.children.append(child)
