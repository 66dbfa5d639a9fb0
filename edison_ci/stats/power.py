"""Power: the number of cases that a decision needs, and the smallest effect that cases can show.

Scores are on 0-1, so 0.05 is 5 points. `sd` is always the standard deviation of the paired
differences (candidate minus baseline, one per case), never that of the scores: those are
typically twice as wide, and four times as many cases would be needed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import significant
from edison_ci.stats.arrays import special

if TYPE_CHECKING:
    from collections.abc import Callable

_ONE_UNSEEN = 1.6448536269514722
"""Normal quantile at which one unseen case is enough."""

DEFAULT_SD = 0.25
"""Assumed sd where none has been measured; reports must say so."""

MOST_CASES = 1_000_000
"""Upper limit of a plan; a larger answer is None."""


@dataclass(frozen=True, slots=True)
class CasesNeeded:
    """How many cases a plan needs."""

    value: int | None
    """None: more than `MOST_CASES`."""
    method: str
    assumptions: tuple[str, ...]

    @property
    def n(self) -> int | None:
        """The same number, under the name every record has for its cases."""
        return self.value


@dataclass(frozen=True, slots=True)
class SmallestEffect:
    """The smallest true difference that `n` cases show with the given power."""

    value: float
    """Above 1 on a 0-1 scale: with so few cases no difference can be relied on to show."""
    n: int
    method: str
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SdRange:
    """Where the true sd plausibly lies when few cases estimate it."""

    value: float
    low: float
    high: float
    n: int
    method: str
    assumptions: tuple[str, ...]


def unseen_cases(alpha: float) -> float:
    """Return how many cases that were not seen a bound assumes to have failed.

    One at 95%, and more above: with one alone, a bound at 99% would pass suites of rare failures
    three times as often as it says. With these it is at most 1.4 times, for 5 to 1,500 cases.
    """
    z = float(special.ndtri(1 - alpha))
    return max(1.0, round(1 + (z * z - _ONE_UNSEEN**2) / 4, 12))


def cases_for_margin(
    sd: float,
    *,
    margin: float = 0.05,
    alpha: float = 0.05,
    worst_case_drop: float = 1.0,
    power: float = 0.8,
) -> CasesNeeded:
    """Return the cases at which an unchanged candidate passes the gate with chance `power`.

    `sd=0` is meaningful here: it asks how many identical scores prove that nothing broke. Cases in
    clusters count by cluster: `sd` is that of a cluster, and the result is a number of clusters.
    """
    _require(0 <= sd < math.inf, f"sd must be a number from 0 up, not {sd!r}")
    _require(0 < margin < math.inf, f"margin must be above 0, not {margin!r}")
    _require(0 < alpha < 0.5, f"alpha must be between 0 and 0.5, not {alpha!r}")
    _require(
        0 <= worst_case_drop < math.inf,
        f"worst_case_drop must be a number from 0 up, not {worst_case_drop!r}",
    )
    # Below even odds the power term grows with n, and the search would need another shape.
    _require(0.5 <= power < 1, f"power must be from 0.5 to below 1, not {power!r}")
    z_power = float(special.ndtri(power))

    def passes(n: int) -> bool:
        bound = distance_to_bound(n, sd=sd, alpha=alpha, drop=worst_case_drop)
        return bound + z_power * sd * math.sqrt(n) / (n + unseen_cases(alpha)) < margin

    # Two is where a verdict begins. The criterion only improves from there on: each of its terms
    # falls ((n - 1) / (n (n + 1)) is equal at 2 and 3, but t falls between them).
    return CasesNeeded(
        value=smallest_count(passes, near=64),
        method="one-sided t bound that allows for failures not seen yet",
        assumptions=(
            "the candidate is really unchanged",
            f"sd of the paired differences {significant(sd, 3)}",
            f"margin {significant(margin, 3)}",
            f"confidence {significant(1 - alpha, 3)}, one-sided",
            f"power {significant(power, 3)}",
            f"one unseen case may drop by {significant(worst_case_drop, 3)}",
        ),
    )


_CHANCE_FLIPS = 0.15
"""Share of cases that break by chance from one answer to the next, and as many are repaired."""


def flips_limit(n: int) -> float:
    """Return the ceiling of net flips for a new experiment, in whole percent.

    It is the smallest that an unchanged head keeps with chance 0.8, where answers vary much; half
    of the cases where they are too few for that.
    """
    sd = math.sqrt(2 * _CHANCE_FLIPS)
    for percent in range(2, 50):
        needed = cases_for_margin(sd, margin=percent / 100).value
        if needed is not None and needed <= n:
            return percent / 100
    return 0.5


def cases_in_clusters(clusters: int | None, size: float) -> int | None:
    """Return the cases of a number of clusters with an average size; None stays None."""
    return None if clusters is None else math.ceil(clusters * size - 1e-9)


def smallest_effect(
    n: int, *, sd: float, alpha: float = 0.05, power: float = 0.8
) -> SmallestEffect:
    """Return the smallest true difference that `n` cases show with chance `power`."""
    _require_cases(n)
    _require_spread(sd)
    _require_power(power, alpha=alpha)
    low, high = 0.0, 1.0
    while _power(n, ratio=high, alpha=alpha) < power:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if _power(n, ratio=middle, alpha=alpha) < power:
            low = middle
        else:
            high = middle
    return SmallestEffect(
        value=high * sd,
        n=n,
        method=_PAIRED_T,
        assumptions=(*_planning_assumptions(sd, alpha), f"power {significant(power, 3)}"),
    )


def sd_range(sd: float, n: int) -> SdRange:
    """Return the sd with its 80% range, for plans that rest on few cases."""
    _require_cases(n)
    _require_spread(sd)
    # special.chdtri inverts the upper tail: its 0.1 is the 0.9 quantile.
    low, high = (
        sd * math.sqrt((n - 1) / float(special.chdtri(n - 1, tail))) for tail in (0.1, 0.9)
    )
    return SdRange(
        value=sd,
        low=low,
        high=high,
        n=n,
        method="chi-squared range of a standard deviation, 80%",
        assumptions=("roughly normal differences",),
    )


_PAIRED_T = "noncentral t, two-sided paired t-test"


def _planning_assumptions(sd: float, alpha: float) -> tuple[str, ...]:
    return (
        f"sd of the paired differences {significant(sd, 3)}",
        "roughly normal mean difference",
        f"alpha {significant(alpha, 3)}, two-sided",
    )


def distance_to_bound(n: float, *, sd: float, alpha: float, drop: float) -> float:
    """Return how far the gate's lower bound lies below the mean of n differences, at mean 0."""
    unseen = unseen_cases(alpha)
    total = n + unseen
    variance = ((n - 1) * sd * sd + n * unseen * drop * drop / total) / (total - 1)
    t = float(special.stdtrit(total - 1, 1 - alpha))
    return unseen * drop / total + t * math.sqrt(variance / total)


