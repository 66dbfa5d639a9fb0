"""Forest plots of gates, one for each kind of number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.report.charts.forest import Forest, GateLine
from edison_ci.report.charts.scales import Unit, finite

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.results.decisions import GateRow

_TITLES = {
    Unit.CHANGE: "Change against the base",
    Unit.RATIO: "Relative change against the base",
    Unit.POINTS: "Scores",
    Unit.SHARE: "Shares of answers",
    Unit.DOLLARS: "Cost of an answer",
    Unit.MILLISECONDS: "Latency",
    Unit.COUNT: "Amounts",
}
_LEVELS = {
    "pass_rate": Unit.SHARE,
    "win_rate": Unit.SHARE,
    "errors": Unit.SHARE,
    "cost_usd.mean": Unit.DOLLARS,
    "latency_ms.p95": Unit.MILLISECONDS,
    "tokens.mean": Unit.COUNT,
}
_MICRO = 1_000_000
_WIDTH = 860


def forests_of(gates: Iterable[GateRow]) -> tuple[Forest, ...]:
    """Return the plots of all decisions that have a number; others are told by their sentence."""
    gates = tuple(gates)
    short = one_prompt(gates)
    grouped: dict[Unit, list[GateLine]] = {}
    for row in gates:
        if finite(row.estimate) is None:
            continue
        unit = _unit(row)
        grouped.setdefault(unit, []).append(_line(row, unit, short=short))
    return tuple(
        Forest(title, tuple(grouped[unit]), unit, _WIDTH)
        for unit, title in _TITLES.items()
        if unit in grouped
    )


def one_prompt(gates: Iterable[GateRow]) -> bool:
    """Whether all decisions are about the same prompt, which need not be named then."""
    return len({row.prompt for row in gates if row.prompt}) <= 1


def gate_name(row: GateRow, *, short: bool = False) -> str:
    """Return which gate it is, and of which prompt and model; `short` leaves the prompt out."""
    names = (row.model,) if short and row.model else (row.prompt, row.model)
    whose = " with ".join(name for name in names if name)
    return f"{row.metric}, {whose}" if whose else row.metric


def _unit(row: GateRow) -> Unit:
    kind = row.detail.get("kind", "change")
    if kind == "relative":
        return Unit.RATIO
    if kind == "change":
        return Unit.CHANGE
    if row.metric.startswith("safety."):
        return Unit.SHARE
    return _LEVELS.get(row.metric, Unit.POINTS)


def _line(row: GateRow, unit: Unit, *, short: bool) -> GateLine:
    times = _MICRO if unit is Unit.DOLLARS else 1
    low, high = (None if end is None else times * end for end in (row.low, row.high))
    bound, above = _bound(row, unit)
    return GateLine(
        gate_name(row, short=short),
        row.word.lower(),
        times * (row.estimate or 0.0),
        low,
        high,
        None if bound is None else times * bound,
        above,
    )


def _bound(row: GateRow, unit: Unit) -> tuple[float | None, bool]:
    """Return what must not be passed, and whether good is above it."""
    asked = row.detail.get("margin")
    margin = float(asked) if isinstance(asked, int | float) else None
    if unit is Unit.RATIO:
        return margin, False
    if unit is not Unit.CHANGE:
        return margin, "at_most" not in row.gate
    if row.metric == "errors" or row.metric.startswith("safety."):
        # A margin that is a share of the base says nothing about points.
        relative = (row.gate.get("margin") or {}).get("relative")
        return None if relative else margin, False
    return None if margin is None else -margin, True
