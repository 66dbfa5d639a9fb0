"""E-values: evidence that is valid however often one looks.

E-values: the capital of a gambler who bets on bounded differences, one case after another. Under
the null hypothesis the capital is a nonnegative supermartingale that starts at 1, so the chance
that it ever reaches 1/a is at most a (Ville 1939; Waudby-Smith and Ramdas 2023), for any scores
in range, any number of looks and any reason to stop.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import Range, bounded
from edison_ci.stats.libraries import np, special
from edison_ci.stats.power import MOST_CASES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.arrays import Array, Floats

BETS = (0.05, 0.10, 0.175, 0.275, 0.40, 0.55, 0.75, 0.95)
"""Shares of the capital that are bet; their gamblers' capitals are averaged."""
_STEPS = 400
"""Steps on [-1, 1] of the means that an always-valid interval tries."""

Null: TypeAlias = Literal["at most", "at least"]
_NULLS: tuple[Null, Null] = ("at most", "at least")


@dataclass(frozen=True, slots=True)
class Evidence:
    """The e-value against a claim about the mean difference."""

    value: float
    """Infinite where it is beyond the range of floats; `log_value` never is."""
    log_value: float
    n: int
    method: str
    p: float
    """1 / the largest e-value over the looks: valid at any time."""


def log_capital(differences: Floats, *, null: Null, mean: float) -> Array:
    """Return the log e-value against "the mean is at most (or at least) `mean`", case by case."""
    d = bounded(differences, "differences", low=-1, high=1)
    if not -1 < mean < 1:
        raise ValueError(f"a mean difference lies between -1 and 1, not {mean!r}")
    return _capital(d[:, None] - mean, null=null, means=np.array([mean]))[:, 0]


def evidence(
    differences: Floats, *, null: Null, mean: float, looks: Sequence[int] | None = None
) -> Evidence:
    """Return the evidence against a claim at the last look; `looks` are numbers of cases.

    Without `looks` there is one, at the end.
    """
    log_values = log_capital(differences, null=null, mean=mean)
    n = log_values.size
    taken = [look for look in (looks or [n]) if 0 < look <= n]
    current = float(log_values[taken[-1] - 1]) if taken else 0.0
    largest = max((float(log_values[look - 1]) for look in taken), default=0.0)
    return Evidence(
        value=math.exp(current) if current < 700 else math.inf,
        log_value=current,
        n=n,
        method=f"mixture of {len(BETS)} bets against a mean {null} {mean:g}",
        p=min(1.0, math.exp(-largest)),
    )


def always_valid_interval(
    differences: Floats, *, looks: Sequence[int] | None = None, level: float = 0.95
) -> Range | None:
    """Return an interval for the mean that stays valid over all the looks; None without a case.

    Each end is the outermost mean on a grid of 0.005 that no look has refused at half the error,
    rounded outwards.
    """
    d = bounded(differences, "differences", low=-1, high=1)
    taken = [look for look in (looks or [d.size]) if 0 < look <= d.size]
    if not taken:
        return None
    grid = np.linspace(-1, 1, _STEPS + 1)[1:-1]
    gaps, threshold = d[:, None] - grid[None, :], math.log(2 / (1 - level))
    low_refused, high_refused = (
        _capital(gaps, null=null, means=grid, looks=taken).max(axis=0) >= threshold
        for null in _NULLS
    )
    low = float(grid[low_refused].max(initial=-1.0))
    high = float(grid[high_refused].min(initial=1.0))
    return Range(low, high)


def cases_for_evidence(
    differences: Floats, *, margin: float, alpha: float = 0.05, power: float = 0.8
) -> int | None:
    """Return about how many cases give an unchanged candidate its e-value with chance `power`.

    The differences, moved to mean 0, stand for those to come; with ties only it is exact. None
    beyond `MOST_CASES`.
    """
    d = bounded(differences, "differences", low=-1, high=1)
    centred = np.clip(d - d.mean(), -1, 1) if d.size else np.zeros(1)
    bets = np.array(BETS)
    growth = np.log1p(bets / (1 - margin) * (centred[:, None] + margin))
    drift, noise = growth.mean(axis=0), growth.std(axis=0)
    target, z = math.log(1 / alpha), float(special.ndtri(power))

    def enough(n: int) -> bool:
        reached = n * drift - z * math.sqrt(n) * noise
        return float(np.logaddexp.reduce(reached)) - math.log(len(BETS)) >= target

    high = 2
    while not enough(high):
        if high >= MOST_CASES:
            return None
        high = min(2 * high, MOST_CASES)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _capital(gaps: Array, *, null: Null, means: Array, looks: Sequence[int] | None = None) -> Array:
    """Return log capitals after each look (each case without); `gaps` is (cases, means)."""
    # The largest stake that can never lose more than all: d >= -1 on one side, d <= 1 on the other.
    stake = gaps / (1 + means) if null == "at most" else -gaps / (1 - means)
    ends = looks or range(1, len(gaps) + 1)
    total = np.full((len(ends), means.size), -np.inf)
    for bet in BETS:
        gains = np.log1p(bet * stake[: ends[-1]]) if len(ends) else stake
        if looks:
            gains = np.add.reduceat(gains, [0, *ends[:-1]], axis=0)
        total = np.logaddexp(total, np.cumsum(gains, axis=0))
    return np.asarray(total - math.log(len(BETS)))
