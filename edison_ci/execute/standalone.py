"""Calls outside of a run: `try`, `rerun`, probes of models.

They go through the same clients as the calls of a run: booked before they are sent, stored with
their price, counted against every budget of the project.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.models import sent_params
from edison_ci.config.requirements import missing_for_models
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import EdisonError, UsageError
from edison_ci.execute.budgets import caps_of
from edison_ci.execute.clients import ClientPool, ClientSettings
from edison_ci.execute.grading import InputScreen
from edison_ci.execute.runner import Task, request_for
from edison_ci.judges.judge import Judge
from edison_ci.judges.moderation import moderation_request
from edison_ci.judges.replies import object_schema
from edison_ci.numeric import in_cents
from edison_ci.plan.selection import Selection, find_case, find_configuration
from edison_ci.providers.budget import BudgetExhausted, RunBudget
from edison_ci.providers.openai_embeddings import embedding_request
from edison_ci.providers.resilience import ClientClosed
from edison_ci.records import Message, Request
from edison_ci.safety.redaction import redactor
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import reclaim
from edison_ci.store.liveness import ProcessLock
from edison_ci.store.writer import Writer
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.execute.grading import CellGrade
    from edison_ci.execute.run_options import RunContext
    from edison_ci.execute.runner import Grading
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.store.cells import CellRow
    from edison_ci.store.ledger import BudgetRefusal


_TEST = "test"
PROBE_S = 60.0
"""Deadline of all probes together, with their retries."""
_QUESTION = "Reply with the single word: ready"
_JUDGE_QUESTION = 'Reply with one JSON object and nothing else: {"ready": true}'


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of one short call to a model."""

    model: Model
    error: str = ""
    """Kind of the failure; empty if there was none."""
    message: str = ""
    served_model: str = ""
    latency_ms: int = 0
    cost_microusd: int = 0


def probe(project: Project, models: Sequence[Model], context: RunContext) -> list[ProbeResult]:
    """Send each model one short call, all at the same time, and return the results."""

    async def ask() -> list[ProbeResult]:
        now = utc.timestamp(context.now())
        async with standalone_client(
            project, None, context, purpose=_TEST, newer_than=now
        ) as clients:
            probes = (_probe_in_time(project, clients, model) for model in models)
            return list(await asyncio.gather(*probes))

    return asyncio.run(ask())


def probe_request(project: Project, model: Model) -> Request:
    """Return a short request with the parameters and the form that a run sends to the model."""
    experiments = project.experiments.values()
    embedding = {name for one in experiments for name in one.embedders()}
    if model.name in embedding or model.capabilities.embedding:
        return embedding_request(model, _QUESTION)
    if model.moderates:
        return moderation_request(model, _QUESTION)
    asked = (Message("system", _JUDGE_QUESTION), Message("user", _QUESTION))
    params, left_out = sent_params(model, model.params)
    if any(model.name in project.judging_models_of(one) for one in experiments):
        return Judge.of(model).request(asked, schema=object_schema(ready={"type": "boolean"}))
    if any(model.name in project.other_models_of(one) for one in experiments):
        return Judge(model, params, left_out).request(asked)  # a refiner
    return Request(
        provider=model.provider,
        endpoint=model.endpoint,
        model=model.model,
        messages=(Message("user", _QUESTION),),
        params=params,
        left_out=left_out,
    )


async def _probe_in_time(project: Project, clients: ClientPool, model: Model) -> ProbeResult:
    try:
        async with asyncio.timeout(PROBE_S):
            return await _probe_model(project, clients, model)
    except TimeoutError:
        last = clients.of(model, _TEST).breaker.last_error
        if last is not None:
            return ProbeResult(model, last.kind, last.message)
        return ProbeResult(model, ErrorKind.TIMEOUT, f"no answer within {PROBE_S:g} s")


async def _probe_model(project: Project, clients: ClientPool, model: Model) -> ProbeResult:
    for problem in missing_for_models([model]):
        kind = "NOT_INSTALLED" if problem.code == "not-installed" else "NOT_THERE"
        return ProbeResult(model, kind, f"{problem.message} ({problem.hint})")
    try:
        answer = await clients.of(model, _TEST).answer(probe_request(project, model))
    except UsageError as error:
        kind = "NO_KEY" if model.keys or model.base_url_env else "NOT_THERE"
        return ProbeResult(model, kind, error.message)
    except CallError as error:
        return ProbeResult(model, str(error.kind), error.message)
    except ClientClosed as closed:
        kind, _, message = closed.reason.partition(": ")
        return ProbeResult(model, kind, message)
    except BudgetExhausted as exhausted:
        return ProbeResult(model, "BUDGET", f"{exhausted.refused.cap.name} has no room for it")
    completion = answer.completion
    return ProbeResult(
        model,
        served_model=completion.served_model,
        latency_ms=completion.latency_ms,
        cost_microusd=answer.cost_microusd,
    )


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
async def standalone_client(
    project: Project,
    experiment: Experiment | None,
    context: RunContext,
    *,
    purpose: str,
    newer_than: str,
) -> AsyncIterator[ClientPool]:
    """Yield clients to every model, for calls that belong to no run."""
    run_id = f"{purpose}-{uuid.uuid4().hex[:12]}"
    path = project.root / project.file.results

    def now() -> str:
        return utc.timestamp(context.now())

    owner = ProcessLock(project.root / ".edison" / "locks")
    try:
        with Writer(path) as writer:
            reader = open_reader(path)
            budget = RunBudget(
                writer=writer,
                run_id=run_id,
                owner=owner.id,
                scopes=context.scopes(run_id, experiment),
                caps=(*caps_of(project, experiment, run_id, None), *context.caps),
                now=now,
                is_alive=owner.is_alive,
                redact=redactor(
                    project.file.settings, None if experiment is None else experiment.file.safety
                ),
                lease=context.lease(reader, owner),
            )
            settings = ClientSettings(
                project,
                context.provider_for,
                context.clock,
                newer_than,
                advice=context.advice,
                key_used=context.key_used,
                deadline_s=PROBE_S if purpose == _TEST else None,
            )
            clients = ClientPool(settings, budget, reader)
            try:
                await writer.write(reclaim(owner.is_alive, now=now()))
                yield clients
            finally:
                await clients.close()
                if budget.lease is not None:
                    await budget.lease.close()
                reader.close()
    finally:
        owner.close()


def try_once(
    project: Project, task: Task, experiment: Experiment, context: RunContext, *, newer_than: str
) -> TrialAnswer:
    """Send one case once and grade the answer; raises CallError or NotAnswered."""
    found: list[TrialAnswer | Exception] = []
    try_all(
        project,
        [task],
        experiment,
        context,
        newer_than=newer_than,
        on_result=lambda _, result: found.append(result),
    )
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


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

            async def one(number: int, task: Task) -> None:
                try:
                    if (blocked := inputs.blocked(task.case)) is not None:
                        raise NotAnswered(blocked.reason)
                    result: TrialAnswer | Exception = await _try_task(task, clients, grading)
                except NO_ANSWER as error:
                    result = error
                on_result(number, result)

            async with asyncio.TaskGroup() as group:
                for number, task in enumerate(tasks):
                    group.create_task(one(number, task))
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
    output = parse_output(answer.completion.text, task.prompt.expect, task.prompt.output)
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
