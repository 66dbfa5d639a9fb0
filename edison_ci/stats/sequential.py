"""Sequential tests: whether one may stop already, and what is known so far.

Looking twice at fixed tests costs: re-applied every 20 cases they fail an unchanged candidate two
or three times too often. Either the evidence is valid at any time, or the looks are planned.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import TIE, bounded, mean_of
from edison_ci.stats.evidence import always_valid_interval, evidence, log_capital
from edison_ci.stats.gates import decide
from edison_ci.stats.libraries import np, special
from edison_ci.stats.paired import paired_difference
from edison_ci.stats.permutation import PValue
from edison_ci.stats.verdicts import GateDecision, GateRule, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.arrays import Array, Floats, Range
    from edison_ci.stats.paired import Pairs

BATCH = 20
MORE_DRAWS_LOOKS = 3
"""`if_unclear: more_draws` looks at 1, 2 and 3 times the draws."""
_MOST_FOR_INTERVAL = 20_000
"""Above so many cases no always-valid interval is worked out: it would take a gigabyte."""
_OBRIEN_FLEMING = {
    2: (0.0088, 0.0467),
    3: (0.0015, 0.0181, 0.0437),
    4: (0.00026, 0.0071, 0.0227, 0.0415),
    5: (0.00005, 0.0028, 0.0119, 0.0251, 0.0400),
}
"""Nominal one-sided levels for alpha .05 (Jennison and Turnbull 2000)."""


@dataclass(frozen=True, slots=True)
class AnytimeDecision:
    """What cases that come one after another say at the looks taken so far."""

    verdict: Verdict
    value: float | None
    n: int
    """Cases used: up to the look that decided, else all there are."""
    method: str
    interval: Range | None
    """Valid over all the looks, and so wider than a fixed one."""
    level: float
    margin: float
    n_max: int
    looks: tuple[int, ...]
    """The numbers of cases at which one has looked."""
    log_e_pass: float
    """Largest log e-value over the looks against "dropped by the margin or more"."""
    log_e_fail: float
    """Largest log e-value over the looks against "not worse"."""

    @property
    def go_on(self) -> bool:
        """Whether further cases should be evaluated."""
        return self.verdict is Verdict.INCONCLUSIVE and self.n < self.n_max

    @property
    def saved(self) -> float:
        """The share of the planned cases that were not needed."""
        return 0.0 if self.go_on else 1 - self.n / self.n_max


def decide_anytime(
    differences: Floats,
    rule: GateRule | None = None,
    *,
    n_max: int,
    batch: int = BATCH,
    clusters: Sequence[str] | None = None,
) -> AnytimeDecision:
    """Decide at the first look that is clear (STATS 9); differences in the shuffled order.

    The error is kept for any bounded scores and any number of looks. Clusters count by their
    means, in order of appearance, and `n_max` and `batch` then count clusters. An undecided end
    stays inconclusive: a fixed test on the same data would be one look too many, unless both were
    given half the error beforehand (`halved`).
    """
    rule = rule or GateRule()
    if n_max < 2 or batch < 1:
        raise ValueError(f"n_max is at least 2 and batch at least 1, not {n_max!r} and {batch!r}")
    d = bounded(_cluster_means(differences, clusters), "differences", low=-1, high=1)[:n_max]
    verdict, taken, best = _first_clear(d, rule, [*range(batch, n_max, batch), n_max])
    n = taken[-1] if verdict is not Verdict.INCONCLUSIVE else d.size
    return AnytimeDecision(
        verdict=verdict,
        value=mean_of(d[:n]) if n else None,
        n=n,
        method="e-values at every look",
        interval=always_valid_interval(d[:n], looks=taken, level=rule.confidence),
        level=rule.confidence,
        margin=rule.margin,
        n_max=n_max,
        looks=tuple(taken),
        log_e_pass=best[0],
        log_e_fail=best[1],
    )


def decide_look(
    pairs: Pairs,
    rule: GateRule | None = None,
    *,
    looks: Sequence[int],
    share: float | None = None,
) -> GateDecision:
    """Decide at the last of several looks at cases that come one after another (STATS 9).

    The rule is that of `decide_anytime`, as a gate that other gates are allowed for: its p-value,
    1 / the largest e-value against "not worse", holds at any time. Pairs are in the order in which
    they came; `looks` counts them, or their clusters. A relative margin is given as `share` of the
    base: then "head is at most 1 - share times base" is tested, which no mean has to be known for.
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


