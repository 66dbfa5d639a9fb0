"""Gates: non-inferiority of a candidate to its baseline, and levels against a floor or ceiling.

Two promises (STATS 0 and 7): if nothing changed, at most 5% of gates fail, exactly; if quality
dropped by the margin or more, about 5% pass.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.numeric import exceeds, reaches
from edison_ci.records import Verdict
from edison_ci.stats.arrays import TIE, Range, bounded, grouped, np, special
from edison_ci.stats.intervals import interval_of_rate
from edison_ci.stats.paired import EQUAL_DIFFERENCES, mean_error, paired_difference
from edison_ci.stats.permutation import PValue, paired_p
from edison_ci.stats.power import (
    DEFAULT_SD,
    cases_for_margin,
    cases_in_clusters,
    distance_to_bound,
    sd_range,
    smallest_count,
    unseen_cases,
)
from edison_ci.stats.scores import ALL_EQUAL, FEW_CLUSTERS, Unseen
from edison_ci.stats.sentences import ties_words
from edison_ci.stats.sequential import (
    Units,
    always_valid_interval,
    cases_for_evidence,
    evidence,
)
from edison_ci.stats.verdicts import MOST_MISSING, WARN_MISSING, GateDecision, GateRule, Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.stats.arrays import Array, Floats
    from edison_ci.stats.intervals import Interval
    from edison_ci.stats.paired import Difference, MeanError, Pairs
    from edison_ci.stats.sequential import Evidence


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


def decide_level(
    case_scores: Floats,
    limit: Limit,
    *,
    clusters: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> GateDecision:
    """Decide a floor or ceiling of a mean: of passes, shares of passes, or scores.

    The bounds are one-sided Clopper-Pearson (1934) with the number of yes-or-no cases that would
    have the same standard error (Korn and Graubard 1998): for passes and fails of independent cases
    the exact ones. A mean of scores passes only if it would with unseen cases at the worst score.
    """
    scores = bounded(case_scores, "scores", low=0, high=1)
    interval = interval_of_rate(scores, clusters, level=confidence)
    groups, alpha = grouped(scores, clusters), round(1 - confidence, 12)
    error = mean_error(groups)
    if interval is None or error is None:
        return _undecidable_level(interval, limit, confidence)
    counts = _Counts.of(error, alpha)
    bounds = counts.bounds(alpha)
    low_is_bad = limit.wanted == "at_least"
    yes_or_no = groups.sizes.max() <= 1 and bool(np.isin(scores, (0.0, 1.0)).all())
    unseen = None if yes_or_no else mean_error(groups, _worst_score(limit, alpha))
    if unseen is not None:
        bounds = _with_unseen(bounds, Range(unseen.lower(alpha), unseen.upper(alpha)), limit)
    verdict, needed = limit.verdict(bounds), None
    if verdict is Verdict.INCONCLUSIVE and abs(error.mean - limit.value) > TIE:
        like_these = _LikeThese(error, counts, limit, alpha, yes_or_no)
        # About the cases at which a verdict would come if the rest were like these.
        needed = smallest_count(
            lambda n: like_these.verdict(n / interval.n) is not Verdict.INCONCLUSIVE,
            above=interval.n,
            near=2 * interval.n,
        )
    p = counts.p(limit, "" if yes_or_no else " of the scores")
    return GateDecision(
        verdict=verdict,
        value=error.mean,
        n=interval.n,
        method=p.method,
        interval=interval.interval,
        level=interval.level,
        margin=limit.value,
        kind="level",
        alpha=alpha,
        worst_plausible=bounds.low if low_is_bad else bounds.high,
        best_plausible=bounds.high if low_is_bad else bounds.low,
        p=p,
        tests="a value below the floor" if low_is_bad else "a value above the ceiling",
        p_adjusted=p.value,
        n_needed=needed,
        n_more=None if needed is None else max(1, needed - interval.n),
        clusters=_clusters(clusters),
        notes=_few_notes(interval.n, clusters),
    )


@dataclass(frozen=True, slots=True)
class _Counts:
    """Passes among independent yes-or-no cases that say as much about a mean as its scores."""

    passes: float
    n: float

    @classmethod
    def of(cls, error: MeanError, alpha: float) -> _Counts:
        mean = min(max(error.mean, 0.0), 1.0)
        units = error.units
        if error.se**2 < ALL_EQUAL:
            return cls(mean * units, units)
        n = mean * (1 - mean) / error.se**2 + 1
        if n > units:
            # More than yes or no of each unit is known, by a spread that is estimated.
            z, t = float(special.ndtri(1 - alpha)), float(special.stdtrit(error.df, 1 - alpha))
            n = units + (n - units) * (z / t) ** 2
        return cls(mean * n, n)

    def bounds(self, alpha: float) -> Range:
        """Return the one-sided bounds of the share."""
        k, rest = self.passes, self.n - self.passes
        low = float(special.betaincinv(k, rest + 1, alpha)) if k > TIE else 0.0
        high = float(special.betaincinv(k + 1, rest, 1 - alpha)) if rest > TIE else 1.0
        return Range(low, high)

    def times(self, factor: float, alpha: float) -> Range:
        """Return the bounds that more cases would give if they were like these."""
        return _Counts(self.passes * factor, self.n * factor).bounds(alpha)

    def p(self, limit: Limit, detail: str) -> PValue:
        """Return the chance of so bad a share if the limit were just kept."""
        k, rest, at = self.passes, self.n - self.passes, limit.value
        if limit.wanted == "at_least":
            value = 1 - float(special.betainc(k + 1, rest, at)) if rest > TIE else 1.0
        else:
            value = float(special.betainc(k, rest + 1, at)) if k > TIE else 1.0
        side: Literal["less", "greater"] = "less" if limit.wanted == "at_least" else "greater"
        method = f"exact binomial bound (Clopper-Pearson){detail}"
        return PValue(value, round(self.n), method, side, round(self.n), None)


def _worst_score(limit: Limit, alpha: float) -> Unseen:
    return Unseen(unseen_cases(alpha), 0.0 if limit.wanted == "at_least" else 1.0)


def _with_unseen(bounds: Range, unseen: Range, limit: Limit) -> Range:
    """Return bounds of which the one to pass allows for unseen cases at the worst score."""
    if limit.wanted == "at_least":
        return Range(max(0.0, min(bounds.low, unseen.low)), bounds.high)
    return Range(bounds.low, min(1.0, max(bounds.high, unseen.high)))


@dataclass(frozen=True, slots=True)
class _LikeThese:
    """What more or fewer cases would decide about a limit, if they were like those at hand."""

    error: MeanError
    counts: _Counts
    limit: Limit
    alpha: float
    yes_or_no: bool

    def verdict(self, factor: float) -> Verdict:
        """Return the verdict of a multiple of the cases."""
        bounds, error = self.counts.times(factor, self.alpha), self.error
        if not self.yes_or_no:
            drop = error.mean if self.limit.wanted == "at_least" else 1 - error.mean
            sd = error.se * math.sqrt(error.units)
            reach = distance_to_bound(error.units * factor, sd=sd, alpha=self.alpha, drop=drop)
            unseen = Range(error.mean - reach, error.mean + reach)
            bounds = _with_unseen(bounds, unseen, self.limit)
        return self.limit.verdict(bounds)


def _clusters(clusters: Sequence[str] | None) -> int | None:
    """Return how many clusters there are, where any has more than one case."""
    count = len(set(clusters or ()))
    return None if clusters is None or count == len(clusters) else count


def _few_notes(n: int, clusters: Sequence[str] | None) -> tuple[str, ...]:
    count = _clusters(clusters)
    if count is not None and count < FEW_CLUSTERS and n >= _FEW:
        return (f"only {count} clusters: too few to know how much they differ",)
    return () if n >= _FEW else ("very few cases",)


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
        level=1.0,
        margin=limit.value,
        kind="level",
        notes=notes,
    )


def _undecidable_level(interval: Interval | None, limit: Limit, confidence: float) -> GateDecision:
    return GateDecision(
        verdict=Verdict.INCONCLUSIVE,
        value=None if interval is None else interval.estimate,
        n=0 if interval is None else interval.n,
        method="none: too few cases",
        level=confidence,
        margin=limit.value,
        kind="level",
        notes=("very few cases",),
    )


_FEW = 10
"""Cases below which a gate says that they are very few."""


def decide(
    pairs: Pairs,
    rule: GateRule | None = None,
    *,
    rng: np.random.Generator,
    missing: Missing | None = None,
) -> GateDecision:
    """Decide a gate on the scores of the same cases (STATS 7)."""
    rule, missing = rule or GateRule(), missing or Missing()
    difference = paired_difference(
        _differences(pairs), clusters=pairs.clusters, level=rule.confidence
    )
    bounds = _bounds(pairs, rule)
    if difference is None or bounds is None:
        return _undecidable(difference, rule, missing, n=pairs.n)
    p = paired_p(pairs, rng=rng, side="less", level=rule.alpha)
    if rule.guarantee == "strict":
        p = _strict_p(pairs, rule)
    drop_shown = _drop_shown(bounds, rule)
    verdict = _verdict(bounds.passes, drop_shown and p.value <= rule.alpha)
    notes = _few_notes(pairs.n, pairs.clusters)
    if difference.method == EQUAL_DIFFERENCES:
        notes = (*notes, ties_words(pairs.n, difference.value, difference.interval))
    if verdict is Verdict.PASS and bounds.high < -TIE and p.value <= rule.alpha:
        notes = (*notes, "small real drop, inside your tolerance")
    low = bounds.low
    if verdict is Verdict.PASS and missing.worst is not None:
        at_worst = _bounds(missing.worst, rule)
        low = low if at_worst is None else min(low, at_worst.low)
        if at_worst is None or not at_worst.passes:
            verdict, notes = Verdict.INCONCLUSIVE, (*notes, lost_words(missing.lost))
    verdict, p, more = _allow_for_missing(
        verdict, p, pairs, missing, partial(decide, rule=rule, rng=rng)
    )
    needed, needed_range = _needed(pairs, rule)
    inconclusive = verdict is Verdict.INCONCLUSIVE
    return GateDecision(
        verdict=verdict,
        value=difference.value,
        n=pairs.n,
        method=_method(rule, p),
        interval=difference.interval,
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
        worst_plausible=low,
        best_plausible=bounds.high,
        p=p,
        tests=rule.sequential_question() if rule.guarantee == "strict" else "any drop",
        p_adjusted=p.value,
        n_needed=needed,
        n_more=_more(needed, pairs.n) if inconclusive else None,
        n_more_range=needed_range if inconclusive and pairs.n < _FEW else None,
        clusters=_clusters(pairs.clusters),
        missing=missing.count,
        notes=(*notes, *more),
    )


def lost_words(lost: int) -> str:
    """Return that lost answers keep a gate from passing."""
    of = "1 case" if lost == 1 else f"{lost:,} cases"
    return f"answers of the head are missing in {of}: would not pass if they had gone badly"


def _differences(pairs: Pairs) -> Array:
    base, head = (bounded(side, "scores", low=0, high=1) for side in pairs.sides)
    return head - base


def identical_outputs(n: int, rule: GateRule | None = None) -> GateDecision:
    """Pass without statistics: the same configuration and stored answers on both sides."""
    rule = rule or GateRule()
    return GateDecision(
        verdict=Verdict.PASS,
        value=0.0,
        n=n,
        method="none: the outputs are the same",
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
        notes=("nothing to compare: identical outputs by construction",),
    )


def worst_plausible_change(
    differences: Floats, rule: GateRule | None = None, *, clusters: Sequence[str] | None = None
) -> float | None:
    """Return Lw, the lower bound of the mean change if one more case had failed completely.

    Without the extra value a t or bootstrap bound passes suites in which 1 case in 20 breaks,
    whenever the sample happens to hold no break. None below two cases or clusters.
    """
    rule = rule or GateRule()
    groups = grouped(bounded(differences, "differences", low=-1, high=1), clusters)
    error = mean_error(groups, _unseen(rule))
    return None if error is None else error.lower(rule.alpha)


def _unseen(rule: GateRule) -> Unseen:
    return Unseen(unseen_cases(rule.alpha), -rule.worst_case_drop)


@dataclass(frozen=True, slots=True)
class _Bounds:
    mean: float
    low: float
    high: float
    passes: bool


def _bounds(pairs: Pairs, rule: GateRule) -> _Bounds | None:
    d = _differences(pairs)
    groups = grouped(d, pairs.clusters)
    plain, pessimistic = mean_error(groups), mean_error(groups, _unseen(rule))
    if plain is None or pessimistic is None:
        return None
    low, high = pessimistic.lower(rule.alpha), plain.upper(rule.alpha)
    passes = low > TIE - rule.margin
    if rule.guarantee == "strict":
        passes = _weighed(pairs, null="at most", mean=-rule.margin).p <= rule.alpha
        units = Units.of(d, pairs.clusters)
        sure = always_valid_interval(units, level=1 - 2 * rule.alpha)
        low, high = (low, high) if sure is None else sure
    return _Bounds(plain.mean, low, high, passes)


def _strict_p(pairs: Pairs, rule: GateRule) -> PValue:
    """Return the p-value of e-values at the end, in place of the permutation test (STATS 9)."""
    limit = -rule.margin if rule.fail_rule == "beyond_margin" else 0.0
    lost = _weighed(pairs, null="at least", mean=limit)
    differing = int(np.count_nonzero(np.abs(grouped(_differences(pairs), pairs.clusters).sums)))
    return PValue(lost.p, pairs.n, "sequential test (e-values)", "less", differing, None)


def _weighed(pairs: Pairs, *, null: Literal["at most", "at least"], mean: float) -> Evidence:
    return evidence(Units.of(_differences(pairs), pairs.clusters), null=null, mean=mean)


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


HOLDS = "fails even if they had gone as well as they can"


def _allow_for_missing(
    verdict: Verdict,
    p: PValue,
    pairs: Pairs,
    missing: Missing,
    again: Callable[[Pairs], GateDecision],
) -> tuple[Verdict, PValue, tuple[str, ...]]:
    """Return the verdict with its p-value and notes, for the cases that are missing.

    With too many nothing is decided, unless the gate fails with all of them at the base's score.
    """
    share = missing.count / (pairs.n + missing.count)
    if not exceeds(share, WARN_MISSING):
        return verdict, p, ()
    note = f"{missing.count} of {pairs.n + missing.count} cases are missing"
    if not exceeds(share, MOST_MISSING):
        return verdict, p, (note,)
    if verdict is Verdict.FAIL and missing.at_base is not None:
        held = again(missing.at_base())
        if held.verdict is Verdict.FAIL and held.p is not None:
            return verdict, held.p, (f"{note}: {HOLDS}",)
    return Verdict.INCONCLUSIVE, p, (f"{note}: too many to decide",)


def _needed(
    pairs: Pairs, rule: GateRule
) -> tuple[int | None, tuple[int | None, int | None] | None]:
    """Return the cases needed, and the further cases at either end of a shaky sd."""
    d = _differences(pairs)
    error = mean_error(grouped(d, pairs.clusters))
    if rule.guarantee == "strict":
        units = Units.of(d, pairs.clusters)
        needed = cases_for_evidence(units, margin=rule.margin, alpha=rule.alpha, power=rule.power)
        return cases_in_clusters(needed, pairs.n / units.means.size), None
    if error is None:
        return _units(DEFAULT_SD, rule), None
    sd, size = error.se * math.sqrt(error.units), pairs.n / error.units
    needed = cases_in_clusters(_units(sd, rule), size)
    if sd < TIE:
        return needed, None
    around = sd_range(sd, max(2, round(error.df) + 1))
    ends = [cases_in_clusters(_units(end, rule), size) for end in (around.low, around.high)]
    return needed, (_more(ends[0], pairs.n), _more(ends[1], pairs.n))


@dataclass(frozen=True, slots=True)
class Spread:
    """How much differences vary, and what that means for a gate on them."""

    sd: float
    """Of a case, or of a cluster where there are some."""
    units: float
    """Cases, or clusters of equal size that would show as much."""
    needed: int | None
    """Cases at which an unchanged head passes; None: too many."""


def spread_of(pairs: Pairs, rule: GateRule) -> Spread | None:
    """Return the spread of measured differences; None below two cases or clusters."""
    error = mean_error(grouped(_differences(pairs), pairs.clusters))
    if error is None:
        return None
    return Spread(error.se * math.sqrt(error.units), error.units, _needed(pairs, rule)[0])


def _units(sd: float, rule: GateRule) -> int | None:
    return cases_for_margin(
        sd,
        margin=rule.margin,
        alpha=rule.alpha,
        worst_case_drop=rule.worst_case_drop,
        power=rule.power,
    ).value


def _more(needed: int | None, n: int) -> int | None:
    return None if needed is None else max(1, needed - n)


def _method(rule: GateRule, p: PValue) -> str:
    if rule.guarantee == "strict":
        return "sequential test (e-values), read once at the end"
    return f"paired t bound that allows for failures not seen yet; {p.method}"


def _undecidable(
    difference: Difference | None, rule: GateRule, missing: Missing, *, n: int
) -> GateDecision:
    needed = _units(DEFAULT_SD, rule)
    return GateDecision(
        verdict=Verdict.INCONCLUSIVE,
        value=None if difference is None else difference.value,
        n=n,
        method="none: too few cases",
        interval=None if difference is None else difference.interval,
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
        n_needed=needed,
        n_more=_more(needed, n),
        missing=missing.count,
        notes=("very few cases", f"planned with a typical sd of {DEFAULT_SD}"),
    )
