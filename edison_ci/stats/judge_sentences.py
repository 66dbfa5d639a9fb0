"""How is it said what judges agree on, prefer, and get wrong?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.rounding import fixed, reaches, whole
from edison_ci.stats.pairwise import Preference
from edison_ci.stats.sentences import cases, points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.agreement import Agreement
    from edison_ci.stats.calibration import CorrectedMean, SideBias
    from edison_ci.stats.pairwise import OrderEffect, WinRate
    from edison_ci.stats.panel import Panel
    from edison_ci.stats.ranking import Placed, Ranking

_NOTICEABLE = 0.03
"""A judge's severity below 3 points is not worth a sentence."""


def panel_sentence(panel: Panel, judges: Sequence[str]) -> str:
    """Say where judges disagree, and who is strict or generous (STATS 3)."""
    return judges_sentence(judges, panel.severity, apart=len(panel.flagged), of=len(panel.cases))


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


def ranking_sentence(ranking: Ranking) -> str:
    """Say an order with its overlaps: systems whose ranks overlap are not ranked (STATS 12)."""
    if len(ranking.islands) > 1:
        islands = "; ".join(", ".join(island) for island in ranking.islands)
        return f"No joint ranking: never compared with each other: {islands}."
    listed = ", ".join(_place(placed) for placed in ranking.placed)
    return ". ".join([listed or "nothing to rank", *map(_capital, ranking.notes)])


def correction_sentence(corrected: CorrectedMean, *, who: str = "Judge says") -> str:
    """Say what people would have said (STATS 14); `who` gave the grades that are corrected."""
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


def _place(placed: Placed) -> str:
    best, worst = placed.best_rank, placed.worst_rank
    ranks = str(best) if best == worst else f"{best}-{worst}"
    likely = ""
    if placed.interval is not None:
        likely = f", likely {fixed(placed.interval.low)}-{fixed(placed.interval.high)}"
    return f"{ranks} {placed.system} ({fixed(placed.value)}{likely})"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
