"""What are people told while a run goes on?

Whoever started it sees every step; whoever watches from elsewhere reads the `event` table, which
gets a line of progress at most twice a second.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edison_ci.execute.money import share_used
from edison_ci.store.events import events, note_event

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.execute.orders import Tools
    from edison_ci.execute.runner import Progress
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


def told(progress: Progress) -> dict[str, Any]:
    """Return progress as watchers get it."""
    return {
        "done": progress.done,
        "total": progress.total,
        "cells": dict(progress.cells),
        "by_model": dict(progress.by_lane),
        **asdict(progress.tally),
    }
