"""Progress of a run: counted while it goes on, and written as events for other processes.

The process that runs it is called back for every cell; processes that watch read the `event` table,
which gets a row of progress at most twice a second.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, field
from functools import partial
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.execute.budgets import run_limit, share_used, token_cap
from edison_ci.execute.progress_meter import ProgressMeter
from edison_ci.providers.client import BudgetUsage
from edison_ci.records import RunStatus
from edison_ci.store.cells import done_cells
from edison_ci.store.ledger import SpendingCap, booked
from edison_ci.store.runs import add_event, events, note_event

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from edison_ci.contracts import WorkerState
    from edison_ci.execute.clients import ClientPool, ClientState, PhaseCalls
    from edison_ci.execute.regrade import StoredAnswers
    from edison_ci.execute.run_options import RunContext
    from edison_ci.execute.runner import RunWork
    from edison_ci.plan.plan import Plan
    from edison_ci.providers.budget import RunBudget

EVERY_S = 0.5
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
    """Models that a person paused while the run goes on."""
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
    def silent(self) -> bool:
        """Whether a model was closed, or did not answer at the end."""
        return bool(self.waiting or self.closed.keys() - {THE_RUN})

    @property
    def done(self) -> int:
        """Cells that are finished."""
        return self.cells.total()


class ProgressReporter:
    """Reports the progress of a session: to callbacks, and as events in the results file."""

    def __init__(
        self, context: RunContext, budget: RunBudget, reader: sqlite3.Connection, *, alert_at: float
    ) -> None:
        self._context, self._budget, self._reader = context, budget, reader
        self.client_states: Callable[[], list[ClientState]] = list
        """Returns the state of the clients at this moment."""
        self.workers: Callable[[], Sequence[WorkerState]] = tuple
        """Returns the workers that make the calls; none if this process makes them."""
        self._written: dict[str, Any] = {}
        self._alert_at = alert_at
        self._next = 0.0
        self._closed: set[str] = set()
        self._begun = context.clock.monotonic()
        self._meter: ProgressMeter | None = None
        past = events(reader, budget.run_id)
        self._alerted = {e.data.get("budget") for e in past if e.type == "cost:alert"}

    def update(self, progress: Progress) -> None:
        """Report a finished cell; events are written at most every `EVERY_S` seconds."""
        self._context.on_progress(progress)
        if progress.closed:
            for client in progress.closed.keys() - self._closed:
                self._closed.add(client)
                self._write("error", {"model": client, "message": progress.closed[client]})
        now = self._context.clock.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            self._alert()
            self._count_tokens(progress)
            self._write_progress(progress)

    def refresh(self, progress: Progress) -> None:
        """Write what has changed since the last event, even if no cell was finished."""
        figures = {**self._figures(progress), "left_s": None}
        if figures != {**self._written, "left_s": None}:
            self._write_progress(progress)

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
        now = self._context.clock.monotonic()
        if self._meter is None:
            self._meter = ProgressMeter(progress, now)
        return {
            "done": progress.done,
            "total": progress.total,
            "cells": dict(progress.cells),
            "models": [row.as_json() for row in self._meter.rows(now)],
            "clients": [state._asdict() for state in self.client_states()],
            "workers": [worker._asdict() for worker in self.workers()],
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


def initial_progress(
    plan: Plan, work: RunWork, clients: ClientPool, stored: StoredAnswers | None
) -> Progress:
    """Return the progress of a run before its first cell is filled."""
    caps, total = clients.budget.caps, plan.cells + plan.skipped
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
    return progress


def add_earlier_sessions(
    progress: Progress, work: RunWork, reader: sqlite3.Connection, run_id: str
) -> None:
    """Count the cells of earlier sessions of a run, and all that they booked.

    The calls of a process that was killed may have been charged: they count as they are booked.
    """
    progress.usage.cost_microusd = booked(reader, SpendingCap(f"run:{run_id}", None), "")[0]
    names = work.client_names()
    for status, side, model, cells in done_cells(reader, run_id):
        progress.cells[status] += cells
        progress.done_by_client[names[side, model]] += cells
