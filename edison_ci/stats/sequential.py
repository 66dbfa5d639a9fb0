"""Sequential tests: whether one may stop already, and what is known so far.

Looking twice at fixed tests costs: re-applied every 20 cases they fail an unchanged candidate two
or three times too often. Either the evidence is valid at any time, or the looks are planned.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.records import Verdict
from edison_ci.stats.arrays import TIE, Range, bounded, dot, np, special, sum_of
from edison_ci.stats.permutation import PValue
from edison_ci.stats.power import smallest_count
from edison_ci.stats.verdicts import GateDecision, GateRule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from edison_ci.stats.arrays import Array, Floats
    from edison_ci.stats.paired import Pairs


BETS = (0.05, 0.10, 0.175, 0.275, 0.40, 0.55, 0.75, 0.95)
"""Shares of the capital that are bet; their gamblers' capitals are averaged."""
_STEPS = 400
"""Steps on [-1, 1] of the means that an always-valid interval tries."""
_STEP = 2 / _STEPS
_MOST_FOR_INTERVAL = 20_000

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


class Units(NamedTuple):
    """What bets are made on: cases, or means of clusters, in the order in which they came."""

    means: Array
    sizes: Array
    """Cases in each."""
    planned: Mapping[int, int]
    """Number of planned clusters by size; those still to come count too."""

    @classmethod
    def of(
        cls,
        values: Floats,
        clusters: Sequence[str] | None,
        planned: Mapping[int, int] | None = None,
    ) -> Units:
        """Return cases as units of independent bets; without `planned` these are all."""
        d = np.asarray(values, dtype=np.float64)
        if clusters is None:
            return cls(d, np.ones(d.size), {1: d.size})
        if len(clusters) != d.size:
            raise ValueError(f"{d.size} values but {len(clusters)} clusters")
        members: dict[str, list[float]] = {}
        for value, name in zip(d.tolist(), clusters, strict=True):
            members.setdefault(name, []).append(value)
        sizes = [len(group) for group in members.values()]
        means = np.array([math.fsum(group) / len(group) for group in members.values()])
        return cls(means, np.array(sizes, dtype=np.float64), planned or Counter(sizes))

    @property
    def mean(self) -> float:
        """The mean over cases."""
        return dot(self.means, self.sizes) / sum_of(self.sizes)

    def strata(self) -> list[_Stratum]:
        """Return clusters of similar size, each with its share of the planned cases."""
        bins = Counter[int]()
        largest: dict[int, int] = {}
        # A cluster whose answers are partly lost is smaller than it was planned.
        sizes = {*self.planned, *(int(size) for size in self.sizes)}
        for size in sizes:
            place = (size - 1).bit_length()
            bins[place] += size * self.planned.get(size, 0)
            largest[place] = max(size, largest.get(place, 0))
        total = sum(bins.values())
        places = np.array([(int(size) - 1).bit_length() for size in self.sizes])
        return [
            _Stratum(np.flatnonzero(places == place), largest[place], bins[place] / total)
            for place in sorted(bins)
            if bins[place]
        ]


class _Stratum(NamedTuple):
    """Clusters of 1, 2, 3 to 4, 5 to 8 cases and so on."""

    members: NDArray[np.intp]
    largest: int
    share: float
    """Share of the planned cases."""


def log_capital(differences: Floats, *, null: Null, mean: float) -> Array:
    """Return the log e-value against "the mean is at most (or at least) `mean`", case by case."""
    d = bounded(differences, "differences", low=-1, high=1)
    if not -1 < mean < 1:
        raise ValueError(f"a mean difference lies between -1 and 1, not {mean!r}")
    return _capital(d[:, None] - mean, null=null, means=np.array([mean]))[:, 0]


def evidence(
    units: Units | Floats, *, null: Null, mean: float, looks: Sequence[int] | None = None
) -> Evidence:
    """Return the evidence against a claim at the last look; `looks` are numbers of units.

    Without `looks` there is one, at the end.
    """
    units = units if isinstance(units, Units) else Units.of(units, None)
    n = units.means.size
    taken = [look for look in (looks or [n]) if 0 < look <= n]
    log_values = [0.0]
    if taken and len(units.strata()) == 1 and np.ptp(units.sizes) == 0:
        whole = log_capital(units.means, null=null, mean=mean)
        log_values = [float(whole[look - 1]) for look in taken]
    elif taken:
        table = _capital_by_mean(units, null=null, looks=taken)
        place = (
            math.ceil((mean + 1) / _STEP) if null == "at most" else math.floor((mean + 1) / _STEP)
        )
        log_values = table[:, place].tolist()
    return Evidence(
        value=math.exp(log_values[-1]) if log_values[-1] < 700 else math.inf,
        log_value=log_values[-1],
        n=n,
        method=f"mixture of {len(BETS)} bets against a mean {null} {mean:g}",
        p=min(1.0, math.exp(-max(log_values))),
    )


