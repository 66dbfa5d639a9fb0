"""New versions of a prompt in a search: mutations and crossings.

From a version that holds cases on which nobody is better: a refiner is shown some training cases,
drawn by lot, on which it did badly, and writes one small change (a mutation); or from two of them,
whose changes are put together (a crossover), for which nobody is asked. A mutation keeps the limits
of `edison refine` against the version that it changes, and together with all changes before it the
wider ones of a search against the prompt as it is. No case that is held out is shown or looked at.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import closing
from dataclasses import field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError
from edison_ci.names import matcher
from edison_ci.providers.budgeting import BudgetExhausted
from edison_ci.providers.resilience import LaneClosed
from edison_ci.refine.asking import Past, Question, ask_for
from edison_ci.refine.candidate import Change, Subject, with_prompt
from edison_ci.refine.guardrails import Background, judged, rails_of
from edison_ci.refine.patch import PatchRefused, diff_of, parse_patch
from edison_ci.refine.refining import calling, waited_for
from edison_ci.refine.searching import front, picked
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
    from edison_ci.refine.searching import How, Member
    from edison_ci.refine.suggesting import History
    from edison_ci.refine.trying import Bench
    from edison_ci.refine.weaknesses import Weakness


# Both versions are changes of one text. What only one of them changes is taken over; where both
# add lines at the same place, both additions follow each other and what they have in common stands
# there once; where both rewrite the same lines, the first one keeps its own.
_WORD = re.compile(r"\w+")


class Edit(NamedTuple):
    """Lines of a text that are replaced; none are where it only adds some."""

    start: int
    stop: int
    lines: tuple[str, ...]

    @property
    def adds(self) -> bool:
        """Whether it takes nothing away."""
        return self.start == self.stop

    def clashes(self, other: Edit) -> bool:
        """Whether both want to change the same lines."""
        if self.adds and other.adds:
            return False
        if self.adds:
            return other.start < self.start < other.stop
        if other.adds:
            return self.start < other.start < self.stop
        return self.start < other.stop and other.start < self.stop


def edits(before: str, after: str) -> list[Edit]:
    """Return what makes one text of another, line by line, in the order of the lines."""
    old, new = before.split("\n"), after.split("\n")
    return [
        Edit(start, stop, tuple(new[new_start:new_stop]))
        for tag, start, stop, new_start, new_stop in matcher(old, new).get_opcodes()
        if tag != "equal"
    ]


def applied(text: str, changes: Sequence[Edit]) -> str:
    """Return a text after edits that do not clash, in the order of the lines."""
    lines, at = text.split("\n"), 0
    found: list[str] = []
    for edit in changes:
        found += lines[at : edit.start]
        found += edit.lines
        at = edit.stop
    return "\n".join([*found, *lines[at:]])


def crossed(base: str, first: str, second: str) -> str | None:
    """Return the text with the changes of both; None where that is one of the two."""
    text = applied(base, _united(edits(base, first), edits(base, second)))
    return None if text in (base, first, second) else text


def _united(own: Sequence[Edit], others: Sequence[Edit]) -> list[Edit]:
    """Return the edits of both, in the order of the lines; an addition comes before a rewriting."""
    found = {(edit.start, edit.stop): edit for edit in own}
    said = {_words(line) for edit in own for line in edit.lines}
    for edit in others:
        if edit in own or any(edit.clashes(mine) for mine in own):
            continue
        lines = edit.lines
        if edit.adds:
            lines = tuple(line for line in lines if not line.strip() or _words(line) not in said)
            if lines != edit.lines and not any(line.strip() for line in lines):
                continue
        place = (edit.start, edit.stop)
        before = found[place].lines if place in found else ()
        found[place] = Edit(*place, (*before, *lines))
    return sorted(found.values())


def _words(line: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(line.casefold()))


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
