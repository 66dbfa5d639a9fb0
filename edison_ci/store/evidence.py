"""What does the evidence of a suggestion look like, whoever wrote it?

It is JSON in the results, which may come from an older program or from a hand that should not have
been there. Readers get every key they rely on, of the kind they rely on; what is of another kind
counts as missing. Keys that are not known here stay as they are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ROWS = 1_000
SEARCH_COUNTS = ("generations", "tried", "measured", "refused", "wider", "earlier_looks")
"""What is counted of a search that found a suggestion."""
_DECISIONS = ("better", "worse", "same", "unclear")
_LEVEL = ("estimate", "low", "high")


def sound_evidence(value: Any) -> dict[str, Any]:
    """Return evidence that can be shown without looking twice."""
    if not isinstance(value, dict):
        return {}
    found = dict(value)
    for key in ("train", "holdout"):
        if key in found:
            found[key] = _measured(found[key])
    if "criteria" in found:
        rows = found["criteria"] if isinstance(found["criteria"], list) else []
        found["criteria"] = [_criterion(row) for row in rows[:MOST_ROWS] if isinstance(row, dict)]
    if "growth" in found:
        found["growth"] = _growth(found["growth"])
    if "cost_microusd" in found:
        found["cost_microusd"] = _numbers(found["cost_microusd"], ("before", "after"))
    if "examples" in found:
        found["examples"] = _names(found["examples"])
    if "search" in found:
        found["search"] = _search(found["search"])
    if "sentence" in found and not isinstance(found["sentence"], str):
        del found["sentence"]
    return found


def _measured(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict) or not _is_count(value.get("n")):
        return None
    decision = value.get("decision")
    return {
        **value,
        "before": _level(value.get("before")),
        "after": _level(value.get("after")),
        "difference": {**_part(value, "difference"), **_change(_part(value, "difference"))},
        "decision": decision if decision in _DECISIONS else "unclear",
        "fixed": _names(value.get("fixed")),
        "broken": _names(value.get("broken")),
    }


def _part(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    part = value.get(key)
    return part if isinstance(part, dict) else {}


def _level(value: Any) -> dict[str, Any] | None:
    """Return a score with its interval; one without a score is none."""
    if not isinstance(value, dict) or _number(value.get("estimate")) is None:
        return None
    return {**value, **_bounded(value)}


def _change(value: Mapping[str, Any]) -> dict[str, float | None]:
    return {**_bounded(value), "p": _number(value.get("p"))}


def _bounded(value: Mapping[str, Any]) -> dict[str, float | None]:
    estimate, low, high = (_number(value.get(key)) for key in _LEVEL)
    if estimate is None or low is None or high is None:
        low = high = None
    return {"estimate": estimate, "low": low, "high": high}


def _criterion(row: Mapping[str, Any]) -> dict[str, Any]:
    scores = _numbers(row, ("before", "after"))
    return {**row, "name": str(row.get("name", "?")), **scores}


def _growth(value: Any) -> dict[str, Any] | None:
    told = value if isinstance(value, dict) else {}
    chars, percent = _number(told.get("chars")), _number(told.get("percent"))
    if chars is None:
        return None
    return {**told, "chars": int(chars), "percent": percent or 0.0}


def _search(value: Any) -> dict[str, Any] | None:
    """Return how a search went; without its counts it says nothing."""
    told = value if isinstance(value, dict) else {}
    if not all(_is_count(told.get(key)) for key in SEARCH_COUNTS):
        return None
    return {**told, **{key: int(told[key]) for key in SEARCH_COUNTS}}


def _numbers(value: Any, keys: tuple[str, ...]) -> dict[str, float | None]:
    told = value if isinstance(value, dict) else {}
    return {key: _number(told.get(key)) for key in keys}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 1e15 and math.isfinite(value) else None


def _is_count(value: Any) -> bool:
    return _number(value) is not None and value >= 0 and float(value).is_integer()


def _names(value: Any) -> list[str]:
    return [str(name) for name in value[:MOST_ROWS]] if isinstance(value, list) else []
