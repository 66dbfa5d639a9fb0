"""Scores and verdicts in sentences.

Scores are 0-1 inside and points out of 100 here; numbers are rounded here and nowhere before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.numeric import fixed, reaches, significant, whole
from edison_ci.records import Verdict
from edison_ci.stats.drift import REFERENCE_RUNS
from edison_ci.stats.pairwise import Preference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.stats.agreement import Agreement
    from edison_ci.stats.arrays import Range
    from edison_ci.stats.calibration import CorrectedMean, SideBias
    from edison_ci.stats.drift import DriftReport, Forecast
    from edison_ci.stats.pairwise import OrderEffect, WinRate
    from edison_ci.stats.value import Recommendation
    from edison_ci.stats.verdicts import GateDecision


def drift_sentence(
    report: DriftReport,
    forecast: Forecast | None = None,
    *,
    when: Callable[[float], str],
    threshold: float | None = None,
) -> str:
    """Say what a watched series does (STATS 17); `when` writes a time, per day, as a date."""
    drop = report.drop
    if drop.current is None or drop.reference is None:
        return "Nothing to compare with the reference."
    said = (
        f"Quality {fixed(100 * drop.current)}, was {fixed(100 * drop.reference)} "
        f"({REFERENCE_RUNS}-run reference)"
    )
    if drop.value is not None and drop.p is not None:
        noise = "not explained by noise" if drop.sure else "may be noise"
        said += f": {fixed(-100 * drop.value, signed=True)}%, {noise} ({chance(drop.p)})"
    said += "."
    slope = report.trend.value
    if report.trend.falling and slope is not None:
        said += f" Falling about {points(-7 * slope)} points a week"
        if forecast is not None and forecast.value is not None and threshold is not None:
            said += f"; at this pace it reaches {points(threshold)} around {when(forecast.value)}"
            if forecast.interval is not None:
                low, high = forecast.interval
                said += f" ({when(low)} to {when(high)})"
        elif forecast is not None and forecast.reason:
            said += f"; {forecast.reason}"
        said += "."
    return said


def value_sentence(recommendation: Recommendation, *, margin: float = 0.05) -> str:
    """Say which model to use, and what it costs in points and money (STATS 18)."""
    models = {model.name: model for model in recommendation.models}
    chosen, best = models[recommendation.value], models[recommendation.best]
    if chosen is not best:
        worst = "" if chosen.worst_plausible is None else signed(chosen.worst_plausible)
        cost = "" if best.cost <= 0 else f" at {fixed(100 * chosen.cost / best.cost)}% of the cost"
        return (
            f"Use {chosen.name}: within {points(margin)} points of the best "
            f"(worst plausible {worst}){cost}."
        )
    said = f"Use {best.name}: no other model is shown to be within {points(margin)} points of it."
    cheap = models[recommendation.cheapest_on_front]
    if cheap is not best and best.cost > 0:
        said += (
            f" The cheapest choice is {cheap.name}: {points(best.value - cheap.value)} points "
            f"lower at {fixed(100 * cheap.cost / best.cost)}% of the cost."
        )
    return said


_NOTICEABLE = 0.03
"""A judge's severity below 3 points is not worth a sentence."""


def judges_sentence(
    judges: Sequence[str], severity: Sequence[float | None], *, apart: int, of: int
) -> str:
    """Say on how many cases judges disagree, and who is strict or generous (STATS 3)."""
    listed = " (listed below)" if apart else ""
    said = [f"{len(judges)} judges, they differ by 50+ points on {apart} of {cases(of)}{listed}."]
    if len(judges) > 1:
        for name, bias in zip(judges, severity, strict=True):
            # From the panel's average to the average of the others.
            against = 0.0 if bias is None else bias * len(judges) / (len(judges) - 1)
            if reaches(abs(against), _NOTICEABLE):
                how = "stricter" if against < 0 else "more generous"
                said.append(
                    f"Judge {name} is {fixed(100 * abs(against))} points {how} than the others."
                )
    return " ".join(said)


def agreement_sentence(agreement: Agreement) -> str:
    """Say how far judges agree, with the raw agreement beside it (STATS 13)."""
    raw = "" if agreement.raw is None else f" Equal judgments: {fixed(100 * agreement.raw)}%."
    if agreement.value is None:
        return f"{_capital(agreement.words)}.{raw}"
    likely = ""
    if agreement.interval is not None:
        low, high = (fixed(end, 2) for end in agreement.interval)
        likely = f", likely {low} to {high}"
    value = fixed(agreement.value, 2)
    return f"{_capital(agreement.words)} ({agreement.method} {value}{likely}).{raw}"


