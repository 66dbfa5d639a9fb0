"""A limit of processor time for work on what a model wrote.

An answer is parsed, screened and checked in the event loop, where a slow parser would stop the
whole run. What is guaranteed, in this order:

1. Our own parsers take time in proportion to the text, by construction; tests measure them all.
2. What users write and run on an answer (patterns, schemas, statements, code) runs in a process
   that the kernel ends (`worker`, `child`), unless its steps are counted beforehand and few.
3. Whatever else takes long here, such as a check of a plugin, is interrupted by a signal after
   `LIMIT_S` of processor time, and becomes the error of its cell. The interpreter acts on signals
   between two steps of Python and, while `re` searches, every few thousand steps of the pattern.
   Libraries in C that do neither are given texts of bounded length.

Signals reach the main thread only, which is where a run has its event loop. In another thread the
third point does not hold.
"""

from __future__ import annotations

import atexit
import signal
import threading
from typing import TYPE_CHECKING, TypeVar

from edison_ci.checks.evaluation import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

LIMIT_S = 5.0
_TICK_S = 0.5
_MAIN = threading.main_thread().ident

Value = TypeVar("Value")


class _TooSlow(BaseException):
    """The time is up; not an Exception, because work may catch all of those."""


class _Clock:
    """Counts ticks of processor time; starting a timer for each piece of work would cost more."""

    def __init__(self) -> None:
        self.ticks: int | None = None
        """Since the work at hand began; None without any."""
        self.runs: bool | None = None
        """False where something else uses its signal; None before anybody has asked."""

    def start(self) -> bool:
        """Let the clock run from now on, if it may."""
        self.runs = signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL
        if self.runs:
            signal.signal(signal.SIGVTALRM, self._tick)
            signal.siginterrupt(signal.SIGVTALRM, False)
            signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_S, _TICK_S)
            # Python takes handlers away when it ends, and a tick without one would kill it.
            atexit.register(stop)
        return self.runs

    def _tick(self, number: int, frame: FrameType | None) -> None:
        if self.ticks is not None:
            self.ticks += 1
            if self.ticks * _TICK_S > LIMIT_S:
                raise _TooSlow  # and again at the next tick, should the work go on


_clock = _Clock()


def stop() -> None:
    """Stop the clock; the next work starts it again."""
    if _clock.runs:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        atexit.unregister(stop)
    _clock.runs = None


def limited(what: str, work: Callable[[], Value]) -> Value:
    """Return what some work returns; raises EvaluationError when it takes too long."""
    if _clock.ticks is not None or threading.get_ident() != _MAIN:
        return work()
    if not _clock.runs and (_clock.runs is False or not _clock.start()):
        return work()
    try:
        try:
            _clock.ticks = 0
            return work()
        finally:
            _clock.ticks = None
    except _TooSlow:
        _clock.ticks = None  # the tick may have come before the line above did this
        raise EvaluationError(f"{what} takes longer than {LIMIT_S:g} s") from None
