"""Cost, tokens, latency and head-to-head wins against their margins."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.numeric import NOISE, TOLERANCE, exceeds
from edison_ci.records import Verdict
from edison_ci.stats.arrays import (
    Range,
    bounded,
    dot,
    finite,
    grouped,
    mean_of,
    np,
    special,
    sum_of,
)
from edison_ci.stats.gates import decide
from edison_ci.stats.paired import Pairs, mean_error
from edison_ci.stats.permutation import paired_p
from edison_ci.stats.power import MOST_CASES
from edison_ci.stats.scores import Estimate
from edison_ci.stats.verdicts import GateDecision, GateRule, Missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.arrays import Array, Floats

FEWEST_FOR_TAIL, FEWEST_FOR_TAIL_GATE = 60, 200
"""Calls below which p95 is not given, and below which it only advises."""


@dataclass(frozen=True, slots=True)
class AmountRule:
    """How much more of something a head may use; 0.1 is 10% more."""

    margin: float = 0.10
    confidence: float = 0.95
    power: float = 0.8

    @property
    def alpha(self) -> float:
        """The error that is allowed: 1 - confidence."""
        return round(1 - self.confidence, 12)


def decide_amount(
    pairs: Pairs, rule: AmountRule | None = None, *, rng: np.random.Generator
) -> GateDecision:
    """Decide a relative margin on cost or tokens (STATS 7b); `pairs` holds the amounts."""
    rule = rule or AmountRule()
    base, head = pairs.means("base"), pairs.means("head")
    if np.any(base < 0) or np.any(head < 0):
        raise ValueError("amounts are never negative")
    scale = max(float(base.max(initial=0)), float(head.max(initial=0)))
    over = mean_error(grouped(head - (1 + rule.margin) * base, pairs.clusters))
    more = mean_error(grouped(head - base, pairs.clusters))
    if over is None or more is None or scale == 0:
        return _no_amounts(pairs, rule, nothing=scale == 0 and pairs.n >= 2)
    p = paired_p(_scaled(pairs, scale), rng=rng, side="greater")
    means = mean_of(base), mean_of(head)
    dearer = exceeds(means[1], (1 + rule.margin) * means[0]) and more.lower(rule.alpha) > 0
    verdict = Verdict.INCONCLUSIVE
    if over.upper(rule.alpha) < -NOISE * scale:
        verdict = Verdict.PASS
    elif dearer and p.value <= rule.alpha:
        verdict = Verdict.FAIL
    needed = _cases_for_amount(over.se * math.sqrt(pairs.n), rule.margin * means[0], rule)
    moments = _moments(base, head, pairs.clusters)
    both, one_sided = (moments.ratio_range(tail) for tail in (rule.alpha / 2, rule.alpha))
    return GateDecision(
        verdict=verdict,
        value=means[1] / means[0] - 1 if means[0] > 0 else None,
        n=pairs.n,
        method=f"paired t bounds of head minus {1 + rule.margin:g} times base; {p.method}",
        interval=None if both is None else Range(both.low - 1, both.high - 1),
        level=rule.confidence,
        margin=rule.margin,
        kind="relative",
        alpha=rule.alpha,
        worst_plausible=None if one_sided is None else one_sided.high - 1,
        best_plausible=None if one_sided is None else one_sided.low - 1,
        p=p,
        tests="any increase",
        p_adjusted=p.value,
        n_needed=needed,
        n_more=_more(needed, pairs.n) if verdict is Verdict.INCONCLUSIVE else None,
        notes=() if pairs.n >= 10 else ("very few cases",),
    )


def points_margin(relative: float, base_scores: Floats) -> float:
    """Turn a relative margin on a score into points: the share of the base's mean."""
    scores = bounded(base_scores, "scores", low=0, high=1)
    if not scores.size:
        raise ValueError("a relative margin needs scores of the base")
    return relative * mean_of(scores)


def margin_in_points(value: float, pairs: Pairs, *, relative: bool) -> float:
    """Return a margin in points of 0-1, never quite 0 or 1, which no bound can keep exactly."""
    points = points_margin(value, pairs.means("base")) if relative and pairs.n else value
    return min(max(points, TOLERANCE), 1 - TOLERANCE)


def decide_win_rate(
    wins: Floats,
    rule: GateRule | None = None,
    *,
    rng: np.random.Generator,
    clusters: Sequence[str] | None = None,
    missing: int = 0,
) -> GateDecision:
    """Decide that the head is not beaten by the base: w_i against one half (STATS 7b, 11).

    A case can lose at most half a win against a tie, so the unseen case drops by no more.
    """
    rule = rule or GateRule()
    w = bounded(wins, "wins", low=0, high=1)
    pairs = Pairs.of([0.5] * w.size, w.tolist(), clusters)
    rule = replace(rule, worst_case_drop=min(0.5, rule.worst_case_drop))
    worst = None
    if missing:
        alone = tuple(f"\0missing {index}" for index in range(missing))
        groups = None if clusters is None else (*clusters, *alone)
        worst = Pairs.of([0.5] * (w.size + missing), [*w.tolist(), *[0.0] * missing], groups)
    decision = decide(pairs, rule, rng=rng, missing=Missing(missing, missing, worst))
    return replace(decision, tests="a win rate below 50%" if decision.p else "")


