"""Steering of a run by its own process: requests of other processes carried out and answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.execute.budgets import run_limit, shard_caps
from edison_ci.numeric import counted, dollars
from edison_ci.spelling import did_you_mean
from edison_ci.store.ledger import SpendingCap, booked
from edison_ci.store.steering import Change, SteeringAction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.runner import Runner
    from edison_ci.store.steering import SteeringRequest

MOST_CALLS = 1_000
"""Calls at once that one model may make, as in models.yaml."""


class SteeringAnswer(NamedTuple):
    """What a run answers to a request."""

    done: bool
    said: str


@dataclass(slots=True)
class RunSteering:
    """Changes a run that goes on: its clients, workers and budget."""

    runner: Runner
    clients: ClientPool
    limits: Mapping[str, int]
    """The models that the run calls, and how many calls at once models.yaml allows each."""
    budgets: RunBudgets

    def answer(self, request: SteeringRequest) -> SteeringAnswer:
        """Carry out a request; a refused one changes nothing."""
        try:
            return SteeringAnswer(True, self._carry_out(Change.from_json(request.what)))
        except UsageError as error:
            hint = f"; {error.hint}" if error.hint else ""
            return SteeringAnswer(False, f"{error.message}{hint}")

    def _carry_out(self, change: Change) -> str:
        if self.runner.progress.stopped_by is not None:
            raise UsageError("the run is stopping")
        match change.action:
            case SteeringAction.CONCURRENCY:
                return self._resize(self._known(change.model), change.calls or 0)
            case SteeringAction.PAUSE:
                return self._pause(self._known(change.model))
            case SteeringAction.RESUME:
                return self._resume(self._known(change.model))
            case SteeringAction.REQUEUE:
                return self._requeue()
            case SteeringAction.BUDGET:
                return self._change_budget(change.microusd or 0)

    def _known(self, name: str | None) -> str:
        """Return the name of a model that this run calls."""
        if name is None or name not in self.limits:
            hint = did_you_mean(name or "", self.limits, label="it calls")
            raise UsageError(f"the run does not call a model {name!r}", hint=hint)
        if (why := self.clients.unsteerable(name)) is not None:
            raise UsageError(f"{name} {why}")
        return name

    def _resize(self, model: str, calls: int) -> str:
        if not 1 <= calls <= MOST_CALLS:
            raise UsageError(f"concurrency is 1 to {MOST_CALLS:,}, not {calls}")
        before = self.clients.concurrency.get(model, self.limits[model])
        self.clients.resize(model, calls)
        self.runner.hire_more()
        where = " at each worker" if self.clients.at_workers(model) else ""
        return f"{model} makes {counted(calls, 'call')} at once{where}, before {before:,}"

    def _pause(self, model: str) -> str:
        if model in self.clients.paused:
            raise UsageError(f"{model} is paused already")
        in_flight = self.clients.pause(model)
        finishing = f"; {counted(in_flight, 'call')} in flight will finish" if in_flight else ""
        return f"{model} is paused{finishing}"

    def _resume(self, model: str) -> str:
        if model not in self.clients.paused:
            raise UsageError(f"{model} is not paused")
        self.clients.resume(model)
        return f"{model} goes on"

    def _requeue(self) -> str:
        count = self.runner.requeue_errors()
        if count:
            return f"{counted(count, 'cell')} in error will be asked again"
        again = "edison resume asks cells in error again"
        if count is None:
            raise UsageError("the run is about to end", hint=again)
        closed = ", ".join(self.runner.progress.closed)
        if closed:
            raise UsageError(f"no other cell is in error; {closed} was given up", hint=again)
        raise UsageError("no cell is in error")

    def _change_budget(self, microusd: int) -> str:
        budgets, progress = self.budgets, self.runner.progress
        before = progress.budget_microusd
        budgets.refuse(microusd)
        budgets.microusd = microusd
        caps = budgets.caps()
        self.clients.budget.replace_caps(caps)
        progress.budget_microusd = run_limit(caps)
        known = "" if before is None else f", before {dollars(before)}"
        return f"the budget of the run is {dollars(microusd)}{known}"


@dataclass(slots=True)
class RunBudgets:
    """The limits on what a run may book, of which its own budget can be changed."""

    reader: sqlite3.Connection
    run_id: str
    microusd: int | None
    """The value of --budget, or the one that replaced it."""
    limits: Callable[[int | None], tuple[SpendingCap, ...]]
    """Every limit, given the run's own budget."""
    parts: int
    """Shards that share them."""
    now: Callable[[], str]

    def caps(self) -> tuple[SpendingCap, ...]:
        """Return the limits of this shard at this moment."""
        limits = self.limits(self.microusd)
        return shard_caps(self.reader, limits, self.parts, self.run_id, self.now())

    def refuse(self, microusd: int) -> None:
        """Raise UsageError, naming each limit that is in the way, if a budget cannot be given."""
        today = self.now()[:10]
        scope = f"run:{self.run_id}"
        spent = booked(self.reader, SpendingCap(scope, None), today)[0]
        if microusd < spent:
            raise UsageError(
                f"the run has booked {dollars(spent)} already", hint="stop it: edison runs pause"
            )
        wrong = []
        for cap in self.limits(None):
            if cap.microusd is None:
                continue
            others = booked(self.reader, cap, today)[0] - spent
            allowed = cap.microusd if cap.scope == scope else max(cap.microusd - others, spent)
            if microusd > allowed:
                wrong.append(f"{cap.name} allows this run at most {dollars(allowed)}")
        if wrong:
            raise UsageError("; ".join(wrong))
