"""Rates and remaining time of a run by model, for terminals and for watchers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from edison_ci.execute.progress import Progress

_WINDOW_S = 60
_SAMPLE_S = 1.0
_FEW = 3
_ALL = ""
"""Key of the speed of all models together."""


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """Progress of one model in one phase."""

    name: str
    unit: str
    """What is counted: cells of an answering model, calls of a judge."""
    done: int
    planned: int
    errors: int
    rate: float | None
    """Units per second over the last minute; None at the start."""
    stopped: bool = False
    """Whether calls to the model were stopped after errors."""
    paused: bool = False
    """Whether a person paused the model."""

    def as_json(self) -> dict[str, Any]:
        """Return the row as it is written to the `event` table."""
        return {
            "name": self.name,
            "unit": self.unit,
            "done": self.done,
            "planned": self.planned,
            "errors": self.errors,
            "stopped": self.stopped,
            "paused": self.paused,
        }

    @property
    def left_s(self) -> float | None:
        """Seconds until done at this rate; None if unknown."""
        if self.stopped or self.done >= self.planned:
            return 0.0
        return (self.planned - self.done) / self.rate if self.rate else None


class Speed:
    """Rate of progress over the last minute."""

    def __init__(self, now: float, done: int) -> None:
        self._first = done
        self._samples = deque([(now, done)], maxlen=_WINDOW_S)

    def at(self, now: float, done: int) -> float | None:
        """Return the units per second; None in the first second and before a few are done."""
        if now - self._samples[-1][0] >= _SAMPLE_S:
            self._samples.append((now, done))
        since, before = self._samples[0]
        if done - self._first < _FEW or now - since < _SAMPLE_S:
            return None
        return (done - before) / (now - since)


class ProgressMeter:
    """Computes rates and remaining time on demand; a finished cell costs it nothing."""

    def __init__(self, progress: Progress, now: float) -> None:
        self.progress, self._begun = progress, now
        self._earlier = progress.done
        self._speeds: dict[str, Speed] = {}
        self.rows(now)
        self.left_s(now)

    def elapsed_s(self, now: float) -> float:
        """Return the seconds since the session began."""
        return now - self._begun

    def rows(self, now: float) -> list[ProgressRow]:
        """Return the progress of each model: answering models first, then judges."""
        return [*self._model_rows(now), *self._judge_rows(now)]

    def left_s(self, now: float) -> float | None:
        """Return the seconds until the slowest model is done; None if unknown.

        While the rate of one model is unknown, the rate of all models together is used.
        """
        if any(row.paused and row.done < row.planned for row in self.rows(now)):
            return None  # it takes as long as the person likes
        done, total = self.progress.done, most(self.progress)
        speed = self._speed(_ALL, now, done)
        known = [row.left_s for row in self._model_rows(now)]
        left = [seconds for seconds in known if seconds is not None]
        if len(left) == len(known):
            return max(left, default=0.0) or None
        return (total - done) / speed if speed else None

    def _model_rows(self, now: float) -> list[ProgressRow]:
        progress = self.progress
        # A run that may stop early plans one batch at a time, out of at most `most` cells.
        more = most(progress) / max(progress.total, 1)
        # Copied in one step, because the run changes these in another thread.
        done, errors = dict(progress.done_by_client), dict(progress.errors_by_client)
        return [
            ProgressRow(
                name,
                "cells",
                done.get(name, 0),
                max(round(planned * more), done.get(name, 0)),
                errors.get(name, 0),
                self._speed(name, now, done.get(name, 0)),
                name in progress.closed,
                model_of_client(name) in progress.paused,
            )
            for name, planned in dict(progress.planned_by_client).items()
            if planned
        ]

    def _judge_rows(self, now: float) -> list[ProgressRow]:
        cells = most(self.progress) - self._earlier
        found = []
        for (phase, model), calls in dict(self.progress.calls).items():
            name, done = f"{model} ({phase})", calls.answered + calls.failed
            planned = max(round(calls.per_cell * cells), done)
            if planned:
                speed = self._speed(name, now, done)
                paused = model in self.progress.paused
                row = ProgressRow(name, "calls", done, planned, calls.failed, speed, paused=paused)
                found.append(row)
        return found

    def _speed(self, name: str, now: float, done: int) -> float | None:
        if name not in self._speeds:
            self._speeds[name] = Speed(now, done)
        return self._speeds[name].at(now, done)


AT_THE_BASE = " at the base"
"""Ends the name of a client whose model has changed since the base."""


def model_of_client(name: str) -> str:
    """Return the model that a client calls."""
    return name.removesuffix(AT_THE_BASE)


def most(progress: Progress) -> int:
    """Return the maximum number of cells, at least 1: a share never exceeds 100%."""
    return max(progress.total, progress.most, 1)
