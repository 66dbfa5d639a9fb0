"""The clients of a run: one for each of its models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.providers.budgeting import Budgeted, Replayed
from edison_ci.providers.lane import Lane, LaneLimits, Tally, build_lane
from edison_ci.providers.replay import ReplayProvider
from edison_ci.store.answers import any_answer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider
    from edison_ci.providers.budgeting import Purse
    from edison_ci.providers.resilience import Clock


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """What all lanes of a run have in common."""

    project: Project
    provider_for: Callable[[Model], Provider]
    clock: Clock
    newer_than: str
    """Time from which stored answers count."""
    parts: int = 1
    """Machines that share what the provider allows in a minute."""
    advice: str = ""
    """What whoever waits for a lane can do."""


@dataclass(slots=True)
class PhaseCalls:
    """How far one model is in a phase that serves other phases, such as judging."""

    per_cell: float = 0.0
    """Calls that are planned for a cell, on average."""
    answered: int = 0
    failed: int = 0


class Lanes:
    """The lanes of a run: one for each model and phase, made when first asked for."""

    def __init__(self, settings: LaneSettings, purse: Purse, reader: sqlite3.Connection) -> None:
        self._settings, self.purse, self._reader = settings, purse, reader
        self._stored = any_answer(reader)
        self.tally = Tally()
        self.calls: dict[tuple[str, str], PhaseCalls] = {}
        """Calls for anything but answers, by phase and name of the model."""
        self._providers: dict[str, Provider] = {}
        self._lanes: dict[tuple[str, str], Lane] = {}

    def of(self, model: Model, phase: str) -> Lane:
        """Return the lane of a model in a phase such as `generate` or `judge`."""
        key = (model.key, phase)
        if key not in self._lanes:
            self._lanes[key] = self._made(model, phase)
        return self._lanes[key]

    def calls_of(self, phase: str, model: str) -> PhaseCalls:
        """Return the count of the calls of a model in a phase other than `generate`."""
        return self.calls.setdefault((phase, model), PhaseCalls())

    def _made(self, model: Model, phase: str) -> Lane:
        settings = self._settings
        if model.key not in self._providers:
            self._providers[model.key] = settings.provider_for(model)
        provider = self._providers[model.key]
        price = settings.project.prices.price_of(model)
        budgeted = Budgeted(provider, self.purse, model=model.name, phase=phase, price=price)
        limits = LaneLimits(
            model.limits.concurrency,
            self._share(model.limits.rpm),
            self._share(model.limits.tpm),
            model.limits.attempts,
            model.limits.timeout_s,
        )
        # Nothing is found in a store that is empty; what comes into it meanwhile is seen when the
        # call is booked.
        reader = self._reader if self._stored else None
        lane = build_lane(budgeted, limits, settings.clock, reader, settings.newer_than)
        lane.breaker.advice = settings.advice
        if isinstance(provider, ReplayProvider):
            lane = replace(lane, top=Replayed(provider, self.purse, model=model.name))
        return replace(lane, tally=self.tally)

    def _share(self, a_minute: int | None) -> int | None:
        return None if a_minute is None else max(a_minute // self._settings.parts, 1)

    def given_up(self) -> dict[str, str]:
        """Return the models that take no more calls for anything but answers, and why."""
        return {
            f"{lane.breaker.model} ({phase})": why
            for (_, phase), lane in self._lanes.items()
            if phase != "generate" and (why := lane.breaker.closed_for)
        }

    def waiting(self) -> dict[str, str]:
        """Return the models that are left alone just now, and what went wrong last."""
        found = (lane.breaker for lane in self._lanes.values())
        return {breaker.model: why for breaker in found if (why := breaker.waits_for)}

    def drain(self) -> None:
        """Ask for no more answers; calls that wait for their turn are given up unsent."""
        self.purse.draining = True

    async def close(self) -> None:
        """Close the connections of every provider that has some."""
        for provider in self._providers.values():
            close = getattr(provider, "aclose", None)
            if close is not None:
                await close()
