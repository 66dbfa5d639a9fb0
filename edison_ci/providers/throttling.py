"""Throttles: how many calls a client may make now.

Requests and tokens per minute are token buckets; what a call was expected to use and did not is
given back. Concurrency starts at its cap, falls when the provider says "too many", once per
episode, and climbs back one by one. A busy lane books a few calls while others are on their way,
so that a place is filled again the moment a reply comes in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.providers.resilience import Clock

EPISODE_S = 15.0
FALL = 0.7
AHEAD = 5
"""One call is booked ahead for so many places; a small lane books none."""


class Bucket:
    """So many units a minute, at most a minute's worth at once."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._rate = per_minute / 60
        self._most = float(per_minute)
        self._level = float(per_minute)
        self._clock = clock
        self._at = clock.monotonic()

    async def take(self, amount: float) -> None:
        """Wait until so many units are there, and take them."""
        amount = min(amount, self._most)  # more than a minute's worth could never be had
        while True:
            self._fill()
            if self._level >= amount:
                self._level -= amount
                return
            await self._clock.sleep((amount - self._level) / self._rate)

    def give_back(self, amount: float) -> None:
        """Return what was taken and not used."""
        self._fill()
        self._level = min(self._most, self._level + amount)

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._level = min(self._most, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now


class Concurrency:
    """A number of places that adapts between one and its cap."""

    def __init__(self, cap: int, clock: Clock) -> None:
        self._cap, self._clock = cap, clock
        self.limit = float(cap)
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._fell_at = float("-inf")
        self._since_rise = 0

    async def enter(self) -> None:
        """Wait for a place."""
        while self._taken >= int(self.limit):
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                self._wake()  # the place may have been given to this one already
                raise
        self._taken += 1

    def leave(self) -> None:
        """Give the place back."""
        self._taken -= 1
        self._wake()

    def too_many(self) -> None:
        """Fall, once per episode of refusals."""
        now = self._clock.monotonic()
        if now - self._fell_at >= EPISODE_S:
            self.limit = max(1.0, self.limit * FALL)
            self._fell_at = now
        self._since_rise = 0

    def fine(self) -> None:
        """Climb by one after a window of successes as large as the limit."""
        if self.limit >= self._cap:
            return
        self._since_rise += 1
        if self._since_rise >= self.limit:
            self.limit = min(float(self._cap), self.limit + max(1.0, 0.05 * self.limit))
            self._since_rise = 0
            self._wake()

    def _wake(self) -> None:
        free = int(self.limit) - self._taken
        while free > 0 and self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                free -= 1


class Turn:
    """The way of one call past the limits: first it is booked, then sent."""

    __slots__ = ("_ahead", "_held", "_places", "refuse_closed")

    def __init__(
        self, places: Concurrency, ahead: Concurrency | None, refuse_closed: Callable[[], None]
    ) -> None:
        self._places, self._ahead, self.refuse_closed = places, ahead, refuse_closed
        self._held: Concurrency | None = None

    async def to_book(self) -> None:
        """Wait until the call may be booked."""
        first = self._ahead or self._places
        await first.enter()
        self._held = first

    async def to_send(self) -> None:
        """Wait until a booked call may be sent; raises LaneClosed if it no longer may."""
        if self._held is not self._places:
            await self._places.enter()
            self.leave()
            self._held = self._places
            self.refuse_closed()

    def leave(self) -> None:
        """Make room for others; may be said twice."""
        if self._held is not None:
            self._held.leave()
            self._held = None
