"""Gates: non-inferiority of a candidate to its baseline, and levels against a floor or ceiling.

Two promises (STATS 0 and 7): if nothing changed, at most 5% of gates fail, exactly; if quality
dropped by the margin or more, about 5% pass.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.numeric import exceeds, reaches
from edison_ci.records import Verdict
from edison_ci.stats.arrays import TIE, Groups, Range, bounded, grouped, np, special, variance_of
from edison_ci.stats.intervals import (
    clustered_interval,
    equal_interval,
    exact_pass_bounds,
    mean_bounds,
    mean_interval,
    pass_interval,
    score_interval,
)
from edison_ci.stats.paired import (
    PValue,
    mean_error,
    paired_difference,
    paired_p,
)
from edison_ci.stats.power import DEFAULT_SD, MOST_CASES, cases_for_margin, sd_range
from edison_ci.stats.sequential import cases_for_evidence, evidence
from edison_ci.stats.verdicts import MOST_MISSING, WARN_MISSING, GateDecision, GateRule, Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.stats.arrays import Array, Floats
    from edison_ci.stats.intervals import Interval
    from edison_ci.stats.paired import Difference, MeanError, Pairs


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
        return _undecidable_level(shown, limit, confidence)
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

    It serves scores, and pass shares of cases with several repeats.
    """
    if clusters is None:
        shown = mean_interval(case_scores, level=confidence)
    else:
        shown = clustered_interval(case_scores, clusters, level=confidence)
    sides = mean_bounds(case_scores, clusters=clusters, level=confidence)
    bounds = None if sides is None else sides.interval
    if shown is None or bounds is None:
        return _undecidable_level(shown, limit, confidence)
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


def _undecidable_level(shown: Interval | None, limit: Limit, confidence: float) -> GateDecision:
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


# Passing needs every item to pass, each without correction: the chance to pass everything wrongly
# is already at most alpha (intersection-union). Failing uses Holm-adjusted p-values, because among
# many items some would fail by luck.


"""Shares of missing cases above which a gate warns, and above which it never decides."""


_WORST_QUANTILE = 0.05
_FEW = 10
_FEW_UNPAIRED = 10


def decide(
    pairs: Pairs,
    rule: GateRule | None = None,
    *,
    rng: np.random.Generator,
    missing: Missing | None = None,
) -> GateDecision:
    """Decide a gate on the scores of the same cases (STATS 7)."""
    rule, missing = rule or GateRule(), missing or Missing()
    sides = [bounded(side, "scores", low=0, high=1) for side in pairs.sides]
    differences = sides[1] - sides[0]
    found = paired_difference(differences, clusters=pairs.clusters, level=rule.confidence)
    bounds = _bounds(differences, pairs.clusters, rule)
    if found is None or bounds is None:
        return _undecidable(found, rule, missing, n=pairs.n)
    p = paired_p(pairs, rng=rng, side="less")
    if rule.guarantee == "strict":
        bounds, p = _strict(differences, pairs.clusters, rule, bounds)
    drop_shown = _drop_shown(bounds, rule)
    verdict = _verdict(bounds.passes, drop_shown and p.value <= rule.alpha)
    notes = [] if pairs.n >= _FEW else ["very few cases"]
    if verdict is Verdict.PASS and bounds.high < -TIE and p.value <= rule.alpha:
        notes.append("small real drop, inside your tolerance")
    verdict, more = _allow_for_missing(verdict, pairs, rule, missing)
    needed, wanted = _needed(differences, pairs.clusters, rule)
    inconclusive = verdict is Verdict.INCONCLUSIVE
    return GateDecision(
        verdict=verdict,
        value=found.value,
        n=pairs.n,
        method=_method(rule, p),
        interval=found.interval,
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
        worst_plausible=bounds.low,
        best_plausible=bounds.high,
        p=p,
        p_adjusted=p.value,
        drop_shown=drop_shown,
        n_needed=needed,
        n_more=_more(needed, pairs.n) if inconclusive else None,
        n_more_range=wanted if inconclusive and pairs.n < _FEW else None,
        missing=missing.count,
        notes=(*notes, *more),
    )


def identical_outputs(n: int, rule: GateRule | None = None) -> GateDecision:
    """Pass without statistics: the same configuration and stored answers on both sides."""
    rule = rule or GateRule()
    return GateDecision(
        verdict=Verdict.PASS,
        value=0.0,
        n=n,
        method="none: the outputs are the same",
        interval=None,
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
        notes=("nothing to compare: identical outputs by construction",),
    )


def worst_plausible_change(
    differences: Floats, rule: GateRule | None = None, *, clusters: Sequence[str] | None = None
) -> float | None:
    """Return Lw: would the mean still hold if one more case had failed completely?

    Without the extra value a t or bootstrap bound passes suites in which 1 case in 20 breaks,
    whenever the sample happens to hold no break. None below two cases or clusters.
    """
    rule = rule or GateRule()
    error = _with_failed_case(
        grouped(bounded(differences, "differences", low=-1, high=1), clusters), rule
    )
    return None if error is None else error.lower(rule.alpha)


@dataclass(frozen=True, slots=True)
class _Bounds:
    mean: float
    low: float
    high: float
    passes: bool


def _bounds(d: Array, clusters: Sequence[str] | None, rule: GateRule) -> _Bounds | None:
    groups = grouped(d, clusters)
    plain, pessimistic = mean_error(groups), _with_failed_case(groups, rule)
    if plain is None or pessimistic is None:
        return None
    low, high = pessimistic.lower(rule.alpha), plain.upper(rule.alpha)
    return _Bounds(plain.mean, low, high, low > TIE - rule.margin)


