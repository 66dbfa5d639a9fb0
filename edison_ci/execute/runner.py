"""The runner: from a plan to finished cells.

Each lane (one model) has its own stream of cells and its own workers, so that no model waits for
another, and nothing is held that grows with the number of cases. A cell is asked, parsed, graded
and stored before its worker takes the next one; what was stored is never asked again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.facets import content_hash, facts_of
from edison_ci.contracts import CallError
from edison_ci.execute.cell_buffer import Outbox
from edison_ci.providers.budgeting import BudgetExhausted, Drained
from edison_ci.providers.lane import Tally
from edison_ci.providers.replay import Unrecorded
from edison_ci.providers.resilience import LaneClosed
from edison_ci.records import Request
from edison_ci.store.answers import newest_time
from edison_ci.store.naming import cell_id
from edison_ci.store.runs import CellRow, is_done
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Iterator

    from edison_ci.checks.output import Output
    from edison_ci.config.models import Configuration
    from edison_ci.config.prompt import Prompt
    from edison_ci.execute.clients import PhaseCalls
    from edison_ci.execute.grading import CellGrade
    from edison_ci.providers.budgeting import Paid
    from edison_ci.records import Case
    from edison_ci.store.writer import Writer

    Answer = Callable[["Task", Request], Awaitable[Paid]]


# A model that is changed behind its name would look like a change of the prompt. So when one side
# of a pair has to be bought and the other is older than a day, both are bought.
@dataclass(frozen=True, slots=True)
class Pairing:
    """Times, as they are stored, by which the two sides of a pair are held together."""

    reader: sqlite3.Connection
    begun: str
    """When the run began."""
    day_ago: str
    newer_than: str
    """From when on stored answers count at all."""

    def held_together(self, request: Request, twin: Request) -> Request:
        """Return the request, asking for a new answer if its twin gets a new one."""
        if twin.address == request.address:
            return request
        own = newest_time(self.reader, request.address)
        if own is None or own >= self.day_ago:
            return request
        other = newest_time(self.reader, twin.address)
        bought = other is None or other < self.newer_than or other >= self.begun
        return replace(request, not_before=self.begun) if bought else request


THE_RUN = "the run"
"""What stops when too many cells are in error, though no lane did."""


@dataclass(frozen=True, slots=True)
class Task:
    """A cell that is to be filled."""

    prompt: Prompt
    configuration: Configuration
    case: Case
    draw: int
    side: str = "head"
    twin: tuple[Prompt, Configuration] | None = None
    """What the other side asks with, where there is one."""


@dataclass(frozen=True, slots=True)
class LaneWork:
    """A lane, its workers, and the cells it has to fill."""

    name: str
    answer: Answer
    """Brings the answer to a cell: from a model, or from the store."""
    workers: int
    tasks: Callable[[], Iterator[Task]]


@dataclass(slots=True)
class Progress:
    """What has happened so far, earlier sessions of the same run included."""

    total: int
    """Cells that are to be filled, as far as is known."""
    most: int = 0
    """Cells that it may come to, where that is known and more."""
    cells: Counter[str] = field(default_factory=Counter)
    by_lane: Counter[str] = field(default_factory=Counter)
    """Finished cells of each lane."""
    planned_by_lane: Counter[str] = field(default_factory=Counter)
    """Cells that each lane is to fill, as far as is known."""
    errors_by_lane: Counter[str] = field(default_factory=Counter)
    """Cells of each lane in error, since the run was started or resumed."""
    calls: dict[tuple[str, str], PhaseCalls] = field(default_factory=dict)
    """Calls for anything but answers, by phase and model."""
    tally: Tally = field(default_factory=Tally)
    """Answers since the run was started or resumed, with what they cost."""
    closed: dict[str, str] = field(default_factory=dict)
    """Lanes that take no more calls, and why."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Models that had not answered for a while when the session ended, and the last error."""
    stopped_by: str | None = None
    budget_microusd: int | None = None
    """The most that the run may cost."""
    budget_tokens: int | None = None
    """The most tokens that the run may use."""
    booked_tokens: int = 0
    """Tokens that count against that limit, read now and then where there is one."""

    @property
    def silent(self) -> bool:
        """Whether a model was given up, or waited for in the end."""
        return bool(self.waiting or self.closed.keys() - {THE_RUN})

    @property
    def done(self) -> int:
        """Cells that are finished."""
        return self.cells.total()


