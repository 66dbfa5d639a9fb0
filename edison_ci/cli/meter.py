"""Figures of a run that goes on: how far and how fast each model is, and how long it will take."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from edison_ci.execute.runner import Progress

_WINDOW_S = 60
_SAMPLE_S = 1.0
_FEW = 3
_ALL = ""
"""The name under which all models together are timed."""


@dataclass(frozen=True, slots=True)
class Row:
    """How far one model is in one phase."""

    name: str
    unit: str
    """What is counted: cells of a model that answers, calls of one that judges."""
    done: int
    planned: int
    errors: int
    rate: float | None
    """A second, over the last minute; None while too little is known."""
    stopped: bool = False
    """Whether the model was given up."""

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest takes at this rate; None if that is not known."""
        if self.stopped or self.done >= self.planned:
            return 0.0
        return (self.planned - self.done) / self.rate if self.rate else None


class Speed:
    """How many a second, over the last minute."""

    def __init__(self, now: float, done: int) -> None:
        self._first = done
        self._samples = deque([(now, done)], maxlen=_WINDOW_S)

    def at(self, now: float, done: int) -> float | None:
        """Return the speed now; None in the first second, and before a few are done."""
        if now - self._samples[-1][0] >= _SAMPLE_S:
            self._samples.append((now, done))
        since, before = self._samples[0]
        if done - self._first < _FEW or now - since < _SAMPLE_S:
            return None
        return (done - before) / (now - since)


class Meter:
    """Reads the progress of a run whenever somebody looks; a finished cell costs it nothing."""

    def __init__(self, progress: Progress, now: float) -> None:
        self.progress, self._begun = progress, now
        self._earlier = progress.done
        self._speeds: dict[str, Speed] = {}
        self.rows(now)
        self.left_s(now)

    def elapsed_s(self, now: float) -> float:
        """Return how long the session has lasted."""
        return now - self._begun

    def rows(self, now: float) -> list[Row]:
        """Return how far each model is: first those that answer, then those that judge."""
        return [*self._answering(now), *self._judging(now)]

    def left_s(self, now: float) -> float | None:
        """Return the seconds until the slowest model is done; None if that is not known.

        While the speed of one of them is not known, all of them together stand for it.
        """
        done, total = self.progress.done, most(self.progress)
        speed = self._speed(_ALL, now, done)
        known = [row.left_s for row in self._answering(now)]
        left = [seconds for seconds in known if seconds is not None]
        if len(left) == len(known):
            return max(left, default=0.0) or None
        return (total - done) / speed if speed else None

    def _answering(self, now: float) -> list[Row]:
        progress = self.progress
        # A run that stops when it is clear plans one batch at a time, of at most so many cells.
        more = most(progress) / max(progress.total, 1)
        # The copies are made in one step; the run changes what they are made of.
        done, errors = dict(progress.by_lane), dict(progress.errors_by_lane)
        return [
            Row(
                name,
                "cells",
                done.get(name, 0),
                max(round(planned * more), done.get(name, 0)),
                errors.get(name, 0),
                self._speed(name, now, done.get(name, 0)),
                name in progress.closed,
            )
            for name, planned in dict(progress.planned_by_lane).items()
            if planned
        ]

    def _judging(self, now: float) -> list[Row]:
        cells = most(self.progress) - self._earlier
        found = []
        for (phase, model), calls in dict(self.progress.calls).items():
            name, done = f"{model} ({phase})", calls.answered + calls.failed
            planned = max(round(calls.per_cell * cells), done)
            if planned:
                speed = self._speed(name, now, done)
                found.append(Row(name, "calls", done, planned, calls.failed, speed))
        return found

    def _speed(self, name: str, now: float, done: int) -> float | None:
        if name not in self._speeds:
            self._speeds[name] = Speed(now, done)
        return self._speeds[name].at(now, done)


def most(progress: Progress) -> int:
    """Return the cells that it may come to: what is shown never goes beyond the whole."""
    return max(progress.total, progress.most, 1)
