"""Scores and verdicts in sentences.

Scores are 0-1 inside and points out of 100 here; numbers are rounded here and nowhere before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edison_ci.numeric import counted, fixed, reaches, significant, whole
from edison_ci.records import Verdict
from edison_ci.stats.drift import REFERENCE_RUNS, SIGNIFICANT, WARN_YEARS, Alarm
from edison_ci.stats.pairwise import Preference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.stats.agreement import Agreement
    from edison_ci.stats.arrays import Range
    from edison_ci.stats.calibration import SideBias
    from edison_ci.stats.corrected import CorrectedMean
    from edison_ci.stats.drift import DriftReport, Forecast, Trend
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
    """Describe a watched series (STATS 17); `when` writes a time, per day, as a date."""
    drop = report.drop
    if drop.current is None or drop.reference is None:
        return "Nothing to compare with the reference."
    over = "" if drop.runs == 1 else f" over the last {drop.runs:,} runs"
    sentence = (
        f"Quality {fixed(100 * drop.current)}{over}, was {fixed(100 * drop.reference)} "
        f"({REFERENCE_RUNS}-run reference)"
    )
    if drop.value is not None:
        sentence += f": {fixed(-100 * drop.value, signed=True)}%"
    if report.alarm is Alarm.NONE:
        small = report.evidence.value >= WARN_YEARS
        sentence += ", a small drop." if small else ", within the noise of these runs."
    else:
        years = "a year" if report.years == 1 else f"{significant(report.years, 3)} years"
        rare = f"once in {years}" if report.alarm is Alarm.ALERT else "once a quarter"
        sentence += f". Without a change, seen at most {rare} on average."
    return f"{sentence}{_trend_words(report.trend, _ahead(forecast, when, threshold))}"


def _trend_words(trend: Trend, ahead: str) -> str:
    if trend.value is None or trend.p is None or trend.intercept is None:
        return ""
    if trend.equal:
        return f" All {trend.n:,} runs score the same: no trend."
    pace = f"{points(abs(7 * trend.value))} points a week"
    line = f"from {points(trend.intercept)}, {two_sided(trend.p, 'any trend')}"
    if trend.falling:
        return f" Falling about {pace} ({line}){ahead}."
    if trend.p <= SIGNIFICANT:
        return f" Rising about {pace} ({line})."
    return f" No clear trend: {signed(7 * trend.value)} points a week ({line})."


def _ahead(forecast: Forecast | None, when: Callable[[float], str], threshold: float | None) -> str:
    """Describe when a falling series reaches the threshold, or why that is not known."""
    if forecast is None:
        return ""
    if forecast.value is None or threshold is None:
        return f"; {forecast.reason}" if forecast.reason else ""
    words = f"; at this pace it reaches {points(threshold)} around {when(forecast.value)}"
    if forecast.interval is not None:
        low, high = forecast.interval
        words += f" ({when(low)} to {when(high)})"
    return words


def value_sentence(recommendation: Recommendation, *, margin: float = 0.05) -> str:
    """Recommend a model, with its cost in points and money (STATS 18)."""
    models = {model.name: model for model in recommendation.models}
    chosen, best = models[recommendation.value], models[recommendation.best]
    if chosen is not best:
        worst = "" if chosen.worst_plausible is None else signed(chosen.worst_plausible)
        cost = "" if best.cost <= 0 else f" at {fixed(100 * chosen.cost / best.cost)}% of the cost"
        return (
            f"Use {chosen.name}: within {points(margin)} points of the best "
            f"(worst plausible {worst}){cost}."
        )
    sentence = (
        f"Use {best.name}: no other model is shown to be within {points(margin)} points of it."
    )
    cheap = models[recommendation.cheapest_on_front]
    if cheap is not best and best.cost > 0:
        sentence += (
            f" The cheapest choice is {cheap.name}: {points(best.value - cheap.value)} points "
            f"lower at {fixed(100 * cheap.cost / best.cost)}% of the cost."
        )
    return sentence


_NOTICEABLE = 0.03
"""A judge's severity below 3 points is not worth a sentence."""


