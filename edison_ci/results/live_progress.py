"""Progress of a run that goes on: figures, phases with their times, newest answers."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.contracts import WorkerState
from edison_ci.results.case_grid import CaseAnswer, answer_beginning
from edison_ci.results.explanation import expected_form
from edison_ci.store.runs import last_event, newest_events

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.store.runs import Run

NEWEST = 5
"""Newest answers that are shown."""
_LOOKED_AT = 200
"""Newest cells of the file among which they are looked for; another run may write as well."""


class ModelProgress(NamedTuple):
    """Progress of a model: cells of one that answers, calls of one that grades."""

    name: str
    unit: str
    done: int
    planned: int
    errors: int
    stopped: bool
    """Whether calls to it were stopped after errors."""
    paused: bool = False
    """Whether a person paused it."""


class ClientState(NamedTuple):
    """The limit of a model in one phase, and its use at one moment."""

    model: str
    phase: str
    concurrency: int
    in_flight: int
    paused: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run by its newest events, with the figures that the terminal shows."""

    seq: int
    """Number of the newest event."""
    time: str
    done: int
    total: int
    cells: Mapping[str, int]
    models: tuple[ModelProgress, ...]
    clients: tuple[ClientState, ...]
    workers: tuple[WorkerState, ...]
    """Workers that make the calls; none if the process of the run makes them."""
    cost_microusd: int
    budget_microusd: int | None
    tokens_in: int
    tokens_out: int
    booked_tokens: int
    """Tokens that count against the limit."""
    budget_tokens: int | None
    in_batch: int
    """Cells whose answer waits in a batch."""
    seconds: float | None
    left_s: float | None
    """Seconds until the slowest model is done, at the rate of the last minute; None if unknown."""

    @property
    def share(self) -> float:
        """Share of the cells that are done."""
        return self.done / self.total if self.total else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return it for a program that follows the run."""
        return {
            "seq": self.seq,
            "time": self.time,
            "done": self.done,
            "total": self.total,
            "cells": dict(self.cells),
            "models": [model._asdict() for model in self.models],
            "cost_microusd": self.cost_microusd,
            "seconds": self.seconds,
            "left_s": self.left_s,
        }


def progress_of(connection: sqlite3.Connection, run: Run) -> Progress:
    """Return the progress of a run by its newest events."""
    newest = next(iter(newest_events(connection, run.id, limit=1)), None)
    last = last_event(connection, run.id, "run:progress", "run:completed")
    data = last.data if last is not None else {}
    return Progress(
        seq=newest.seq if newest is not None else 0,
        time=newest.time if newest is not None else run.created_at,
        done=int(data.get("done", 0)),
        total=int(data.get("total", run.cells_planned)),
        cells=data.get("cells", {}),
        models=tuple(ModelProgress(**model) for model in data.get("models", ())),
        clients=tuple(ClientState(**client) for client in data.get("clients", ())),
        workers=tuple(WorkerState(**worker) for worker in data.get("workers", ())),
        cost_microusd=int(data.get("cost_microusd", 0)),
        budget_microusd=data.get("budget_microusd"),
        tokens_in=int(data.get("tokens_in", 0)),
        tokens_out=int(data.get("tokens_out", 0)),
        booked_tokens=int(data.get("booked_tokens", 0)),
        budget_tokens=data.get("budget_tokens"),
        in_batch=int(data.get("in_batch", 0)),
        seconds=data.get("seconds"),
        left_s=data.get("left_s"),
    )


class PhaseChange(NamedTuple):
    """The moment at which a run went over to another status."""

    seq: int
    time: str
    status: str


class Phase(NamedTuple):
    """A status of a run, and how long it lasted or has lasted."""

    status: str
    seconds: float
    current: bool


def phase_changes(
    connection: sqlite3.Connection, run_id: str, *, after: int = 0
) -> list[PhaseChange]:
    """Return the changes of the status of a run since an event, oldest first."""
    rows = connection.execute(
        "select seq, time, json_extract(data, '$.to') from event where run_id = ? and seq > ? "
        "and type = 'status:changed' order by seq",
        (run_id, after),
    )
    return [PhaseChange(*row) for row in rows]


def phases_of(changes: Sequence[PhaseChange], now: dt.datetime) -> list[Phase]:
    """Return the phases of a run in order; the last one lasts until now."""
    found = []
    for at, change in enumerate(changes):
        start, last = dt.datetime.fromisoformat(change.time), at + 1 == len(changes)
        end = now if last else dt.datetime.fromisoformat(changes[at + 1].time)
        found.append(Phase(change.status, max((end - start).total_seconds(), 0.0), last))
    return found


class NewAnswer(NamedTuple):
    """An answer that has just come."""

    about: CaseAnswer
    text: str | None
    """Its beginning; None without one, or if it is withheld."""


def newest_cells(connection: sqlite3.Connection, run: Run, most: int = NEWEST) -> list[NewAnswer]:
    """Return the answers that came last, the newest first."""
    rows = connection.execute(
        "select id, case_id, side, prompt, version, model, repeat, status, composite, passed "
        "from cell not indexed where rowid > (select max(rowid) from cell) - ? and run_id = ? "
        "order by rowid desc limit ?",
        (_LOOKED_AT, run.id, most),
    ).fetchall()
    found = []
    for about in (CaseAnswer(*row) for row in rows):
        form = expected_form(run, None, about.side, about.version)
        found.append(NewAnswer(about, answer_beginning(connection, about.id, form)))
    return found