def always_valid_interval(
    units: Units | Floats, *, looks: Sequence[int] | None = None, level: float = 0.95
) -> Range | None:
    """Return an interval for the mean over cases that stays valid over all the looks.

    None without a case, and for more than 20,000, where it would take a gigabyte. Each end is the
    outermost mean on a grid of 0.005 that no look has refused at half the error, rounded outwards.
    """
    units = units if isinstance(units, Units) else Units.of(units, None)
    n = units.means.size
    taken = [look for look in (looks or [n]) if 0 < look <= n]
    if not taken or n > _MOST_FOR_INTERVAL:
        return None
    threshold = math.log(2 / (1 - level))
    low_refused, high_refused = (
        _capital_by_mean(units, null=null, looks=taken).max(axis=0)[1:-1] >= threshold
        for null in _NULLS
    )
    grid = _grid()[1:-1]
    return Range(
        float(grid[low_refused].max(initial=-1.0)), float(grid[high_refused].min(initial=1.0))
    )


# Bets on clusters of one size have their expectation on the mean of those clusters. The mean over
# cases is that of the sizes' means, weighted by their shares of the cases, and is at most m only if
# those are at most some m1, m2, ... that average to m. So the evidence against it is the smallest
# over all such ways, each the product over the sizes (Spertus and Stark 2022). Betting on all
# clusters alike by size is valid as well; then no stake is larger than what the largest cluster can
# lose, which is better where sizes are many. Half of the capital is bet in each way.
def _capital_by_mean(units: Units, *, null: Null, looks: Sequence[int]) -> Array:
    """Return log capitals after each look against each mean of the grid; (looks, means)."""
    strata = units.strata()
    apart = _capital_of(strata, units, null=null, looks=looks)
    if len(strata) == 1:
        return apart
    largest = max(stratum.largest for stratum in strata)
    alike = [_Stratum(np.arange(units.means.size), largest, 1.0)]
    together = _capital_of(alike, units, null=null, looks=looks)
    return np.asarray(np.logaddexp(apart, together) - math.log(2))


def _capital_of(
    strata: Sequence[_Stratum], units: Units, *, null: Null, looks: Sequence[int]
) -> Array:
    d = bounded(units.means, "differences", low=-1, high=1)
    total, share = np.zeros((len(looks), _STEPS + 1)), 0.0
    for stratum in strata:
        members = stratum.members
        ends = np.searchsorted(members, looks).tolist()
        weights = units.sizes[members] / stratum.largest
        table = _stratum_capital(d[members], weights, null=null, ends=ends)
        total = table if not share else _split(total, share, table, stratum.share, null=null)
        share += stratum.share
    return total


def _stratum_capital(d: Array, weights: Array, *, null: Null, ends: Sequence[int]) -> Array:
    """Return log capitals of clusters of similar size after some numbers of them."""
    grid = _grid()
    capital = np.zeros((len(ends), grid.size))
    if not d.size:
        return capital
    gaps = weights[:, None] * (d[:, None] - grid[None, :])
    inner = slice(1, None) if null == "at most" else slice(None, -1)
    distinct = sorted({end for end in ends if end})
    if distinct:
        rows = _capital(gaps[:, inner], null=null, means=grid[inner], looks=distinct)
        place = dict(zip(distinct, rows, strict=True))
        for index, end in enumerate(ends):
            if end:
                capital[index, inner] = place[end]
                # No mean lies beyond the end of the scale, and any score refutes it.
                lost = -1.0 if null == "at most" else 1.0
                capital[index, 0 if null == "at most" else -1] = (
                    np.inf if np.any(np.abs(d[:end] - lost) > TIE) else 0.0
                )
    return capital


def _split(one: Array, w: float, other: Array, v: float, *, null: Null) -> Array:
    """Return the smallest sum of two log capitals over ways to split a mean between two parts."""
    grid, (steps, whole) = _grid(), (_STEPS, w + v)
    smallest = np.full_like(one, np.inf)
    for index, mean in enumerate(grid.tolist()):
        rest = (mean * whole - w * grid) / v
        places = (rest + 1) / _STEP
        rounded = np.ceil(places - 1e-9) if null == "at most" else np.floor(places + 1e-9)
        fits = (rounded >= 0) & (rounded <= steps)
        # What is beyond the scale cannot be made up for by the other part.
        chosen = rounded[fits].astype(np.intp)
        if chosen.size:
            smallest[:, index] = (one[:, fits] + other[:, chosen]).min(axis=1)
    return smallest


