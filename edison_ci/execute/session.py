"""How does a run start, go on after a crash, and end?

A session holds the experiment, so that no second run of it starts on the same database, and a lock
of its own, by which others see that it lives. It plans, opens the lanes, lets the runner fill the
cells, and writes how it ended.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import signal
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from edison_ci.config.cases import STATIC
from edison_ci.errors import ExitCode, UsageError
from edison_ci.execute.runner import Grading, LaneWork, Progress, Runner, Task
from edison_ci.plan.fingerprint import describe
from edison_ci.providers.budgeting import Budgeted, Purse
from edison_ci.providers.lane import LaneLimits, build_lane
from edison_ci.providers.resilience import Clock
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import Cap, reclaim
from edison_ci.store.owners import Owner, only_one
from edison_ci.store.runs import NewRun, Run, find_run, move_run, start_run
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider
    from edison_ci.plan.plan import Plan

GRACE_S = 5.0
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line asks of a run."""

    trigger: str = "cli"
    budget_microusd: int | None = None
    reuse: bool = True
    wait: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    run_id: str
    status: str
    exit_code: ExitCode
    progress: Progress


@dataclass(frozen=True, slots=True)
class Tools:
    """What a session needs from outside: providers, time, and somebody to tell."""

    provider_for: Callable[[Model], Provider]
    grader: Grading
    on_progress: Callable[[Progress], None]
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class _Held:
    """What a session holds while it runs."""

    run_id: str
    writer: Writer
    reader: sqlite3.Connection
    owner: Owner
    budget_microusd: int | None


