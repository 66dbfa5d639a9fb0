"""Failed calls: retries, the circuit breaker of a model, and parameters that it refuses.

Only failures of transport are retried. A client whose calls keep failing is paused by a breaker and
probed after growing intervals, until the model is given up. A wrong key or an exhausted quota
closes it for the run at once, and so does a service that cannot be reached and has not answered.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edison_ci._dataclass import dataclass
from edison_ci.contracts import FATAL, CallError, ErrorKind
from edison_ci.numeric import fixed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tenacity import AsyncRetrying, RetryCallState

    from edison_ci.contracts import Provider
    from edison_ci.providers.batches import BatchService
    from edison_ci.records import Completion, Request

logger = logging.getLogger(__name__)

LONGEST_PAUSE_S = 30.0
LONGEST_RETRY_AFTER_S = 120.0
LONGEST_STORM_S = 300.0
"""A client that gets nothing but rate limits for this long is closed."""
FAILURES_TO_OPEN = 5
FIRST_PROBE_S = 60.0
"""The longest pause before the first probe."""
SHARE_BEFORE_PROBE = 0.1
"""That pause, as a share of the time after which the model is given up: three probes fit in."""
GIVE_UP_S = 90.0
"""How long a model that has not answered in this run is tried, unless `limits.give_up_s` is set."""
GIVE_UP_ANSWERED_S = 600.0
"""How long one that has answered is tried, unless `limits.give_up_s` is longer."""
LONGEST_ASKED_S = 900.0
"""How long one is tried that asks to wait, or says that it is loading."""
UNREACHED_PROBE_S = 2.0
"""Pause before the only probe of a service that was never reached."""
SUCCESSES_TO_CLOSE = 2
SAME_BAD_REQUESTS = 3
MOST_LOST_WORKERS = 3
"""Workers that one call may lose before they count as attempts."""
LONG_WAIT_S = 10.0
"""Pauses from this length on are logged."""


class ClientClosed(Exception):
    """The client makes no more calls in this run."""

    def __init__(self, reason: str, kind: ErrorKind) -> None:
        super().__init__(reason)
        self.reason, self.kind = reason, kind


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, sleep and random numbers, which tests replace."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    random: random.Random

    @classmethod
    def real(cls) -> Clock:
        """Return the clock of this machine."""
        import time

        return cls(time.monotonic, asyncio.sleep, random.Random())


def retry_after_too_long(error: CallError) -> bool:
    """Whether a provider asks for a longer pause than a run waits."""
    return (error.retry_after_s or 0) > LONGEST_RETRY_AFTER_S


class Silence:
    """The time since the first of the failures that no answer has interrupted.

    Time for which the service asked to wait is counted apart. Where it names no time, as with a
    model that is loading, it asks until it replies something else.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._asked_s = 0.0
        self._asked_from = self._asked_until = 0.0

    def fail(self, error: CallError, *, after_s: float = 0.0) -> None:
        """Record a failure, after so many seconds without a word."""
        now = self._clock.monotonic()
        if self._since is None:
            self._since = self._asked_from = self._asked_until = now - after_s
        if self._asked_until > self._asked_from:
            self._asked_s += min(now, self._asked_until) - self._asked_from
        self._asked_from = now
        if self._asked_until == math.inf:
            self._asked_until = now
        if error.asks_to_wait:
            asked_s = error.retry_after_s
            asked_s = math.inf if asked_s is None else min(asked_s, LONGEST_RETRY_AFTER_S)
            self._asked_until = max(self._asked_until, now + asked_s)

    def end(self) -> None:
        """Record an answer."""
        self._since, self._asked_s = None, 0.0

    @property
    def lasted_s(self) -> float:
        """Its length so far, with the time for which the service asked to wait."""
        return 0.0 if self._since is None else self._clock.monotonic() - self._since

    def ends_at(self, longest_s: float) -> float:
        """Return when it is over, if it may last so long without what the service asked for."""
        if self._since is None:
            return math.inf
        asked_s = self._asked_s + max(0.0, self._asked_until - self._asked_from)
        return self._since + min(longest_s + asked_s, max(longest_s, LONGEST_ASKED_S))


