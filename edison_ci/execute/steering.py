"""Steering of a run by its own process: requests of other processes carried out and answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.numeric import counted
from edison_ci.spelling import did_you_mean
from edison_ci.store.steering import Change, SteeringAction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.runner import Runner
    from edison_ci.store.steering import SteeringRequest

MOST_CALLS = 1_000
"""Calls at once that one model may make, as in models.yaml."""


class SteeringAnswer(NamedTuple):
    """What a run answers to a request."""

    done: bool
    said: str


@dataclass(frozen=True, slots=True)
class RunSteering:
    """Changes a run that goes on: its clients, workers and budget."""

    runner: Runner
    clients: ClientPool
    limits: Mapping[str, int]
    """The models that the run calls, and how many calls at once models.yaml allows each."""

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
        raise UsageError(f"cannot {change.words} here")

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
        return f"{model} makes {counted(calls, 'call')} at once, before {before:,}"

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
