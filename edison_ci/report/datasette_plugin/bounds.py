"""Bounds of what one request, and one address in a minute, may ask of the pages.

A page does work for every facet and writes a link for every parameter into every other, so that an
address with hundreds of them takes seconds and returns hundreds of megabytes. Rows, time and the
length of a value are bounded by the settings of Datasette and of SQLite (`serving`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from edison_ci.operate.accounts import network_of

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_QUERY = 8_000
"""Characters of a query, SQL included."""
MOST_PARAMETERS = 100
MOST_FACETS = 5
MOST_REPEATED = 25
"""Values of one parameter that belongs to Datasette."""
LONGEST_VALUE = 50_000_000
"""Bytes of a text that SQLite reads or makes for a page."""
_REMEMBERED = 10_000
_MINUTE_S = 60.0


def too_much(query: str) -> str:
    """Return why a query asks for too much, or ''."""
    if len(query) > MOST_QUERY:
        return f"The address has more than {MOST_QUERY:,} characters of parameters."
    try:
        names = [name for name, _ in parse_qsl(query, True, max_num_fields=MOST_PARAMETERS)]
    except ValueError:
        return f"The address has more than {MOST_PARAMETERS} parameters."
    facets = sum(name.startswith("_facet") and name != "_facet_size" for name in names)
    if facets > MOST_FACETS:
        return f"The address asks for {facets} facets; at most {MOST_FACETS}."
    own = [name for name in names if name.startswith("_")]
    if any(own.count(name) > MOST_REPEATED for name in set(own)):
        return f"The address repeats a parameter more than {MOST_REPEATED} times."
    return ""


class RateLimit:
    """Counts requests by address: a bucket of tokens for each, refilled in a minute.

    Whoever has been away longest is forgotten when there are too many to remember; a full bucket
    says nothing that is worth remembering.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = float(per_minute), clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens that were left, and when, by address."""

    def wait_s(self, address: str) -> int:
        """Count a request; return 0, or in how many seconds the next one is welcome."""
        now, who = self._clock(), network_of(address)
        left, since = self._left.pop(who, (self._most, now))
        left = min(self._most, left + (now - since) * self._most / _MINUTE_S)
        allowed = left >= 1
        self._left[who] = (left - 1 if allowed else left, now)
        while len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)
        return 0 if allowed else max(1, math.ceil((1 - left) * _MINUTE_S / self._most))
