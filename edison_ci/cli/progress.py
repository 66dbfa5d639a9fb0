"""Progress of a run on stderr: bars on a terminal, elsewhere a line for each tenth of the work."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from edison_ci.cli.meter import Meter, most
from edison_ci.cli.terminal import ODD, Ink, counted
from edison_ci.plugins import later
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from edison_ci.cli.terminal import Terminal
    from edison_ci.execute.runner import Progress
    from edison_ci.plan.looks import Look

_LINES_APART_S = 0.5
_BARS_AFTER_S = 1.0
"""A run that is over sooner shows no bars, and does not load what draws them."""
_NO_BARS = ("dumb", "unknown")

_bars = later("edison_ci.cli.bars:Bars")


def is_live(terminal: Terminal) -> bool:
    """Whether stderr is a terminal with somebody before it, on which lines can be redrawn."""
    if terminal.json or sys.stderr is None or os.environ.get("TERM") in _NO_BARS:
        return False
    return sys.stderr.isatty() and os.environ.get("CI", "") in ("", "0", "false")


class Display:
    """Shows progress on stderr."""

    def __init__(self, terminal: Terminal, *, quiet: bool, brief: bool = False) -> None:
        self._terminal = terminal
        self._live = is_live(terminal)
        # One of many runs shows its bars, and leaves no lines in a log.
        self._quiet = quiet or (brief and not self._live)
        self._next = 0.0
        self._tenth = -1
        self._screen: _Screen | None = None

    def start(self, progress: Progress) -> None:
        """Show bars from now on, where there are any."""
        if self._live and not self._quiet:
            self._screen = _Screen(Meter(progress, time.monotonic()), color=self._terminal.color)

    def progress(self, progress: Progress) -> None:
        """Print how far the run is, once in a while; bars look for themselves."""
        if self._quiet or self._live:
            return
        tenth = 10 * progress.done // most(progress)
        now = time.monotonic()
        if tenth > self._tenth and (now >= self._next or tenth == 10):
            # A run that takes less than a second does not fill a log with ten lines.
            self._tenth, self._next = tenth, now + _LINES_APART_S
            if tenth > 0:
                self._terminal.note(f"  {10 * tenth:3d}%  {', '.join(facts(progress).values())}")

    def alert(self, budget: str, used: float) -> None:
        """Say that a budget is nearly used up."""
        self._terminal.note(Ink("budget:", ODD), f" {fixed(100 * used)}% of {budget} is booked")

    def look(self, look: Look, more: bool) -> None:
        """Say that the gates are not clear yet, and that more is asked for."""
        if not more or look.kind != "draws" or self._quiet:
            return
        self._tenth = -1
        draws = look.at // look.number * (look.number + 1)
        said = f"  look {look.number} of {look.of}: not clear yet, going on to {draws} draws a case"
        self._terminal.note(said)

    def waiting(self, run: str) -> None:
        """Say that another run of the experiment is in the way."""
        self._terminal.note(f"waiting for run {run} to end; stop waiting with Ctrl-C")

    def stopping(self, in_flight: int) -> None:
        """Say that the run ends as soon as what was sent is answered."""
        self.clear()
        calls = f"finishing {counted(in_flight, 'call')} in flight" if in_flight else "almost there"
        self._terminal.note(Ink("stopping:", ODD), f" {calls}; press Ctrl-C again to give up on it")

    def clear(self) -> None:
        """Take the bars off the screen for good."""
        if self._screen is not None:
            self._screen.close()
            self._screen = None


class _Screen:
    """Shows bars after a moment, hides them while the process is suspended, takes them off."""

    def __init__(self, meter: Meter, *, color: bool) -> None:
        self._meter, self._color = meter, color
        self._lock = threading.RLock()
        self._bars: Any = None
        self._closed = False
        self._timer = threading.Timer(_BARS_AFTER_S, self._show)
        self._timer.daemon = True
        self._timer.start()
        self._heard = False
        if hasattr(signal, "SIGTSTP") and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            with contextlib.suppress(ValueError):  # signals are the main thread's
                signal.signal(signal.SIGTSTP, self._suspended)
                self._heard = True

    def close(self) -> None:
        """Take the bars off the screen for good."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            self._hide()
        if self._heard:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _show(self) -> None:
        with self._lock:
            # What follows the last cell is short, and nothing moves any more.
            if not self._closed and self._meter.progress.done < most(self._meter.progress):
                self._bars = _bars(self._meter, color=self._color)
                self._bars.start()

    def _hide(self) -> None:
        if self._bars is not None:
            with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
                self._bars.stop()
            self._bars = None

    def _suspended(self, _number: int, _frame: object) -> None:
        """Leave the shell a clean screen with a cursor after Ctrl-Z, and draw the bars again."""
        with self._lock:
            shown = self._bars is not None
            self._hide()
        os.kill(os.getpid(), signal.SIGSTOP)
        if shown:
            self._show()


def facts(progress: Progress) -> dict[str, str]:
    """Return what a line of progress says: cells, errors and cost, where there are any."""
    of = f"at most {progress.most:,} cells" if progress.most else counted(progress.total, "cell")
    found = {"cells": f"{progress.done:,} of {of}"}
    wrong = progress.cells["error"]
    if wrong:
        found["errors"] = counted(wrong, "error")
    spent, budget = progress.tally.cost_microusd, progress.budget_microusd
    if spent:
        limit = f" of {dollars(budget)}" if budget is not None else ""
        found["cost"] = f"{dollars(spent)}{limit}"
    return found


def dollars(microusd: float) -> str:
    """Return an amount of money; small ones with all their digits."""
    if microusd == 0:
        return "$0"
    digits = 2 if microusd >= 100_000 else 4 if microusd >= 100 else 6
    return f"${fixed(microusd / 1e6, digits, grouped=True)}"


def span(seconds: float) -> str:
    """Return a length of time in the unit that suits it."""
    if seconds < 60:
        return f"{fixed(seconds)} s"
    if seconds < 3600:
        return f"{fixed(seconds / 60)} min"
    return f"{fixed(seconds / 3600, 1)} h"
