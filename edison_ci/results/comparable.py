"""Were two runs graded alike, so that their scores can stand side by side?

Prompts and generating models are what a comparison is about; what must not differ is the yardstick:
objective, checks, rubric, graders, judges and screens, and the models and files behind them. Cases
are matched one by one elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edison_ci.store.runs import Run

_YARDSTICK = ("objective", "checks", "rubric", "judges", "safety")
_NEVER = ("command line", "quarantine.yaml", "licences.yaml")
_NOT_AT_THE_START = ("the price of ", "base: ")


def yardstick(run: Run) -> str:
    """Return a hash of everything that grades the answers of a run."""
    text = json.dumps(_grading(_kept(run)), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def may_compare(run: Run) -> bool:
    """Whether a judge may have set answers of a run side by side, and of those graded alike."""
    judges = _experiment(_kept(run)).get("judges")
    return not isinstance(judges, dict) or judges.get("pairwise") is not None


def _kept(run: Run) -> dict[str, Any]:
    try:
        kept = json.loads(run.snapshot)
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}


def _experiment(kept: dict[str, Any]) -> dict[str, Any]:
    own = (part for place, part in kept.items() if not place.startswith(_NOT_AT_THE_START))
    return next((part for part in own if _is_experiment(part)), {})


def _grading(kept: dict[str, Any]) -> dict[str, Any]:
    experiment = _experiment(kept)
    used = {key: experiment.get(key) for key in _YARDSTICK}
    said = set(_texts(used))
    found: dict[str, Any] = {"experiment": used}
    for place, part in kept.items():
        if place in _NEVER or place.startswith(_NOT_AT_THE_START) or part is experiment:
            continue
        if place in experiment.get("prompts", ()):
            continue
        _, sign, model = place.rpartition(": ")
        if sign and isinstance(part, list):  # a model of the registry, by name
            if model in said:
                found[place] = part
        elif isinstance(part, str):  # the digest of a file
            if place.startswith("judges/") or any(place in text for text in said):
                found[place] = part
        elif isinstance(part, dict) and "criteria" in part:  # a rubric, its licence left out
            found[place] = {key: value for key, value in part.items() if key != "calibration"}
        else:
            found[place] = part
    return found


def _is_experiment(part: object) -> bool:
    return isinstance(part, dict) and {"objective", "checks", "judges", "prompts"} <= part.keys()


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []
