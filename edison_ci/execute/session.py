"""Sessions: how a run starts, or is resumed after a crash.

A session locks the experiment, so that no second run of it starts on the same database, and holds
its own lock, by which other processes see that it is alive. It plans the run, opens the
results file, and lets the run be executed.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import logging
import math
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.errors import ConfigError, UsageError
from edison_ci.execute import existing_answers
from edison_ci.execute.budgets import caps_of, refuse_without_room
from edison_ci.execute.clients import OpenResults
from edison_ci.execute.execution import execute
from edison_ci.execute.planned_files import (
    PlannedPrices,
    changed_places,
    commit_of,
    copy_datasets,
    plan_snapshot,
    repriced_models,
)
from edison_ci.execute.run_end import RunGates
from edison_ci.execute.run_options import (
    BaseReference,
    RunContext,
    RunOptions,
    RunOutcome,
    allow_code,
)
from edison_ci.execute.tasks import RunWork
from edison_ci.plan.plan import bare_plan, joined
from edison_ci.plan.versions import label_of
from edison_ci.providers import transport
from edison_ci.records import RunStatus, Side
from edison_ci.results import snapshot
from edison_ci.store.audit import add_audit, write_audit
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import reclaim
from edison_ci.store.liveness import ProcessLock, experiment_lock
from edison_ci.store.runs import SCHEDULE, NewRun, start_run
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Coroutine, Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.tasks import Task
    from edison_ci.plan.plan import Plan
    from edison_ci.store.runs import Run

    Operation = Callable[[sqlite3.Connection], None]


T = TypeVar("T")
logger = logging.getLogger(__name__)


# uvloop saves 0.2 ms per call against Python's own loop, and takes 5 ms to load. It does not exist
# for Windows, where Python's own loop is used.
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


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run whose locks are held and whose results file is open."""

    id: str
    experiment: Experiment
    context: RunContext
    gates: RunGates
    work: RunWork
    """Its project has copies of the datasets, made when the run was planned."""
    plan: Plan
    options: RunOptions
    begun: str
    """When it was started, also if it is resumed."""
    newer_than: str
    """Time from which stored answers count."""
    results: OpenResults
    resumed: Run | None = None
    stored_answers: existing_answers.StoredAnswers | None = None
    """The answers that are graded again; None unless it is a regrade."""

    @property
    def project(self) -> Project:
        """The project, as it was when the run was planned."""
        return self.work.project

    @property
    def reader(self) -> sqlite3.Connection:
        """A connection that only reads the results file."""
        return self.results.reader

    @property
    def has_answers(self) -> bool:
        """Whether its answers are stored or imported, so that no generating model is asked."""
        return self.stored_answers is not None or self.context.answers is not None

    @property
    def uses_fallbacks(self) -> bool:
        """Whether fallback models are asked: not in batches, which take hours by themselves."""
        trigger = self.options.trigger if self.resumed is None else self.resumed.trigger
        return trigger == SCHEDULE and not self.options.batch

    def now(self) -> str:
        """Return the current time, as it is stored."""
        return utc.timestamp(self.context.now())

    async def write(self, operation: Operation) -> None:
        """Write to the results file, in a transaction."""
        await self.results.writer.write(operation)

    def audited(self, operation: Operation, action: str, of: str | None = None) -> Operation:
        """Return the operation with a row in the audit, in the same transaction.

        Trials and imported answers have none: the refinement and the import have one.
        """
        audit, context = self.context.audit, self.context
        if audit is None or not context.gated or context.answers is not None:
            return operation
        after = None if of is None else {"of": of}
        entry = replace(audit(action, self.experiment.id, after), run_id=self.id)

        def audited(connection: sqlite3.Connection) -> None:
            operation(connection)
            add_audit(connection, entry)

        return audited


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

    def preview(self, options: RunOptions) -> Plan:
        """Return the plan of a run that is to start later; raises what would refuse it now."""
        experiment = self._experiment
        allowed = allow_code(self._project) if options.allow_code else self._project
        bare = self._plan(allowed, options)
        work = self._work(allowed, bare, options)
        plan = self._gates.forecast(_in_batches(bare, work, options), work)
        with self._refusal_audited():
            self._context.on_check(plan)
        if not options.wait:
            with experiment_lock(self._folder / "locks", experiment.id, "a check before a run"):
                pass  # another run of it would refuse this one
        return plan

    def resume(self, run: Run, options: RunOptions) -> RunOutcome:
        """Resume a run that was paused, failed or killed; raises UsageError if its plan changed."""
        if run.status in (RunStatus.COMPLETED, RunStatus.CANCELLED):
            raise UsageError(f"run {run.id} is {run.status}", hint="start a new run: edison run")
        return self._start(run.id, options, resumed=run)

    def _start(self, run_id: str, options: RunOptions, *, resumed: Run | None) -> RunOutcome:
        experiment = self._experiment
        with ExitStack() as stack:
            wait = self._context.on_wait if options.wait else None
            locks = self._folder / "locks"
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
            work = self._work(project, plan, options, only=None if stored is None else stored.has)
            self._announce(plan, work, options)
            if options.fire is not None and resumed is None:
                self._refuse_without_room(plan)
            begun = resumed.created_at if resumed is not None else self._now()
            run = OpenRun(
                run_id,
                experiment,
                self._context,
                self._gates,
                work,
                plan,
                options,
                begun,
                self._newer_than(options, begun, resumed),
                self._open(plan, stack),
                resumed,
                stored,
            )
            if resumed is None:
                self._insert(run)
            return run_in_loop(execute(run))

    def _work(
        self,
        project: Project,
        plan: Plan,
        options: RunOptions,
        only: Callable[[Task], bool] | None = None,
    ) -> RunWork:
        return RunWork(
            project,
            self._sides,
            options.selection,
            plan.clusters,
            only=only,
            batch=bool(options.batch),
        )

    def _announce(self, plan: Plan, work: RunWork, options: RunOptions) -> None:
        """Pass the plan to the callbacks, which may refuse it."""
        expected = _in_batches(plan, work, options)
        if options.batch and expected.saving is None and plan.calls:
            self._context.on_batch(
                "no model has a price for batches: all of them are called as usual"
            )
        with self._refusal_audited():
            self._context.on_plan(self._gates.forecast(expected, work))

    def _open(self, plan: Plan, stack: ExitStack) -> OpenResults:
        """Open the results file until the stack ends, and release what dead processes booked."""
        owner = ProcessLock(self._folder / "locks")
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
        return OpenResults(writer, reader, owner)

    def _insert(self, run: OpenRun) -> None:
        """Store a new run."""
        new = self._new(run.id, run.plan, run.options, run.results.owner.id, run.begun)
        if run.stored_answers is not None:
            new = run.stored_answers.mark(new)
        action = "run" if run.options.regrade is None else "regrade"
        begun = run.audited(start_run(new), action, run.options.regrade)
        run.results.writer.submit(begun).result()

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

    def _refuse_without_room(self, plan: Plan) -> None:
        """Raise OutOfBudget if a scheduled run does not fit what is left of a day or month."""
        if (cost := plan.cost_microusd) is None or not self._path.exists():
            return
        caps = caps_of(self._project, self._experiment, "", None)
        with contextlib.closing(open_reader(self._path)) as reader:
            refuse_without_room(reader, caps, math.ceil(cost.low), self._now()[:10])

    def _stored_answers(
        self, project: Project, options: RunOptions, stack: ExitStack
    ) -> existing_answers.StoredAnswers | None:
        if options.regrade is None:
            return None
        reader = open_reader(self._path)
        stack.callback(reader.close)
        stored = existing_answers.StoredAnswers(reader, options.regrade)
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

    def _new(self, run_id: str, plan: Plan, options: RunOptions, owner: str, now: str) -> NewRun:
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
            now=now,
            fire=options.fire,
        )

    def _newer_than(self, options: RunOptions, begun: str, resumed: Run | None) -> str:
        """Return the time from which stored answers count."""
        if not options.reuse:
            # Answers that this run bought itself count, also when it is resumed: none is stored
            # with a time before this one, even if the clock goes back.
            return begun
        if resumed is not None or options.regrade is not None:
            return ""
        reuse = dt.timedelta(days=self._project.file.settings.reuse_days)
        return utc.timestamp(self._context.now() - reuse)

    def _now(self) -> str:
        return utc.timestamp(self._context.now())


def _in_batches(plan: Plan, work: RunWork, options: RunOptions) -> Plan:
    return plan.in_batches(work.project.prices) if options.batch else plan
