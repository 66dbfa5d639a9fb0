"""How is it said what a comparison, a loop, a series or a choice of models has shown?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.rounding import fixed
from edison_ci.stats.ab import Outcome
from edison_ci.stats.convergence import verified
from edison_ci.stats.drift import REFERENCE_RUNS
from edison_ci.stats.sentences import cases, chance, more_cases, points, signed

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.stats.ab import Comparison
    from edison_ci.stats.convergence import Convergence
    from edison_ci.stats.drift import DriftReport
    from edison_ci.stats.trend import Forecast
    from edison_ci.stats.value import Recommendation


def comparison_sentence(comparison: Comparison, *, a: str = "A", b: str = "B") -> str:
    """Say which of two prompts is better (STATS 15), and which cases changed."""
    if comparison.value is None:
        return "No case to compare."
    likely = _likely(comparison)
    change = f"{signed(comparison.value)} points{likely} on {cases(comparison.n)}"
    said = {
        Outcome.A: f"{a} is better: {b} changes the score by {change}.",
        Outcome.B: f"{b} is better: {change}.",
        Outcome.SAME: f"Practically the same: {change}.",
        Outcome.UNCLEAR: f"Not enough data: {change}.",
    }[comparison.outcome]
    if comparison.n_more is not None:
        said += f" About {more_cases(comparison.n_more)} would show if they are the same."
    said += f" {cases(len(comparison.fixed))} fixed, {len(comparison.broken)} broken."
    return " ".join([said, *(note[:1].upper() + note[1:] + "." for note in comparison.notes)])


def loop_sentence(
    loop: Convergence, holdout: Comparison | None, *, min_delta: float = 0.02, window: int = 3
) -> str:
    """Say why a loop stopped, and what the winner gained on unseen cases (STATS 16)."""
    rounds = "1 round" if loop.n == 1 else f"{loop.n} rounds"
    said = f"Stopped after {rounds}"
    if loop.value:
        said += f": last {window} gained less than {points(min_delta)} points"
    if holdout is None or holdout.value is None:
        return f"{said}. Improvement not verified: no unseen cases."
    said += (
        f". On {holdout.n:,} unseen cases the new prompt is "
        f"{signed(holdout.value)}{_likely(holdout)}."
    )
    return said if verified(holdout.n) else f"{said} Improvement not verified: too few cases."


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


def _likely(comparison: Comparison) -> str:
    if comparison.interval is None:
        return ""
    return f" (likely {signed(comparison.interval.low)} to {signed(comparison.interval.high)})"
