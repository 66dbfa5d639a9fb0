"""Probes: one short call to each model, to see whether it answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.config.models import sent_params
from edison_ci.config.requirements import missing_for_models
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import UsageError
from edison_ci.execute.standalone import standalone_client
from edison_ci.judges.judge import Judge
from edison_ci.judges.moderation import moderation_request
from edison_ci.judges.replies import object_schema
from edison_ci.providers.budget import BudgetExhausted
from edison_ci.providers.openai_endpoints import embedding_request
from edison_ci.providers.resilience import ClientClosed
from edison_ci.records import Message, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.run_options import RunContext

_PHASE = "test"
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
        opened = standalone_client(
            project, None, context, purpose=_PHASE, newer_than=now, deadline_s=PROBE_S
        )
        async with opened as clients:
            probes = (_probe_in_time(project, clients, model) for model in models)
            return list(await asyncio.gather(*probes))

    return asyncio.run(ask())


def probe_request(project: Project, model: Model) -> Request:
    """Return a short request with the parameters and the form that a run sends to the model."""
    experiments = project.experiments.values()
    embedding = {name for experiment in experiments for name in experiment.embedders()}
    if model.name in embedding or model.capabilities.embedding:
        return embedding_request(model, _QUESTION)
    if model.moderates:
        return moderation_request(model, _QUESTION)
    messages = (Message("system", _JUDGE_QUESTION), Message("user", _QUESTION))
    params, left_out = sent_params(model, model.params)
    if any(model.name in project.judging_models_of(experiment) for experiment in experiments):
        return Judge.of(model).request(messages, schema=object_schema(ready={"type": "boolean"}))
    if any(model.name in project.other_models_of(experiment) for experiment in experiments):
        return Judge(model, params, left_out).request(messages)  # a refiner
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
        last = clients.of(model, _PHASE).breaker.last_error
        if last is not None:
            return ProbeResult(model, last.kind, last.message)
        return ProbeResult(model, ErrorKind.TIMEOUT, f"no answer within {PROBE_S:g} s")


async def _probe_model(project: Project, clients: ClientPool, model: Model) -> ProbeResult:
    for problem in missing_for_models([model]):
        kind = "NOT_INSTALLED" if problem.code == "not-installed" else "NOT_THERE"
        return ProbeResult(model, kind, f"{problem.message} ({problem.hint})")
    try:
        answer = await clients.of(model, _PHASE).answer(probe_request(project, model))
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
