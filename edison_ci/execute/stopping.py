"""How does a run end before its work is done?"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.execute.runner import Runner

GRACE_S = 5.0
"""How long calls in flight may take after the first signal. GitHub kills 10 s after cancelling."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Ends a run early: drains first, aborts on the second signal or when draining takes long."""

    def __init__(
        self, runner: Runner, work: asyncio.Task[None], tell: Callable[[], None] = lambda: None
    ) -> None:
        self._runner, self._work, self._tell = runner, work, tell
        self._loop = asyncio.get_running_loop()
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            with suppress(ValueError, RuntimeError):  # signals reach the main thread only
                self._loop.add_signal_handler(number, self._signalled, number.name)

    def drain(self, reason: str) -> None:
        """Take no more cells, and give those in flight a little time."""
        self._tell()
        self._runner.stop(reason)
        self._loop.call_later(GRACE_S, self._work.cancel)

    def forget(self) -> None:
        """Leave signals to whoever had them before."""
        for number, handler in self._before.items():
            with suppress(ValueError, RuntimeError):
                if self._loop.remove_signal_handler(number):
                    signal.signal(number, handler)

    def _signalled(self, name: str) -> None:
        if self._runner.progress.stopped_by is None:
            self.drain(name)
        else:
            self._work.cancel()
