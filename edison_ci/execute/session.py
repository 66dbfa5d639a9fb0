"""Sessions: how a run starts, is resumed after a crash, and ends.

A session locks the experiment, so that no second run of it starts on the same database, and holds
a lock of its own, by which other processes see that it is alive. It opens the clients, lets the
runner fill the cells, and writes how the run ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import logging
import math
import signal
import uuid
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.decide import conclusion
from edison_ci.deferred import load_ahead
from edison_ci.errors import ConfigError, ExitCode, UsageError
from edison_ci.execute import fallback, pairwise, regrade
from edison_ci.execute import interim as execute_interim
from edison_ci.execute.budgets import caps_of, refuse_without_room, sufficient_cost
from edison_ci.execute.clients import ClientPool, ClientSettings
from edison_ci.execute.grading import InputScreen, check_programs
from edison_ci.execute.planned_files import (
    PlannedPrices,
    changed_places,
    commit_of,
    copy_datasets,
    plan_snapshot,
    repriced_models,
)
from edison_ci.execute.progress import (
    ProgressReporter,
    add_earlier_sessions,
    initial_progress,
)
from edison_ci.execute.run_end import BATCH, final_status, moves_to, verdict_without_gates
from edison_ci.execute.run_options import (
    BaseReference,
    RunContext,
    RunOptions,
    RunOutcome,
    allow_code,
)
from edison_ci.execute.run_workers import (
    NO_WORKERS,
    connect_workers,
    follow_workers,
    is_stranded,
)
from edison_ci.execute.runner import Pairing, Runner, RunWork
from edison_ci.execute.steering import RunBudgets, RunSteering
from edison_ci.judges import approval as judge_approval
from edison_ci.plan import interim_analysis
from edison_ci.plan.plan import bare_plan, joined, ranged
from edison_ci.plan.versions import label_of
from edison_ci.providers import shared_cache, transport
from edison_ci.providers.budget import RunBudget
from edison_ci.records import CellStatus, RunStatus, Side, Verdict
from edison_ci.results import judges, rollups, snapshot, spending
from edison_ci.safety.redaction import redactor
from edison_ci.store.audit import add_audit, write_audit
from edison_ci.store.database import open_reader
from edison_ci.store.judgments import write_approval
from edison_ci.store.ledger import booked, has_open_batches, phase_costs, reclaim
from edison_ci.store.liveness import (
    ProcessLock,
    experiment_lock,
    requested_control,
)
from edison_ci.store.origins import refresh_trust
from edison_ci.store.runs import SCHEDULE, NewRun, find_run, move_run, start_run
from edison_ci.store.steering import (
    SteeringAction,
    answer_request,
    open_requests,
    withdraw_requests,
)
from edison_ci.store.writer import Writer
from edison_ci.telemetry.spans import RUN_ID, run_span

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from edison_ci.config.gates import Gate
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Executor
    from edison_ci.decide.conclusion import Conclusion
    from edison_ci.execute.batches import BatchClient
    from edison_ci.execute.progress import Progress
    from edison_ci.execute.runner import Answer
    from edison_ci.plan.interim_analysis import InterimAnalysis, Kind
    from edison_ci.plan.plan import Plan
    from edison_ci.records import BaselineDoubt
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.ledger import SpendingCap
    from edison_ci.store.runs import Run

    Ask = Callable[[InterimAnalysis | None], Conclusion | None]


GRACE_S = 5.0
"""How long calls in flight may take after the first signal. GitHub kills 10 s after cancelling."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopHandler:
    """Ends a run early: drains first, aborts at a second signal or after `GRACE_S`."""

    def __init__(
        self, runner: Runner, work: asyncio.Task[None], tell: Callable[[], None] = lambda: None
    ) -> None:
        self._runner, self._work, self._tell = runner, work, tell
        self._loop = asyncio.get_running_loop()
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            with suppress(ValueError, RuntimeError):  # signals reach the main thread only
                self._loop.add_signal_handler(number, self._signalled, number.name)

    def drain(self, reason: str) -> None:
        """Start no more cells, and give those in flight `GRACE_S` seconds."""
        self._tell()
        self._runner.stop(reason)
        self._loop.call_later(GRACE_S, self._work.cancel)

    def restore(self) -> None:
        """Give signals back to their earlier handlers."""
        for number, handler in self._before.items():
            with suppress(ValueError, RuntimeError):
                if self._loop.remove_signal_handler(number):
                    signal.signal(number, handler)

    def _signalled(self, name: str) -> None:
        if self._runner.progress.stopped_by is None:
            self.drain(name)
        else:
            self._work.cancel()


