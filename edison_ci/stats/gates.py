"""Non-inferiority: is the candidate no worse than the baseline, or is that not known.

Two promises (STATS 0 and 7): if nothing changed, at most 5% of gates fail, exactly; if quality
dropped by the margin or more, about 5% pass.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.rounding import exceeds
from edison_ci.stats.arrays import TIE, Groups, bounded, grouped, variance_of
from edison_ci.stats.evidence import cases_for_evidence, evidence
from edison_ci.stats.libraries import np, special
from edison_ci.stats.paired import (
    mean_error,
    paired_difference,
    unpaired_difference,
    welch_error,
)
from edison_ci.stats.permutation import PValue, paired_p
from edison_ci.stats.power import DEFAULT_SD, cases_for_margin, sd_range
from edison_ci.stats.verdicts import (
    MOST_MISSING,
    WARN_MISSING,
    GateDecision,
    GateRule,
    Missing,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.arrays import Array, Floats
    from edison_ci.stats.paired import Difference, MeanError, Pairs

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


def decide_unpaired(base: Floats, head: Floats, rule: GateRule | None = None) -> GateDecision:
    """Decide a gate on different cases (STATS 7, fallback): approximate and far less sensitive."""
    rule = rule or GateRule()
    sides = [bounded(side, "scores", low=0, high=1) for side in (base, head)]
    found = unpaired_difference(*sides, level=rule.confidence)
    n = min(side.size for side in sides)
    plain = welch_error(*sides)
    pessimistic = welch_error(sides[0], np.append(sides[1], 0.0))
    if found is None or plain is None or pessimistic is None or n < _FEW_UNPAIRED:
        return _undecidable(found, rule, Missing(), n=n)
    low, high = (
        error.mean + sign * float(special.stdtrit(error.df, rule.confidence)) * error.se
        for error, sign in ((pessimistic, -1), (plain, 1))
    )
    if plain.se > 0:
        chance = float(special.stdtr(plain.df, plain.mean / plain.se))
    else:
        # Both sides constant: only complete separation speaks, as a permutation test would say.
        total = sides[0].size + sides[1].size
        chance = 1 / math.comb(total, sides[0].size) if plain.mean < -TIE else 1.0
    p = PValue(chance, n, "Welch t, approximate", "less", n, None)
    bounds = _Bounds(found.value, low, high, low > TIE - rule.margin)
    shown = _drop_shown(bounds, rule)
    verdict = _verdict(bounds.passes, shown and p.value <= rule.alpha)
    # Unpaired, a difference of cases has the variance of both sides.
    needed = _units(math.sqrt(variance_of(sides[0]) + variance_of(sides[1])), rule)
    return GateDecision(
        verdict=verdict,
        value=found.value,
        n=n,
        method="unpaired t bounds (Welch), approximate",
        interval=found.interval,
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
        worst_plausible=low,
        best_plausible=high,
        p=p,
        p_adjusted=p.value,
        drop_shown=shown,
        n_needed=needed,
        n_more=_more(needed, n) if verdict is Verdict.INCONCLUSIVE else None,
        notes=("unpaired: about 3-10x less sensitive",),
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
