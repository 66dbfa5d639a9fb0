"""Refinement: from the weaknesses of a prompt to suggestions with evidence.

    measure ──► ask ──► guardrails ──► try ──► decide ──► store
    (training)  (a diff)  (or refuse)  (all cases)

Nothing is written into the working tree. Everything that was asked and measured is stored as it
comes; suggestions are stored together at the end, so that the same command goes on where it was
stopped, with the same question and the answers that it has.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from contextlib import asynccontextmanager, closing
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError
from edison_ci.errors import CallFailed, Interrupted
from edison_ci.execute.standalone import desk
from edison_ci.providers.budgeting import BudgetExhausted
from edison_ci.providers.resilience import LaneClosed
from edison_ci.refine.asking import Question, ask_for
from edison_ci.refine.evidence import evidence_of
from edison_ci.refine.guardrails import Background
from edison_ci.refine.suggesting import Keeping, Maker, Trial, history_of, keep
from edison_ci.refine.trying import GOES_ON, out_of_budget
from edison_ci.refine.weaknesses import weaknesses
from edison_ci.rounding import snap
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import Cap
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence

    from edison_ci.execute.clients import Lanes
    from edison_ci.judges.asking import Judge
    from edison_ci.refine.asking import Reply
    from edison_ci.refine.trying import Bench
    from edison_ci.refine.weaknesses import Weakness
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.suggestions import Suggestion


Found = TypeVar("Found")


def waited_for(asking: Coroutine[Any, Any, Found]) -> Found:
    """Return what a coroutine returns, in an event loop of its own."""
    try:
        return asyncio.run(asking)
    except KeyboardInterrupt:
        raise Interrupted("stopped", hint=GOES_ON) from None


@asynccontextmanager
async def calling(bench: Bench) -> AsyncIterator[Lanes]:
    """Yield lanes to every model, within what is left to spend; what they cost is counted."""
    subject = bench.subject
    reuse = dt.timedelta(days=subject.project.file.settings.reuse_days)
    with bench.opened() as tools:
        opened = desk(
            subject.project,
            subject.experiment,
            tools,
            purpose="refine",
            newer_than=formatting.stamp(tools.now() - reuse),
        )
        async with opened as lanes:
            left = bench.wallet.left
            if left is not None:
                cap = Cap(f"run:{lanes.purse.run_id}", None, microusd=left, name="--budget")
                lanes.purse.caps = (*lanes.purse.caps, cap)
            try:
                yield lanes
            except BudgetExhausted as error:
                raise out_of_budget(error.refused.cap.name) from None
            finally:
                bench.wallet.spent_microusd += lanes.tally.cost_microusd


@dataclass(frozen=True, slots=True)
class Orders:
    """What is asked of refining."""

    candidates: int = 1
    force: bool = False
    """Whether the best candidate is proposed although nothing shows that it helps."""
    on_step: Callable[[str], None] = lambda _: None
    """Hears what happens next."""
    audit: Callable[[Sequence[Suggestion]], AuditEntry] | None = None
    """Says who wanted these suggestions."""
    on_kept: Callable[[sqlite3.Connection, Sequence[Suggestion]], None] = lambda *_: None
    """Writes down what follows from them, in the transaction that stores them."""


@dataclass(frozen=True, slots=True)
class Refined:
    """What came of refining."""

    run_id: str
    """The run that measured the prompt as it is."""
    weakness: Weakness
    simulated: bool
    cost_microusd: int
    suggestions: tuple[Suggestion, ...] = ()
    """Proposed ones first, then those that were tried, then the refused."""
    failures: tuple[str, ...] = ()
    """Why the refiner could not be asked, where it could not."""


@dataclass(slots=True)
class _Asked:
    """What a refiner replied, candidate by candidate."""

    replies: list[tuple[Reply, ...]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def refused(self) -> Iterator[Reply]:
        """Yield every reply that broke a guardrail."""
        return (r for replies in self.replies for r in replies if not r.candidate.ok)


def refine(bench: Bench, refiner: Judge, orders: Orders) -> Refined:
    """Ask for candidates, try them, and store what came of them."""
    subject = bench.subject
    orders.on_step("measuring the prompt as it is, on the training cases")
    base = bench.measure("train")
    with closing(open_reader(bench.results)) as reader:
        simulated = find_run(reader, base.run_id).simulated or refiner.model.simulated
        weakness = weaknesses(reader, subject, base.run_id)
        history = history_of(reader, subject, force=orders.force)
    stored: tuple[Suggestion, ...] = ()
    asked = _Asked()
    if weakness.targets:
        question = Question(subject, refiner, weakness, history.past)
        asked = waited_for(_ask(bench, question, orders, history.known))
        trials = _trials(bench, asked, orders)
        now = formatting.stamp(formatting.now())
        made = _made(Maker(question, simulated, now), asked, trials, orders)
        keeping = Keeping(base.run_id, now, orders.audit, orders.on_kept)
        stored = keep(bench.results, made, keeping)
    spent = bench.wallet.spent_microusd
    return Refined(base.run_id, weakness, simulated, spent, stored, tuple(asked.failures))


async def _ask(
    bench: Bench, question: Question, orders: Orders, known: Mapping[str, str]
) -> _Asked:
    """Ask for one candidate after the other, so that no two are the same."""
    weak = " and ".join(target.name for target in question.weakness.targets)
    shown = len(question.weakness.examples)
    said = f"asking {question.refiner.name} about {weak}, with {shown} training examples"
    orders.on_step(said)
    found = _Asked()
    async with calling(bench) as lanes:
        await _ask_each(question, lanes, orders.candidates, known, found)
    if not found.replies and found.failures:
        raise CallFailed(
            f"{question.refiner.name} could not be asked: {found.failures[0]}",
            hint="see: edison models test; then the same command again",
        )
    return found


async def _ask_each(
    question: Question, lanes: Lanes, candidates: int, known: Mapping[str, str], found: _Asked
) -> None:
    subject, lane = question.subject, lanes.of(question.refiner.model, "refine")
    answers = tuple(example.answer for example in question.weakness.examples)
    taken = dict(known)
    for draw in range(candidates):
        background = Background(lambda: subject.project.cases(subject.experiment), answers, taken)
        try:
            replies = await ask_for(question, draw, lane.answer, background)
        except (CallError, LaneClosed) as error:
            found.failures.append(str(error) or type(error).__name__)
            return
        found.replies.append(replies)
        version = replies[-1].candidate.version
        if version is not None:
            taken = {version: "it is the same as another candidate", **taken}


def _trials(bench: Bench, asked: _Asked, orders: Orders) -> list[Trial]:
    """Try every candidate that kept the guardrails; return them by their gain, best first."""
    chosen = [replies[-1] for replies in asked.replies if replies[-1].candidate.ok]
    found = []
    for number, reply in enumerate(chosen, 1):
        change = reply.candidate.change
        assert change is not None  # it was applied, or it would keep no guardrail
        which = f"candidate {number} of {len(chosen)}" if len(chosen) > 1 else "the candidate"
        orders.on_step(f"trying {which} against the prompt as it is, on all cases")
        tried = bench.try_out(change)
        with closing(open_reader(bench.results)) as reader:
            found.append(Trial(reply, tried, evidence_of(reader, change, tried.run_id)))
    return sorted(found, key=lambda trial: -snap(trial.gain))


def _made(maker: Maker, asked: _Asked, trials: Sequence[Trial], orders: Orders) -> list[Suggestion]:
    """Return what is to be stored: proven candidates first, then other tried ones, then refused."""
    ranked = sorted(trials, key=lambda trial: not trial.evidence.proven)
    force = orders.force and not any(trial.evidence.proven for trial in trials)
    measured = [
        maker.measured(trial, forced=force and place == 0) for place, trial in enumerate(ranked)
    ]
    return [*measured, *map(maker.refused, asked.refused())]
