"""Calls outside of a run, such as `try` and `rerun`.

They go through the same clients as the calls of a run: booked before they are sent, stored with
their price, counted against every budget of the project.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_answer
from edison_ci.contracts import CallError
from edison_ci.errors import EdisonError, UsageError
from edison_ci.execute.budgets import caps_of
from edison_ci.execute.clients import ClientSettings, OpenResults, open_clients
from edison_ci.execute.grading import InputScreen
from edison_ci.execute.tasks import Task, request_for
from edison_ci.numeric import in_cents
from edison_ci.plan.selection import Selection, find_case, find_configuration
from edison_ci.providers.budget import BudgetExhausted
from edison_ci.providers.resilience import ClientClosed
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import reclaim
from edison_ci.store.liveness import ProcessLock
from edison_ci.store.writer import Writer
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.grading import CellGrade
    from edison_ci.execute.run_options import RunContext
    from edison_ci.execute.runner import Grading
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Request
    from edison_ci.store.cells import CellRow
    from edison_ci.store.ledger import BudgetRefusal


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """One answer with its request and its grade."""

    request: Request
    answer: StoredAnswer
    output: Output
    grade: CellGrade


class NotAnswered(Exception):
    """The call was not made: a budget is used up, or the model's client is closed."""

    def __init__(self, message: str, refused: BudgetRefusal | None = None) -> None:
        super().__init__(message)
        self.refused = refused

    def hint(self, calls: int) -> str:
        """Return the value of the budget for which that many calls can be made."""
        refused = self.refused
        if refused is None or refused.cap.microusd is None:
            return ""
        # The calls are of one kind; none reserves twice as much as another.
        enough = refused.booked + 2 * (calls + 1) * refused.reserves_microusd
        return f"raise {refused.cap.name} to {in_cents(enough)}, and repeat: replies are stored"


@asynccontextmanager
async def standalone_client(  # noqa: PLR0913 - what a run has, given one by one
    project: Project,
    experiment: Experiment | None,
    context: RunContext,
    *,
    purpose: str,
    newer_than: str,
    deadline_s: float | None = None,
) -> AsyncIterator[ClientPool]:
    """Yield clients to every model, for calls that belong to no run."""
    run_id = f"{purpose}-{uuid.uuid4().hex[:12]}"
    path = project.root / project.file.results
    owner = ProcessLock(project.root / ".edison" / "locks")
    try:
        with Writer(path) as writer, closing(open_reader(path)) as reader:
            settings = ClientSettings(project, context, newer_than, deadline_s=deadline_s)
            caps = (*caps_of(project, experiment, run_id, None), *context.caps)
            results = OpenResults(writer, reader, owner)
            clients = open_clients(settings, results, run_id, experiment, caps)
            try:
                await writer.write(reclaim(owner.is_alive, now=clients.budget.now()))
                yield clients
            finally:
                await clients.close()
    finally:
        owner.close()


def try_once(
    project: Project, task: Task, experiment: Experiment, context: RunContext, *, newer_than: str
) -> TrialAnswer:
    """Send one case once and grade the answer; raises CallError or NotAnswered."""
    results: list[TrialAnswer | Exception] = []
    try_all(
        project,
        [task],
        experiment,
        context,
        newer_than=newer_than,
        on_result=lambda _, result: results.append(result),
    )
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


NO_ANSWER = (CallError, NotAnswered, MissingValueError, RenderError, EdisonError)
"""Why a task has no answer."""


def try_all(  # noqa: PLR0913 - as try_once, for several tasks
    project: Project,
    tasks: Sequence[Task],
    experiment: Experiment,
    context: RunContext,
    *,
    newer_than: str,
    on_result: Callable[[int, TrialAnswer | Exception], None],
    budget_microusd: int | None = None,
) -> int:
    """Send and grade tasks, as many at once as their models allow; return what was spent.

    `on_result` gets the number of a task with its answer, or with one of NO_ANSWER, as soon as it
    is known.
    """

    async def ask() -> int:
        opened = standalone_client(
            project, experiment, context, purpose="try", newer_than=newer_than
        )
        async with opened as clients:
            clients.budget.limit(budget_microusd)
            grading = context.grading(project, experiment, clients)
            inputs = InputScreen.of(experiment)

            async def ask_one(number: int, task: Task) -> None:
                try:
                    if (blocked := inputs.blocked(task.case)) is not None:
                        raise NotAnswered(blocked.reason)
                    result: TrialAnswer | Exception = await _try_task(task, clients, grading)
                except NO_ANSWER as error:
                    result = error
                on_result(number, result)

            async with asyncio.TaskGroup() as group:
                for number, task in enumerate(tasks):
                    group.create_task(ask_one(number, task))
            return clients.spent()

    return asyncio.run(ask())


async def _try_task(task: Task, clients: ClientPool, grading: Grading) -> TrialAnswer:
    request = request_for(task)
    try:
        answer = await clients.of(task.configuration.model, "generate").answer(request)
    except BudgetExhausted as error:
        raise NotAnswered(f"{error.refused.cap.name} has no room for it") from None
    except ClientClosed as error:
        raise NotAnswered(error.reason) from None
    output = parse_answer(answer.completion.text, task.prompt)
    return TrialAnswer(request, answer, output, await grading.grade(task.case, output, answer))


def task_of_cell(project: Project, experiment: Experiment, row: CellRow) -> Task:
    """Return the task of a stored cell; raises UsageError if its request would differ now."""
    prompts = [prompt for prompt in experiment.prompts if prompt.id == row.prompt]
    if not prompts:
        raise UsageError(f"{experiment.id} no longer uses {row.prompt}", hint="start a new run")
    widened = Selection(models=(row.model,)).widen(project, experiment)
    configuration = find_configuration(widened, prompts[0], row.model)
    assert configuration is not None  # it has a name
    case = find_case(project, experiment, row.case_id)
    task = Task(prompts[0], configuration, case, row.repeat)
    if request_for(task).request_hash != row.request_hash:
        raise UsageError(
            f"{row.case_id}@{row.model} differs from {row.run_id}",
            hint="the prompt, case or model changed since; start a new run",
        )
    return task
