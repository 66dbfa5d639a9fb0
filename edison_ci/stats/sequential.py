"""Sequential tests: whether one may stop already, and what is known so far.

Looking twice at fixed tests costs: re-applied every 20 cases they fail an unchanged candidate two
or three times too often. Either the evidence is valid at any time, or the looks are planned.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.records import Verdict
from edison_ci.stats.arrays import TIE, Range, bounded, mean_of, np, special
from edison_ci.stats.paired import PValue
from edison_ci.stats.power import MOST_CASES
from edison_ci.stats.verdicts import GateDecision, GateRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.arrays import Array, Floats
    from edison_ci.stats.paired import Pairs


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

    The differences, moved to mean 0, are used for those to come; with ties only it is exact. None
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


_MOST_FOR_INTERVAL = 20_000
"""Number of cases above which no always-valid interval is computed: it would take a gigabyte."""
_OBRIEN_FLEMING = {
    2: (0.0088, 0.0467),
    3: (0.0015, 0.0181, 0.0437),
    4: (0.00026, 0.0071, 0.0227, 0.0415),
    5: (0.00005, 0.0028, 0.0119, 0.0251, 0.0400),
}
"""Nominal one-sided levels for alpha .05 (Jennison and Turnbull 2000)."""


def decide_look(
    pairs: Pairs,
    rule: GateRule | None = None,
    *,
    looks: Sequence[int],
    share: float | None = None,
) -> GateDecision:
    """Decide at the last of several interim analyses of sequential cases (STATS 9).

    Its p-value, 1 / the largest e-value against "not worse", holds at any time, so that other gates
    can be allowed for. An undecided end stays inconclusive: a fixed test on the same data would be
    one interim analysis too many. Pairs are in the order in which they came; `looks` counts them
    or their clusters. A relative margin is given as `share` of the base: then "head is at most
    1 - share times base" is tested, which no mean has to be known for.
    """
    rule = rule or GateRule()
    bases, heads = pairs.sides
    d = bounded(_cluster_means(heads - bases, pairs.clusters), "differences", low=-1, high=1)
    margin, kept = rule.margin, d
    if share is not None:
        margin, kept = share, _cluster_means(heads - (1 - share) * bases - share, pairs.clusters)
    taken = sorted({look for look in looks if 0 < look <= d.size})
    if not taken:
        return _not_looked(pairs.n, rule)
    passed = evidence(kept, null="at most", mean=-margin, looks=taken)
    beyond = rule.fail_rule == "beyond_margin"
    lost = evidence(
        kept if beyond else d, null="at least", mean=-margin if beyond else 0.0, looks=taken
    )
    dropped = mean_of(kept) <= -margin + TIE
    verdict = Verdict.PASS if passed.p <= rule.alpha else Verdict.INCONCLUSIVE
    if verdict is not Verdict.PASS and dropped and lost.p <= rule.alpha:
        verdict = Verdict.FAIL
    few = d.size <= _MOST_FOR_INTERVAL
    shown, sure = (
        always_valid_interval(d, looks=taken, level=level) if few else None
        for level in (rule.confidence, 1 - 2 * rule.alpha)
    )
    differing = int(np.count_nonzero(np.abs(d) > TIE))
    return GateDecision(
        verdict=verdict,
        value=mean_of(d),
        n=pairs.n,
        method="e-values at every look",
        interval=shown,
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
        worst_plausible=None if sure is None else sure.low,
        best_plausible=None if sure is None else sure.high,
        p=PValue(lost.p, pairs.n, "e-value at every look", "less", differing, None),
        p_adjusted=lost.p,
        drop_shown=dropped,
    )


def _not_looked(n: int, rule: GateRule) -> GateDecision:
    return GateDecision(
        verdict=Verdict.INCONCLUSIVE,
        value=None,
        n=n,
        method="none: too few cases",
        interval=None,
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
    )


def planned_levels(looks: int, *, alpha: float = 0.05) -> tuple[float, ...]:
    """Return the one-sided level of each of K equally spaced analyses (O'Brien-Fleming 1979)."""
    if not 1 <= looks <= 20:
        raise ValueError(f"there are 1 to 20 looks, not {looks!r}")
    if looks == 1:
        return (alpha,)
    if abs(alpha - 0.05) < TIE and looks in _OBRIEN_FLEMING:
        return _OBRIEN_FLEMING[looks]
    constant = _boundary(looks, alpha)
    steps = np.arange(1, looks + 1)
    return tuple(special.ndtr(-constant * np.sqrt(looks / steps)).tolist())


def _cluster_means(differences: Floats, clusters: Sequence[str] | None) -> Array:
    d = np.asarray(differences, dtype=np.float64)
    if clusters is None:
        return d
    if len(clusters) != d.size:
        raise ValueError(f"{d.size} differences but {len(clusters)} clusters")
    members: dict[str, list[float]] = {}
    for value, name in zip(d.tolist(), clusters, strict=True):
        members.setdefault(name, []).append(value)
    return np.array([math.fsum(values) / len(values) for values in members.values()])


@cache
def _boundary(looks: int, alpha: float) -> float:
    """Return C for which K analyses at C sqrt(K/k) together have one-sided error alpha."""
    low, high = float(special.ndtri(1 - alpha)), float(special.ndtri(1 - alpha / looks)) + 1
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if _crossing(looks, middle) > alpha else (low, middle)
    return high


def _crossing(looks: int, constant: float) -> float:
    """Return the chance that a normal random walk passes C sqrt(K) within K steps.

    Armitage, McPherson and Rowe (1969): the density of the walk that has not crossed yet is
    carried from look to look, here on Gauss-Legendre nodes.
    """
    ceiling = constant * math.sqrt(looks)
    floor = -9.0 * math.sqrt(looks)
    nodes, weights = _nodes()
    points = floor + (nodes + 1) * (ceiling - floor) / 2
    weights = weights * (ceiling - floor) / 2
    step = _density(points[:, None] - points[None, :])
    inside, crossed = _density(points), float(special.ndtr(-ceiling))
    for _ in range(looks - 1):
        crossed += float((inside * weights) @ special.ndtr(points - ceiling))
        inside = step @ (inside * weights)
    return crossed


@cache
def _nodes() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(160)


def _density(x: Array) -> Array:
    return np.asarray(np.exp(-x * x / 2) / math.sqrt(2 * math.pi))
