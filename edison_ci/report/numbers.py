"""How do scores, shares, amounts and changes look, in reports and on a terminal?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edison_ci.stats.scores import Interval

NOTHING = "-"


def points(found: Interval | None) -> str:
    """Return a score in points out of 100 with its interval."""
    if found is None:
        return NOTHING
    if found.low is None or found.high is None:
        return f"{100 * found.estimate:.1f} (1 case: no error bar)"
    return f"{100 * found.estimate:.1f} ({100 * found.low:.1f} to {100 * found.high:.1f})"


def rate(found: Interval | None) -> str:
    """Return a pass rate with its interval."""
    if found is None:
        return NOTHING
    share = f"{100 * found.estimate:.0f}% of {found.n:,}"
    if found.low is None or found.high is None:
        return share
    return f"{share} ({100 * found.low:.0f} to {100 * found.high:.0f})"


def change(estimate: float | None, low: float | None, high: float | None) -> str:
    """Return a change in points with its interval."""
    if estimate is None:
        return NOTHING
    said = f"{100 * estimate:+.1f} points"
    return (
        said if low is None or high is None else f"{said} ({100 * low:+.1f} to {100 * high:+.1f})"
    )


def score(value: float | None) -> str:
    """Return a score in points out of 100."""
    return NOTHING if value is None else f"{100 * value:.1f}"


def dollars(microusd: float | None) -> str:
    """Return an amount of money; small ones with all their digits."""
    if microusd is None:
        return NOTHING
    if microusd == 0:
        return "$0"
    return f"${microusd / 1e6:,.2f}" if microusd >= 100_000 else f"${microusd / 1e6:.6f}"


def milliseconds(p50: float | None, p95: float | None = None) -> str:
    """Return a latency, the 95th percentile with it where there is one."""
    if p50 is None:
        return NOTHING
    return f"{p50:,.0f} ms" + ("" if p95 is None else f", p95 {p95:,.0f} ms")


def counted(number: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