@cache
def _grid() -> Array:
    return np.linspace(-1, 1, _STEPS + 1)


def cases_for_evidence(
    units: Units, *, margin: float, alpha: float = 0.05, power: float = 0.8
) -> int | None:
    """Return about how many units give an unchanged candidate its e-value with chance `power`.

    The differences, moved to mean 0, are used for those to come; with ties only it is exact. None
    beyond `MOST_CASES`.
    """
    d = bounded(units.means, "differences", low=-1, high=1)
    centred = np.clip(d - units.mean, -1, 1) if d.size else np.zeros(1)
    bets = np.array(BETS)
    growth = np.log1p(bets / (1 - margin) * (centred[:, None] + margin))
    drift, noise = growth.mean(axis=0), growth.std(axis=0)
    target, z = math.log(1 / alpha), float(special.ndtri(power))

    def enough(n: int) -> bool:
        reached = n * drift - z * math.sqrt(n) * noise
        return float(np.logaddexp.reduce(reached)) - math.log(len(BETS)) >= target

    return smallest_count(enough)


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


def decide_look(
    pairs: Pairs,
    rule: GateRule | None = None,
    *,
    looks: Sequence[int],
    share: float | None = None,
    planned: Mapping[int, int] | None = None,
) -> GateDecision:
    """Decide at the last of several interim analyses of sequential cases (STATS 9).

    Its p-value, 1 / the largest e-value against "not worse", holds at any time, so that other gates
    can be allowed for. An undecided end stays inconclusive: a fixed test on the same data would be
    one interim analysis too many. Pairs are in the order in which they came; `looks` counts them
    or their clusters, and `planned` has the number of all planned clusters by size. A relative
    margin is given as `share` of the base: then "head is at most
    1 - share times base" is tested, which no mean has to be known for.
    """
    rule = rule or GateRule()
    bases, heads = pairs.sides
    units = Units.of(heads - bases, pairs.clusters, planned)
    d, margin, kept = units.means, rule.margin, units
    if share is not None:
        margin = share
        kept = Units.of(heads - (1 - share) * bases - share, pairs.clusters, planned)
    taken = sorted({look for look in looks if 0 < look <= d.size})
    if not taken:
        return _not_looked(pairs.n, rule)
    passed = evidence(kept, null="at most", mean=-margin, looks=taken)
    beyond = rule.fail_rule == "beyond_margin"
    lost = evidence(
        kept if beyond else units, null="at least", mean=-margin if beyond else 0.0, looks=taken
    )
    dropped = kept.mean <= -margin + TIE
    verdict = Verdict.PASS if passed.p <= rule.alpha else Verdict.INCONCLUSIVE
    if verdict is not Verdict.PASS and dropped and lost.p <= rule.alpha:
        verdict = Verdict.FAIL
    interval, sure = (
        always_valid_interval(units, looks=taken, level=level)
        for level in (rule.confidence, 1 - 2 * rule.alpha)
    )
    differing = int(np.count_nonzero(np.abs(d) > TIE))
    return GateDecision(
        verdict=verdict,
        value=units.mean,
        n=pairs.n,
        method="sequential test (e-values), valid at every look",
        interval=interval,
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
        worst_plausible=None if sure is None else sure.low,
        best_plausible=None if sure is None else sure.high,
        p=PValue(lost.p, pairs.n, "sequential test (e-values)", "less", differing, None),
        tests=rule.sequential_question(share),
        p_adjusted=lost.p,
        clusters=None if pairs.clusters is None else d.size,
    )


def _not_looked(n: int, rule: GateRule) -> GateDecision:
    return GateDecision(
        verdict=Verdict.INCONCLUSIVE,
        value=None,
        n=n,
        method="none: too few cases",
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
    constant = _boundary(looks, alpha)
    steps = np.arange(1, looks + 1)
    return tuple(special.ndtr(-constant * np.sqrt(looks / steps)).tolist())


def repeated_p(p: float, *, look: int, looks: int) -> float:
    """Return the smallest error alpha at which the planned analyses would reject at this one.

    The p-value of one analysis is valid for that analysis only; this one is valid for all of them
    together, so that it may be compared with alpha, and adjusted by Holm beside others (Jennison
    and Turnbull 2000, chapter 9). Levels of the analysis divided among comparisons would not keep
    alpha: the boundary for alpha / 10 is not a tenth of the boundary's level for alpha.
    """
    if not 1 <= look <= looks <= 20:
        raise ValueError(f"there is no look {look!r} of {looks!r}")
    if looks == 1 or not 0 < p < 1:
        return p
    constant = -float(special.ndtri(p)) * math.sqrt(look / looks)
    return min(1.0, max(p, _crossing(looks, constant)))


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
