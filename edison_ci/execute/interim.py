"""Runs that are filled in rounds, with an interim analysis after each.

A round is a number of repeats of every case, or a batch of cases. After it the gates are decided
and the decision is stored; the next round follows only if a gate is still inconclusive. A stored
analysis is not made again: a resumed run goes through the same rounds, finds them done, and reads
the decisions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.execute.runner import WorkStage
from edison_ci.plan.interim_analysis import (
    REPEATS_ANALYSES,
    InterimAnalysis,
    batch_size,
    count_analyses,
    random_batches,
    repeats_analysis,
)
from edison_ci.records import RunStatus
from edison_ci.store.runs import add_event, move_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from edison_ci.config.models import Model
    from edison_ci.decide.conclusion import Conclusion
    from edison_ci.execute.runner import Answer, Runner, RunWork
    from edison_ci.plan.interim_analysis import Kind
    from edison_ci.records import Case

    Operation = Callable[[sqlite3.Connection], None]


@dataclass(frozen=True, slots=True)
class InterimRules:
    """Rules of the interim analyses, fixed before the first of them."""

    kind: Kind
    cases: int
    seed: str
    """Of the order of cases."""


@dataclass(frozen=True, slots=True)
class InterimHooks:
    """Callbacks of a run with interim analyses."""

    run_id: str
    conclude: Callable[[InterimAnalysis], Conclusion | None]
    can_analyse: Callable[[], bool]
    """Whether the cells so far are there, and few enough in error."""
    write: Callable[[Operation], Awaitable[None]]
    now: Callable[[], str]
    on_interim: Callable[[InterimAnalysis, bool], None]


class BatchedCases:
    """Fills a run with batches of cases, as long as their source yields any.

    Nothing about the batches is stored: a trial that stopped is not resumed, and a repeated one
    takes the same cases from the store.
    """

    conclusion = None

    def __init__(
        self,
        batches: Iterator[Sequence[Case]],
        work: RunWork,
        runner: Runner,
        can_go_on: Callable[[], bool],
    ) -> None:
        self._batches, self._work, self._runner = batches, work, runner
        self._can_go_on = can_go_on
        progress = runner.progress
        progress.most = progress.total
        progress.total = 0
        progress.planned_by_client.clear()

    async def run(self, answer: Callable[[Model], Answer]) -> None:
        """Fill batch after batch."""
        for batch in self._batches:
            stage = WorkStage(range(self._work.repeats), cases=tuple(batch))
            await fill_stage(self._runner, self._work, stage, len(batch), answer)
            if self._runner.progress.stopped_by is not None or not self._can_go_on():
                return


async def fill_stage(
    runner: Runner,
    work: RunWork,
    stage: WorkStage,
    cases: int,
    answer: Callable[[Model], Answer],
) -> None:
    """Fill the cells of a stage, and wait until they are stored; `cases` are those of the run."""
    progress = runner.progress
    work.stage = stage
    planned = work.cells_by_client(cases, stage)
    progress.planned_by_client.update(planned)
    progress.total += planned.total()
    await runner.run(work.clients(answer))
    await runner.finish()


class InterimRounds:
    """Fills a run round by round."""

    def __init__(
        self, rules: InterimRules, work: RunWork, runner: Runner, hooks: InterimHooks
    ) -> None:
        self._rules, self._work, self._runner, self._hooks = rules, work, runner, hooks
        self._variants: frozenset[tuple[str, str]] | None = None
        self.conclusion: Conclusion | None = None
        """Conclusion of the last interim analysis; None while a round is not done."""
        progress = runner.progress
        if rules.kind == "cases":
            progress.most = progress.total
        progress.total = 0
        progress.planned_by_client.clear()

    async def run(self, answer: Callable[[Model], Answer]) -> None:
        """Fill rounds until every gate is decided or nothing is left to measure."""
        progress = self._runner.progress
        for interim, stage in self._rounds():
            await fill_stage(self._runner, self._work, stage, self._rules.cases, answer)
            if progress.stopped_by is not None or not self._hooks.can_analyse():
                self.conclusion = None
                return
            found = self._hooks.conclude(interim)
            if found is None:
                return
            if not found.stored:
                await self._store(interim, found)
            self.conclusion = replace(found, write=_write_nothing)
            if not found.more:
                return
            self._variants = found.variants

    def _rounds(self) -> Iterator[tuple[InterimAnalysis, WorkStage]]:
        rules = self._rules
        if rules.kind == "repeats":
            repeats = self._work.repeats
            for number in range(1, REPEATS_ANALYSES + 1):
                repeat_range = range((number - 1) * repeats, number * repeats)
                yield (
                    repeats_analysis(number, repeats),
                    WorkStage(repeat_range, variants=self._variants),
                )
            return
        size, done = batch_size(rules.cases), 0
        most = count_analyses(rules.cases)
        batches = random_batches(self._work.cases, self._work.clusters, seed=rules.seed, size=size)
        for number, batch in enumerate(batches, 1):
            done += len(batch)
            interim = InterimAnalysis("cases", number, most, done, rules.cases, rules.seed)
            yield interim, WorkStage(range(self._work.repeats), cases=tuple(batch))

    async def _store(self, interim: InterimAnalysis, found: Conclusion) -> None:
        """Write the decisions of the gates, and the next status, in one transaction."""
        run_id, now = self._hooks.run_id, self._hooks.now()
        planned = self._runner.progress.total
        if self._rules.kind == "repeats":
            following = WorkStage(range(self._work.repeats), variants=found.variants)
            planned += self._work.cells_by_client(self._rules.cases, following).total()

        def operation(connection: sqlite3.Connection) -> None:
            for status in (RunStatus.JUDGING, RunStatus.AGGREGATING):
                move_run(run_id, status, now)(connection)
            found.write(connection)
            data = {"interim": interim.as_json(), "verdict": found.verdict, "more": found.more}
            add_event(connection, run_id, "aggregate:completed", data, now)
            if found.more:
                more = {"cells_planned": planned} if self._rules.kind == "repeats" else {}
                move_run(run_id, RunStatus.EXECUTING, now, **more)(connection)

        await self._hooks.write(operation)
        if not found.more:
            self._runner.progress.stopped_by = None  # it came too late to stop anything
        self._hooks.on_interim(interim, found.more)


def _write_nothing(_connection: sqlite3.Connection) -> None:
    """Write nothing: the conclusion is stored already."""