@dataclass(frozen=True, slots=True)
class Tail(Estimate):
    """A high quantile of latencies, with the order statistics between which it likely lies.

    The value is None below 60 calls; `n` are the calls.
    """

    advisory: bool
    """Below 200 calls it informs and never decides."""


def tail_latency(latencies: Floats, *, share: float = 0.95, level: float = 0.95) -> Tail:
    """Return the p95 (or another high quantile) of live calls as an order statistic."""
    values = np.sort(finite(latencies, "latencies"))
    n = values.size
    advisory = n < FEWEST_FOR_TAIL_GATE
    if n < FEWEST_FOR_TAIL:
        return Tail(None, n, f"none below {FEWEST_FOR_TAIL} calls", None, level, advisory)
    rank = math.ceil(share * n - TOLERANCE)
    # The quantile lies below the k-th value exactly when fewer than k calls were faster than it.
    below = special.bdtr(np.arange(n), n, share)
    tail = (1 - level) / 2
    lower, upper = int(np.count_nonzero(below <= tail)), int(np.count_nonzero(below < 1 - tail)) + 1
    interval = None
    if lower >= 1 and upper <= n:
        interval = Range(float(values[lower - 1]), float(values[upper - 1]))
    return Tail(float(values[rank - 1]), n, "order statistic", interval, level, advisory)


def decide_tail(base: Floats, head: Floats, *, margin: float = 0.10) -> GateDecision:
    """Compare two p95s as they are; it advises below 200 live calls, and is open below 60."""
    tails = tail_latency(base), tail_latency(head)
    values = tails[0].value, tails[1].value
    verdict, change = Verdict.INCONCLUSIVE, None
    if values[0] is not None and values[1] is not None:
        verdict = Verdict.FAIL if exceeds(values[1], (1 + margin) * values[0]) else Verdict.PASS
        change = values[1] / values[0] - 1 if values[0] > 0 else None
    n = min(tail.n for tail in tails)
    advisory = any(tail.advisory for tail in tails)
    return GateDecision(
        verdict=verdict,
        value=change,
        n=n,
        method="p95 compared as it is",
        level=1.0,
        margin=margin,
        kind="relative",
        n_more=max(1, FEWEST_FOR_TAIL - n) if verdict is Verdict.INCONCLUSIVE else None,
        notes=("advisory: fewer than 200 calls",) if advisory else (),
    )


class _Moments(NamedTuple):
    """Means of base and head, with the variances and covariance of those means."""

    base: float
    head: float
    bb: float
    hh: float
    hb: float
    df: int

    def ratio_range(self, tail: float) -> Range | None:
        """Return the limits of head / base with this error in each tail (Fieller 1954)."""
        square = float(special.stdtrit(self.df, 1 - tail)) ** 2
        a = self.base**2 - square * self.bb
        b = self.head * self.base - square * self.hb
        c = self.head**2 - square * self.hh
        if a <= 0:
            return None
        root = math.sqrt(max(0.0, b * b - a * c))
        return Range((b - root) / a, (b + root) / a)


def _moments(base: Array, head: Array, clusters: Sequence[str] | None) -> _Moments:
    means, residuals = [], []
    for side in (base, head):
        sums, sizes = grouped(side, clusters)
        means.append(sum_of(sums) / sum_of(sizes))
        residuals.append((sums - sizes * means[-1]) / sum_of(sizes))
    groups = residuals[0].size
    bb, hh, hb = (
        groups / (groups - 1) * dot(residuals[i], residuals[j]) for i, j in ((0, 0), (1, 1), (1, 0))
    )
    return _Moments(means[0], means[1], bb, hh, hb, groups - 1)


def _scaled(pairs: Pairs, scale: float) -> Pairs:
    """Return amounts between 0 and 1, so that the tolerances for ties suit micro-dollars too."""
    base, head = (
        tuple(tuple(amount / scale for amount in case) for case in side)
        for side in (pairs.base, pairs.head)
    )
    return Pairs(base, head, pairs.clusters)


def _cases_for_amount(sd: float, allowance: float, rule: AmountRule) -> int | None:
    """Return the cases at which an unchanged head likely passes."""
    if allowance <= 0:
        return None
    z = float(special.ndtri(rule.power))
    ratio = sd / allowance
    n = max(
        2, math.ceil(min(((float(special.ndtri(rule.confidence)) + z) * ratio) ** 2, MOST_CASES))
    )
    while n < MOST_CASES and (
        float(special.stdtrit(n - 1, rule.confidence)) + z
    ) * ratio >= math.sqrt(n):
        n += 1
    return n if n < MOST_CASES else None


def _more(needed: int | None, n: int) -> int | None:
    return None if needed is None else max(1, needed - n)


def _no_amounts(pairs: Pairs, rule: AmountRule, *, nothing: bool) -> GateDecision:
    return GateDecision(
        verdict=Verdict.PASS if nothing else Verdict.INCONCLUSIVE,
        value=0.0 if nothing else None,
        n=pairs.n,
        method="none: nothing was spent" if nothing else "none: too few cases",
        level=rule.confidence,
        margin=rule.margin,
        kind="relative",
        notes=("nothing was spent on either side",) if nothing else ("very few cases",),
    )