def win_sentence(rate: WinRate, *, a: str = "A", b: str = "B") -> str:
    """Say who is preferred (STATS 11)."""
    if rate.value is None:
        return "No case was judged in both orders."
    name, value, interval = a, rate.value, rate.interval
    low, high = (None, None) if interval is None else interval
    if rate.preference is Preference.B or (rate.preference is not Preference.A and value < 0.5):
        name, value = b, 1 - value
        low, high = (None, None) if low is None or high is None else (1 - high, 1 - low)
    likely = ""
    if low is not None and high is not None:
        likely = f" (likely {fixed(100 * low)} to {fixed(100 * high)})"
    share = f"{fixed(100 * value)}%"
    said = f"{name} preferred in {share}{likely} of {cases(rate.n)}, ties counted half."
    if rate.preference in (Preference.UNCLEAR, Preference.EQUIVALENT):
        said += f" {_capital(rate.preference.value)}."
    if rate.order is not None:
        agreed = f"{fixed(100 * rate.order.consistency)}%"
        said += f" Judge agreed with itself after swapping on {agreed}."
    return said


def order_sentence(order: OrderEffect) -> str | None:
    """Warn of a judge that follows position; None when there is nothing to warn of."""
    if not order.warn:
        return None
    tenths = whole(10 * (1 - order.consistency))
    return f"this judge follows position on {tenths} of 10 cases"


def correction_sentence(corrected: CorrectedMean, *, who: str = "Judge says") -> str:
    """Return the score corrected by people (STATS 14); `who` gave the automatic grades."""
    if corrected.value is None:
        return "No human labels."
    likely = ""
    if corrected.interval is not None:
        low, high = corrected.interval
        likely = f" ({fixed(100 * low)} to {fixed(100 * high)})"
    value = fixed(100 * corrected.value)
    if corrected.trust == 0 and corrected.method.startswith("labels alone"):
        return f"{corrected.n} human labels say {value}{likely}; {corrected.method}."
    says = corrected.judge_mean or 0.0
    gap = says - corrected.value
    how = "generous" if gap > 0 else "strict"
    they = "it is" if "judge" in who.lower() else "they are"
    bias = f"{they} {fixed(100 * abs(gap))} too {how}"
    if not whole(100 * gap):
        bias = f"{they} about right"
    return (
        f"{who} {fixed(100 * says)}. Checked against {corrected.n} human labels "
        f"{bias}: corrected {value}{likely}."
    )


def side_sentence(bias: SideBias) -> str | None:
    """Warn of a judge that may favour one side; None when there is nothing to warn of."""
    if not bias.warn:
        return None
    side = "the candidate" if bias.value > 0 else "the baseline"
    return f"judge may favour one side: {points(abs(bias.value))} points towards {side}"


_RAREST = 10_000


def points(score: float) -> str:
    """Return a 0-1 score as points out of 100: 81.4, and 100 rather than 100.0."""
    return fixed(100 * score, 1).removesuffix(".0")


def signed(score: float, *, digits: int = 1) -> str:
    """Return a change in points with its sign: +1.5, -3.9, and 0 without one."""
    text = fixed(100 * score, digits, signed=True)
    return "0" if not text.strip("+-0.") else text


def chance(p: float) -> str:
    """Return a probability as people read it: 0.2%, and below 0.1% as 1 in N.

    Capped at 1 in 10,000, which is as far as random relabelling can tell.
    """
    if p >= 0.001:
        return f"{fixed(100 * p, 1)}%".replace(".0%", "%")
    return f"1 in {min(_RAREST, whole(1 / p)) if p > 0 else _RAREST:,}"


def cases(n: int) -> str:
    """Return a number of cases: 1 case, 50 cases."""
    return f"{n:,} case" if n == 1 else f"{n:,} cases"


def more_cases(n: int) -> str:
    """Return a number of further cases: 1 more case, 50 more cases."""
    return f"{n:,} more case" if n == 1 else f"{n:,} more cases"


