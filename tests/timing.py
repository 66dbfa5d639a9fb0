"""Limits of time that hold on slow and busy machines: patience, polling and processor time."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from contextlib import contextmanager
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 300.0
"""How long a test waits for what must come. Only a fault makes it wait so long."""
_USUAL_S = 0.02
"""Processor time of `_work` on the machine for which the limits of `within` were written."""


LAST_S = 120.0
"""The end of a day, in which no test starts."""


def rest_of_day_s(now: dt.datetime) -> float:
    """Return how long to wait before a test starts: until midnight of UTC, if it is near.

    Commands book by the day and month, and say which day it is. A test that plants something for
    today would find it to be of yesterday if it passed midnight.
    """
    end = now.replace(hour=0, minute=0, second=0, microsecond=0) + dt.timedelta(days=1)
    left_s = (end - now).total_seconds()
    return left_s if left_s < LAST_S else 0.0


def poll(what: str, condition: Callable[[], Any]) -> Any:
    """Wait until something is so, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"in vain waited for: {what}")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail when a block takes more processor time than so much of a usual machine's.

    It tells work in proportion to its input from work that explodes, so limits are many times what
    is expected. Other processes do not count, and a slower machine may take longer.
    """
    allowed = seconds * slowness()
    start = time.process_time()
    yield
    took = time.process_time() - start
    assert took < allowed, f"it took {took:.1f} s, of {allowed:.1f} s"


@cache
def slowness() -> float:
    """Return how many times longer than usual this machine takes; at least 1."""
    return max(1.0, median(_worked_s() for _ in range(5)) / _USUAL_S)


def _worked_s() -> float:
    start = time.process_time()
    text = "".join(chr(97 + number % 26) for number in range(20_000))
    for _ in range(3):
        sorted(text)
        re.findall("[aeiou][b-d]+", text)
        json.loads(json.dumps(list(text)))
    return time.process_time() - start
