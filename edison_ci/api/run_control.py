"""Runs of other processes: listed and followed, and steered and stopped by people and programs."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci import ranges
from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.records import RunStatus
from edison_ci.results import stored_runs
from edison_ci.store import audit, database, ledger, steering
from edison_ci.store import runs as store_runs
from edison_ci.store import writer as store_writer
from edison_ci.store.liveness import is_alive, request_control
from edison_ci.store.runs import find_run, move_run
from edison_ci.store.steering import Change

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.access.site import Actor, Site
    from edison_ci.results.stored_runs import StoredRuns
    from edison_ci.store.runs import Event, Run
    from edison_ci.store.steering import SteeringRequest

_POLL_S = 0.1
_FOLLOW_S = 0.25
PATIENCE_S = 30.0
"""Seconds for which an answer of a run, or its end, is waited for."""


def follow(runs: StoredRuns, run_id: str, *, after: int = 0) -> Iterator[Event]:
    """Yield the events of a run, and wait for more while its process is alive."""
    last = after
    while True:
        living = runs.current(run_id).moving
        for event in store_runs.events(runs.connection, run_id, after=last):
            last = event.seq
            yield event
        if not living:
            return
        time.sleep(_FOLLOW_S)


def spent_microusd(runs: StoredRuns, run: Run) -> int:
    """Return what is booked for a run."""
    return ledger.booked(runs.connection, ledger.SpendingCap(f"run:{run.id}", None), "")[0]


def current_run(site: Site, run: Run) -> Run:
    """Return a run with its real status: a run whose process died is paused."""
    return stored_runs.current_run(site.locks, run)


def refuse_resting(run: Run) -> None:
    """Raise UsageError, with what can be done instead, if no process works on a run."""
    if run.moving:
        return
    by = f" ({run.stopped_by})" if run.stopped_by else ""
    hint = f"continue it: edison resume {run.id}"
    if run.status is RunStatus.PAUSED and (run.stopped_by or "").startswith("budget"):
        hint = f"continue it with a higher one: edison resume {run.id} --budget USD"
    elif run.status is RunStatus.FAILED:
        hint = f"ask its cells in error again: edison resume {run.id}"
    elif run.status in (RunStatus.COMPLETED, RunStatus.CANCELLED):
        hint = f"start a new run, which reuses its answers: edison run {run.experiment}"
    raise UsageError(f"run {run.id} is {run.status}{by}: it cannot be steered", hint=hint)


def budget_microusd(dollars: float) -> int:
    """Return the budget of a run in micro-dollars; raises UsageError if it is out of range."""
    least, most = ranges.BUDGET_USD
    if not least <= dollars <= most:  # nan is out of every range
        raise UsageError(f"a budget is ${least} to ${most:,}", hint="change the amount")
    return round(dollars * 1e6)


@dataclass(frozen=True, slots=True)
class SteerRequest:
    """The run to steer, and what to change in it."""

    run: str | None
    """Its id, `latest` or its experiment; None for the newest."""
    concurrency: tuple[tuple[str, int], ...] = ()
    """Models with their calls at once."""
    pause: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    requeue: str | None = None
    budget: float | None = None
    """In dollars."""

    def changes(self) -> list[Change]:
        """Return the changes one by one; raises UsageError for a contradiction."""
        if both := set(self.pause) & set(self.resume):
            raise UsageError(f"{', '.join(sorted(both))} cannot be paused and resumed at once")
        action = steering.SteeringAction
        changes = [Change(action.CONCURRENCY, model, calls) for model, calls in self.concurrency]
        changes += [Change(action.PAUSE, model) for model in dict.fromkeys(self.pause)]
        changes += [Change(action.RESUME, model) for model in dict.fromkeys(self.resume)]
        if self.requeue:
            changes.append(Change(action.REQUEUE))
        if self.budget is not None:
            changes.append(Change(action.BUDGET, microusd=budget_microusd(self.budget)))
        return changes


def steering_change(
    action: str, model: str = "", calls: int | None = None, microusd: int | None = None
) -> Change:
    """Return one change of a run, of an action by its name."""
    return Change(steering.SteeringAction(action), model, calls, microusd)


ACTIONS = tuple(map(str, steering.SteeringAction))
"""Names of what can be changed."""


@dataclass(frozen=True, slots=True)
class RunControl:
    """Requests of one person to the runs of a project."""

    site: Site
    actor: Actor

    def steer(self, run: Run, changes: Sequence[Change]) -> list[SteeringRequest]:
        """Request changes of a running run, and return the requests with its answers.

        Raises UsageError if no process works on it.
        """
        numbers = self._request(run, changes)
        with closing(database.open_reader(self.site.results)) as reader:
            return self._answers(reader, run.id, numbers)

    def _request(self, run: Run, changes: Sequence[Change]) -> list[int]:
        refuse_resting(current_run(self.site, run))
        words = [change.words for change in changes]
        entry = self.site.entry(self.actor, "steer", f"run {run.id}", after=words)
        entry = replace(entry, run_id=run.id)
        with store_writer.Writer(self.site.results) as writer:
            return writer.submit(steering.request_changes(run.id, changes, entry)).result()

    def stop(self, run: Run, asked: str) -> bool:
        """Request a run to `pause` or `cancel`; return whether a process has to take it.

        A run without a process is moved at once. Raises UsageError if that is not possible.
        """
        aim = RunStatus.PAUSED if asked == "pause" else RunStatus.CANCELLED
        final = (RunStatus.COMPLETED, RunStatus.CANCELLED, aim)
        if run.status in final or (aim is RunStatus.PAUSED and run.status is RunStatus.FAILED):
            raise UsageError(f"run {run.id} is {run.status} already", hint="see: edison status")
        site, seen = self.site, current_run(self.site, run)
        # A run in REVIEWING waits for a person: no process would take the request.
        lives = seen.moving and seen.status is not RunStatus.REVIEWING
        entry = replace(site.entry(self.actor, f"{asked} run", f"run {run.id}"), run_id=run.id)
        with store_writer.Writer(site.results) as writer:
            writer.submit(lambda connection: audit.add_audit(connection, entry)).result()
            if lives:
                writer.submit(request_control(run.id, asked)).result()
                return True
            now = site.now()
            writer.submit(
                ledger.reclaim(lambda owner: is_alive(site.locks, owner), now=now)
            ).result()
            first = run.status is RunStatus.PENDING and aim is RunStatus.PAUSED
            if first or run.status is RunStatus.FAILED:  # CANCELLED can only follow EXECUTING
                writer.submit(move_run(run.id, RunStatus.EXECUTING, now)).result()
            writer.submit(move_run(run.id, aim, now, stopped_by=asked)).result()
            return False

    def wait_until_stopped(self, run_id: str) -> Run:
        """Return a run when its process has stopped; raises UsageError if that takes too long."""
        deadline = time.monotonic() + PATIENCE_S
        with closing(database.open_reader(self.site.results)) as reader:
            while (run := find_run(reader, run_id)).moving:
                if time.monotonic() >= deadline:
                    raise UsageError(
                        f"run {run_id} has not stopped yet", hint="check again: edison status"
                    )
                time.sleep(_FOLLOW_S)
            return run

    def _answers(
        self, reader: sqlite3.Connection, run_id: str, numbers: Sequence[int]
    ) -> list[SteeringRequest]:
        """Wait until a run has answered requests, and return them with their answers.

        A request that a run can no longer answer, as its process is gone, is withdrawn.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            living = current_run(self.site, find_run(reader, run_id)).moving
            requests = [
                request for request in steering.steering_of(reader, run_id) if request.id in numbers
            ]
            if all(request.taken_at is not None for request in requests):
                return requests
            if not living:
                self._withdraw(run_id)
                continue
            time.sleep(_POLL_S)
        raise UsageError(
            f"run {run_id} has not answered yet", hint="see what it says: edison runs steer"
        )

    def _withdraw(self, run_id: str) -> None:
        answer = "the process of the run ended before it was taken; nothing was changed"
        with store_writer.Writer(self.site.results) as writer:
            writer.submit(steering.withdraw_requests(run_id, self.site.now(), answer)).result()
