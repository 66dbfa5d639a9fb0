"""Single calls outside of a run.

`try`, `rerun` and the like buy through the same layer as a run: booked before it is sent, stored
with its price, counted against every budget of the project.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.needs import missing_for_models
from edison_ci.contracts import CallError
from edison_ci.errors import UsageError
from edison_ci.execute.budgets import caps_of
from edison_ci.execute.clients import Lanes, LaneSettings
from edison_ci.execute.runner import request_for
from edison_ci.providers.budgeting import BudgetExhausted, Purse
from edison_ci.providers.resilience import LaneClosed
from edison_ci.records import Message, Request
from edison_ci.safety.redaction import redaction
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import reclaim
from edison_ci.store.owners import Owner
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.execute.grading import CellGrade
    from edison_ci.execute.run_options import Tools
    from edison_ci.execute.runner import Task
    from edison_ci.providers.budgeting import Paid


_QUESTION = "Reply with the single word: ready"
_MOST_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Trial:
    """How one short call to a model went."""

    model: Model
    error: str = ""
    """Kind of the failure; empty if there was none."""
    message: str = ""
    served_model: str = ""
    latency_ms: int = 0
    cost_microusd: int = 0


def probe(project: Project, models: Sequence[Model], tools: Tools) -> list[Trial]:
    """Send each model one short call, side by side, and return how it went."""

    async def ask() -> list[Trial]:
        now = formatting.stamp(tools.now())
        async with desk(project, None, tools, purpose="test", newer_than=now) as lanes:
            return list(await asyncio.gather(*(_tried(lanes, model) for model in models)))

    return asyncio.run(ask())


async def _tried(lanes: Lanes, model: Model) -> Trial:
    for problem in missing_for_models([model]):
        kind = "NOT_INSTALLED" if problem.code == "not-installed" else "NOT_THERE"
        return Trial(model, kind, f"{problem.message} ({problem.hint})")
    request = Request(
        provider=model.provider,
        endpoint=model.endpoint,
        model=model.model,
        messages=(Message("user", _QUESTION),),
        params={**model.params, "max_tokens": _MOST_TOKENS},
    )
    try:
        paid = await lanes.of(model, "test").answer(request)
    except UsageError as error:
        kind = "NO_KEY" if model.keys or model.base_url_env else "NOT_THERE"
        return Trial(model, kind, error.message)
    except CallError as error:
        return Trial(model, str(error.kind), error.message)
    except LaneClosed as closed:
        kind, _, message = closed.reason.partition(": ")
        return Trial(model, kind, message)
    except BudgetExhausted as exhausted:
        return Trial(model, "BUDGET", f"{exhausted.refused.cap.name} has no room for it")
    completion = paid.completion
    return Trial(
        model,
        served_model=completion.served_model,
        latency_ms=completion.latency_ms,
        cost_microusd=paid.cost_microusd,
    )


@dataclass(frozen=True, slots=True)
class Tried:
    """One answer, what it was asked with, and what it is worth."""

    request: Request
    paid: Paid
    output: Output
    grade: CellGrade


class NotAnswered(Exception):
    """The call could not be made, for a reason that is no fault of the call."""


@asynccontextmanager
async def desk(
    project: Project, experiment: Experiment | None, tools: Tools, *, purpose: str, newer_than: str
) -> AsyncIterator[Lanes]:
    """Yield lanes to every model, for calls that belong to no run."""
    run_id = f"{purpose}-{uuid.uuid4().hex[:12]}"
    path = project.root / project.file.results

    def now() -> str:
        return formatting.stamp(tools.now())

    owner = Owner(project.root / ".edison" / "locks")
    try:
        with Writer(path) as writer:
            reader = open_reader(path)
            purse = Purse(
                writer=writer,
                run_id=run_id,
                owner=owner.id,
                scopes=tools.scopes(run_id, experiment),
                caps=(*caps_of(project, experiment, run_id, None), *tools.caps),
                now=now,
                is_alive=owner.is_alive,
                redact=redaction(project.file.settings),
            )
            settings = LaneSettings(
                project, tools.provider_for, tools.clock, newer_than, advice=tools.advice
            )
            lanes = Lanes(settings, purse, reader)
            try:
                await writer.write(reclaim(owner.is_alive, now=now()))
                yield lanes
            finally:
                await lanes.close()
                reader.close()
    finally:
        owner.close()


def try_once(
    project: Project, task: Task, experiment: Experiment, tools: Tools, *, newer_than: str
) -> Tried:
    """Send one case once and grade the answer; raises CallError or NotAnswered."""

    async def ask() -> Tried:
        opened = desk(project, experiment, tools, purpose="try", newer_than=newer_than)
        async with opened as lanes:
            request = request_for(task)
            try:
                paid = await lanes.of(task.configuration.model, "generate").answer(request)
            except BudgetExhausted as error:
                raise NotAnswered(f"{error.refused.cap.name} has no room for it") from None
            except LaneClosed as error:
                raise NotAnswered(error.reason) from None
            output = parse_output(paid.completion.text, task.prompt.expect)
            grade = await tools.grading(project, experiment, lanes).grade(task.case, output, paid)
            return Tried(request, paid, output, grade)

    return asyncio.run(ask())
