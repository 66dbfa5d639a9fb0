"""Control of a run by its own process: signals, requests of other processes, and workers."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from edison_ci import ranges
from edison_ci.errors import UsageError
from edison_ci.execute.budgets import run_limit
from edison_ci.execute.check_grading import check_programs
from edison_ci.numeric import counted, dollars
from edison_ci.spelling import did_you_mean
from edison_ci.store.liveness import requested_control
from edison_ci.store.steering import Change, SteeringAction, answer_request, open_requests

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from edison_ci.config.models import Model
    from edison_ci.contracts import Executor
    from edison_ci.execute.budgets import RunCaps
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.progress import Progress, ProgressReporter
    from edison_ci.execute.runner import Runner
    from edison_ci.execute.session import OpenRun
    from edison_ci.store.steering import SteeringRequest

GRACE_S = 5.0
"""How long calls in flight may take after the first signal. GitHub kills 10 s after cancelling."""
LISTEN_S = 0.5
"""Interval at which a run checks for a request to pause or cancel."""
STRANDED_S = 60.0
"""How long a run waits for a worker when none is left that can call one of its models."""
NO_WORKERS = "no workers"
"""What stops a run whose workers are gone."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class RunControl:
    """Ends, pauses or changes an executing run: by signals, requests, or for lack of workers.

    The first signal drains it; a second one, or `GRACE_S` seconds, abort it.
    """

    def __init__(  # noqa: PLR0913 - everything of a run that can be changed
        self,
        run: OpenRun,
        runner: Runner,
        clients: ClientPool,
        reporter: ProgressReporter,
        caps: RunCaps,
        filling: asyncio.Task[None],
    ) -> None:
        self._run, self._runner, self._clients = run, runner, clients
        self._reporter, self._caps, self.filling = reporter, caps, filling
        self._limits = _concurrency(run, runner.progress)
        self._loop = asyncio.get_running_loop()
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            with suppress(ValueError, RuntimeError):  # signals reach the main thread only
                self._loop.add_signal_handler(number, self._signalled, number.name)

    def restore_signals(self) -> None:
        """Give signals back to their earlier handlers."""
        for number, handler in self._before.items():
            with suppress(ValueError, RuntimeError):
                if self._loop.remove_signal_handler(number):
                    signal.signal(number, handler)

    def _signalled(self, name: str) -> None:
        if self._runner.progress.stopped_by is None:
            self._drain(name)
        else:
            self.filling.cancel()

    def _drain(self, reason: str) -> None:
        """Start no more cells, and give those in flight `GRACE_S` seconds."""
        self._run.context.on_stop(self._clients.budget.in_flight)
        self._runner.stop(reason)
        self._loop.call_later(GRACE_S, self.filling.cancel)

    async def listen(self) -> None:
        """Carry out what other processes request, until the run is to stop."""
        run, executor = self._run, self._clients.executor
        with suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(LISTEN_S)
                reason = requested_control(run.reader, run.id)
                if executor is not None and executor.stranded_s > STRANDED_S:
                    reason = NO_WORKERS
                if reason is not None:
                    self._drain(reason)
                    return
                for request in open_requests(run.reader, run.id):
                    await self._answer(request)
                self._reporter.refresh(self._runner.progress)

    async def _answer(self, request: SteeringRequest) -> None:
        """Carry out a request; a refused one changes nothing."""
        try:
            done, answer = True, self._carry_out(Change.from_json(request.what))
        except UsageError as error:
            hint = f"; {error.hint}" if error.hint else ""
            done, answer = False, f"{error.message}{hint}"
        await self._run.write(answer_request(request, self._run.now(), done=done, said=answer))
        self._run.context.on_steer(request.by, answer, done)
        if done and request.what.get("action") == SteeringAction.BUDGET:
            self._reporter.alert_again("--budget")

    def _carry_out(self, change: Change) -> str:
        if self._runner.progress.stopped_by is not None:
            raise UsageError("the run is stopping")
        match change.action:
            case SteeringAction.CONCURRENCY:
                return self._resize(self._called(change.model), change.calls or 0)
            case SteeringAction.PAUSE:
                return self._pause(self._called(change.model))
            case SteeringAction.RESUME:
                return self._resume(self._called(change.model))
            case SteeringAction.REQUEUE:
                return self._requeue()
            case SteeringAction.BUDGET:
                return self._change_budget(change.microusd or 0)

    def _called(self, name: str | None) -> str:
        """Return the name of a model that this run calls."""
        if name is None or name not in self._limits:
            hint = did_you_mean(name or "", self._limits, label="it calls")
            raise UsageError(f"the run does not call a model {name!r}", hint=hint)
        if (why := self._clients.unsteerable(name)) is not None:
            raise UsageError(f"{name} {why}")
        return name

    def _resize(self, model: str, calls: int) -> str:
        least, most = ranges.CALLS_AT_ONCE
        if not least <= calls <= most:
            raise UsageError(f"concurrency is {least} to {most:,}, not {calls}")
        before = self._clients.concurrency.get(model, self._limits[model])
        self._clients.resize(model, calls)
        self._runner.hire_more()
        where = " at each worker" if self._clients.at_workers(model) else ""
        return f"{model} makes {counted(calls, 'call')} at once{where}, before {before:,}"

    def _pause(self, model: str) -> str:
        if model in self._clients.paused:
            raise UsageError(f"{model} is paused already")
        in_flight = self._clients.pause(model)
        finishing = f"; {counted(in_flight, 'call')} in flight will finish" if in_flight else ""
        return f"{model} is paused{finishing}"

    def _resume(self, model: str) -> str:
        if model not in self._clients.paused:
            raise UsageError(f"{model} is not paused")
        self._clients.resume(model)
        return f"{model} is resumed"

    def _requeue(self) -> str:
        count = self._runner.requeue_errors()
        if count:
            return f"{counted(count, 'cell')} in error will be asked again"
        again = "ask its cells in error again: edison resume"
        if count is None:
            raise UsageError("the run is about to end", hint=again)
        closed = ", ".join(self._runner.progress.closed)
        if closed:
            raise UsageError(f"no other cell is in error; {closed} was given up", hint=again)
        raise UsageError("no cell is in error")

    def _change_budget(self, microusd: int) -> str:
        progress = self._runner.progress
        before = progress.budget_microusd
        self._caps.refuse(microusd)
        self._caps.microusd = microusd
        caps = self._caps.current()
        self._clients.budget.replace_caps(caps)
        progress.budget_microusd = run_limit(caps)
        earlier = "" if before is None else f", before {dollars(before)}"
        return f"the budget of the run is {dollars(microusd)}{earlier}"


