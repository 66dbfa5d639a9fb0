"""Does a model answer at all?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from edison_ci import times
from edison_ci.config.needs import missing_for_models
from edison_ci.contracts import CallError
from edison_ci.errors import UsageError
from edison_ci.execute.desk import desk
from edison_ci.frozen import dataclass
from edison_ci.providers.budgeting import BudgetExhausted
from edison_ci.providers.resilience import LaneClosed
from edison_ci.records import Message, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.execute.lanes import Lanes
    from edison_ci.execute.orders import Tools

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
        now = times.stamp(tools.now())
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
