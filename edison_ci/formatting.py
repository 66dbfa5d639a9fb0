"""Scores, shares, money, latencies and times as people read them, in reports and on a terminal."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from edison_ci.stats.scores import Interval


def now() -> dt.datetime:
    """Return the time of this machine."""
    return dt.datetime.now(dt.UTC)


def stamp(time: dt.datetime) -> str:
    """Return a time as it is stored: texts of this form sort as the times do."""
    if time.tzinfo is not dt.UTC:
        time = time.astimezone(dt.UTC)
    return f"{time.isoformat(timespec='milliseconds')[:-6]}Z"


NOTHING = "-"


def points(found: Interval | None) -> str:
    """Return a score in points out of 100 with its interval."""
    if found is None:
        return NOTHING
    if found.low is None or found.high is None:
        return f"{score(found.estimate)} (1 case: no error bar)"
    return f"{score(found.estimate)} ({score(found.low)} to {score(found.high)})"


def rate(found: Interval | None) -> str:
    """Return a pass rate with its interval."""
    if found is None:
        return NOTHING
    share = f"{fixed(100 * found.estimate)}% of {found.n:,}"
    if found.low is None or found.high is None:
        return share
    return f"{share} ({fixed(100 * found.low)} to {fixed(100 * found.high)})"


def change(estimate: float | None, low: float | None, high: float | None) -> str:
    """Return a change in points with its interval."""
    if estimate is None:
        return NOTHING
    said = f"{fixed(100 * estimate, 1, signed=True)} points"
    return said if low is None or high is None else f"{said} ({signed_span(low, high)})"


def signed_span(low: float, high: float) -> str:
    """Return the interval of a change, in points."""
    return f"{fixed(100 * low, 1, signed=True)} to {fixed(100 * high, 1, signed=True)}"


def score(value: float | None) -> str:
    """Return a score in points out of 100."""
    return NOTHING if value is None else fixed(100 * value, 1)


def dollars(microusd: float | None) -> str:
    """Return an amount of money; small ones with all their digits."""
    if microusd is None:
        return NOTHING
    if microusd == 0:
        return "$0"
    return f"${fixed(microusd / 1e6, 2 if microusd >= 100_000 else 6, grouped=True)}"


def milliseconds(p50: float | None, p95: float | None = None) -> str:
    """Return a latency, the 95th percentile with it where there is one."""
    if p50 is None:
        return NOTHING
    late = "" if p95 is None else f", p95 {fixed(p95, grouped=True)} ms"
    return f"{fixed(p50, grouped=True)} ms{late}"


def counted(number: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
