"""Progress of a run: counted, with rates and remaining time, and written as events.

The process that runs it is called back for every cell; processes that watch read the `event` table,
which gets a row of progress at most twice a second.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, field
from functools import partial
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.execute.budgets import run_limit, share_used, token_cap
from edison_ci.providers.client import BudgetUsage
from edison_ci.records import RunStatus
from edison_ci.store.cells import done_cells
from edison_ci.store.ledger import SpendingCap, booked
from edison_ci.store.runs import add_event, events, note_event

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.execute.clients import ClientPool, PhaseCalls
    from edison_ci.execute.session import OpenRun
    from edison_ci.execute.tasks import RunWork

EVERY_S = 0.5
"""Interval at which progress is written as an event."""
_WINDOW_S = 60
_SAMPLE_S = 1.0
_FEW = 3
_ALL = ""
"""Key of the speed of all models together."""
THE_RUN = "the run"
"""What `Progress.closed` names when too many cells are in error, though no client was closed."""


@dataclass(slots=True)
class Progress:
    """Counts of a run so far, including earlier sessions of it."""

    total: int
    """Cells that are to be filled, as far as is known."""
    most: int = 0
    """Upper limit of cells, where that is known and higher than `total`."""
    cells: Counter[str] = field(default_factory=Counter)
    """Finished cells by status."""
    done_by_client: Counter[str] = field(default_factory=Counter)
    """Finished cells of each client."""
    planned_by_client: Counter[str] = field(default_factory=Counter)
    """Cells that each client is to fill, as far as is known."""
    errors_by_client: Counter[str] = field(default_factory=Counter)
    """Cells of each client in error, since the run was started or resumed."""
    calls: dict[tuple[str, str], PhaseCalls] = field(default_factory=dict)
    """Calls for anything but answers, by phase and model."""
    usage: BudgetUsage = field(default_factory=BudgetUsage)
    """Answers since the run was started or resumed, with what they cost."""
    paused: set[str] = field(default_factory=set)
    """Models that a person paused while the run executes."""
    closed: dict[str, str] = field(default_factory=dict)
    """Clients that take no more calls, and why."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Models that had not answered for a while when the session ended, and the last error."""
    stopped_by: str | None = None
    in_batch: int = 0
    """Cells whose answer waits in a batch."""
    budget_microusd: int | None = None
    """The most that the run may cost."""
    refused_microusd: int = 0
    """What the call would have reserved for which a budget had no room."""
    sufficient_microusd: int | None = None
    """The value of the budget that stopped the run with which it goes through."""
    narrower: str = ""
    """Another budget of the run that would stop it before that."""
    budget_tokens: int | None = None
    """The most tokens that the run may use."""
    booked_tokens: int = 0
    """Tokens that count against that limit, read now and then where there is one."""

    @property
    def done(self) -> int:
        """Cells that are finished."""
        return self.cells.total()

    @property
    def most_cells(self) -> int:
        """The maximum number of cells, at least 1: a share never exceeds 100%."""
        return max(self.total, self.most, 1)

    def meter(self, now: float) -> ProgressMeter:
        """Return what computes rates and the remaining time from now on."""
        return ProgressMeter(self, now)


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """Progress of one model in one phase."""

    name: str
    unit: str
    """What is counted: cells of an answering model, calls of a judge."""
    done: int
    planned: int
    errors: int
    rate: float | None
    """Units per second over the last minute; None at the start."""
    stopped: bool = False
    """Whether calls to the model were stopped after errors."""
    paused: bool = False
    """Whether a person paused the model."""

    def as_json(self) -> dict[str, Any]:
        """Return the row as it is written to the `event` table."""
        return {name: value for name, value in asdict(self).items() if name != "rate"}

    @property
    def left_s(self) -> float | None:
        """Seconds until done at this rate; None if unknown."""
        if self.stopped or self.done >= self.planned:
            return 0.0
        return (self.planned - self.done) / self.rate if self.rate else None


class Speed:
    """Rate of progress over the last minute."""

    def __init__(self, now: float, done: int) -> None:
        self._first = done
        self._samples = deque([(now, done)], maxlen=_WINDOW_S)

    def at(self, now: float, done: int) -> float | None:
        """Return the units per second; None in the first second and before a few are done."""
        if now - self._samples[-1][0] >= _SAMPLE_S:
            self._samples.append((now, done))
        since, before = self._samples[0]
        if done - self._first < _FEW or now - since < _SAMPLE_S:
            return None
        return (done - before) / (now - since)


