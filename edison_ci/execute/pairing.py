"""May an answer of one side be set against one of the other that was made at another time?

A model that is changed behind its name would look like a change of the prompt. So when one side of
a pair has to be bought and the other is older than a day, both are bought.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.store.answers import newest_time

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.records import Request


@dataclass(frozen=True, slots=True)
class Pairing:
    """Times, as they are stored, by which the two sides of a pair are held together."""

    reader: sqlite3.Connection
    begun: str
    """When the run began."""
    day_ago: str
    newer_than: str
    """From when on stored answers count at all."""

    def held_together(self, request: Request, twin: Request) -> Request:
        """Return the request, asking for a new answer if its twin gets a new one."""
        if twin.address == request.address:
            return request
        own = newest_time(self.reader, request.address)
        if own is None or own >= self.day_ago:
            return request
        other = newest_time(self.reader, twin.address)
        bought = other is None or other < self.newer_than or other >= self.begun
        return replace(request, not_before=self.begun) if bought else request
