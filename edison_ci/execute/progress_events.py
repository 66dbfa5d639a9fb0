"""Progress events of a run, for people and for other processes.

Whoever started it sees every step; whoever watches from elsewhere reads the `event` table, which
gets a line of progress at most twice a second.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edison_ci.execute.budgets import run_limit, share_used, token_cap
from edison_ci.execute.runner import Progress
from edison_ci.store.events import events, note_event
from edison_ci.store.ledger import booked, spent
from edison_ci.store.runs import done_cells

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.execute.clients import Lanes
    from edison_ci.execute.regrade import KeptAnswers
    from edison_ci.execute.run_options import Tools
    from edison_ci.execute.work import Work
    from edison_ci.plan.plan import Plan
    from edison_ci.providers.budgeting import Purse

EVERY_S = 0.5


class Bulletin:
    """Tells how a run goes."""

    def __init__(
        self, tools: Tools, purse: Purse, reader: sqlite3.Connection, *, alert_at: float
    ) -> None:
        self._tools, self._purse, self._reader = tools, purse, reader
        self._alert_at = alert_at
        self._next = 0.0
        self._closed: set[str] = set()
        self._begun = tools.clock.monotonic()
        past = events(reader, purse.run_id)
        self._alerted = {e.data.get("budget") for e in past if e.type == "cost:alert"}

    def progress(self, progress: Progress) -> None:
        """Take note of a finished cell."""
        self._tools.on_progress(progress)
        for lane in progress.closed.keys() - self._closed:
            self._closed.add(lane)
            self._write("error", {"model": lane, "message": progress.closed[lane]})
        now = self._tools.clock.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            self._alert()
            self._count_tokens(progress)
            self._write("run:progress", {**told(progress), "seconds": self._seconds()})

    def last(self, progress: Progress) -> None:
        """Write how far the session came."""
        self._alert()
        self._write("run:progress", {**told(progress), "seconds": self._seconds()})

    async def end(self, status: str, progress: Progress) -> None:
        """Write the last events of a session."""
        if status == "COMPLETED":
            self._write("aggregate:completed", {"cells": dict(progress.cells)})
            self._write("run:completed", told(progress))
        ended = {"status": status, "seconds": self._seconds()}
        await self._purse.writer.write(
            note_event(self._purse.run_id, "iteration:completed", ended, self._purse.now())
        )

    def _seconds(self) -> float:
        """Return how long the session has lasted, whatever happens to the time of day."""
        return round(self._tools.clock.monotonic() - self._begun, 3)

    def _count_tokens(self, progress: Progress) -> None:
        cap = token_cap(self._purse.caps)
        if cap is not None:
            progress.booked_tokens = booked(self._reader, cap, self._purse.now()[:10])[1]

    def _alert(self) -> None:
        """Say once, for each budget, that little of it is left."""
        today = self._purse.now()[:10]
        for cap in self._purse.caps:
            if cap.name not in self._alerted and (cap.microusd or cap.tokens):
                used = share_used(self._reader, cap, today)
                if used >= self._alert_at:
                    self._alerted.add(cap.name)
                    self._tools.on_alert(cap.name, used)
                    self._write("cost:alert", {"budget": cap.name, "used": used})

    def _write(self, kind: str, data: dict[str, Any]) -> None:
        self._purse.writer.submit(note_event(self._purse.run_id, kind, data, self._purse.now()))


def progress_of(plan: Plan, work: Work, lanes: Lanes, kept: KeptAnswers | None) -> Progress:
    """Return the progress of a run before its first cell is filled."""
    caps, total = lanes.purse.caps, plan.cells + plan.skipped
    progress = Progress(total=total, tally=lanes.tally, calls=lanes.calls)
    progress.budget_microusd = run_limit(caps)
    tokens = token_cap(caps)
    progress.budget_tokens = None if tokens is None else tokens.tokens
    if kept is None:
        progress.planned_by_lane = work.planned(plan.cases)
    else:
        names = work.lane_names()
        for subject, cells in kept.found.planned.items():
            progress.planned_by_lane[names[subject]] += cells
    for load in plan.loads:
        if load.phase != "generate":
            # Graders and screens are judges too: they are asked in the same phase.
            phase = "pairwise" if load.phase == "pairwise" else "judge"
            calls = lanes.calls_of(phase, load.model.name)
            calls.per_cell += load.once_calls / max(total, 1)
    return progress


def go_on(progress: Progress, work: Work, reader: sqlite3.Connection, run_id: str) -> None:
    """Count what earlier sessions of a run have done."""
    progress.tally.cost_microusd = spent(reader, run_id)
    names = work.lane_names()
    for status, side, model, cells in done_cells(reader, run_id):
        progress.cells[status] += cells
        progress.by_lane[names[side, model]] += cells


def told(progress: Progress) -> dict[str, Any]:
    """Return progress as watchers get it."""
    return {
        "done": progress.done,
        "total": progress.total,
        "cells": dict(progress.cells),
        "by_model": dict(progress.by_lane),
        **asdict(progress.tally),
    }