def _power(n: int, *, ratio: float, alpha: float) -> float:
    t = float(special.stdtrit(n - 1, 1 - alpha / 2))
    shift = ratio * math.sqrt(n)
    below_upper = float(special.nctdtr(n - 1, shift, t))
    below_lower = float(special.nctdtr(n - 1, shift, -t))
    # scipy answers nan where a tail is too small for it: below -t from a shift of about 4 on
    # (the true value is then under 1e-13), below t only for shifts that no test can miss.
    upper = 1.0 if math.isnan(below_upper) else 1 - below_upper
    lower = 0.0 if math.isnan(below_lower) else below_lower
    return min(1.0, upper + lower)


def smallest_count(enough: Callable[[int], bool], *, above: int = 1, near: int = 4) -> int | None:
    """Return the smallest number above another that is enough; None beyond `MOST_CASES`.

    `enough` stays true once it is true; the search begins at `near`.
    """
    low, high = above, min(near, MOST_CASES)
    while not enough(high):
        if high == MOST_CASES:
            return None
        low, high = high, min(2 * high, MOST_CASES)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _require_cases(n: int) -> None:
    _require(n >= 2, f"n must be at least 2 cases, not {n!r}: one case has no spread")


def _require_spread(sd: float) -> None:
    _require(
        0 < sd < math.inf,
        f"sd must be above 0, not {sd!r}: identical differences say nothing about the noise, "
        f"so plan with DEFAULT_SD ({DEFAULT_SD})",
    )


def _require_power(power: float, *, alpha: float) -> None:
    _require(0 < alpha < 1, f"alpha must be between 0 and 1, not {alpha!r}")
    _require(alpha < power < 1, f"power must be between alpha ({alpha!r}) and 1, not {power!r}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