@dataclass(frozen=True, slots=True)
class RunGates:
    """The gates of a run: those of its base, or of its own experiment."""

    experiment: Experiment
    against: BaseReference | None
    context: RunContext

    @property
    def all(self) -> tuple[Gate, ...]:
        """The gates that decide: those of the base where it has any."""
        given = self.against.gates if self.against is not None else None
        return self.experiment.file.gates if given is None else given

    def doubts(self, state: _RunState) -> tuple[BaselineDoubt, ...]:
        """Return the reasons for which a run is inconclusive at best; none without gates.

        They are read from the results file: an answer that is not trusted adds one.
        """
        return snapshot.doubts_of(find_run(state.reader, state.run_id)) if self.all else ()

    def interim_kind(self, work: RunWork) -> Kind | None:
        """Return the kind of interim analyses; None if the gates decide once, at the end.

        A shard sees too few cells to stop early, a regrade can add no cells, and a batch has all
        of them at once.
        """
        apart = work.only is not None or work.selection.shard is not None or work.batch
        if apart or not (self.context.gated and self.all) or Side.BASE not in work.sides:
            return None
        return interim_analysis.interim_kind(self.all, self.experiment.file.stop)

    def forecast(self, plan: Plan, work: RunWork) -> Plan:
        """Return the plan with a range of calls, where interim analyses may end the run early."""
        kind = self.interim_kind(work)
        return replace(plan, interims=None) if kind is None else ranged(plan, kind)

    def ask(self, state: _RunState, work: RunWork, *, now: Callable[[], str]) -> Ask:
        """Return the function that decides the gates, at an interim analysis or at the end.

        It returns None where gates do not decide: trials, shards, experiments without gates.
        """
        aside = work.project.quarantine
        quarantined = frozenset(e.case for e in aside if e.experiment == self.experiment.id)
        approval = None
        if self.experiment.rubric is not None:
            approval = judge_approval.JudgeApproval.of(work.project, self.experiment)

        def decide(interim: InterimAnalysis | None = None) -> Conclusion | None:
            if not self.context.gated or not self.all or work.selection.shard is not None:
                return None  # a verdict on a shard need not hold for the whole run
            question = conclusion.GateQuestion(
                state.run_id,
                self.all,
                work.clusters,
                quarantined,
                Side.BASE in work.sides,
                now(),
                interim,
                {} if approval is None else approval.unapproved(self.all),
                self.doubts(state),
            )
            return conclusion.conclude(work.project, state.reader, question)

        return decide


# uvloop saves 0.2 ms per call against Python's own loop, and takes 5 ms to load. It does not exist
# for Windows, where Python's own loop is used.
T = TypeVar("T")