def _first_clear(
    d: Array, rule: GateRule, looks: Sequence[int]
) -> tuple[Verdict, list[int], tuple[float, float]]:
    """Return the first verdict, the looks taken for it, and the largest log e-values."""
    passed = log_capital(d, null="at most", mean=-rule.margin)
    limit = -rule.margin if rule.fail_rule == "beyond_margin" else 0.0
    failed = log_capital(d, null="at least", mean=limit)
    target, for_pass, for_fail = math.log(1 / rule.alpha), 0.0, 0.0
    taken: list[int] = []
    for look in looks:
        if look > d.size:
            break
        taken.append(look)
        for_pass = max(for_pass, float(passed[look - 1]))
        for_fail = max(for_fail, float(failed[look - 1]))
        if for_pass >= target:
            return Verdict.PASS, taken, (for_pass, for_fail)
        if for_fail >= target and mean_of(d[:look]) <= -rule.margin + TIE:
            return Verdict.FAIL, taken, (for_pass, for_fail)
    return Verdict.INCONCLUSIVE, taken, (for_pass, for_fail)


def halved(rule: GateRule) -> GateRule:
    """Return the rule at half its error, for a split declared before the first look.

    One half goes to `decide_anytime`, the other to `gates.decide` at the end.
    """
    return replace(rule, confidence=1 - rule.alpha / 2)


def sampling_order(case_ids: Sequence[str], *, rng: np.random.Generator) -> tuple[str, ...]:
    """Return the cases in the random order in which they are evaluated, never easy ones first."""
    ordered = sorted(case_ids)
    return tuple(ordered[index] for index in rng.permutation(len(ordered)))


def planned_levels(looks: int, *, alpha: float = 0.05) -> tuple[float, ...]:
    """Return the one-sided level of each of K looks at equal steps (O'Brien and Fleming 1979)."""
    if not 1 <= looks <= 20:
        raise ValueError(f"there are 1 to 20 looks, not {looks!r}")
    if looks == 1:
        return (alpha,)
    if abs(alpha - 0.05) < TIE and looks in _OBRIEN_FLEMING:
        return _OBRIEN_FLEMING[looks]
    constant = _boundary(looks, alpha)
    steps = np.arange(1, looks + 1)
    return tuple(special.ndtr(-constant * np.sqrt(looks / steps)).tolist())


def decide_planned(
    pairs: Pairs,
    rule: GateRule | None = None,
    *,
    look: int,
    looks: int = MORE_DRAWS_LOOKS,
    rng: np.random.Generator,
) -> GateDecision:
    """Decide at one of the planned looks, counted from 1, at the level of that look.

    `if_unclear: more_draws` is three looks at 1, 2 and 3 times the draws of every case on both
    sides. The interval that is shown keeps the gate's own level.
    """
    rule = rule or GateRule()
    if not 1 <= look <= looks:
        raise ValueError(f"look {look!r} is not one of {looks!r}")
    level = planned_levels(looks, alpha=rule.alpha)[look - 1]
    found = decide(pairs, replace(rule, confidence=1 - level), rng=rng)
    shown = paired_difference(pairs.differences, clusters=pairs.clusters, level=rule.confidence)
    return replace(
        found,
        interval=None if shown is None else shown.interval,
        level=rule.confidence,
        notes=(*found.notes, f"look {look} of {looks} that were planned"),
    )


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
    """Return C for which K looks at C sqrt(K/k) together have one-sided error alpha."""
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
