"""Progress of a run that goes on or stopped, as its runner told it last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.store.events import last_event, newest_events

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class Progress:
    """The last that a runner said of itself."""

    seq: int
    """Number of the newest event."""
    time: str
    done: int
    total: int
    cells: Mapping[str, int]
    by_model: Mapping[str, int]
    cost_microusd: int
    seconds: float | None

    @property
    def share(self) -> float:
        """The part that is done."""
        return self.done / self.total if self.total else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return it for a page that follows the run."""
        return {
            "seq": self.seq,
            "time": self.time,
            "done": self.done,
            "total": self.total,
            "cells": dict(self.cells),
            "by_model": dict(self.by_model),
            "cost_microusd": self.cost_microusd,
            "seconds": self.seconds,
        }


def progress_of(connection: sqlite3.Connection, run: Run) -> Progress:
    """Return how far a run is, as it was told last."""
    newest = next(iter(newest_events(connection, run.id, limit=1)), None)
    told = last_event(connection, run.id, "run:progress", "run:completed")
    data = told.data if told is not None else {}
    return Progress(
        seq=newest.seq if newest is not None else 0,
        time=newest.time if newest is not None else run.created_at,
        done=int(data.get("done", 0)),
        total=int(data.get("total", run.cells_planned)),
        cells=data.get("cells", {}),
        by_model=data.get("by_model", {}),
        cost_microusd=int(data.get("cost_microusd", 0)),
        seconds=data.get("seconds"),
    )