def judges_sentence(
    judges: Sequence[str], severity: Sequence[float | None], *, apart: int, of: int
) -> str:
    """Describe on how many cases judges disagree, and who is strict or generous (STATS 3)."""
    listed = " (listed below)" if apart else ""
    sentences = [
        f"{len(judges)} judges, they differ by 50+ points on {apart} of {cases(of)}{listed}."
    ]
    if len(judges) > 1:
        for name, bias in zip(judges, severity, strict=True):
            # From the panel's average to the average of the others.
            against = 0.0 if bias is None else bias * len(judges) / (len(judges) - 1)
            if reaches(abs(against), _NOTICEABLE):
                how = "stricter" if against < 0 else "more generous"
                sentences.append(
                    f"Judge {name} is {fixed(100 * abs(against))} points {how} than the others."
                )
    return " ".join(sentences)


def agreement_sentence(agreement: Agreement) -> str:
    """Describe how far judges agree, with the raw agreement beside it (STATS 13)."""
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
    """Describe who is preferred (STATS 11)."""
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
    sentence = f"{name} preferred in {share}{likely} of {cases(rate.n)}, ties counted half."
    if rate.preference in (Preference.UNCLEAR, Preference.EQUIVALENT):
        sentence += f" {_capital(rate.preference.value)}."
    if rate.order is not None:
        agreed = f"{fixed(100 * rate.order.consistency)}%"
        sentence += f" Judge agreed with itself after swapping on {agreed}."
    return sentence


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


def points(score: float) -> str:
    """Return a 0-1 score as points out of 100: 81.4, and 100 rather than 100.0."""
    return fixed(100 * score, 1).removesuffix(".0")


def signed(score: float, *, digits: int = 1) -> str:
    """Return a change in points with its sign: +1.5, -3.9, and 0 without one."""
    text = fixed(100 * score, digits, signed=True)
    return "0" if not text.strip("+-0.") else text


def p_words(p: float) -> str:
    """Return a p-value with two digits: p = 0.012, and p < 0.001 or p > 0.99 beyond."""
    if p < 0.001:
        return "p < 0.001"
    return "p > 0.99" if p > 0.99 else f"p = {significant(p, 2)}"


def two_sided(p: float, question: str = "any difference") -> str:
    """Return the p-value of a comparison with the question that it answers."""
    return f"two-sided {p_words(p)} for {question}"


def gate_p_words(decision: GateDecision) -> str:
    """Return the p-value with which a gate fails, named by what it tests, after a space."""
    if decision.p_adjusted is None:
        return ""
    words = f" One-sided {p_words(decision.p_adjusted)} for {decision.tests}"
    return f"{words}{f', corrected for {decision.family:,} tests' if decision.family > 1 else ''}."


def sureness(alpha: float) -> str:
    """Return how sure a bound is: one-sided 95%."""
    return f"one-sided {significant(100 * (1 - alpha), 6)}%"


def ties_words(n: int, value: float, interval: Range | None) -> str:
    """Describe the case of equal differences, and what such an interval allows for."""
    size = signed(value)
    words = f"all {n:,} differences are {size}{'' if size == '0' else ' points'}"
    if interval is None:
        return words
    unseen = fixed(50 * (interval.high - interval.low), 1)
    return f"{words}: up to {unseen}% of cases could differ and not have been seen"


def cases(n: int) -> str:
    """Return a number of cases: 1 case, 50 cases."""
    return f"{n:,} case" if n == 1 else f"{n:,} cases"


def more_cases(n: int) -> str:
    """Return a number of further cases: 1 more case, 50 more cases."""
    return f"{n:,} more case" if n == 1 else f"{n:,} more cases"


def gate_sentence(decision: GateDecision, *, what: str = "Quality") -> str:
    """Describe what a gate decided, and why (STATS 7)."""
    if decision.value is None:
        return _open_end(f"{what} could not be compared.", decision)
    if decision.kind == "level":
        return _level(decision, what)
    if decision.kind == "relative":
        return _relative(decision, what)
    if decision.verdict is Verdict.PASS:
        if decision.worst_plausible is None:
            return _capital("; ".join(decision.notes)) + "."
        sentence = (
            f"No drop beyond your {points(decision.margin)}-point tolerance: worst plausible "
            f"change {signed(decision.worst_plausible)} points ({sureness(decision.alpha)}, "
            f"{_units(decision)})."
        )
        real = "small real drop, inside your tolerance"
        return f"{sentence} {_capital(real)}." if real in decision.notes else sentence
    if decision.verdict is Verdict.FAIL:
        return (
            f"{what} dropped by {points(-decision.value)} points{_at_least(decision)} on "
            f"the same {_units(decision)}.{gate_p_words(decision)}"
        )
    return _open_end(f"Changed by {signed(decision.value)}{_likely(decision.interval)}.", decision)