class Breaker:
    """Opens after consecutive failures, sends probes after pauses, closes on successes.

    A model that does not answer is given up after `give_up_s`, or 600 seconds if it has answered
    before; but only when each call that waits for it has lasted for a whole `timeout_s`.
    """

    def __init__(
        self,
        clock: Clock,
        model: str = "",
        *,
        give_up_s: float = GIVE_UP_S,
        timeout_s: float = 0.0,
    ) -> None:
        self._clock, self.model = clock, model
        self._give_up_s, self._timeout_s = give_up_s, timeout_s
        self._silence = Silence(clock)
        self.calls: dict[object, float] = {}
        """When each call was begun that is not answered and has attempts left."""
        self._failures = 0
        self._successes = 0
        self._pause_s = 0.0
        self._open_until: float | None = None
        self._probing = False
        self._refused_since: float | None = None
        self._bad_request: tuple[str, int] = ("", 0)
        self._answered = False
        self._last, self._told_until = "", 0.0
        self.closed_reason: str | None = None
        """Why the client makes no more calls in this run."""
        self._closed_kind = ErrorKind.NETWORK
        self.advice = ""
        """A hint for the user while the client waits; logged once."""
        self.last_error: CallError | None = None
        self.address = ""
        """Where the model is called, for messages."""

    async def wait(self) -> bool:
        """Wait until a call may be made; return whether it is a probe; raises ClientClosed."""
        while True:
            self.refuse_closed()
            if self._open_until is None:
                return False
            now = self._clock.monotonic()
            if not self._probing:
                if self._given_up_at <= now and self.last_error is not None:
                    self._give_up(self.last_error)
                    continue
                if self._open_until <= now:
                    self._probing = True
                    return True
            await self._clock.sleep(max(min(self._open_until, self._given_up_at) - now, 0.05))

    @property
    def waiting_reason(self) -> str | None:
        """The last error while the breaker is open; None otherwise."""
        return None if self._open_until is None or self.closed_reason else self._last

    def refuse_closed(self) -> None:
        """Raise ClientClosed if the client makes no more calls."""
        if self.closed_reason is not None:
            raise ClientClosed(self.closed_reason, self._closed_kind)

    def _close(self, error: CallError, reason: str) -> None:
        self.closed_reason, self._closed_kind = reason, error.kind

    @property
    def _longest_silence_s(self) -> float:
        return max(GIVE_UP_ANSWERED_S, self._give_up_s) if self._answered else self._give_up_s

    @property
    def _given_up_at(self) -> float:
        """When the model is given up if it does not answer before."""
        newest = max(self.calls.values(), default=-math.inf)
        return max(self._silence.ends_at(self._longest_silence_s), newest + self._timeout_s)

    def _give_up(self, error: CallError) -> None:
        lasted = f"{fixed(self._silence.lasted_s)} s"
        self._close(error, f"{self._with_address(error)} (no answer for {lasted})")
        data = {"model": self.model, "after": lasted, "error": str(error)}
        logger.warning("no answer; the model is given up", extra=data)

    def record_abandoned(self, *, probe: bool) -> None:
        """Record a call without a result; another one may be the probe."""
        if probe:
            self._probing = False

    def record_success(self) -> None:
        """Record a successful call."""
        self._failures, self._bad_request, self._refused_since = 0, ("", 0), None
        self._probing, self._answered = False, True
        self._silence.end()
        if self._open_until is not None:
            self._successes += 1
            self._open_until = self._clock.monotonic()
            if self._successes >= SUCCESSES_TO_CLOSE:
                self._open_until = None

    def record_failure(self, error: CallError, *, probe: bool | None = None) -> None:
        """Record a failed call; by default it is the probe if one is in flight."""
        probe = self._probing if probe is None else probe
        self.record_abandoned(probe=probe)
        self.last_error = error
        if error.retried and not error.garbled:
            silent = error.kind is ErrorKind.TIMEOUT and not error.unreached
            self._silence.fail(error, after_s=self._timeout_s if silent else 0.0)
        if error.kind in FATAL:
            self._close(error, self._with_address(error))
        elif error.kind is ErrorKind.BAD_REQUEST:
            message, count = self._bad_request
            count = count + 1 if message == error.message else 1
            self._bad_request = (error.message, count)
            if count >= SAME_BAD_REQUESTS:
                self._close(error, str(error))
        elif error.kind is ErrorKind.RATE_LIMIT:
            self._count_refusal(error)
        elif error.retried and (probe or (self._open_until is None and not error.garbled)):
            # Calls that were in flight when the breaker opened do not count. A service that always
            # answers with a web page is at a wrong address: to wait for it would not help.
            self._count(error)

    def _count_refusal(self, error: CallError) -> None:
        now = self._clock.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        if retry_after_too_long(error):
            self._close(error, f"{error} (retry after {fixed(error.retry_after_s or 0)} s)")
        elif now - self._refused_since > LONGEST_STORM_S:
            self._close(error, f"{error} (for {fixed(LONGEST_STORM_S / 60)} minutes)")
        elif (error.retry_after_s or 0) >= LONG_WAIT_S:
            self._tell_once(error, error.retry_after_s or 0)

    def _count(self, error: CallError) -> None:
        self._failures += 1
        self._successes = 0
        unreached = error.unreached and not self._answered
        if self._open_until is not None:
            if unreached:
                self._close(error, f"{self._with_address(error)} (no call was answered yet)")
                return
            if self._given_up_at <= self._clock.monotonic():
                self._give_up(error)
                return
            self._pause_s *= 2
            self._leave_alone(error)
        elif self._failures >= FAILURES_TO_OPEN:
            self._pause_s = min(FIRST_PROBE_S, SHARE_BEFORE_PROBE * self._longest_silence_s)
            self._leave_alone(error, UNREACHED_PROBE_S if unreached else None)

    def _with_address(self, error: CallError) -> str:
        """Return the error, with the address if nothing has been answered from there."""
        is_named = self._answered or (urlsplit(self.address).netloc or self.address) in str(error)
        return str(error) if is_named else f"{error}; called {self.address}"

    def _leave_alone(self, error: CallError, pause_s: float | None = None) -> None:
        pause_s = pause_s or self._pause_s
        self._open_until = self._clock.monotonic() + pause_s
        self._last = str(error)
        self._tell("no answer; trying again later", pause_s, error)

    def _tell_once(self, error: CallError, pause_s: float) -> None:
        """Log the pause that the provider asks for once, not for every call in flight."""
        now = self._clock.monotonic()
        if now >= self._told_until:
            self._told_until = now + pause_s
            self._tell("too many calls; trying again later", pause_s, error)

    def _tell(self, message: str, pause_s: float, error: CallError) -> None:
        """Log the length of a pause, and the hint once."""
        data = {"model": self.model, "in": f"{fixed(pause_s)} s", "error": str(error)}
        if self.advice:
            data["hint"], self.advice = self.advice, ""
        logger.warning(message, extra=data)


