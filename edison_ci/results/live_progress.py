"""A run in progress: figures, phases, newest answers, what can be steered, and errors.

If a run has no answers, `troubles_of` has the kinds of its errors, an example of each, and what to
check.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.contracts import WHAT_TO_CHECK, WorkerState
from edison_ci.documents.record_json import fields_of
from edison_ci.results.case_grid import CaseAnswer, answer_beginning
from edison_ci.results.explanation import expected_form
from edison_ci.store.runs import last_event, newest_events
from edison_ci.store.steering import steering_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.results.run_result import RunResult
    from edison_ci.store.runs import Run
    from edison_ci.store.steering import SteeringRequest


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
        names = ("seq", "time", "done", "total", "cells", "models", "cost_microusd")
        return fields_of(self, *names, "seconds", "left_s")


def progress_of(connection: sqlite3.Connection, run: Run) -> Progress:
    """Return the progress of a run by its newest events."""
    newest = next(iter(newest_events(connection, run.id, limit=1)), None)
    last = last_event(connection, run.id, "run:progress", "run:completed")
    data = last.data if last is not None else {}
    names = ("done", "cost_microusd", "tokens_in", "tokens_out", "booked_tokens", "in_batch")
    counts: dict[str, Any] = {name: int(data.get(name, 0)) for name in names}
    limits = ("budget_microusd", "budget_tokens", "seconds", "left_s")
    if_known: dict[str, Any] = {name: data.get(name) for name in limits}
    return Progress(
        seq=newest.seq if newest is not None else 0,
        time=newest.time if newest is not None else run.created_at,
        total=int(data.get("total", run.cells_planned)),
        cells=data.get("cells", {}),
        models=tuple(ModelProgress(**model) for model in data.get("models", ())),
        clients=tuple(ClientState(**client) for client in data.get("clients", ())),
        workers=tuple(WorkerState(**worker) for worker in data.get("workers", ())),
        **counts,
        **if_known,
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
    phases = []
    for at, change in enumerate(changes):
        start, last = dt.datetime.fromisoformat(change.time), at + 1 == len(changes)
        end = now if last else dt.datetime.fromisoformat(changes[at + 1].time)
        phases.append(Phase(change.status, max((end - start).total_seconds(), 0.0), last))
    return phases


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
    answers = []
    for about in (CaseAnswer(*row) for row in rows):
        form = expected_form(run, None, about.side, about.version)
        answers.append(NewAnswer(about, answer_beginning(connection, about.id, form)))
    return answers


SEEN = 2_000
"""Cells in error that are read."""
_NO_ANSWER = ("error", "skipped")
_ELSE = "test the model by itself: `edison models test`"


class Trouble(NamedTuple):
    """A kind of error of a run."""

    kind: str
    cells: int
    """Cells that ended in it, of the first ones; 0 if a model was stopped before it filled one."""
    model: str
    """Empty if several had it."""
    example: str
    """The message of one of them."""
    check: str
    """What to check."""


def troubles_of(result: RunResult) -> tuple[Trouble, ...]:
    """Return the errors of a run in which no cell has an answer; none for any other run."""
    if result.run.moving:
        return ()
    totals = result.totals
    if totals is not None:
        answered, errors = totals.answered, totals.error
    else:  # it stopped before its sums were written
        cells = progress_of(result.connection, result.run).cells
        answered = sum(count for status, count in cells.items() if status not in _NO_ANSWER)
        errors = cells.get("error", 0)
    if answered:
        return ()
    troubles = _in_cells(result) if errors else _stopped(result)
    return tuple(sorted(troubles, key=lambda trouble: -trouble.cells))


def _in_cells(result: RunResult) -> Iterator[Trouble]:
    """Yield the kinds of errors of the first cells; enough for a run without answers."""
    rows = result.connection.execute(
        "select coalesce(error, 'ERROR'), model, coalesce(reason, '') from cell where run_id = ? "
        "and status = 'error' limit ?",
        (result.run.id, SEEN),
    )
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for kind, model, reason in rows:
        by_kind.setdefault(kind, []).append((model, reason))
    for kind, seen in by_kind.items():
        models = {model for model, _ in seen}
        model = models.pop() if len(models) == 1 else ""
        yield Trouble(kind, len(seen), model, seen[0][1], WHAT_TO_CHECK.get(kind, _ELSE))


def _stopped(result: RunResult) -> Iterator[Trouble]:
    """Yield the models that were stopped before they answered."""
    event = last_event(result.connection, result.run.id, "error")
    if event is None:
        return
    kind, sign, message = str(event.data.get("message", "")).partition(": ")
    is_kind = bool(sign) and kind.isupper()
    yield Trouble(
        kind if is_kind else "ERROR",
        0,
        str(event.data.get("model", "")),
        message if is_kind else f"{kind}{sign}{message}",
        WHAT_TO_CHECK.get(kind, _ELSE),
    )


_GENERATE = "generate"
_AT_THE_BASE = " at the base"


class ModelState(NamedTuple):
    """A model of a run in one phase."""

    name: str
    """With its phase, if that is not answering: `large (judge)`."""
    model: str
    """Its name in models.yaml, by which it is steered."""
    concurrency: int | None
    """Calls that it may make at once; None before the first."""
    in_flight: int
    done: int
    waiting: int
    """Cells, or calls of a judge, that are neither done nor on their way."""
    errors: int
    paused: bool
    stopped: bool
    """Whether it was stopped after errors."""

    @property
    def word(self) -> str:
        """Its state in a word; empty if it is at work."""
        return "stopped" if self.stopped else "paused" if self.paused else ""


@dataclass(frozen=True, slots=True)
class SteeringState:
    """What a person who steers a run sees."""

    progress: Progress
    models: tuple[ModelState, ...]
    requests: tuple[SteeringRequest, ...]
    """What was asked of the run, oldest first."""

    @property
    def left_microusd(self) -> int | None:
        """What is left of the budget of the run; None without one."""
        limit = self.progress.budget_microusd
        return None if limit is None else max(limit - self.progress.cost_microusd, 0)

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        progress = self.progress
        return {
            "done": progress.done,
            "total": progress.total,
            "errors": progress.cells.get("error", 0),
            **fields_of(self, "models"),
            "budget": {
                "limit_microusd": progress.budget_microusd,
                "used_microusd": progress.cost_microusd,
                "left_microusd": self.left_microusd,
            },
            **fields_of(self, steering="requests"),
        }


def steering_state(connection: sqlite3.Connection, run: Run) -> SteeringState:
    """Return the state of a run by its newest events."""
    progress = progress_of(connection, run)
    models = tuple(_model_state(model, progress) for model in progress.models)
    return SteeringState(progress, models, tuple(steering_of(connection, run.id)))


def _model_state(row: ModelProgress, progress: Progress) -> ModelState:
    model, phase = row.name.removesuffix(_AT_THE_BASE), _GENERATE
    if row.unit != "cells":
        model, _, phase = row.name.removesuffix(")").rpartition(" (")
    used = [client for client in progress.clients if (client.model, client.phase) == (model, phase)]
    in_flight = sum(client.in_flight for client in used)
    return ModelState(
        row.name,
        model,
        max((client.concurrency for client in used), default=None),
        in_flight,
        row.done,
        max(row.planned - row.done - in_flight, 0),
        row.errors,
        row.paused,
        row.stopped,
    )
