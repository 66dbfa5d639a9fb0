"""The state of a run that can be steered: its models, what they do now, and its budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.results.live_progress import progress_of
from edison_ci.store.steering import steering_of

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.results.live_progress import ModelProgress, Progress
    from edison_ci.store.runs import Run
    from edison_ci.store.steering import SteeringRequest

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
            "models": [model._asdict() for model in self.models],
            "budget": {
                "limit_microusd": progress.budget_microusd,
                "used_microusd": progress.cost_microusd,
                "left_microusd": self.left_microusd,
            },
            "steering": [request.as_json() for request in self.requests],
        }


def steering_state(connection: sqlite3.Connection, run: Run) -> SteeringState:
    """Return the state of a run by its newest events."""
    progress = progress_of(connection, run)
    models = tuple(_model_state(each, progress) for each in progress.models)
    return SteeringState(progress, models, tuple(steering_of(connection, run.id)))


def _model_state(each: ModelProgress, progress: Progress) -> ModelState:
    model, phase = each.name.removesuffix(_AT_THE_BASE), _GENERATE
    if each.unit != "cells":
        model, _, phase = each.name.removesuffix(")").rpartition(" (")
    used = [one for one in progress.clients if (one.model, one.phase) == (model, phase)]
    in_flight = sum(one.in_flight for one in used)
    return ModelState(
        each.name,
        model,
        max((one.concurrency for one in used), default=None),
        in_flight,
        each.done,
        max(each.planned - each.done - in_flight, 0),
        each.errors,
        each.paused,
        each.stopped,
    )
