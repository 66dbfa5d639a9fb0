"""Runs that are filled in rounds, with an interim analysis after each.

A round is a number of repeats of every case, or a batch of cases. After it the gates are decided
and the decision is stored; the next round follows only if a gate is still inconclusive. A stored
analysis is not made again: a resumed run goes through the same rounds, finds them done, and reads
the decisions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.execute.run_end import has_enough_cells
from edison_ci.execute.tasks import WorkStage
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
    from collections.abc import Callable, Iterator, Sequence

    from edison_ci.config.models import Model
    from edison_ci.decide.conclusion import Conclusion
    from edison_ci.execute.run_end import Ask
    from edison_ci.execute.runner import Runner
    from edison_ci.execute.session import OpenRun
    from edison_ci.execute.tasks import Answer, RunWork
    from edison_ci.plan.interim_analysis import Kind
    from edison_ci.records import Case


def rounds_of(
    run: OpenRun, work: RunWork, runner: Runner, ask: Ask
) -> InterimRounds | BatchedCases:
    """Return the rounds of a run whose cases are chosen, or that has interim analyses."""
    rounds = run.context.rounds
    if rounds is not None:
        return BatchedCases(run, rounds(run.reader, run.id, work), work, runner)
    kind = run.gates.interim_kind(work)
    assert kind is not None, "the gates of other runs are decided once, at the end"
    return InterimRounds(run, kind, work, runner, ask)


class BatchedCases:
    """Fills a run with batches of cases, as long as their source yields any.

    Nothing about the batches is stored: a trial that stopped is not resumed, and a repeated one
    takes the same cases from the store.
    """

    conclusion = None

    def __init__(
        self, run: OpenRun, batches: Iterator[Sequence[Case]], work: RunWork, runner: Runner
    ) -> None:
        self._run, self._batches, self._work, self._runner = run, batches, work, runner
        progress = runner.progress
        progress.most = progress.total
        progress.total = 0
        progress.planned_by_client.clear()

    async def run(self, answer: Callable[[Model], Answer]) -> None:
        """Fill batch after batch."""
        for batch in self._batches:
            stage = WorkStage(range(self._work.repeats), cases=tuple(batch))
            await fill_stage(self._runner, self._work, stage, len(batch), answer)
            progress = self._runner.progress
            if progress.stopped_by is not None or not has_enough_cells(self._run, progress):
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

    def __init__(self, run: OpenRun, kind: Kind, work: RunWork, runner: Runner, ask: Ask) -> None:
        self._run, self._kind, self._work, self._runner = run, kind, work, runner
        self._ask, self._cases = ask, run.plan.cases
        # A resumed run takes the cases in the same order.
        self._seed = run.resumed.plan_hash if run.resumed is not None else run.plan.hash
        self._variants: frozenset[tuple[str, str]] | None = None
        self.conclusion: Conclusion | None = None
        """Conclusion of the last interim analysis; None while a round is not done."""
        progress = runner.progress
        if kind == "cases":
            progress.most = progress.total
        progress.total = 0
        progress.planned_by_client.clear()

    async def run(self, answer: Callable[[Model], Answer]) -> None:
        """Fill rounds until every gate is decided or nothing is left to measure."""
        progress = self._runner.progress
        for interim, stage in self._rounds():
            await fill_stage(self._runner, self._work, stage, self._cases, answer)
            if progress.stopped_by is not None or not has_enough_cells(self._run, progress):
                self.conclusion = None
                return
            conclusion = self._ask(interim)
            if conclusion is None:
                return
            if not conclusion.stored:
                await self._store(interim, conclusion)
            self.conclusion = replace(conclusion, write=_write_nothing)
            if not conclusion.more:
                return
            self._variants = conclusion.variants

    def _rounds(self) -> Iterator[tuple[InterimAnalysis, WorkStage]]:
        if self._kind == "repeats":
            repeats = self._work.repeats
            for number in range(1, REPEATS_ANALYSES + 1):
                repeat_range = range((number - 1) * repeats, number * repeats)
                yield (
                    repeats_analysis(number, repeats),
                    WorkStage(repeat_range, variants=self._variants),
                )
            return
        cases, seed, done = self._cases, self._seed, 0
        size, most = batch_size(cases), count_analyses(cases)
        batches = random_batches(self._work.cases, self._work.clusters, seed=seed, size=size)
        for number, batch in enumerate(batches, 1):
            done += len(batch)
            interim = InterimAnalysis("cases", number, most, done, cases, seed)
            yield interim, WorkStage(range(self._work.repeats), cases=tuple(batch))

    async def _store(self, interim: InterimAnalysis, conclusion: Conclusion) -> None:
        """Write the decisions of the gates, and the next status, in one transaction."""
        run_id, now = self._run.id, self._run.now()
        planned = self._runner.progress.total
        if self._kind == "repeats":
            following = WorkStage(range(self._work.repeats), variants=conclusion.variants)
            planned += self._work.cells_by_client(self._cases, following).total()

        def operation(connection: sqlite3.Connection) -> None:
            for status in (RunStatus.JUDGING, RunStatus.AGGREGATING):
                move_run(run_id, status, now)(connection)
            conclusion.write(connection)
            data = {
                "interim": interim.as_json(),
                "verdict": conclusion.verdict,
                "more": conclusion.more,
            }
            add_event(connection, run_id, "aggregate:completed", data, now)
            if conclusion.more:
                more = {"cells_planned": planned} if self._kind == "repeats" else {}
                move_run(run_id, RunStatus.EXECUTING, now, **more)(connection)

        await self._run.write(operation)
        if not conclusion.more:
            self._runner.progress.stopped_by = None  # it came too late to stop anything
        self._run.context.on_interim(interim, conclusion.more)


def _write_nothing(_connection: sqlite3.Connection) -> None:
    """Write nothing: the conclusion is stored already."""