def gate_sentence(decision: GateDecision, *, what: str = "Quality") -> str:
    """Say what a gate decided, and why (STATS 7)."""
    if decision.value is None:
        return _open_end(f"{what} could not be compared.", decision)
    if decision.kind == "level":
        return _level(decision, what)
    if decision.kind == "relative":
        return _relative(decision, what)
    if decision.verdict is Verdict.PASS:
        if decision.worst_plausible is None:
            return _capital("; ".join(decision.notes)) + "."
        said = (
            f"No drop beyond your {points(decision.margin)}-point tolerance: worst plausible "
            f"change {signed(decision.worst_plausible)} points ({cases(decision.n)})."
        )
        real = "small real drop, inside your tolerance"
        return f"{said} {_capital(real)}." if real in decision.notes else said
    if decision.verdict is Verdict.FAIL:
        p = decision.p_adjusted if decision.p_adjusted is not None else 1.0
        return (
            f"{what} dropped by {points(-decision.value)} points{_lower(decision.interval)} on "
            f"the same {cases(decision.n)}. Chance of seeing this by luck: {chance(p)}."
        )
    return _open_end(f"Changed by {signed(decision.value)}{_likely(decision.interval)}.", decision)


def comparisons_sentence(*, made: int, stand_out: int) -> str:
    """Say how many of many comparisons stand out."""
    was = "1 comparison was" if made == 1 else f"{made:,} comparisons were"
    verb = "stands" if stand_out == 1 else "stand"
    return f"{was} made; after correction for that, {stand_out or 'none'} {verb} out."


def _likely(interval: Range | None) -> str:
    if interval is None:
        return " (no error bar possible)"
    return f" (likely {signed(interval.low)} to {signed(interval.high)})"


def _lower(interval: Range | None) -> str:
    """Say an interval of a drop with the smaller drop first."""
    if interval is None:
        return ""
    if interval.high > 0:
        return f" (likely {points(interval.high)} higher to {points(-interval.low)} lower)"
    return f" (likely {fixed(-100 * interval.high, 1)} to {fixed(-100 * interval.low, 1)} lower)"


def _open_end(said: str, decision: GateDecision) -> str:
    what = f"{cases(decision.n)} {'is' if decision.n == 1 else 'are'} too few"
    for note in decision.notes:
        if "missing" in note or "comparisons" in note:
            what = note
    if decision.n_more is None:
        return f"{said} {_capital(what)}."
    if decision.n_more_range and None not in decision.n_more_range:
        low, high = decision.n_more_range
        more = f"about {low:,} to {high:,}"
    else:
        more = f"about {decision.n_more:,}"
    return f"{said} {_capital(what)}: {more} more would settle it if nothing really changed."


def _level(decision: GateDecision, what: str) -> str:
    value, asked = points(decision.value or 0.0), points(decision.margin)
    if decision.worst_plausible is None:
        verb = {Verdict.PASS: "keeps", Verdict.FAIL: "misses"}.get(decision.verdict, "is open at")
        shown = significant(decision.value or 0.0, 6)
        return f"{what} is {shown} and {verb} its limit of {decision.margin:g}."
    if decision.verdict is Verdict.PASS:
        worst = points(decision.worst_plausible)
        return f"{what} {value}, worst plausible {worst}: keeps the limit of {asked}."
    if decision.verdict is Verdict.FAIL:
        best = points(decision.best_plausible or 0.0)
        return f"{what} {value}, best plausible {best}: misses the limit of {asked}."
    said = f"{what} {value}: not clear whether it keeps the limit of {asked}."
    if decision.n_more is None:
        return said
    return f"{said} About {more_cases(decision.n_more)} like these would settle it."


def _relative(decision: GateDecision, what: str) -> str:
    change = f"{fixed(100 * (decision.value or 0.0), signed=True)}%"
    allowed = f"{100 * decision.margin:g}%"
    if decision.verdict is Verdict.PASS:
        worst = decision.worst_plausible
        bound = "" if worst is None else f", worst plausible {fixed(100 * worst, signed=True)}%"
        return f"{what} {change}{bound}: inside the {allowed} that are allowed."
    if decision.verdict is Verdict.FAIL:
        p = decision.p_adjusted
        luck = "" if p is None else f" Chance of seeing this by luck: {chance(p)}."
        return f"{what} {change}: more than the {allowed} that are allowed.{luck}"
    return _open_end(f"{what} {change}.", decision)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