class ProgressMeter:
    """Computes rates and remaining time on demand; a finished cell costs it nothing."""

    def __init__(self, progress: Progress, now: float) -> None:
        self.progress, self._begun = progress, now
        self._earlier = progress.done
        self._speeds: dict[str, Speed] = {}
        self.rows(now)
        self.left_s(now)

    def elapsed_s(self, now: float) -> float:
        """Return the seconds since the session began."""
        return now - self._begun

    def rows(self, now: float) -> list[ProgressRow]:
        """Return the progress of each model: answering models first, then judges."""
        return [*self._model_rows(now), *self._judge_rows(now)]

    def left_s(self, now: float) -> float | None:
        """Return the seconds until the slowest model is done; None if unknown.

        While the rate of one model is unknown, the rate of all models together is used.
        """
        if any(row.paused and row.done < row.planned for row in self.rows(now)):
            return None  # it takes as long as the person likes
        done, total = self.progress.done, self.progress.most_cells
        speed = self._speed(_ALL, now, done)
        by_model = [row.left_s for row in self._model_rows(now)]
        left = [seconds for seconds in by_model if seconds is not None]
        if len(left) == len(by_model):
            return max(left, default=0.0) or None
        return (total - done) / speed if speed else None

    def _model_rows(self, now: float) -> list[ProgressRow]:
        progress = self.progress
        # A run that may stop early plans one batch at a time, out of at most `most` cells.
        more = progress.most_cells / max(progress.total, 1)
        # Copied in one step, because the run changes these in another thread.
        done, errors = dict(progress.done_by_client), dict(progress.errors_by_client)
        return [
            ProgressRow(
                name,
                "cells",
                done.get(name, 0),
                max(round(planned * more), done.get(name, 0)),
                errors.get(name, 0),
                self._speed(name, now, done.get(name, 0)),
                name in progress.closed,
                model_of_client(name) in progress.paused,
            )
            for name, planned in dict(progress.planned_by_client).items()
            if planned
        ]

    def _judge_rows(self, now: float) -> list[ProgressRow]:
        cells = self.progress.most_cells - self._earlier
        rows = []
        for (phase, model), calls in dict(self.progress.calls).items():
            name, done = f"{model} ({phase})", calls.answered + calls.failed
            planned = max(round(calls.per_cell * cells), done)
            if planned:
                speed = self._speed(name, now, done)
                paused = model in self.progress.paused
                row = ProgressRow(name, "calls", done, planned, calls.failed, speed, paused=paused)
                rows.append(row)
        return rows

    def _speed(self, name: str, now: float, done: int) -> float | None:
        if name not in self._speeds:
            self._speeds[name] = Speed(now, done)
        return self._speeds[name].at(now, done)


AT_THE_BASE = " at the base"
"""Ends the name of a client whose model has changed since the base."""


def model_of_client(name: str) -> str:
    """Return the model that a client calls."""
    return name.removesuffix(AT_THE_BASE)


