"""Progress of a run on stderr: bars on a terminal, elsewhere a line for each tenth of the work."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from edison_ci.cli.terminal import ODD, StyledText
from edison_ci.numeric import counted, dollars, percent

if TYPE_CHECKING:
    from edison_ci.cli.bars import Bars
    from edison_ci.cli.terminal import Terminal
    from edison_ci.execute.progress import Progress, ProgressMeter
    from edison_ci.plan.interim_analysis import InterimAnalysis


_LINES_APART_S = 0.5
_BARS_AFTER_S = 1.0
"""A run that is over sooner shows no bars, and does not load what draws them."""
_NO_BARS = ("dumb", "unknown")


def is_live(terminal: Terminal) -> bool:
    """Whether stderr is an interactive terminal on which lines can be redrawn."""
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
        """Start the bars, on a live terminal."""
        if self._live and not self._quiet:
            self._screen = _Screen(progress.meter(time.monotonic()), color=self._terminal.color)

    def progress(self, progress: Progress) -> None:
        """Print the progress from time to time; bars read it themselves."""
        if self._quiet or self._live:
            return
        tenth = 10 * progress.done // progress.most_cells
        now = time.monotonic()
        if tenth > self._tenth and (now >= self._next or tenth == 10):
            # A run that takes less than a second does not fill a log with ten lines.
            self._tenth, self._next = tenth, now + _LINES_APART_S
            if tenth > 0:
                self._terminal.note(f"  {10 * tenth:3d}%  {', '.join(facts(progress).values())}")

    def alert(self, budget: str, used: float) -> None:
        """Print that a budget is nearly used up."""
        self._terminal.note(StyledText("budget:", ODD), f" {percent(used)} of {budget} is used")

    def interim(self, interim: InterimAnalysis, more: bool) -> None:
        """Print that the gates are not clear yet, and that more repeats follow."""
        if not more or interim.kind != "repeats" or self._quiet:
            return
        self._tenth = -1
        repeats = interim.at // interim.number * (interim.number + 1)
        note = (
            f"  interim analysis {interim.number} of {interim.of}: not clear yet, "
            f"continuing with {repeats} repeats per case"
        )
        self._terminal.note(note)

    def waiting(self, run: str) -> None:
        """Print that another run of the experiment has to end first."""
        self._terminal.note(f"waiting for run {run} to end; stop waiting with Ctrl-C")

    def batch(self, note: str) -> None:
        """Print news of a batch, or what is wrong with the shared cache."""
        self.clear()
        self._terminal.note(note)

    def steered(self, by: str, change: str, done: bool) -> None:
        """Print what a person changed in this run from elsewhere."""
        who = f"steered by {by}:" if done else f"refused to {by}:"
        self._terminal.note(StyledText(who, ODD), f" {change}")

    def worker(self, note: str) -> None:
        """Print news of a worker."""
        if not self._quiet:
            self._terminal.note(StyledText("workers:", ODD), f" {note}")

    def stopping(self, in_flight: int) -> None:
        """Print that the run stops after the calls in flight."""
        self.clear()
        calls = f"finishing {counted(in_flight, 'call')} in flight" if in_flight else "almost there"
        self._terminal.note(
            StyledText("stopping:", ODD), f" {calls}; press Ctrl-C again to abandon them"
        )

    def clear(self) -> None:
        """Remove the bars."""
        if self._screen is not None:
            self._screen.close()
            self._screen = None


class _Screen:
    """Shows bars after a second, hides them while the process is suspended, and removes them."""

    def __init__(self, meter: ProgressMeter, *, color: bool) -> None:
        self._meter, self._color = meter, color
        self._lock = threading.RLock()
        self._bars: Bars | None = None
        self._closed = False
        self._timer = threading.Timer(_BARS_AFTER_S, self._show)
        self._timer.daemon = True
        self._timer.start()
        self._heard = False
        if hasattr(signal, "SIGTSTP") and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            with contextlib.suppress(ValueError):  # only the main thread may set handlers
                signal.signal(signal.SIGTSTP, self._suspended)
                self._heard = True

    def close(self) -> None:
        """Remove the bars."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            self._hide()
        if self._heard:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _show(self) -> None:
        with self._lock:
            # What follows the last cell is short, and no figure changes any more.
            progress = self._meter.progress
            if not self._closed and progress.done < progress.most_cells:
                from edison_ci.cli.bars import Bars  # loads rich

                self._bars = Bars(self._meter, facts, color=self._color)
                self._bars.start()

    def _hide(self) -> None:
        if self._bars is not None:
            with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
                self._bars.stop()
            self._bars = None

    def _suspended(self, _number: int, _frame: object) -> None:
        """Remove the bars on Ctrl-Z, so that the shell gets a clean screen; restore them later."""
        with self._lock:
            visible = self._bars is not None
            self._hide()
        os.kill(os.getpid(), signal.SIGSTOP)
        if visible:
            self._show()


def facts(progress: Progress) -> dict[str, str]:
    """Return the parts of a progress line: cells, and errors and cost if there are any."""
    of = f"at most {progress.most:,} cells" if progress.most else counted(progress.total, "cell")
    parts = {"cells": f"{progress.done:,} of {of}"}
    wrong = progress.cells["error"]
    if wrong:
        parts["errors"] = counted(wrong, "error")
    spent, budget = progress.usage.cost_microusd, progress.budget_microusd
    if spent:
        limit = f" of {dollars(budget)}" if budget is not None else ""
        parts["cost"] = f"{dollars(spent)}{limit}"
    return parts
