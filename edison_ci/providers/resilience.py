"""Retries of failed calls, and breakers that leave a model alone for a while.

One retry loop, on failures of transport only. A lane whose calls keep failing is closed by a
breaker and probed after a growing pause; a wrong key or an empty account closes it for the run.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.contracts import FATAL, CallError, ErrorKind
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tenacity import AsyncRetrying, RetryCallState

logger = logging.getLogger(__name__)

LONGEST_PAUSE_S = 30.0
LONGEST_RETRY_AFTER_S = 120.0
LONGEST_STORM_S = 300.0
"""A lane that hears nothing but "too many" for so long takes no more calls."""
FAILURES_TO_OPEN = 5
FIRST_PROBE_S = 60.0
LAST_PROBE_S = 480.0
SUCCESSES_TO_CLOSE = 2
SAME_BAD_REQUESTS = 3
LONG_WAIT_S = 10.0
"""A pause that is worth a word."""


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


def wish_is_too_long(error: CallError) -> bool:
    """Whether a provider asks for more time than a run waits."""
    return (error.retry_after_s or 0) > LONGEST_RETRY_AFTER_S


class Breaker:
    """Opens after failures in a row, lets a probe through after a pause, closes on successes."""

    def __init__(self, clock: Clock, model: str = "") -> None:
        self._clock, self.model = clock, model
        self._failures = 0
        self._successes = 0
        self._pause_s = FIRST_PROBE_S
        self._open_until: float | None = None
        self._probing = False
        self._refused_since: float | None = None
        self._bad_request: tuple[str, int] = ("", 0)
        self._last, self._told_until = "", 0.0
        self.closed_for: str | None = None
        """Why the lane takes no more calls in this run."""
        self.advice = ""
        """What whoever waits for the lane can do; said once."""

    async def wait(self) -> bool:
        """Return when a call may be made, and whether it is a probe; raises LaneClosed."""
        while True:
            self.refuse_closed()
            if self._open_until is None:
                return False
            left = self._open_until - self._clock.monotonic()
            if left <= 0 and not self._probing:
                self._probing = True
                return True
            await self._clock.sleep(max(left, 0.05))

    @property
    def waits_for(self) -> str | None:
        """Return what went wrong last, while the lane is left alone."""
        return None if self._open_until is None or self.closed_for else self._last

    def refuse_closed(self) -> None:
        """Raise LaneClosed if the lane takes no more calls."""
        if self.closed_for is not None:
            raise LaneClosed(self.closed_for)

    def abandoned(self, *, probe: bool) -> None:
        """Take into account that a call ended without a word; another may probe."""
        if probe:
            self._probing = False

    def succeeded(self) -> None:
        """Take a success into account."""
        self._failures, self._bad_request, self._refused_since = 0, ("", 0), None
        self._probing = False
        if self._open_until is not None:
            self._successes += 1
            self._open_until = self._clock.monotonic()
            if self._successes >= SUCCESSES_TO_CLOSE:
                self._open_until, self._pause_s = None, FIRST_PROBE_S

    def failed(self, error: CallError, *, probe: bool | None = None) -> None:
        """Take a failure into account; unless told, it is the probe's if one is out."""
        probe = self._probing if probe is None else probe
        self.abandoned(probe=probe)
        if error.kind in FATAL:
            self.closed_for = str(error)
        elif error.kind is ErrorKind.BAD_REQUEST:
            message, count = self._bad_request
            count = count + 1 if message == error.message else 1
            self._bad_request = (error.message, count)
            if count >= SAME_BAD_REQUESTS:
                self.closed_for = str(error)
        elif error.kind is ErrorKind.RATE_LIMIT:
            self._refused(error)
        elif error.retried and (probe or self._open_until is None):
            # What was on its way when the breaker opened says nothing new.
            self._count(error)

    def _refused(self, error: CallError) -> None:
        now = self._clock.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        if wish_is_too_long(error):
            self.closed_for = f"{error} (retry after {fixed(error.retry_after_s or 0)} s)"
        elif now - self._refused_since > LONGEST_STORM_S:
            self.closed_for = f"{error} (for {fixed(LONGEST_STORM_S / 60)} minutes)"
        elif (error.retry_after_s or 0) >= LONG_WAIT_S:
            self._tell_once(error, error.retry_after_s or 0)

    def _count(self, error: CallError) -> None:
        self._failures += 1
        self._successes = 0
        if self._open_until is not None:
            if self._pause_s >= LAST_PROBE_S:
                self.closed_for = f"{error} (no probe got through for a quarter of an hour)"
                return
            self._pause_s = min(2 * self._pause_s, LAST_PROBE_S)
            self._leave_alone(error)
        elif self._failures >= FAILURES_TO_OPEN:
            self._leave_alone(error)

    def _leave_alone(self, error: CallError) -> None:
        self._open_until = self._clock.monotonic() + self._pause_s
        self._last = str(error)
        self._tell("no answer; trying again later", self._pause_s, error)

    def _tell_once(self, error: CallError, pause_s: float) -> None:
        """Say that the provider asks for a pause, though every call in flight hears the same."""
        now = self._clock.monotonic()
        if now >= self._told_until:
            self._told_until = now + pause_s
            self._tell("too many calls; trying again later", pause_s, error)

    def _tell(self, message: str, pause_s: float, error: CallError) -> None:
        """Say for how long a model is left alone, and once what can be done about it."""
        told = {"model": self.model, "in": f"{fixed(pause_s)} s", "error": str(error)}
        if self.advice:
            told["hint"], self.advice = self.advice, ""
        logger.warning(message, extra=told)


def retrying(attempts: int, clock: Clock, *, deadline_s: float = math.inf) -> AsyncRetrying:
    """Return the one retry loop: full jitter, and never sooner than the provider asks.

    After the deadline no further attempt begins. Being told to come back later is no attempt: only
    the deadline and the breaker end that.
    """
    from tenacity import AsyncRetrying, retry_if_exception  # few runs need it

    start, refusals = clock.monotonic(), 0

    def stop(state: RetryCallState) -> bool:
        nonlocal refusals
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, CallError) and error.kind is ErrorKind.RATE_LIMIT:
            if wish_is_too_long(error):
                return True
            refusals += 1
        tried = state.attempt_number - refusals
        return tried >= attempts or clock.monotonic() - start > deadline_s

    def pause(state: RetryCallState) -> float:
        outcome = state.outcome.exception() if state.outcome else None
        asked = outcome.retry_after_s if isinstance(outcome, CallError) else None
        longest = min(LONGEST_PAUSE_S, 2.0 ** (state.attempt_number - 1))
        return max(asked or 0.0, clock.random.uniform(0, longest))

    return AsyncRetrying(
        stop=stop,
        wait=pause,
        sleep=clock.sleep,
        retry=retry_if_exception(lambda e: isinstance(e, CallError) and e.retried),
        reraise=True,
    )