class ProgressReporter:
    """Reports the progress of a session: to callbacks, and as events in the results file."""

    def __init__(self, run: OpenRun, clients: ClientPool) -> None:
        self._context, self._clients, self._reader = run.context, clients, run.reader
        self._budget = clients.budget
        self._written: dict[str, Any] = {}
        self._alert_at = run.experiment.file.stop.alert_at
        self._next = 0.0
        self._closed: set[str] = set()
        self._begun = run.context.clock.monotonic()
        self._meter: ProgressMeter | None = None
        past = events(run.reader, run.id)
        self._alerted = {e.data.get("budget") for e in past if e.type == "cost:alert"}

    def update(self, progress: Progress) -> None:
        """Report a finished cell; events are written at most every `EVERY_S` seconds."""
        self._context.on_progress(progress)
        self._report_closed(progress)
        now = self._context.clock.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            self._alert()
            self._count_tokens(progress)
            self._write_progress(progress)

    def refresh(self, progress: Progress) -> None:
        """Write what has changed since the last event, even if no cell was finished."""
        self._report_closed(progress)
        figures = {**self._figures(progress), "left_s": None}
        if figures != {**self._written, "left_s": None}:
            self._write_progress(progress)

    def _report_closed(self, progress: Progress) -> None:
        """Report the clients that take no more calls, once each."""
        if progress.closed:
            for client in progress.closed.keys() - self._closed:
                self._closed.add(client)
                self._write("error", {"model": client, "message": progress.closed[client]})

    def alert_again(self, budget: str) -> None:
        """Report a budget that may have been raised once more when it is nearly used up."""
        self._alerted.discard(budget)

    def write_last(self, progress: Progress) -> None:
        """Write how far the session came."""
        self._alert()
        self._write_progress(progress)

    def _write_progress(self, progress: Progress) -> None:
        self._written = self._figures(progress)
        self._write("run:progress", {**self._written, "seconds": self._seconds()})

    def _figures(self, progress: Progress) -> dict[str, Any]:
        """Return the figures that a terminal shows, for watchers in other processes."""
        now, executor = self._context.clock.monotonic(), self._clients.executor
        if self._meter is None:
            self._meter = ProgressMeter(progress, now)
        return {
            "done": progress.done,
            "total": progress.total,
            "cells": dict(progress.cells),
            "models": [row.as_json() for row in self._meter.rows(now)],
            "clients": [state._asdict() for state in self._clients.states()],
            "workers": [w._asdict() for w in (executor.states() if executor is not None else ())],
            "left_s": self._meter.left_s(now),
            "in_batch": progress.in_batch,
            "budget_microusd": progress.budget_microusd,
            "budget_tokens": progress.budget_tokens,
            "booked_tokens": progress.booked_tokens,
            **asdict(progress.usage),
        }

    async def end(self, status: RunStatus, progress: Progress) -> None:
        """Write the last events of a session."""
        if status is RunStatus.COMPLETED:
            self._write("aggregate:completed", {"cells": dict(progress.cells)})
            self._write("run:completed", self._figures(progress))
        ended = {"status": status, "seconds": self._seconds()}
        await self._budget.writer.write(
            note_event(self._budget.run_id, "iteration:completed", ended, self._budget.now())
        )

    def _seconds(self) -> float:
        """Return the duration of the session by the monotonic clock."""
        return round(self._context.clock.monotonic() - self._begun, 3)

    def _count_tokens(self, progress: Progress) -> None:
        cap = token_cap(self._budget.caps)
        if cap is not None:
            progress.booked_tokens = booked(self._reader, cap, self._budget.now()[:10])[1]

    def _alert(self) -> None:
        """Report once for each budget that it is nearly used up."""
        today = self._budget.now()[:10]
        for cap in self._budget.caps:
            if cap.name not in self._alerted and (cap.microusd or cap.tokens):
                used = share_used(self._reader, cap, today)
                if used >= self._alert_at:
                    self._alerted.add(cap.name)
                    self._context.on_alert(cap.name, used)
                    self._budget.writer.submit(partial(self._note_alert, cap, used))

    def _note_alert(self, cap: SpendingCap, used: float, connection: sqlite3.Connection) -> None:
        run_id, data = self._budget.run_id, {"budget": cap.name, "used": used}
        self._context.record_alert(connection, run_id, cap, used)
        add_event(connection, run_id, "cost:alert", data, self._budget.now())

    def _write(self, kind: str, data: dict[str, Any]) -> None:
        self._budget.writer.submit(note_event(self._budget.run_id, kind, data, self._budget.now()))


def progress_at_start(run: OpenRun, work: RunWork, clients: ClientPool) -> Progress:
    """Return the progress of a run before this session fills a cell."""
    plan, caps, stored = run.plan, clients.budget.caps, run.stored_answers
    total = plan.cells + plan.skipped
    progress = Progress(
        total=total, usage=clients.usage, calls=clients.calls, paused=clients.paused
    )
    progress.budget_microusd = run_limit(caps)
    tokens = token_cap(caps)
    progress.budget_tokens = None if tokens is None else tokens.tokens
    if stored is None:
        progress.planned_by_client = work.cells_by_client(plan.cases)
    else:
        names = work.client_names()
        for variant, cells in stored.gradable.planned.items():
            progress.planned_by_client[names[variant]] += cells
    for load in plan.loads:
        if load.phase != "generate":
            # Graders and screens are judges too: they are asked in the same phase.
            phase = load.phase if load.phase in ("pairwise", "embed") else "judge"
            calls = clients.calls_of(phase, load.model.name)
            calls.per_cell += load.once_calls / max(total, 1)
    if run.resumed is not None:
        _add_earlier_sessions(progress, work, run)
    return progress


def _add_earlier_sessions(progress: Progress, work: RunWork, run: OpenRun) -> None:
    """Count the cells of earlier sessions of a run, and all that they booked.

    The calls of a process that was killed may have been charged: they count as they are booked.
    """
    scope = SpendingCap(f"run:{run.id}", None)
    progress.usage.cost_microusd = booked(run.reader, scope, "")[0]
    names = work.client_names()
    for status, side, model, cells in done_cells(run.reader, run.id):
        progress.cells[status] += cells
        progress.done_by_client[names[side, model]] += cells