def _with_failed_case(groups: Groups, rule: GateRule) -> MeanError | None:
    """Add one pseudo-group of average size, every case of which dropped by the worst."""
    if groups.sums.size < 2:
        return None
    size = float(groups.sizes.mean())
    sums = np.append(groups.sums, -rule.worst_case_drop * size)
    return mean_error(Groups(sums, np.append(groups.sizes, size)))


def _strict(
    d: Array, clusters: Sequence[str] | None, rule: GateRule, bounds: _Bounds
) -> tuple[_Bounds, PValue]:
    """Replace the t bound and the permutation test by e-values at the end (STATS 9)."""
    groups = grouped(d, clusters)
    values = groups.sums / groups.sizes
    kept = evidence(values, null="at most", mean=-rule.margin)
    limit = -rule.margin if rule.fail_rule == "beyond_margin" else 0.0
    lost = evidence(values, null="at least", mean=limit)
    p = PValue(lost.p, d.size, "e-value", "less", int(np.count_nonzero(np.abs(values) > TIE)), None)
    return _Bounds(bounds.mean, bounds.low, bounds.high, kept.p <= rule.alpha), p


def _drop_shown(bounds: _Bounds, rule: GateRule) -> bool:
    dropped = bounds.mean <= -rule.margin + TIE
    if rule.guarantee == "strict":
        return dropped
    limit = -rule.margin if rule.fail_rule == "beyond_margin" else 0.0
    return dropped and bounds.high < limit - TIE


def _verdict(passes: bool, fails: bool) -> Verdict:
    if passes:
        return Verdict.PASS
    return Verdict.FAIL if fails else Verdict.INCONCLUSIVE


def _allow_for_missing(
    verdict: Verdict, pairs: Pairs, rule: GateRule, missing: Missing
) -> tuple[Verdict, tuple[str, ...]]:
    share = missing.count / (pairs.n + missing.count)
    if not exceeds(share, WARN_MISSING):
        return verdict, ()
    said = f"{missing.count} of {pairs.n + missing.count} cases are missing"
    if exceeds(share, MOST_MISSING):
        return Verdict.INCONCLUSIVE, (f"{said}: too many to decide",)
    if verdict is Verdict.PASS and not _passes_at_worst(pairs, rule, missing):
        return Verdict.INCONCLUSIVE, (f"{said}: would not pass if they had gone badly",)
    return verdict, (said,)


def _passes_at_worst(pairs: Pairs, rule: GateRule, missing: Missing) -> bool:
    """Decide again with missing heads at the 5% quantile, and never above their base."""
    bases, heads = pairs.sides
    worst = float(np.quantile(heads, _WORST_QUANTILE, method="lower"))
    imputed = [min(worst, base) - base for base in missing.base_only]
    d = np.concatenate((heads - bases, np.array(imputed, dtype=np.float64)))
    clusters = pairs.clusters
    if clusters is not None:
        # Each missing case counts as its own cluster, which no declared name can be.
        clusters = (*clusters, *(f"\0missing {index}" for index in range(len(imputed))))
    bounds = _bounds(d, clusters, rule)
    if bounds is not None and rule.guarantee == "strict":
        bounds, _ = _strict(d, clusters, rule, bounds)
    return bounds is not None and bounds.passes


def _needed(
    d: Array, clusters: Sequence[str] | None, rule: GateRule
) -> tuple[int | None, tuple[int | None, int | None] | None]:
    """Return the cases needed, and the further cases at either end of a shaky sd."""
    groups = grouped(d, clusters)
    error, size = mean_error(groups), float(groups.sizes.mean())
    if rule.guarantee == "strict":
        units = cases_for_evidence(
            groups.sums / groups.sizes, margin=rule.margin, alpha=rule.alpha, power=rule.power
        )
        return _cases(units, size), None
    sd = DEFAULT_SD if error is None else error.se * math.sqrt(error.df + 1)
    needed = _cases(_units(sd, rule), size)
    if sd < TIE or error is None:
        return needed, None
    around = sd_range(sd, error.df + 1)
    ends = [_cases(_units(end, rule), size) for end in (around.low, around.high)]
    return needed, (_more(ends[0], d.size), _more(ends[1], d.size))


def _units(sd: float, rule: GateRule) -> int | None:
    return cases_for_margin(
        sd,
        margin=rule.margin,
        alpha=rule.alpha,
        worst_case_drop=rule.worst_case_drop,
        power=rule.power,
    ).value


def _cases(units: int | None, size: float) -> int | None:
    return None if units is None else math.ceil(units * size - TIE)


def _more(needed: int | None, n: int) -> int | None:
    return None if needed is None else max(1, needed - n)


def _method(rule: GateRule, p: PValue) -> str:
    if rule.guarantee == "strict":
        return "e-values at the end"
    return f"t bound with one failed case added; {p.method}"


def _undecidable(
    found: Difference | None, rule: GateRule, missing: Missing, *, n: int
) -> GateDecision:
    needed = _units(DEFAULT_SD, rule)
    return GateDecision(
        verdict=Verdict.INCONCLUSIVE,
        value=None if found is None else found.value,
        n=n,
        method="none: too few cases",
        interval=None if found is None else found.interval,
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
        n_needed=needed,
        n_more=_more(needed, n),
        missing=missing.count,
        notes=("very few cases", f"planned with a typical sd of {DEFAULT_SD}"),
    )
