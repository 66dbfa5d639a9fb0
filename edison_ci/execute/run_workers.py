"""The workers of a run: connected before its first call, followed while they come and go."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AsyncExitStack

    from edison_ci.config.models import Model
    from edison_ci.contracts import Executor
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.run_options import RunContext
    from edison_ci.execute.runner import Runner
    from edison_ci.plan.plan import Plan

STRANDED_S = 60.0
"""How long a run waits for a worker when none is left that can call one of its models."""
NO_WORKERS = "no workers"
"""What stops a run whose workers are gone."""


async def connect_workers(
    context: RunContext,
    run_id: str,
    plan: Plan,
    programs: Callable[[], Mapping[str, str]],
    stack: AsyncExitStack,
) -> Executor[Model] | None:
    """Return the workers of a run until the stack ends; None if this process makes its calls.

    `programs` returns those of code checks, with the hashes of their files.
    """
    if context.connect is None:
        return None
    models = {load.model.key: load.model for load in plan.loads}
    executor = await context.connect(run_id, [*models.values()], programs(), context.on_worker)
    stack.push_async_callback(executor.aclose)
    return executor


def follow_workers(executor: Executor[Model], clients: ClientPool, runner: Runner) -> None:
    """Let a run make as many calls as its workers of the moment can."""
    executor.on_change = partial(_adapt, clients, runner)
    _adapt(clients, runner)  # some may have come or gone since they were connected


def _adapt(clients: ClientPool, runner: Runner) -> None:
    clients.follow_workers()
    runner.hire_more()


def is_stranded(executor: Executor[Model] | None) -> bool:
    """Whether a run has waited long enough for workers."""
    return executor is not None and executor.stranded_s > STRANDED_S
