"""Runs that are filled in rounds, with an interim analysis after each.

A round is a number of draws of every case, or a batch of cases. After it the gates look, what they
say is stored, and only if they are not clear the next round follows. What a stored look said is not
asked again: a resumed run goes through the same rounds, finds them done, and reads what was said.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.execute.work import Stage
from edison_ci.plan.looks import (
    DRAWS_LOOKS,
    Look,
    batch_size,
    dealt,
    draws_look,
    looks_at,
)
from edison_ci.store.events import add_event
from edison_ci.store.runs import move_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Iterator

    from edison_ci.config.models import Model
    from edison_ci.decide.conclusion import Conclusion
    from edison_ci.execute.runner import Answer, Runner
    from edison_ci.execute.work import Work
    from edison_ci.plan.looks import Kind

    Operation = Callable[[sqlite3.Connection], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """What was declared before the first look."""

    kind: Kind
    cases: int
    seed: str
    """Of the order of cases."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Whom a run that is looked at has to ask, and to tell."""

    run_id: str
    ask: Callable[[Look], Conclusion | None]
    can_look: Callable[[], bool]
    """Whether the cells so far are there, and few enough in error."""
    write: Callable[[Operation], Awaitable[None]]
    now: Callable[[], str]
    tell: Callable[[Look, bool], None]


class Looks:
    """Fills a run round by round."""

    def __init__(self, rules: Rules, work: Work, runner: Runner, desk: Desk) -> None:
        self._rules, self._work, self._runner, self._desk = rules, work, runner, desk
        self._subjects: frozenset[tuple[str, str]] | None = None
        self.conclusion: Conclusion | None = None
        """What the last look said; None while a round is not done."""
        progress = runner.progress
        if rules.kind == "cases":
            progress.most = progress.total
        progress.total = 0
        progress.planned_by_lane.clear()

    async def run(self, answer: Callable[[Model], Answer]) -> None:
        """Fill round after round, until the gates are clear or nothing is left to measure."""
        progress = self._runner.progress
        for look, stage in self._rounds():
            self._work.stage = stage
            planned = self._work.planned(self._rules.cases, stage)
            progress.planned_by_lane.update(planned)
            progress.total += planned.total()
            await self._runner.run(self._work.lanes(answer))
            await self._runner.finish()
            if progress.stopped_by is not None or not self._desk.can_look():
                self.conclusion = None
                return
            found = self._desk.ask(look)
            if found is None:
                return
            if not found.stored:
                await self._store(look, found)
            self.conclusion = replace(found, write=_nothing)
            if not found.more:
                return
            self._subjects = found.subjects

    def _rounds(self) -> Iterator[tuple[Look, Stage]]:
        rules = self._rules
        if rules.kind == "draws":
            draws = self._work.draws
            for number in range(1, DRAWS_LOOKS + 1):
                taken = range((number - 1) * draws, number * draws)
                yield draws_look(number, draws), Stage(taken, subjects=self._subjects)
            return
        size, done = batch_size(rules.cases), 0
        most = looks_at(rules.cases)
        batches = dealt(self._work.cases, seed=rules.seed, size=size)
        for number, batch in enumerate(batches, 1):
            done += len(batch)
            look = Look("cases", number, most, done, rules.cases, rules.seed)
            yield look, Stage(range(self._work.draws), cases=tuple(batch))

    async def _store(self, look: Look, found: Conclusion) -> None:
        """Write what the gates said, and that the run goes on if it does, in one go."""
        run_id, now = self._desk.run_id, self._desk.now()
        planned = self._runner.progress.total
        if self._rules.kind == "draws":
            following = Stage(range(self._work.draws), subjects=found.subjects)
            planned += self._work.planned(self._rules.cases, following).total()

        def operation(connection: sqlite3.Connection) -> None:
            for status in ("JUDGING", "AGGREGATING"):
                move_run(run_id, status, now)(connection)
            found.write(connection)
            said = {"look": look.as_json(), "verdict": found.verdict, "more": found.more}
            add_event(connection, run_id, "aggregate:completed", said, now)
            if found.more:
                more = {"cells_planned": planned} if self._rules.kind == "draws" else {}
                move_run(run_id, "EXECUTING", now, **more)(connection)

        await self._desk.write(operation)
        if not found.more:
            self._runner.progress.stopped_by = None  # it came too late to stop anything
        self._desk.tell(look, found.more)


def _nothing(_connection: sqlite3.Connection) -> None:
    """Write nothing: it has been written."""
