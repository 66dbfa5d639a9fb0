"""Scores and pass rates against a level that is asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.rounding import exceeds, reaches
from edison_ci.stats.arrays import TIE, Range, variance_of
from edison_ci.stats.intervals import (
    clustered_interval,
    equal_interval,
    exact_pass_bounds,
    mean_bounds,
    mean_interval,
    pass_interval,
    score_interval,
)
from edison_ci.stats.libraries import np, special
from edison_ci.stats.power import MOST_CASES
from edison_ci.stats.verdicts import GateDecision, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.stats.arrays import Floats
    from edison_ci.stats.intervals import Interval


@dataclass(frozen=True, slots=True)
class Limit:
    """A level and the side of it that is wanted."""

    value: float
    wanted: Literal["at_least", "at_most"] = "at_least"

    def verdict(self, bounds: Range) -> Verdict:
        """Pass when the worse bound keeps the limit, fail when not even the better one does."""
        if self.wanted == "at_least":
            passes, fails = reaches(bounds.low, self.value), not reaches(bounds.high, self.value)
        else:
            passes, fails = not exceeds(bounds.high, self.value), exceeds(bounds.low, self.value)
        if passes:
            return Verdict.PASS
        return Verdict.FAIL if fails else Verdict.INCONCLUSIVE


def decide_pass_level(
    passes: int, n: int, limit: Limit, *, confidence: float = 0.95
) -> GateDecision:
    """Decide a floor or ceiling of a pass rate by one-sided Clopper-Pearson bounds (STATS 5)."""
    shown = pass_interval(passes, n, level=confidence)
    if shown is None or n < 2:
        return _undecidable(shown, limit, confidence)
    bounds = Range(*exact_pass_bounds(passes, n, level=confidence))
    alpha, rate = 1 - confidence, passes / n

    def bounds_at(cases: int) -> Range:
        k = rate * cases
        low = float(special.betaincinv(k, cases - k + 1, alpha)) if k > 0 else 0.0
        high = float(special.betaincinv(k + 1, cases - k, 1 - alpha)) if k < cases else 1.0
        return Range(low, high)

    return _decision(shown, bounds, limit, _Plan("one-sided Clopper-Pearson", bounds_at))


def decide_score_level(
    case_scores: Floats,
    limit: Limit,
    *,
    clusters: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> GateDecision:
    """Decide a floor or ceiling of a mean by the one-sided bounds of STATS 4.1.

    It serves scores, and pass shares of cases with several draws.
    """
    if clusters is None:
        shown = mean_interval(case_scores, level=confidence)
    else:
        shown = clustered_interval(case_scores, clusters, level=confidence)
    sides = mean_bounds(case_scores, clusters=clusters, level=confidence)
    bounds = None if sides is None else sides.interval
    if shown is None or bounds is None:
        return _undecidable(shown, limit, confidence)
    scores = np.asarray(case_scores, dtype=np.float64)
    variance, share = variance_of(scores), 1.0
    if clusters is not None:
        share = len(set(clusters)) / scores.size

    def bounds_at(cases: int) -> Range:
        units, two_sided = max(2, math.floor(cases * share)), 2 * confidence - 1
        if variance < TIE:
            found = equal_interval(shown.estimate, cases, units=units, level=two_sided)
        else:
            found = score_interval(
                shown.estimate, variance / units, cases, df=units - 1, level=two_sided
            )
        return found.interval or bounds

    return _decision(shown, bounds, limit, _Plan("one-sided effective-n Wilson", bounds_at))


def decide_as_is(
    value: float | None, n: int, limit: Limit, *, advisory: bool = False
) -> GateDecision:
    """Compare a number of this run with its limit, without inference (STATS 7b).

    It serves errors, safety, amounts and latency. None is a number that could not be measured.
    """
    verdict = Verdict.INCONCLUSIVE
    if value is not None and n > 0:
        verdict = limit.verdict(Range(value, value))
    notes = ("advisory: few calls",) if advisory else ()
    return GateDecision(
        verdict=verdict,
        value=value,
        n=n,
        method="compared as it is",
        interval=None,
        level=1.0,
        margin=limit.value,
        kind="level",
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    method: str
    bounds_at: Callable[[int], Range]
    """The bounds that more cases would give if they were like these."""


def _decision(shown: Interval, bounds: Range, limit: Limit, plan: _Plan) -> GateDecision:
    verdict, n = limit.verdict(bounds), shown.n
    needed = None
    if verdict is Verdict.INCONCLUSIVE and abs(shown.estimate - limit.value) > TIE:
        needed = _settled_at(lambda cases: limit.verdict(plan.bounds_at(cases)), n)
    low_is_bad = limit.wanted == "at_least"
    return GateDecision(
        verdict=verdict,
        value=shown.estimate,
        n=n,
        method=plan.method,
        interval=shown.interval,
        level=shown.level,
        margin=limit.value,
        kind="level",
        worst_plausible=bounds.low if low_is_bad else bounds.high,
        best_plausible=bounds.high if low_is_bad else bounds.low,
        n_needed=needed,
        n_more=None if needed is None else max(1, needed - n),
        notes=() if n >= 10 else ("very few cases",),
    )


def _settled_at(verdict_at: Callable[[int], Verdict], n: int) -> int | None:
    """Return about the cases at which a verdict would come if the rest were like these."""
    low, high = n, min(2 * n, MOST_CASES)
    while verdict_at(high) is Verdict.INCONCLUSIVE:
        if high == MOST_CASES:
            return None
        low, high = high, min(2 * high, MOST_CASES)
    while high - low > 1:
        middle = (low + high) // 2
        if verdict_at(middle) is Verdict.INCONCLUSIVE:
            low = middle
        else:
            high = middle
    return high


def _undecidable(shown: Interval | None, limit: Limit, confidence: float) -> GateDecision:
    return GateDecision(
        verdict=Verdict.INCONCLUSIVE,
        value=None if shown is None else shown.estimate,
        n=0 if shown is None else shown.n,
        method="none: too few cases",
        interval=None,
        level=confidence,
        margin=limit.value,
        kind="level",
        notes=("very few cases",),
    )