def comparisons_sentence(*, made: int, stand_out: int) -> str:
    """Describe how many of many comparisons stand out."""
    was = "1 comparison was" if made == 1 else f"{made:,} comparisons were"
    verb = "stands" if stand_out == 1 else "stand"
    return f"{was} made; {stand_out or 'none'} {verb} out after correction for their number."


def _likely(interval: Range | None) -> str:
    if interval is None:
        return " (no error bar possible)"
    return f" (likely {signed(interval.low)} to {signed(interval.high)})"


def _at_least(decision: GateDecision) -> str:
    """Describe the bound of a drop by which a gate decided."""
    if decision.best_plausible is None:
        return ""
    return f" (at least {points(max(0.0, -decision.best_plausible))}, {sureness(decision.alpha)})"


def _units(decision: GateDecision) -> str:
    """Describe how many cases there are, and in how many clusters."""
    words = cases(decision.n)
    if decision.clusters is None:
        return words
    return f"{words} in {counted(decision.clusters, 'cluster')}"


def _open_end(sentence: str, decision: GateDecision) -> str:
    what = f"{_units(decision)} {'is' if decision.n == 1 else 'are'} too few"
    for note in decision.notes:
        if "missing" in note or "comparisons" in note:
            what = note
    if decision.n_more is None:
        if decision.n_needed is None and decision.p is not None and "too few" in what:
            what = f"no number of {'cases' if decision.clusters is None else 'clusters'} settles it"
        return f"{sentence} {_capital(what)}."
    if decision.n_more_range and None not in decision.n_more_range:
        low, high = decision.n_more_range
        more = f"about {further(decision, low)} to {further(decision, high)}"
    else:
        more = f"about {further(decision)}"
    if decision.clusters is not None:
        more += " clusters"
    return f"{sentence} {_capital(what)}: {more} more would settle it if nothing really changed."


def further(decision: GateDecision, more: int | None = None) -> str:
    """Return how many cases more are needed, or clusters where those are what is missing."""
    cases_more = decision.n_more if more is None else more
    if decision.clusters is None:
        return f"{cases_more or 0:,}"
    return f"{max(1, math.ceil((cases_more or 0) * decision.clusters / max(1, decision.n))):,}"


def _level(decision: GateDecision, what: str) -> str:
    value, asked = points(decision.value or 0.0), points(decision.margin)
    if decision.worst_plausible is None:
        verb = {Verdict.PASS: "keeps", Verdict.FAIL: "misses"}.get(decision.verdict, "is open at")
        value_words = significant(decision.value or 0.0, 6)
        return f"{what} is {value_words} and {verb} its limit of {decision.margin:g}."
    if decision.verdict is Verdict.PASS:
        worst = f"{points(decision.worst_plausible)} ({sureness(decision.alpha)})"
        return f"{what} {value}, worst plausible {worst}: keeps the limit of {asked}."
    if decision.verdict is Verdict.FAIL:
        best = f"{points(decision.best_plausible or 0.0)} ({sureness(decision.alpha)})"
        return f"{what} {value}, best plausible {best}: misses the limit of {asked}."
    sentence = f"{what} {value}: not clear whether it keeps the limit of {asked}."
    if decision.n_more is None:
        return sentence
    return f"{sentence} {settled_by(decision)}"


def settled_by(decision: GateDecision) -> str:
    """Return how many cases or clusters more would settle a gate if they were like these."""
    if decision.clusters is not None:
        return f"About {further(decision)} more clusters like these would settle it."
    return f"About {more_cases(decision.n_more or 0)} like these would settle it."


def _relative(decision: GateDecision, what: str) -> str:
    change = f"{fixed(100 * (decision.value or 0.0), signed=True)}%"
    allowed = f"{100 * decision.margin:g}%"
    if decision.verdict is Verdict.PASS:
        worst = decision.worst_plausible
        bound = ""
        if worst is not None:
            sure = sureness(decision.alpha)
            bound = f", worst plausible {fixed(100 * worst, signed=True)}% ({sure})"
        return f"{what} {change}{bound}: inside the {allowed} that are allowed."
    if decision.verdict is Verdict.FAIL:
        best = decision.best_plausible
        if best is not None:
            change += f" (at least {fixed(100 * best, signed=True)}%, {sureness(decision.alpha)})"
        tested = gate_p_words(decision)
        return f"{what} {change}: more than the {allowed} that are allowed.{tested}"
    return _open_end(f"{what} {change}.", decision)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
