"""The runner: the cells of a run, filled and stored.

A run has one experiment, or two variants on the same eval suite: head and base. Each client (one
model) has its own stream of cells and its own workers, so that no model waits for another, and no
memory is used that grows with the number of cases. In a stream a case comes with all its cells,
both sides of a pair next to each other. A cell is asked, parsed, graded and stored before its
worker takes the next one; an answer that is stored is never bought again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_answer
from edison_ci.config.case_facts import content_hash, facts_of
from edison_ci.config.models import configure
from edison_ci.contracts import REFUSED, CallError, NotAsked
from edison_ci.errors import EdisonError, UsageError
from edison_ci.execute.tasks import id_of_cell, request_for
from edison_ci.providers import budget, resilience
from edison_ci.records import CellStatus
from edison_ci.store.answers import newest_time
from edison_ci.store.cells import CellRow, FallbackAnswer, finish_cells, is_done
from edison_ci.store.judgments import ComparisonRow, store_comparisons
from edison_ci.telemetry.spans import CELL_ID, CellSpan, cell_span
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

    from edison_ci.checks.output import Output
    from edison_ci.config.models import Model
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.grading import CellGrade, InputScreen
    from edison_ci.execute.progress import Progress
    from edison_ci.execute.tasks import Answer, ClientWork, RunWork, Task
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.providers.client import ModelClient
    from edison_ci.records import Case, Request
    from edison_ci.store.writer import Operation, Writer

logger = logging.getLogger(__name__)


_BATCH = 64
_LONGEST_WAIT_S = 0.02
_MOST_BATCHES = 8


class CellBuffer:
    """The buffer through which finished cells and comparisons reach the disk.

    The answers they rest on are stored already: a cell that is lost is graded again, not bought
    again. So rows are gathered and written many at a time, in the order in which they came.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._rows: list[CellRow | ComparisonRow] = []
        self._unwritten: dict[str, CellRow | ComparisonRow] = {}
        self._batches: dict[asyncio.Future[None], list[str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None

    async def put(self, row: CellRow | ComparisonRow) -> None:
        """Add a row; waits while too many batches are unwritten, raises if one failed."""
        if self._failure is not None:
            raise self._failure
        self._rows.append(row)
        self._unwritten[row.id] = row
        if len(self._rows) >= _BATCH:
            self._send()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LONGEST_WAIT_S, self._send)
        while len(self._batches) >= _MOST_BATCHES:
            await asyncio.wait(self._batches, return_when=asyncio.FIRST_COMPLETED)

    def find(self, row_id: str) -> CellRow | ComparisonRow | None:
        """Return a row that is not on the disk yet."""
        return self._unwritten.get(row_id)

    async def close(self) -> None:
        """Wait until everything is on the disk; raises if something could not be written."""
        self._send(within_s=0.0)
        if self._batches:
            await asyncio.wait(self._batches)
        if self._failure is not None:
            raise self._failure

    def _send(self, *, within_s: float = _LONGEST_WAIT_S) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rows, self._rows = self._rows, []
        # Cells first: a comparison names them.
        if cells := [row for row in rows if isinstance(row, CellRow)]:
            self._begin(finish_cells(cells), cells, within_s)
        if compared := [row for row in rows if isinstance(row, ComparisonRow)]:
            self._begin(store_comparisons(compared), compared, within_s)

    def _begin(
        self,
        operation: Operation[None],
        rows: Sequence[CellRow | ComparisonRow],
        within_s: float,
    ) -> None:
        # No caller waits, so they go with the next answers; alone they would cost a commit.
        batch = self._writer.begin(operation, within_s=within_s)
        self._batches[batch] = [row.id for row in rows]
        batch.add_done_callback(self._forget)

    def _forget(self, batch: asyncio.Future[None]) -> None:
        written = self._batches.pop(batch)
        if not batch.cancelled() and batch.exception() is not None:
            self._failure = batch.exception()
            return
        for row_id in written:
            self._unwritten.pop(row_id, None)


# A model that is changed behind its name would look like a change of the prompt. So when one side
# of a pair has to be bought and the other is older than a day, both are bought.
@dataclass(frozen=True, slots=True)
class Pairing:
    """Times, as they are stored, by which the answers of the two sides of a pair are aligned."""

    reader: sqlite3.Connection
    begun: str
    """When the run began."""
    day_ago: str
    newer_than: str
    """Time from which stored answers count at all."""
    fetch_shared: Callable[[Model, Request], Awaitable[None]] | None = None
    """Stores the answer that the shared cache has to a request; None if there is no cache."""

    async def fetch(self, *pair: tuple[Model, Request]) -> None:
        """Store what the shared cache has for the two sides, so that their times are known."""
        if self.fetch_shared is not None and len({sent.request_hash for _, sent in pair}) > 1:
            await asyncio.gather(*(self.fetch_shared(*call) for call in pair))

    def align(self, request: Request, counterpart: Request) -> Request:
        """Return the request, asking for a new answer if its counterpart gets a new one."""
        if counterpart.request_hash == request.request_hash:
            return request
        own = newest_time(self.reader, request.request_hash)
        if own is None or own >= self.day_ago:
            return request
        other = newest_time(self.reader, counterpart.request_hash)
        bought = other is None or other < self.newer_than or other >= self.begun
        return replace(request, not_before=self.begun) if bought else request


@dataclass(slots=True)
class _Crew:
    """The workers of a client."""

    work: ClientWork
    tasks: Iterator[Task]
    workers: int = 0
    """Those that are running."""
    failed: set[str] = field(default_factory=set)
    """Cells that are in error, and are not asked again yet."""


class Grading(Protocol):
    """Something that grades answers; a grader that fails is a status, never an exception."""

    async def grade(self, case: Case, output: Output, answer: StoredAnswer) -> CellGrade:
        """Return status, composite, pass and components of an answer."""
        ...


class CellComparer(Protocol):
    """Something that compares a finished cell with others; a failure is stored, not raised."""

    async def compare_cell(self, task: Task, buffer: CellBuffer) -> None:
        """Compare the cell with every finished cell that it forms a pair with."""
        ...


class FallbackReply(NamedTuple):
    """What a fallback model answered in place of another."""

    model: Model
    request_hash: str
    stored: StoredAnswer


class FallbackModels:
    """Asks the fallback models of a cell's model in turn, with their own limits and prices.

    Their answers are no evidence of the model that was asked first. So its cell stays in error,
    which gates, comparisons, trends and alerts know how to treat, and the answer is stored beside
    the cell.
    """

    def __init__(self, work: RunWork, clients: ClientPool) -> None:
        self._project, self._clients = work.project, clients
        self._params = {
            (side, name): params
            for side, experiment in work.sides.items()
            for name, _, params in experiment.models
        }
        self._logged: set[tuple[str, str]] = set()

    async def answer(self, task: Task) -> FallbackReply | None:
        """Return the answer of the first one that is reached; None if there is none."""
        first = task.configuration
        for name in first.model.fallback:
            model = self._project.models.get(name)
            client = None if model is None else self._client(model)
            if model is None or client is None:
                continue
            params = self._params[task.side, first.name]
            configuration = configure(name, model, task.prompt, params)
            request = request_for(replace(task, configuration=configuration))
            try:
                stored = await client.answer(request)
            except (CallError, resilience.ClientClosed) as error:
                self._log_once("the fallback model did not answer", name, error=str(error))
                continue
            self._log_once("a fallback model answers", name, instead_of=first.model.name)
            return FallbackReply(model, request.request_hash, stored)
        return None

    def _client(self, model: Model) -> ModelClient | None:
        """Return the client of a model; None if it may not be called, or has no price."""
        try:
            if self._project.prices.price_of(model) is None:
                raise UsageError("its price is unknown", hint="add price to models.yaml")
            return self._clients.of(model, "generate")
        except EdisonError as error:  # such as a key that is not set, or may not go there
            self._log_once("the fallback model cannot be asked", model.name, error=str(error))
            return None

    def _log_once(self, message: str, model: str, **data: str) -> None:
        key = (message, model)
        if key not in self._logged:
            self._logged.add(key)
            logger.warning(message, extra={"model": model, **data})


@dataclass(frozen=True, slots=True)
class RunnerSetup:
    """What a runner works with beside its clients, fixed before the first cell."""

    grader: Grading
    input_screen: InputScreen | None = None
    """Blocks cases before they are sent; None if no input is screened."""
    pairing: Pairing | None = None
    """Aligns the answers of the two sides; None without a base."""
    head_to_head: CellComparer | None = None
    fallbacks: FallbackModels | None = None
    """Answers in place of models that cannot be reached; None unless a schedule started it."""
    done_before: sqlite3.Connection | None = None
    """Connection on which cells of earlier sessions are found."""
    on_progress: Callable[[Progress], None] = lambda _: None
    on_stop: Callable[[], None] = lambda: None
    on_trial: Callable[[bool], None] = lambda _: None
    """Called when the first cells begin, which show whether the judges answer, and after."""


_FIRST_CELLS = 2
"""Cells that are filled before the others, to see whether every judge answers."""
_FIRST_ROUNDS = 2
"""Rounds of such cells, when a judge fails to answer for a reason that may pass."""


class Runner:
    """Fills the cells of one run."""

    def __init__(self, run_id: str, writer: Writer, progress: Progress, setup: RunnerSetup) -> None:
        self._run_id, self.progress, self._setup = run_id, progress, setup
        self._stopping = asyncio.Event()
        self._buffer = CellBuffer(writer)
        self._crews: dict[str, _Crew] = {}
        self._group: asyncio.TaskGroup | None = None
        self._requeued: set[str] = set()

    def stop(self, reason: str) -> None:
        """Take no more cells; those in flight are finished."""
        if self.progress.stopped_by is None:
            self.progress.stopped_by = reason
        self._stopping.set()
        self._setup.on_stop()

    async def run(self, clients: list[ClientWork]) -> None:
        """Work until every cell is filled or the run is stopped."""
        self._crews = {work.name: _Crew(work, work.tasks()) for work in clients}
        for crew in self._crews.values():
            await self._try_judges(crew)
        async with asyncio.TaskGroup() as group:
            self._group = group
            for crew in self._crews.values():
                self._hire(crew, crew.work.workers(), crew.tasks)
        self._group = None

    def hire_more(self) -> None:
        """Start as many workers as the limits of each client allow by now."""
        for crew in self._crews.values():
            if crew.workers:
                self._hire(crew, crew.work.workers() - crew.workers, crew.tasks)

    def requeue_errors(self) -> int | None:
        """Ask the cells in error again; return how many, None if no worker is left."""
        if self._group is None or not any(crew.workers for crew in self._crews.values()):
            return None  # the run is about to end, and its group takes no more tasks
        count = 0
        for name, crew in self._crews.items():
            if crew.failed and name not in self.progress.closed:
                again, crew.failed = crew.failed, set()
                self._requeued |= again
                count += len(again)
                tasks = self._only(again, crew.work.tasks())
                self._hire(crew, min(len(again), crew.work.workers()), tasks)
        return count

    def _only(self, cells: Collection[str], tasks: Iterator[Task]) -> Iterator[Task]:
        return (task for task in tasks if id_of_cell(self._run_id, task) in cells)

    def _hire(self, crew: _Crew, count: int, tasks: Iterator[Task]) -> None:
        assert self._group is not None, "workers are started while the run fills cells"
        for _ in range(count):
            crew.workers += 1
            self._group.create_task(self._work(crew, tasks))

    async def _work(self, crew: _Crew, tasks: Iterator[Task]) -> None:
        try:
            await self._worker(crew, tasks)
        finally:
            crew.workers -= 1

    async def _try_judges(self, crew: _Crew) -> None:
        """Fill a few cells until every judge has answered.

        A judge that cannot answer stops the run before the other answers are paid for.
        """
        for _ in range(_FIRST_ROUNDS):
            waiting = {key: calls for key, calls in self.progress.calls.items() if calls.unproven}
            if not waiting or self._stopping.is_set():
                return
            self._setup.on_trial(True)
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_FIRST_CELLS, crew.work.workers())):
                    group.create_task(self._worker(crew, itertools.islice(crew.tasks, 1)))
            self._setup.on_trial(False)
            for (phase, name), calls in waiting.items():
                if not calls.answered and (calls.final or calls.failed > _FIRST_CELLS):
                    self.progress.closed[f"{name} ({phase})"] = calls.error
                    self._stopping.set()

    async def finish(self) -> None:
        """Wait until every finished cell is on the disk."""
        await self._buffer.close()

    async def _worker(self, crew: _Crew, tasks: Iterator[Task]) -> None:
        work = crew.work
        for task in tasks:
            if self._stopping.is_set() or work.name in self.progress.closed:
                return
            try:
                await self._finish(crew, task)
            except budget.BudgetExhausted as exhausted:
                self.progress.refused_microusd = exhausted.refused.reserves_microusd
                self.stop(f"budget: {exhausted.refused.cap.name}")
                return
            except resilience.ClientClosed as closed:
                self.progress.closed[work.name] = closed.reason
                return
            except budget.AwaitsBatch:
                self.progress.in_batch += 1
            except budget.RunDraining:
                return

    async def _finish(self, crew: _Crew, task: Task) -> None:
        """Fill a cell unless it is done, and have it compared with its counterparts."""
        cell_id = id_of_cell(self._run_id, task)
        setup = self._setup
        if setup.done_before is None or not is_done(setup.done_before, cell_id):
            about = CellSpan(
                cell_id, task.case.id, task.prompt.id, crew.work.name, task.side, task.repeat
            )
            CELL_ID.set(cell_id)
            with cell_span(about) as span:
                cell = await self._fill(crew.work.answer, task, cell_id)
                span.graded(cell.status, cell.composite, cell.components)
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug("cell", extra={"case": task.case.id, "status": cell.status})
            await self._buffer.put(cell)
            self._count(crew, cell)
            setup.on_progress(self.progress)
        if setup.head_to_head is not None:
            await setup.head_to_head.compare_cell(task, self._buffer)

    def _count(self, crew: _Crew, cell: CellRow) -> None:
        """Count a finished cell; one that was in error before is not counted twice."""
        progress, name = self.progress, crew.work.name
        if cell.id in self._requeued:
            self._requeued.discard(cell.id)
            progress.cells[CellStatus.ERROR] -= 1
            progress.errors_by_client[name] -= 1
        else:
            progress.done_by_client[name] += 1
        progress.cells[cell.status] += 1
        if cell.status is CellStatus.ERROR:
            progress.errors_by_client[name] += 1
            crew.failed.add(cell.id)

    async def _fill(self, answer: Answer, task: Task, cell_id: str) -> CellRow:
        row = partial(
            CellRow,
            id=cell_id,
            run_id=self._run_id,
            side=task.side,
            prompt=task.prompt.id,
            version=task.prompt.version,
            model=task.configuration.name,
            case_id=task.case.id,
            repeat=task.repeat,
            case_hash=content_hash(task.case),
            cluster=task.cluster,
            facts=facts_of(task.case),
        )
        try:
            request = await self._request(task)
        except (MissingValueError, RenderError) as error:
            skipped = CellStatus.SKIPPED
            return row(request_hash="", answer_no=None, status=skipped, reason=str(error))
        row = partial(row, request_hash=request.request_hash, answer_no=None)
        screen = self._setup.input_screen
        blocked = None if screen is None else screen.blocked(task.case)
        if blocked is not None:
            return _graded(row, blocked)
        try:
            stored = await answer(task, request)
        except (CallError, resilience.ClientClosed) as error:
            return await self._fill_unanswered(row, task, error)
        grade = await self._grade(task, stored)
        return _graded(partial(row, answer_no=stored.answer_no), grade)

    async def _request(self, task: Task) -> Request:
        """Return what the model is sent, aligned with the other side of a pair."""
        request, pairing = request_for(task), self._setup.pairing
        if pairing is None or task.counterpart is None:
            return request
        prompt, configuration = task.counterpart
        counterpart = request_for(replace(task, prompt=prompt, configuration=configuration))
        own, other = task.configuration.model, configuration.model
        await pairing.fetch((own, request), (other, counterpart))
        return pairing.align(request, counterpart)

    async def _grade(self, task: Task, stored: StoredAnswer) -> CellGrade:
        output = parse_answer(stored.completion.text, task.prompt)
        return await self._setup.grader.grade(task.case, output, stored)

    async def _fill_unanswered(
        self,
        row: Callable[..., CellRow],
        task: Task,
        error: CallError | resilience.ClientClosed,
    ) -> CellRow:
        """Return the cell of a call that failed; raises the error if the run is to stop."""
        if isinstance(error, NotAsked):
            return row(status=CellStatus.SKIPPED, reason=error.message)
        fallback = await self._replace(task) if error.kind not in REFUSED else None
        if fallback is None and isinstance(error, resilience.ClientClosed):
            raise error
        reason = str(error).removeprefix(f"{error.kind}: ")
        if fallback is not None:
            reason += f"; {fallback.model} answered in its place, which does not count"
        return row(status=CellStatus.ERROR, error=str(error.kind), reason=reason, fallback=fallback)

    async def _replace(self, task: Task) -> FallbackAnswer | None:
        """Return the graded answer of a fallback model; None if there is none."""
        fallbacks = self._setup.fallbacks
        reply = None if fallbacks is None else await fallbacks.answer(task)
        if reply is None:
            return None
        grade = await self._grade(task, reply.stored)
        return FallbackAnswer(
            reply.model.name,
            reply.model.simulated,
            reply.request_hash,
            reply.stored.answer_no,
            grade.status,
            grade.composite,
            grade.passed,
            grade.reason,
        )


def _graded(row: Callable[..., CellRow], grade: CellGrade) -> CellRow:
    return row(
        status=grade.status,
        composite=grade.composite,
        passed=grade.passed,
        reason=grade.reason or None,
        components=grade.components,
        judgments=grade.judgments,
        judge_scores=grade.judge_scores,
    )
