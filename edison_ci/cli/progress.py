"""How does a run look while it goes on?

On a terminal one line is written over and over: bar, cost, time left. Elsewhere a line comes for
each tenth of the work.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from typing import TYPE_CHECKING

from edison_ci.cli.logs import ERASED, is_live
from edison_ci.cli.terminal import ODD, Ink, counted
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from edison_ci.cli.terminal import Terminal
    from edison_ci.execute.runner import Progress
    from edison_ci.plan.looks import Look

_EVERY_S = 0.1
_LINES_APART_S = 0.5
_WIDTH = 24


class Display:
    """Shows progress on stderr."""

    def __init__(
        self, terminal: Terminal, *, quiet: bool, plain: bool, brief: bool = False
    ) -> None:
        self._terminal = terminal
        self._live = is_live(sys.stderr, plain=plain)
        # One of many runs shows its bar, and leaves no lines in a log.
        self._quiet = quiet or (brief and not self._live)
        self._begun = time.monotonic()
        self._first = -1
        self._next = 0.0
        self._tenth = -1

    def progress(self, progress: Progress) -> None:
        """Show how far the run is."""
        if self._quiet:
            return
        if self._first < 0:
            # What an earlier session did says nothing about the speed of this one.
            self._first, self._begun = progress.done - 1, time.monotonic()
        if self._live:
            self._line(progress)
            return
        tenth = 10 * progress.done // _most(progress)
        now = time.monotonic()
        if tenth > self._tenth and (now >= self._next or tenth == 10):
            # A run that takes less than a second does not fill a log with ten lines.
            self._tenth, self._next = tenth, now + _LINES_APART_S
            if tenth > 0:
                self._terminal.note(f"  {10 * tenth:3d}%  {_told(progress)}")

    def alert(self, budget: str, used: float) -> None:
        """Say that a budget is nearly used up."""
        self.clear()
        self._terminal.note(Ink("budget:", ODD), f" {fixed(100 * used)}% of {budget} is booked")

    def look(self, look: Look, more: bool) -> None:
        """Say that the gates are not clear yet, and that more is asked for."""
        if not more or look.kind != "draws" or self._quiet:
            return
        self.clear()
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

    def _line(self, progress: Progress) -> None:
        now = time.monotonic()
        last = progress.done >= _most(progress)
        if now < self._next and not last:
            return
        self._next = now + _EVERY_S
        share = progress.done / _most(progress)
        full = round(_WIDTH * share)
        bar = "#" * full + "-" * (_WIDTH - full)
        left = self._left(progress, now)
        text = f"  [{bar}] {fixed(100 * share):>3}%  {_told(progress)}{left}"
        width = shutil.get_terminal_size().columns
        each = _each(progress)
        if len(text) + len(each) < width:
            text += each
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{ERASED}{text[: max(width - 1, 1)]}")
            sys.stderr.flush()
        if last:
            self.clear()

    def _left(self, progress: Progress, now: float) -> str:
        done = progress.done - self._first
        if done < 1 or now - self._begun < 1:
            return ""
        seconds = (now - self._begun) / done * (_most(progress) - progress.done)
        return f", {span(now - self._begun)}, about {span(seconds)} left"

    def clear(self) -> None:
        """Take the bar off the screen."""
        if self._live:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(ERASED)
                sys.stderr.flush()


def _each(progress: Progress) -> str:
    """Return how far each model is, where there are several."""
    lanes = sorted(progress.by_lane.items())
    if len(lanes) < 2:
        return ""
    return f"  ({', '.join(f'{name} {count:,}' for name, count in lanes)})"


def _told(progress: Progress) -> str:
    spent, budget = progress.tally.cost_microusd, progress.budget_microusd
    limit = f" of {dollars(budget)}" if budget is not None else ""
    cost = f", {dollars(spent)}{limit}" if spent else ""
    wrong = progress.cells["error"]
    errors = f", {counted(wrong, 'error')}" if wrong else ""
    most = f"at most {progress.most:,} cells" if progress.most else counted(progress.total, "cell")
    return f"{progress.done:,} of {most}{errors}{cost}"


def _most(progress: Progress) -> int:
    """Return the cells that it may come to: what is shown never goes beyond the whole."""
    return max(progress.total, progress.most, 1)


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