def _concurrency(run: OpenRun, progress: Progress) -> dict[str, int]:
    """Return the models that the run calls, and how many calls at once models.yaml allows each."""
    configured = run.project.models
    models = {name: configured[name] for _, name in progress.calls}
    if not run.has_answers:
        for side in reversed(run.work.sides.values()):
            chosen = run.options.selection.narrow(side)
            models |= {model.name: model for _, model, _ in chosen.models}
            if run.uses_fallbacks:
                others = {name for _, model, _ in chosen.models for name in model.fallback}
                models = {name: configured[name] for name in others & configured.keys()} | models
    return {name: model.limits.concurrency for name, model in models.items()}


async def connect_workers(run: OpenRun, stack: AsyncExitStack) -> Executor[Model] | None:
    """Return the workers of a run until the stack ends; None if this process makes its calls."""
    context = run.context
    if context.connect is None:
        return None
    models = {load.model.key: load.model for load in run.plan.loads}
    programs = check_programs(run.project, run.experiment)
    executor = await context.connect(run.id, [*models.values()], programs, context.on_worker)
    stack.push_async_callback(executor.aclose)
    return executor


def follow_workers(executor: Executor[Model], clients: ClientPool, runner: Runner) -> None:
    """Let a run make as many calls as its workers of the moment can."""
    executor.on_change = partial(_adapt, clients, runner)
    _adapt(clients, runner)  # some may have come or gone since they were connected


def _adapt(clients: ClientPool, runner: Runner) -> None:
    clients.follow_workers()
    runner.hire_more()
