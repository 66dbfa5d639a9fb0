"""When is a failed call tried again, and when is a model left alone for a while?

One retry loop, on failures of transport only. A lane whose calls keep failing is closed by a
breaker and probed after a growing pause; a wrong key or an empty account closes it for the run.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from edison_ci.contracts import FATAL, CallError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LONGEST_PAUSE_S = 30.0
LONGEST_RETRY_AFTER_S = 120.0
FAILURES_TO_OPEN = 5
FIRST_PROBE_S = 60.0
LAST_PROBE_S = 480.0
SUCCESSES_TO_CLOSE = 2
SAME_BAD_REQUESTS = 3


class LaneClosed(Exception):
    """The lane takes no more calls in this run."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance, handed in so that tests need neither."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random: random.Random

    @classmethod
    def real(cls) -> Clock:
        """Return the clock of this machine."""
        import time

        return cls(time.monotonic, asyncio.sleep, random.Random())


class Breaker:
    """Opens after failures in a row, lets a probe through after a pause, closes on successes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._successes = 0
        self._pause_s = FIRST_PROBE_S
        self._open_until: float | None = None
        self._probing = False
        self._bad_request: tuple[str, int] = ("", 0)
        self.closed_for: str | None = None
        """Why the lane takes no more calls in this run."""

    async def wait(self) -> None:
        """Return when a call may be made; raises LaneClosed when none may."""
        while True:
            if self.closed_for is not None:
                raise LaneClosed(self.closed_for)
            if self._open_until is None:
                return
            left = self._open_until - self._clock.monotonic()
            if left <= 0 and not self._probing:
                self._probing = True
                return
            await self._clock.sleep(max(left, 0.05))

    def succeeded(self) -> None:
        """Take a success into account."""
        self._failures, self._bad_request = 0, ("", 0)
        self._probing = False
        if self._open_until is not None:
            self._successes += 1
            self._open_until = self._clock.monotonic()
            if self._successes >= SUCCESSES_TO_CLOSE:
                self._open_until, self._pause_s = None, FIRST_PROBE_S

    def failed(self, error: CallError) -> None:
        """Take a failure into account."""
        self._probing = False
        if error.kind in FATAL:
            self.closed_for = str(error)
        elif error.kind is ErrorKind.BAD_REQUEST:
            message, count = self._bad_request
            count = count + 1 if message == error.message else 1
            self._bad_request = (error.message, count)
            if count >= SAME_BAD_REQUESTS:
                self.closed_for = str(error)
        elif error.kind is ErrorKind.RATE_LIMIT:
            if (error.retry_after_s or 0) > LONGEST_RETRY_AFTER_S:
                self.closed_for = f"{error} (retry after {error.retry_after_s:.0f} s)"
        elif error.retried:
            self._count()

    def _count(self) -> None:
        self._failures += 1
        self._successes = 0
        if self._open_until is not None:
            self._pause_s = min(2 * self._pause_s, LAST_PROBE_S)
            self._open_until = self._clock.monotonic() + self._pause_s
        elif self._failures >= FAILURES_TO_OPEN:
            self._open_until = self._clock.monotonic() + self._pause_s


def retrying(attempts: int, clock: Clock) -> AsyncRetrying:
    """Return the one retry loop: full jitter, and never sooner than the provider asks."""

    def pause(state: RetryCallState) -> float:
        outcome = state.outcome.exception() if state.outcome else None
        asked = outcome.retry_after_s if isinstance(outcome, CallError) else None
        longest = min(LONGEST_PAUSE_S, 2.0 ** (state.attempt_number - 1))
        return max(asked or 0.0, clock.random.uniform(0, longest))

    return AsyncRetrying(
        stop=stop_after_attempt(attempts),
        wait=pause,
        sleep=clock.sleep,
        retry=retry_if_exception(lambda e: isinstance(e, CallError) and e.retried),
        reraise=True,
    )