class Session:
    """One run of one experiment, new or resumed."""

    def __init__(self, project: Project, experiment: Experiment, plan: Plan, tools: Tools) -> None:
        self._project, self._experiment, self._plan = project, experiment, plan
        self._tools = tools
        self._path = project.root / project.file.results
        self._locks = project.root / ".edison" / "locks"

    def run(self, options: RunOptions) -> Ended:
        """Run the experiment anew."""
        run_id = f"{self._tools.now():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
        return self._hold(run_id, options, resumed=None)

    def resume(self, wanted: str, options: RunOptions) -> Ended:
        """Go on with a run that was paused, failed or killed; its plan must be the same."""
        reader = open_reader(self._path)
        try:
            run = find_run(reader, wanted)
        finally:
            reader.close()
        if run.plan_hash != self._plan.hash:
            raise UsageError(
                f"the plan of {run.id} has changed: {self._difference(run)}",
                hint="put the files back, or start a new run: edison run",
            )
        if run.status in ("COMPLETED", "CANCELLED"):
            raise UsageError(f"run {run.id} is {run.status}", hint="start a new run: edison run")
        return self._hold(run.id, options, resumed=run)

    def _difference(self, run: Run) -> str:
        try:
            before = json.loads(run.snapshot)
        except ValueError:
            before = {}
        now = json.loads(self._snapshot())
        changed = [key for key in now if before.get(key) != now[key]]
        return ", ".join(changed) if changed else "cases"

    def _snapshot(self) -> str:
        return json.dumps(describe(self._project, self._experiment), sort_keys=True, default=str)

    def _hold(self, run_id: str, options: RunOptions, *, resumed: Run | None) -> Ended:
        with ExitStack() as stack:
            stack.enter_context(
                only_one(self._locks, self._experiment.id, run_id, wait=options.wait)
            )
            owner = Owner(self._locks)
            stack.callback(owner.close)
            writer = stack.enter_context(Writer(self._path))
            reader = open_reader(self._path)
            stack.callback(reader.close)
            writer.submit(reclaim(owner.is_alive, now=self._now())).result()
            if resumed is None:
                writer.submit(start_run(self._new(run_id, options, owner.id))).result()
            held = _Held(run_id, writer, reader, owner, options.budget_microusd)
            return asyncio.run(self._execute(held, options, resumed))

    def _new(self, run_id: str, options: RunOptions, owner: str) -> NewRun:
        return NewRun(
            id=run_id,
            experiment=self._experiment.id,
            trigger=options.trigger,
            plan_hash=self._plan.hash,
            snapshot=self._snapshot(),
            cells_planned=self._plan.cells,
            simulated=self._plan.simulated,
            partial=False,
            owner=owner,
            now=self._now(),
        )

    def _now(self) -> str:
        return self._tools.now().strftime(_TIME)

    # --- inside the event loop --------------------------------------------------------------------

    async def _execute(self, held: _Held, options: RunOptions, resumed: Run | None) -> Ended:
        progress = Progress(total=self._plan.cells)
        runner = Runner(held.run_id, held.writer, held.reader, self._tools.grader, progress)
        runner.on_progress = self._tools.on_progress
        if resumed is not None and resumed.status in ("EXECUTING", "JUDGING"):
            died = move_run(held.run_id, "PAUSED", self._now(), stopped_by="killed")
            await held.writer.write(died)
        await held.writer.write(move_run(held.run_id, "EXECUTING", self._now()))
        lanes = self._lanes(held, self._newer_than(options, resumed))
        work = asyncio.create_task(runner.run(lanes))
        _stop_on_signals(runner, work)
        try:
            await work
        except ExceptionGroup as group:
            # Workers fail together; the first cause is the one to tell.
            raise group.exceptions[0] from None
        except asyncio.CancelledError:
            # What was in flight may have been charged, and stays booked.
            lost = reclaim(lambda owner: owner != held.owner.id, now=self._now())
            await held.writer.write(lost)
        return await self._conclude(held, progress)

    async def _conclude(self, held: _Held, progress: Progress) -> Ended:
        status, code = self._ending(progress)
        steps = [status] if status != "COMPLETED" else ["JUDGING", "AGGREGATING", "COMPLETED"]
        for step in steps:
            last = step == status
            values = {"stopped_by": progress.stopped_by, "complete": status == "COMPLETED"}
            changes = values if last else {}
            await held.writer.write(move_run(held.run_id, step, self._now(), **changes))
        return Ended(held.run_id, status, code, progress)

    def _ending(self, progress: Progress) -> tuple[str, ExitCode]:
        if progress.stopped_by is not None:
            by_budget = progress.stopped_by.startswith("budget")
            return "PAUSED", ExitCode.BUDGET if by_budget else ExitCode.PAUSED
        errors = progress.cells["error"]
        if progress.closed or errors > self._experiment.file.max_errors * self._plan.cells:
            return "FAILED", ExitCode.NOT_MEASURED
        return "COMPLETED", ExitCode.DONE

    def _newer_than(self, options: RunOptions, resumed: Run | None) -> str | None:
        if resumed is not None:
            return ""
        if not options.reuse:
            return None
        oldest = self._tools.now() - dt.timedelta(days=self._project.file.settings.reuse_days)
        return oldest.strftime(_TIME)

    def _lanes(self, held: _Held, newer_than: str | None) -> list[LaneWork]:
        clock = Clock.real()
        purse = Purse(
            writer=held.writer,
            run_id=held.run_id,
            owner=held.owner.id,
            scopes=(f"run:{held.run_id}", f"experiment:{self._experiment.id}", "project"),
            caps=self._caps(held),
            now=self._now,
            is_alive=held.owner.is_alive,
        )
        lanes = []
        for name in dict.fromkeys(model.name for _, model, _ in self._experiment.models):
            model = self._project.models[name]
            price = self._project.prices.price_of(model)
            provider = self._tools.provider_for(model)
            budgeted = Budgeted(provider, purse, model=name, phase="generate", price=price)
            limits = LaneLimits(
                model.limits.concurrency,
                model.limits.rpm,
                model.limits.tpm,
                model.limits.attempts,
                model.limits.timeout_s,
            )
            lane = build_lane(budgeted, limits, clock, held.reader, newer_than)
            lanes.append(LaneWork(name, lane, limits.concurrency, partial(self._tasks, name)))
        return lanes

    def _tasks(self, model: str) -> Iterator[Task]:
        """Yield the cells of one lane, reading the cases anew for each."""
        experiment = self._experiment
        configured = {
            prompt.id: [c for c in experiment.configurations(prompt) if c.model.name == model]
            for prompt in experiment.prompts
        }
        cases = self._project.cases(experiment) if experiment.file.data else [STATIC]
        for case in cases:
            for prompt in experiment.prompts:
                for configuration in configured[prompt.id]:
                    for draw in range(experiment.file.draws):
                        yield Task(prompt, configuration, case, draw)

    def _caps(self, held: _Held) -> tuple[Cap, ...]:
        stop, defaults = self._experiment.file.stop, self._project.file.defaults
        run, day = f"run:{held.run_id}", f"experiment:{self._experiment.id}"
        monthly = self._project.file.settings.monthly_budget_usd
        own = stop.budget_usd if stop.budget_usd is not None else defaults.budget_usd
        caps = [Cap(run, None, microusd=_microusd(own), name="stop.budget_usd")]
        if held.budget_microusd is not None:
            caps.append(Cap(run, None, microusd=held.budget_microusd, name="--budget"))
        if stop.max_total_tokens is not None:
            limit = stop.max_total_tokens
            caps.append(Cap(run, None, tokens=limit, name="stop.max_total_tokens"))
        if stop.daily_budget_usd is not None:
            limit = _microusd(stop.daily_budget_usd)
            caps.append(Cap(day, 1, microusd=limit, name="stop.daily_budget_usd"))
        if monthly is not None:
            limit = _microusd(monthly)
            caps.append(Cap("project", 30, microusd=limit, name="settings.monthly_budget_usd"))
        return tuple(caps)


def _microusd(dollars: float) -> int:
    return round(dollars * 1_000_000)


def _stop_on_signals(runner: Runner, work: asyncio.Task[None]) -> None:
    """Drain on the first signal; abort on the second, or when draining takes too long."""
    loop = asyncio.get_running_loop()

    def stop(name: str) -> None:
        if runner.progress.stopped_by is not None:
            work.cancel()
            return
        runner.stop(name)
        loop.call_later(GRACE_S, work.cancel)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number.name)