def run_in_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like `asyncio.run`, in uvloop where it is installed."""
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


logger = logging.getLogger(__name__)

LISTEN_S = 0.5
"""Interval at which a run checks for a request to pause or cancel."""


@dataclass(frozen=True, slots=True)
class _RunState:
    """State of a session while it runs."""

    run_id: str
    writer: Writer
    reader: sqlite3.Connection
    owner: ProcessLock
    project: Project
    """With copies of its datasets, made when the run was planned."""
    plan: Plan
    options: RunOptions
    newer_than: str
    resumed: Run | None
    stored_answers: regrade.StoredAnswers | None
    """The answers that are graded again; None unless it is a regrade."""


class Session:
    """One run of one experiment, new or resumed."""

    def __init__(
        self,
        project: Project,
        experiment: Experiment,
        context: RunContext,
        *,
        against: BaseReference | None = None,
    ) -> None:
        self._project, self._experiment, self._context = project, experiment, context
        self._against = against
        self._gates = RunGates(experiment, against, context)
        self._sides = {Side.HEAD: experiment}
        if against is not None and against.variant is not None:
            self._sides[Side.BASE] = against.variant
        self._path = project.root / project.file.results
        self._folder = project.root / ".edison"

    def run(self, options: RunOptions) -> RunOutcome:
        """Start a new run of the experiment."""
        run_id = options.run_id
        if run_id is None:
            run_id = f"{self._context.now():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
        return self._start(run_id, options, resumed=None)

    def resume(self, run: Run, options: RunOptions) -> RunOutcome:
        """Resume a run that was paused, failed or killed; raises UsageError if its plan changed."""
        if run.status in (RunStatus.COMPLETED, RunStatus.CANCELLED):
            raise UsageError(f"run {run.id} is {run.status}", hint="start a new run: edison run")
        return self._start(run.id, options, resumed=run)

    # --- before the first call --------------------------------------------------------------------

    def _start(self, run_id: str, options: RunOptions, *, resumed: Run | None) -> RunOutcome:
        experiment = self._experiment
        with ExitStack() as stack:
            locks = self._folder / "locks"
            wait = self._context.on_wait if options.wait else None
            stack.enter_context(experiment_lock(locks, experiment.id, run_id, wait=wait))
            data = self._folder / "snapshots" / experiment.id
            allowed = allow_code(self._project) if options.allow_code else self._project
            project = stack.enter_context(copy_datasets(allowed, experiment, data))
            plan = self._plan(project, options)
            self._refuse_changed(plan, options, resumed)
            stored = self._stored_answers(project, options, stack)
            if stored is not None:
                plan = stored.plan(project, plan)
            elif self._context.answers is not None:
                plan = self._context.answers.plan(project, plan)
            only = None if stored is None else stored.has
            work = RunWork(
                project,
                self._sides,
                options.selection,
                plan.clusters,
                only=only,
                batch=bool(options.batch),
            )
            shown = plan.in_batches(project.prices) if options.batch else plan
            if options.batch and shown.saving is None and plan.calls:
                said = "no model has a price for batches: all of them are called as usual"
                self._context.on_batch(said)
            with self._refusal_audited():
                self._context.on_plan(self._gates.forecast(shown, work))
            if options.fire is not None and resumed is None:
                self._refuse_without_room(plan)
            owner = ProcessLock(locks)
            stack.callback(owner.close)
            writer, is_new = Writer(self._path), not self._path.exists()
            writer.open()
            stack.callback(writer.close)
            if is_new and plan.is_over_network and self._context.makes_calls:
                transport.load_client()  # while the disk makes the file, which has no answers
            writer.start()
            reader = open_reader(self._path)
            stack.callback(reader.close)
            writer.submit(reclaim(owner.is_alive, now=self._now())).result()
            if resumed is None:
                new = self._new(run_id, plan, options, owner.id)
                if stored is not None:
                    new = stored.mark(new)
                action = "run" if options.regrade is None else "regrade"
                begun = self._audited(start_run(new), run_id, action, options.regrade)
                writer.submit(begun).result()
            newer = self._newer_than(options, resumed)
            state = _RunState(
                run_id, writer, reader, owner, project, plan, options, newer, resumed, stored
            )
            return run_in_loop(self._execute(state))

    @contextmanager
    def _refusal_audited(self) -> Iterator[None]:
        """Audit a plan that is refused, such as for a host that is not trusted or a budget."""
        try:
            yield
        except ConfigError as refused:
            audit = self._context.audit
            if audit is not None and self._path.exists():
                why = "; ".join(problem.message for problem in refused.problems)
                write_audit(self._path, audit("refused: run", self._experiment.id, why))
            raise

    def _audited(
        self,
        operation: Callable[[sqlite3.Connection], None],
        run_id: str,
        action: str,
        of: str | None = None,
    ) -> Callable[[sqlite3.Connection], None]:
        """Return the operation with a row in the audit, in the same transaction.

        Trials and imported answers have none: the refinement and the import have one.
        """
        audit, context = self._context.audit, self._context
        if audit is None or not context.gated or context.answers is not None:
            return operation
        after = None if of is None else {"of": of}
        entry = replace(audit(action, self._experiment.id, after), run_id=run_id)

        def audited(connection: sqlite3.Connection) -> None:
            operation(connection)
            add_audit(connection, entry)

        return audited

    def _refuse_without_room(self, plan: Plan) -> None:
        """Raise OutOfBudget if a scheduled run does not fit what is left of a day or month."""
        if (cost := plan.cost_microusd) is None or not self._path.exists():
            return
        caps = caps_of(self._project, self._experiment, "", None)
        with contextlib.closing(open_reader(self._path)) as reader:
            refuse_without_room(reader, caps, math.ceil(cost.low), self._now()[:10])

    def _stored_answers(
        self, project: Project, options: RunOptions, stack: ExitStack
    ) -> regrade.StoredAnswers | None:
        if options.regrade is None:
            return None
        reader = open_reader(self._path)
        stack.callback(reader.close)
        stored = regrade.StoredAnswers(reader, options.regrade)
        stored.survey(RunWork(project, self._sides, options.selection).tasks())
        return stored

    def _refuse_changed(self, plan: Plan, options: RunOptions, resumed: Run | None) -> None:
        if resumed is None or resumed.plan_hash == plan.hash:
            return
        before = snapshot.snapshot_of(resumed)
        changed = changed_places(before, json.loads(self.snapshot(options)))
        models = repriced_models(changed)
        if models and self._plan_at(before, options).hash == resumed.plan_hash:
            # Bookings stay as they are; new calls cost the new price.
            logger.warning(
                "prices changed since the run was planned", extra={"models": ", ".join(models)}
            )
            return
        raise UsageError(
            f"the plan of {resumed.id} has changed: {', '.join(changed) or 'cases'}",
            hint="put the files back, or start a new run: edison run",
        )

    def _plan_at(self, snapshot: dict[str, Any], options: RunOptions) -> Plan:
        """Return the plan at the prices of a snapshot."""
        table = self._project.prices
        prices = PlannedPrices(table.date, table.source, table.models, table.origin, snapshot)
        return self._plan(replace(self._project, prices=prices), options)

    def _plan(self, project: Project, options: RunOptions) -> Plan:
        """Return the plan of all sides together."""
        head, base = self._experiment, self._sides.get(Side.BASE)
        if base is None:
            return bare_plan(project, head, selection=options.selection)
        plan = partial(bare_plan, project, selection=options.selection)
        return joined(plan(head, of="head"), plan(base, of="base"))

    def snapshot(self, options: RunOptions) -> str:
        """Return everything that the run depends on, as JSON that is stored with it."""
        return plan_snapshot(self._project, self._sides, options, self._against)

    def _new(self, run_id: str, plan: Plan, options: RunOptions, owner: str) -> NewRun:
        return NewRun(
            id=run_id,
            experiment=self._experiment.id,
            trigger=options.trigger,
            plan_hash=plan.hash,
            snapshot=self.snapshot(options),
            labels={p.id: label_of(p, self._project.root) for p in self._experiment.prompts},
            cells_planned=plan.cells + plan.skipped,
            simulated=any(any(part.values()) for part in plan.models.values()),
            models=plan.models,
            partial=plan.partial,
            owner=owner,
            base_ref=self._against.ref if self._against is not None else None,
            base_commit=self._against.commit if self._against is not None else None,
            commit_id=None if options.uncommitted else commit_of(self._project, self._experiment),
            shard=str(options.selection.shard) if options.selection.shard else None,
            loop=self._context.loop_id,
            now=self._now(),
            fire=options.fire,
        )

    def _newer_than(self, options: RunOptions, resumed: Run | None) -> str:
        """Return the time from which stored answers count."""
        if not options.reuse:
            # Answers that this run bought itself count, also when it is resumed.
            return resumed.created_at if resumed is not None else self._now()
        if resumed is not None or options.regrade is not None:
            return ""
        reuse = dt.timedelta(days=self._project.file.settings.reuse_days)
        return utc.timestamp(self._context.now() - reuse)

    def _now(self) -> str:
        return utc.timestamp(self._context.now())

    # --- inside the event loop --------------------------------------------------------------------

    async def _execute(self, state: _RunState) -> RunOutcome:
        options = state.options
        RUN_ID.set(state.run_id)
        data = {"experiment": self._experiment.id, "trigger": options.trigger}
        logger.info("run begins", extra=data)
        with run_span(state.run_id, self._experiment.id, options.trigger) as span:
            outcome = await self._work_through(state)
            span.ended(outcome.status)
        ended = {"status": outcome.status, "cells": outcome.progress.done}
        logger.info("run ended", extra={"experiment": self._experiment.id, **ended})
        return outcome

    async def _work_through(self, state: _RunState) -> RunOutcome:
        async with AsyncExitStack() as stack:
            programs = partial(check_programs, state.project, self._experiment)
            executor = await connect_workers(
                self._context, state.run_id, state.plan, programs, stack
            )
            await self._begin(state)
            budgets = self._budgets(state)
            clients = self._clients(state, budgets, executor)
            cells = self._work(state, clients)
            progress = initial_progress(state.plan, cells, clients, state.stored_answers)
            if state.resumed is not None:
                add_earlier_sessions(progress, cells, state.reader, state.run_id)
            if clients.budget.lease is not None:
                stack.push_async_callback(clients.budget.lease.close)
            stack.push_async_callback(clients.close)
            alert_at = self._experiment.file.stop.alert_at
            reporter = ProgressReporter(
                self._context, clients.budget, state.reader, alert_at=alert_at
            )
            reporter.client_states = clients.states
            runner = self._runner(state, clients, progress)
            runner.on_progress = reporter.update
            runner.head_to_head = self._head_to_head(state, cells, clients)
            if self._uses_fallbacks(state):
                runner.fallbacks = fallback.FallbackModels(state.project, self._sides, clients)
            answers = partial(self._answers, state, clients)
            ask = self._gates.ask(state, cells, now=self._now)
            interims = self._interims(state, runner, cells, ask)
            self._context.on_start(progress)

            async def fill() -> None:
                await self._collect(state, clients)
                if interims is None:
                    await runner.run(cells.clients(answers))
                else:
                    await interims.run(answers)
                await self._submit(clients, runner)

            if executor is not None:
                follow_workers(executor, clients, runner)
                reporter.workers = executor.states
            work = asyncio.create_task(fill())
            stop = StopHandler(
                runner, work, lambda: self._context.on_stop(clients.budget.in_flight)
            )
            steering = RunSteering(runner, clients, self._concurrency(state, progress), budgets)
            listening = asyncio.create_task(self._listen(state, stop, steering, reporter, executor))
            loading = asyncio.create_task(self._load_ahead(clients))
            try:
                await work
                await runner.finish()
            except ExceptionGroup as group:
                # Workers fail together; the first error is the cause.
                raise group.exceptions[0] from None
            except asyncio.CancelledError:
                await state.writer.write(lambda _: None)  # releases what was booked and not sent
                # What was in flight may have been charged, and stays booked.
                lost = reclaim(lambda owner: owner != state.owner.id, now=self._now())
                await state.writer.write(lost)
                await runner.finish()
            finally:
                listening.cancel()
                loading.cancel()
                stop.restore()
                progress.closed.update(clients.closed_judges())
                progress.waiting = clients.waiting_models()
        self._find_sufficient_budget(state, progress, budgets.limits(budgets.microusd))
        known = interims.conclusion if interims is not None else None
        return await self._conclude(state, reporter, progress, lambda: known or ask(None))

    async def _load_ahead(self, clients: ClientPool) -> None:
        """Load what the end of the run needs while answers are awaited."""
        modules = [rollups, spending, *self._context.ahead]
        if self._experiment.file.is_judged:
            modules.append(judges)
        if self._context.gated and self._gates.all:
            modules.append(conclusion)
        await load_ahead(modules, lambda: clients.budget.in_flight > 0)

    def _head_to_head(
        self, state: _RunState, cells: RunWork, clients: ClientPool
    ) -> pairwise.HeadToHead | None:
        if self._experiment.file.judges.pairwise is None:
            return None
        return pairwise.HeadToHead.of(state.run_id, cells, clients, state.reader)

    def _runner(self, state: _RunState, clients: ClientPool, progress: Progress) -> Runner:
        grader = self._context.grading(state.project, self._experiment, clients)
        runner = Runner(state.run_id, state.writer, grader, progress)
        runner.input_screen = InputScreen.of(self._experiment)
        runner.on_stop = clients.drain
        if state.options.batch:
            runner.on_trial = clients.batches.ask_singly
        if state.resumed is not None:
            runner.done_before = state.reader
        if Side.BASE in self._sides:
            runner.pairing = self._pairing(state, clients)
        return runner

    def _find_sufficient_budget(
        self, state: _RunState, progress: Progress, caps: Sequence[SpendingCap]
    ) -> None:
        """Find the value of the budget that stopped a run with which it would go through."""
        name = str(progress.stopped_by).removeprefix("budget: ")
        cap = next((cap for cap in caps if cap.name == name and cap.microusd is not None), None)
        if cap is None or progress.stopped_by != f"budget: {name}":
            return
        costs = phase_costs(state.reader, run_id=state.run_id)
        left = sufficient_cost(
            state.plan.loads, costs, done=True, refused_microusd=progress.refused_microusd
        )
        shard = state.options.selection.shard
        parts = shard.count if shard is not None else 1
        found = booked(state.reader, cap, self._now()[:10])[0] + parts * left
        progress.sufficient_microusd = found
        for other in caps:
            own = other.days is None and other.microusd is not None and other is not cap
            if own and (other.microusd or 0) < found and cap.days is None:
                progress.narrower = other.name

    async def _collect(self, state: _RunState, clients: ClientPool) -> None:
        """Collect the batches of the experiment that have ended."""
        if state.options.regrade is not None or self._context.answers is not None:
            return
        if not has_open_batches(state.reader, self._experiment.id):
            return
        models = {
            model.name: model
            for side in reversed(self._sides.values())
            for _, model, _ in side.models
        }

        def client_of(name: str) -> BatchClient | None:
            return clients.batch_client(models[name]) if name in models else None

        sleep = self._context.clock.sleep if state.options.wait else None
        await clients.batches.collect(self._experiment.id, client_of, self._context.on_batch, sleep)

    async def _submit(self, clients: ClientPool, runner: Runner) -> None:
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

    async def _begin(self, state: _RunState) -> None:
        resumed, still = state.resumed, (RunStatus.PENDING, RunStatus.AGGREGATING)
        if resumed is not None and resumed.moving and resumed.status not in still:
            died = move_run(state.run_id, RunStatus.PAUSED, self._now(), stopped_by="killed")
            await state.writer.write(died)
        await state.writer.write(refresh_trust(state.project.trust.results.public_keys))
        fresh = {"owner": state.owner.id, "stopped_by": None, "verdict": None}
        begin = move_run(state.run_id, RunStatus.EXECUTING, self._now(), **fresh)
        if resumed is not None:
            begin = self._audited(begin, state.run_id, "resume")
        await state.writer.write(begin)
        if resumed is not None:
            before = "the run stopped before it was taken, and was resumed since"
            await state.writer.write(withdraw_requests(state.run_id, self._now(), before))

    async def _listen(
        self,
        state: _RunState,
        stop: StopHandler,
        steering: RunSteering,
        reporter: ProgressReporter,
        executor: Executor[Model] | None,
    ) -> None:
        """Pause, cancel or change the run on request; pause it without workers."""
        with suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(LISTEN_S)
                asked = requested_control(state.reader, state.run_id)
                if is_stranded(executor):
                    asked = NO_WORKERS
                if asked is not None:
                    stop.drain(asked)
                    return
                for request in open_requests(state.reader, state.run_id):
                    done, said = steering.answer(request)
                    answer = answer_request(request, self._now(), done=done, said=said)
                    await state.writer.write(answer)
                    self._context.on_steer(request.by, said, done)
                    if done and request.what.get("action") == SteeringAction.BUDGET:
                        reporter.alert_again("--budget")
                reporter.refresh(steering.runner.progress)

    def _concurrency(self, state: _RunState, progress: Progress) -> dict[str, int]:
        """Return the models that the run calls, and how many calls at once each may make."""
        known = state.project.models
        models = {name: known[name] for _, name in progress.calls}
        if state.stored_answers is None and self._context.answers is None:
            for side in reversed(self._sides.values()):
                chosen = state.options.selection.narrow(side)
                models |= {model.name: model for _, model, _ in chosen.models}
                if self._uses_fallbacks(state):
                    others = {name for _, model, _ in chosen.models for name in model.fallback}
                    models = {name: known[name] for name in others & known.keys()} | models
        return {name: model.limits.concurrency for name, model in models.items()}

    def _pairing(self, state: _RunState, clients: ClientPool) -> Pairing:
        begun = state.resumed.created_at if state.resumed is not None else self._now()
        day_ago = utc.timestamp(self._context.now() - dt.timedelta(days=1))
        fetch = clients.fetch_shared if self._context.cache is not None else None
        return Pairing(state.reader, begun, day_ago, state.newer_than, fetch)

    def _work(self, state: _RunState, clients: ClientPool) -> RunWork:
        stored = state.stored_answers
        only = stored.has if stored is not None else None
        options = state.options
        return RunWork(
            state.project,
            self._sides,
            options.selection,
            state.plan.clusters,
            only=only,
            batch=bool(options.batch),
            places=clients.places,
            looks_up=self._context.cache is not None,
        )

    def _answers(self, state: _RunState, clients: ClientPool, model: Model) -> Answer:
        """Return the source of a model's answers: its client, the store, or an imported file."""
        if state.stored_answers is not None:
            return partial(state.stored_answers.answer, usage=clients.usage)
        if self._context.answers is not None:
            return partial(self._context.answers.answer, clients=clients)
        client = clients.of(model, "generate")
        return lambda _, request: client.answer(request)

    @staticmethod
    def _uses_fallbacks(state: _RunState) -> bool:
        """Whether fallback models are asked: not in batches, which take hours by themselves."""
        trigger = state.options.trigger if state.resumed is None else state.resumed.trigger
        return trigger == SCHEDULE and not state.options.batch

    def _budgets(self, state: _RunState) -> RunBudgets:
        shard = state.options.selection.shard

        def limits(own: int | None) -> tuple[SpendingCap, ...]:
            found = caps_of(state.project, self._experiment, state.run_id, own)
            return found + self._context.caps

        return RunBudgets(
            state.reader,
            state.run_id,
            state.options.budget_microusd,
            limits,
            shard.count if shard is not None else 1,
            self._now,
        )

    def _clients(
        self, state: _RunState, budgets: RunBudgets, executor: Executor[Model] | None = None
    ) -> ClientPool:
        experiment = self._experiment
        budget = RunBudget(
            writer=state.writer,
            run_id=state.run_id,
            owner=state.owner.id,
            scopes=self._context.scopes(state.run_id, experiment),
            caps=budgets.caps(),
            now=self._now,
            is_alive=state.owner.is_alive,
            redact=redactor(state.project.file.settings, experiment.file.safety),
            lease=self._context.lease(state.reader, state.owner),
        )
        settings = ClientSettings(
            state.project,
            self._context.provider_for,
            self._context.clock,
            state.newer_than,
            budgets.parts,
            self._context.advice,
            state.options.batch,
            self._context.key_used,
            executor=executor,
            cache=self._cache(state),
        )
        return ClientPool(settings, budget, state.reader)

    def _cache(self, state: _RunState) -> Callable[[RunBudget], shared_cache.SharedCache] | None:
        """Return what opens the shared cache; it is not read for a run that reuses nothing."""
        access, tell = self._context.cache, self._context.on_cache
        if access is None:
            return None
        if not self._context.gated:  # no verdict would say what a trial rests on
            access = replace(access, replays=False)
        return partial(shared_cache.SharedCache, access, tell=tell, reads=state.options.reuse)

    # --- after the last call ----------------------------------------------------------------------

    async def _conclude(
        self,
        state: _RunState,
        reporter: ProgressReporter,
        progress: Progress,
        decided: Callable[[], Conclusion | None],
    ) -> RunOutcome:
        status, code = self._ending(state, progress)
        reporter.write_last(progress)
        for step in moves_to(find_run(state.reader, state.run_id).status, status):
            change: dict[str, Any] = {}
            if step == status:
                summed = status in (RunStatus.COMPLETED, RunStatus.FAILED)
                if summed:
                    await state.writer.write(rollups.rollups_of(state.reader, state.run_id))
                verdict = verdict_without_gates(status, progress)
                if status is RunStatus.COMPLETED:
                    await state.writer.write(self._approval_note(state))
                    change["cells_planned"] = progress.total
                    doubts = self._gates.doubts(state)
                    found = decided() if verdict is None or doubts else None
                    if found is not None:
                        verdict, code = found.verdict, found.exit_code
                        await state.writer.write(found.write)
                    if verdict in (None, Verdict.SKIPPED):
                        verdict = Verdict.INCONCLUSIVE if doubts else Verdict.SKIPPED
                complete = status is RunStatus.COMPLETED
                change |= {"stopped_by": progress.stopped_by, "complete": complete}
                change["verdict"] = verdict
                reused = spending.stored_reuse if summed else spending.reused_answers
                change["reused"] = reused(state.reader, state.run_id)
            if step is RunStatus.COMPLETED and state.options.refines:
                step = RunStatus.REFINING  # the loop completes it
            moved = move_run(state.run_id, step, self._now(), **change)
            rows = self._refusals(state.run_id, progress) if step == status else []
            await state.writer.write(partial(self._move, state.run_id, moved, rows, step == status))
        await reporter.end(status, progress)
        ended = f"the run ended before it was taken: it is {status}"
        await state.writer.write(withdraw_requests(state.run_id, self._now(), ended))
        return RunOutcome(state.run_id, status, code, progress, state.stored_answers)

    def _approval_note(self, state: _RunState) -> Callable[[sqlite3.Connection], None]:
        """Return the operation that stores the approval of the judges; none without a rubric."""
        if self._experiment.rubric is None:
            return write_approval(state.run_id, None)
        approval = judge_approval.JudgeApproval.of(state.project, self._experiment)
        return approval.note(state.run_id)

    def _move(
        self,
        run_id: str,
        moved: Callable[[sqlite3.Connection], None],
        rows: Sequence[AuditEntry],
        last: bool,
        connection: sqlite3.Connection,
    ) -> None:
        moved(connection)
        for row in rows:
            add_audit(connection, row)
        if last:
            self._context.record_end(connection, run_id)

    def _refusals(self, run_id: str, progress: Progress) -> list[AuditEntry]:
        """Return rows of the audit: a budget that stopped the run, and answers kept back."""
        audit, experiment = self._context.audit, self._experiment.id
        if audit is None or self._context.answers is not None:
            return []
        rows, stopped_by = [], str(progress.stopped_by)
        if stopped_by.startswith("budget: "):
            said = f"{stopped_by.removeprefix('budget: ')} is used up"
            rows.append(audit("refused: further calls", experiment, said))
        if blocked := progress.cells[CellStatus.BLOCKED]:
            rows.append(audit("block answers", experiment, {"cells": blocked}))
        return [replace(row, run_id=run_id) for row in rows]

    def _ending(self, state: _RunState, progress: Progress) -> tuple[RunStatus, ExitCode]:
        file = self._experiment.file
        return final_status(
            state.reader, state.run_id, progress, max_errors=file.max_errors, judged=file.is_judged
        )

    def _can_go_on(self, state: _RunState, runner: Runner) -> bool:
        """Whether the cells so far are there, and few enough in error."""
        return self._ending(state, runner.progress)[0] is RunStatus.COMPLETED

    def _interims(
        self, state: _RunState, runner: Runner, cells: RunWork, ask: Ask
    ) -> execute_interim.InterimRounds | execute_interim.BatchedCases | None:
        """Return the rounds of the run; None if the gates decide once, at the end."""
        rounds = self._context.rounds
        if rounds is not None:
            batches = rounds(state.reader, state.run_id, cells)
            can_go_on = partial(self._can_go_on, state, runner)
            return execute_interim.BatchedCases(batches, cells, runner, can_go_on)
        kind = self._gates.interim_kind(cells)
        if kind is None:
            return None
        first = state.resumed.plan_hash if state.resumed is not None else state.plan.hash
        hooks = execute_interim.InterimHooks(
            state.run_id,
            ask,
            partial(self._can_go_on, state, runner),
            state.writer.write,
            self._now,
            self._context.on_interim,
        )
        return execute_interim.InterimRounds(
            execute_interim.InterimRules(kind, state.plan.cases, first), cells, runner, hooks
        )