def retry_loop(attempts: int, clock: Clock, *, deadline_s: float = math.inf) -> AsyncRetrying:
    """Return the retry loop: full jitter, and never sooner than the provider asks.

    No attempt begins after the deadline, and none is waited for that would. A rate limit does not
    count as an attempt: only the deadline and the breaker end these. A garbled reply may have been
    paid for, so that it is asked for once more and no oftener. Nor does a worker count that is
    gone, unless one after the other is: the request itself may be what ends them.
    """
    from tenacity import AsyncRetrying, retry_if_exception  # slow to load, and few runs need it

    start, refusals, garbled, lost = clock.monotonic(), 0, 0, 0

    def stop(state: RetryCallState) -> bool:
        nonlocal refusals, garbled, lost
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, CallError) and error.kind is ErrorKind.RATE_LIMIT:
            if retry_after_too_long(error):
                return True
            refusals += 1
        if isinstance(error, CallError) and error.lost_worker and lost < MOST_LOST_WORKERS:
            lost += 1
        garbled += isinstance(error, CallError) and error.garbled
        tried = state.attempt_number - refusals - lost
        elapsed = clock.monotonic() - start + state.upcoming_sleep
        return tried >= attempts or garbled > 1 or elapsed > deadline_s

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


_REFUSES = re.compile(
    r"unsupported|not support|deprecated|not permitted|unknown|unrecognized|unexpected|"
    r"cannot both|may only|only the default|not allowed|not available|do not support",
    re.IGNORECASE,
)
_KEPT = frozenset({"max_tokens", "extra"})
"""Parameters without which a call is not sent: the length bounds its cost."""
_FORM = "response_format"
_OTHER_NAMES = {
    "reasoning": ("reasoning_effort", "thinking", "output_config", "effort"),
    "stop": ("stop_sequences",),
}


class Adapting:
    """A provider that asks again without a parameter that the model refuses.

    The table of models knows most of what a model accepts (`config/models.py`). A service
    behind another address, or a model that is newer than the table, may refuse more. The refusal
    names the parameter and costs nothing; the call is sent again without it, and so is every later
    call of the run.
    """

    def __init__(self, inner: Provider, model: str) -> None:
        self._inner, self._model = inner, model
        self._refused: set[str] = set()

    async def complete(self, request: Request) -> Completion:
        """Return the answer, with the names of the parameters that were left out."""
        while True:
            sent = _without(request, self._refused) if self._refused else request
            try:
                completion = await self._inner.complete(sent)
            except CallError as error:
                name = refused_param(error, sent)
                if name is None:
                    raise
                self._refuse(name, error)
                continue
            if not self._refused and not request.left_out:
                return completion
            names = [*request.params, *([_FORM] if request.response_format is not None else [])]
            left_out = [name for name in names if name in self._refused]
            return replace(completion, left_out=(*request.left_out, *left_out))

    def _refuse(self, name: str, error: CallError) -> None:
        if name not in self._refused:
            self._refused.add(name)
            logger.warning(
                "the model refuses a parameter, which is left out from now on",
                extra={"model": self._model, "parameter": name, "reason": error.message[:200]},
            )

    @property
    def batches(self) -> BatchService | None:
        """The batches of the model, if it has some."""
        return getattr(self._inner, "batches", None)

    async def aclose(self) -> None:
        """Close the connections."""
        close = getattr(self._inner, "aclose", None)
        if close is not None:
            await close()


def refused_param(error: CallError, request: Request) -> str | None:
    """Return the parameter that an error names as refused; None if it is another error."""
    if error.kind is not ErrorKind.BAD_REQUEST or not _REFUSES.search(error.message):
        return None
    names = [name for name in request.params if name not in _KEPT]
    if request.response_format is not None:
        names.append(_FORM)
    places = {
        match.start(): name
        for name in names
        for spelling in (name, *_OTHER_NAMES.get(name, ()))
        if (match := re.search(rf"(?<![a-z_]){spelling}(?![a-z_])", error.message))
    }
    return places[min(places)] if places else None


def _without(request: Request, refused: set[str]) -> Request:
    params = {name: value for name, value in request.params.items() if name not in refused}
    form = None if _FORM in refused else request.response_format
    return replace(request, params=params, response_format=form)
