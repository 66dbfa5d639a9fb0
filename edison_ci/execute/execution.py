"""The execution of a run inside the event loop: clients opened, cells filled, the end stored."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci.deferred import load_ahead
from edison_ci.execute import interim, pairwise
from edison_ci.execute.budgets import RunCaps
from edison_ci.execute.clients import ClientSettings, open_clients
from edison_ci.execute.grading import InputScreen
from edison_ci.execute.progress import ProgressReporter, progress_at_start
from edison_ci.execute.run_end import BATCH, conclude, modules_at_the_end
from edison_ci.execute.runner import FallbackModels, Pairing, Runner, RunnerSetup
from edison_ci.execute.steering import RunControl, connect_workers, follow_workers
from edison_ci.records import RunStatus, Side
from edison_ci.store.ledger import has_open_batches, reclaim
from edison_ci.store.runs import move_run, refresh_trust
from edison_ci.store.steering import withdraw_requests
from edison_ci.telemetry.spans import RUN_ID, run_span

if TYPE_CHECKING:
    from edison_ci.config.models import Model
    from edison_ci.contracts import Executor
    from edison_ci.execute.batches import BatchClient
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.progress import Progress
    from edison_ci.execute.run_options import RunOutcome
    from edison_ci.execute.session import OpenRun
    from edison_ci.execute.tasks import Answer, RunWork

logger = logging.getLogger(__name__)


async def execute(run: OpenRun) -> RunOutcome:
    """Fill the cells of a run, and store how it ended."""
    options = run.options
    RUN_ID.set(run.id)
    data = {"experiment": run.experiment.id, "trigger": options.trigger}
    logger.info("run begins", extra=data)
    with run_span(run.id, run.experiment.id, options.trigger) as span:
        outcome = await _execute(run)
        span.ended(outcome.status)
    ended = {"status": outcome.status, "cells": outcome.progress.done}
    logger.info("run ended", extra={"experiment": run.experiment.id, **ended})
    return outcome


def clients_of(run: OpenRun, caps: RunCaps, executor: Executor[Model] | None = None) -> ClientPool:
    """Return the clients of a run, which book within its caps."""
    settings = ClientSettings(
        run.project,
        run.context,
        run.newer_than,
        caps.parts,
        run.options.batch,
        executor=executor,
        reads_cache=run.options.reuse,
    )
    return open_clients(settings, run.results, run.id, run.experiment, caps.current())


async def begin(run: OpenRun) -> None:
    """Store that a run executes from now on, in this process."""
    resumed, still = run.resumed, (RunStatus.PENDING, RunStatus.AGGREGATING)
    if resumed is not None and resumed.moving and resumed.status not in still:
        await run.write(move_run(run.id, RunStatus.PAUSED, run.now(), stopped_by="killed"))
    await run.write(refresh_trust(run.project.trust.results.public_keys))
    fresh = {"owner": run.results.owner.id, "stopped_by": None, "verdict": None}
    begin = move_run(run.id, RunStatus.EXECUTING, run.now(), **fresh)
    if resumed is not None:
        begin = run.audited(begin, "resume")
    await run.write(begin)
    if resumed is not None:
        before = "the run stopped before it was taken, and was resumed since"
        await run.write(withdraw_requests(run.id, run.now(), before))


async def _execute(run: OpenRun) -> RunOutcome:
    async with AsyncExitStack() as stack:
        executor = await connect_workers(run, stack)
        await begin(run)
        caps = RunCaps.of(run)
        clients = clients_of(run, caps, executor)
        stack.push_async_callback(clients.close)
        looks_up = run.context.cache is not None
        work = replace(run.work, places=clients.places, looks_up=looks_up)
        progress = progress_at_start(run, work, clients)
        reporter = ProgressReporter(run, clients)
        runner = _runner(run, work, clients, progress, reporter)
        ask = run.gates.ask(run, work)
        in_rounds = run.context.rounds is not None or run.gates.interim_kind(work) is not None
        rounds = interim.rounds_of(run, work, runner, ask) if in_rounds else None
        run.context.on_start(progress)

        async def fill() -> None:
            await _collect(run, clients)
            answers = partial(_answers, run, clients)
            if rounds is None:
                await runner.run(work.clients(answers))
            else:
                await rounds.run(answers)
            await _submit(clients, runner)

        if executor is not None:
            follow_workers(executor, clients, runner)
        filling = asyncio.create_task(fill())
        control = RunControl(run, runner, clients, reporter, caps, filling)
        await _await_cells(run, clients, runner, control)
    caps.find_sufficient(progress)
    concluded = rounds.conclusion if rounds is not None else None
    return await conclude(run, reporter, progress, lambda: concluded or ask(None))


async def _await_cells(
    run: OpenRun, clients: ClientPool, runner: Runner, control: RunControl
) -> None:
    """Wait until every cell is filled and stored, or the run was stopped."""
    listening = asyncio.create_task(control.listen())
    loading = asyncio.create_task(_load_ahead(run, clients))
    progress, owner = runner.progress, run.results.owner.id
    try:
        await control.filling
        await runner.finish()
    except ExceptionGroup as group:
        # Workers fail together; the first error is the cause.
        raise group.exceptions[0] from None
    except asyncio.CancelledError:
        await run.write(lambda _: None)  # releases what was booked and not sent
        # What was in flight may have been charged, and stays booked.
        await run.results.writer.write(reclaim(lambda other: other != owner, now=run.now()))
        await runner.finish()
    finally:
        listening.cancel()
        loading.cancel()
        control.restore_signals()
        progress.closed.update(clients.closed_judges())
        progress.waiting = clients.waiting_models()


async def _load_ahead(run: OpenRun, clients: ClientPool) -> None:
    """Load what the end of the run needs while answers are awaited."""
    modules = [*modules_at_the_end(run), *run.context.ahead]
    await load_ahead(modules, lambda: clients.budget.in_flight > 0)


def _runner(
    run: OpenRun,
    work: RunWork,
    clients: ClientPool,
    progress: Progress,
    reporter: ProgressReporter,
) -> Runner:
    compares = run.experiment.file.judges.pairwise is not None
    comparer = pairwise.HeadToHead.of(run.id, work, clients, run.reader) if compares else None
    setup = RunnerSetup(
        run.context.grading(run.project, run.experiment, clients),
        InputScreen.of(run.experiment),
        _pairing(run, clients) if Side.BASE in work.sides else None,
        comparer,
        FallbackModels(work, clients) if run.uses_fallbacks else None,
        None if run.resumed is None else run.reader,
        reporter.update,
        clients.drain,
    )
    if run.options.batch:
        setup = replace(setup, on_trial=clients.batches.ask_singly)
    return Runner(run.id, run.results.writer, progress, setup)


def _pairing(run: OpenRun, clients: ClientPool) -> Pairing:
    day_ago = utc.timestamp(run.context.now() - dt.timedelta(days=1))
    fetch = clients.fetch_shared if run.context.cache is not None else None
    return Pairing(run.reader, run.begun, day_ago, run.newer_than, fetch)


def _answers(run: OpenRun, clients: ClientPool, model: Model) -> Answer:
    """Return the source of a model's answers: its client, the store, or an imported file."""
    if run.stored_answers is not None:
        return partial(run.stored_answers.answer, usage=clients.usage)
    if run.context.answers is not None:
        return partial(run.context.answers.answer, clients=clients)
    client = clients.of(model, "generate")
    return lambda _, request: client.answer(request)


async def _collect(run: OpenRun, clients: ClientPool) -> None:
    """Collect the batches of the experiment that have ended."""
    if run.has_answers or not has_open_batches(run.reader, run.experiment.id):
        return
    models = {
        model.name: model
        for side in reversed(run.work.sides.values())
        for _, model, _ in side.models
    }

    def client_of(name: str) -> BatchClient | None:
        return clients.batch_client(models[name]) if name in models else None

    sleep = run.context.clock.sleep if run.options.wait else None
    await clients.batches.collect(run.experiment.id, client_of, run.context.on_batch, sleep)


async def _submit(clients: ClientPool, runner: Runner) -> None:
    """Submit what waits for a batch, and note that the run does."""
    progress = runner.progress
    if progress.stopped_by is not None or not progress.in_batch:
        return
    batches = clients.batches
    await batches.submit()
    progress.closed.update(batches.closed)
    if batches.refused is not None:
        runner.stop(f"budget: {batches.refused.cap.name}")
    elif not batches.closed:
        runner.stop(BATCH)