class Grading(Protocol):
    """Something that grades answers; it may fail for one, but never raises."""

    async def grade(self, case: Case, output: Output, paid: Paid) -> CellGrade:
        """Return status, composite, pass and parts of an answer."""
        ...


class Compares(Protocol):
    """Something that compares a finished cell with others; what fails is a value."""

    async def see(self, task: Task, outbox: Outbox) -> None:
        """Compare the cell with every other that is finished and belongs to it."""
        ...


class Runner:
    """Fills the cells of one run."""

    def __init__(self, run_id: str, writer: Writer, grader: Grading, progress: Progress) -> None:
        self._run_id, self._grader, self.progress = run_id, grader, progress
        self._stopping = asyncio.Event()
        self._outbox = Outbox(writer)
        self.on_progress: Callable[[Progress], None] = lambda _: None
        self.on_stop: Callable[[], None] = lambda: None
        self.pairing: Pairing | None = None
        self.head_to_head: Compares | None = None
        self.done_before: sqlite3.Connection | None = None
        """Where cells that an earlier session finished are looked up."""

    def stop(self, reason: str) -> None:
        """Take no more cells; those in flight are finished."""
        if self.progress.stopped_by is None:
            self.progress.stopped_by = reason
        self._stopping.set()
        self.on_stop()

    async def run(self, lanes: list[LaneWork]) -> None:
        """Work until every cell is filled or the run is stopped."""
        async with asyncio.TaskGroup() as group:
            for work in lanes:
                tasks = work.tasks()
                for _ in range(work.workers):
                    group.create_task(self._worker(work, tasks))

    async def finish(self) -> None:
        """Wait until every finished cell is on the disk."""
        await self._outbox.close()

    async def _worker(self, work: LaneWork, tasks: Iterator[Task]) -> None:
        for task in tasks:
            if self._stopping.is_set() or work.name in self.progress.closed:
                return
            try:
                await self._finish(work, task)
            except BudgetExhausted as exhausted:
                self.stop(f"budget: {exhausted.refused.cap.name}")
                return
            except LaneClosed as closed:
                self.progress.closed[work.name] = closed.reason
                return
            except Drained:
                return

    async def _finish(self, work: LaneWork, task: Task) -> None:
        """Fill a cell unless it is done, and have it compared with what it is held against."""
        cell_id = id_of_cell(self._run_id, task)
        if self.done_before is None or not is_done(self.done_before, cell_id):
            cell = await self._fill(work.answer, task, cell_id)
            await self._outbox.put(cell)
            self.progress.cells[cell.status] += 1
            self.progress.by_lane[work.name] += 1
            if cell.status == "error":
                self.progress.errors_by_lane[work.name] += 1
            self.on_progress(self.progress)
        if self.head_to_head is not None:
            await self.head_to_head.see(task, self._outbox)

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
            draw=task.draw,
            case_hash=content_hash(task.case),
            cluster=task.case.cluster,
            facts=facts_of(task.case),
        )
        try:
            request = request_for(task)
            if self.pairing is not None and task.twin is not None:
                prompt, configuration = task.twin
                twin = request_for(replace(task, prompt=prompt, configuration=configuration))
                request = self.pairing.held_together(request, twin)
        except (MissingValueError, RenderError) as error:
            return row(address="", take=None, status="skipped", reason=str(error))
        try:
            paid = await answer(task, request)
        except CallError as error:
            status = "skipped" if isinstance(error, Unrecorded) else "error"
            return row(
                address=request.address,
                take=None,
                status=status,
                error=str(error.kind) if status == "error" else None,
                reason=error.message,
            )
        output = parse_output(paid.completion.text, task.prompt.expect)
        grade = await self._grader.grade(task.case, output, paid)
        return row(
            address=request.address,
            take=paid.take,
            status=grade.status,
            composite=grade.composite,
            passed=grade.passed,
            reason=grade.reason or None,
            parts=grade.parts,
            judgments=grade.judgments,
            opinions=grade.opinions,
        )


def id_of_cell(run_id: str, task: Task) -> str:
    """Return the id that a cell has in a run."""
    name = task.configuration.name
    return cell_id(run_id, task.side, task.prompt.id, name, task.case.id, task.draw)


def request_for(task: Task) -> Request:
    """Return what the model is sent; raises MissingValueError or RenderError."""
    model = task.configuration.model
    return Request(
        provider=model.provider,
        endpoint=model.endpoint,
        model=model.model,
        messages=task.prompt.render(task.case.inputs),
        params=dict(task.configuration.params),
        tools=task.prompt.tools,
        response_format=task.prompt.output,
        draw=task.draw,
    )
