"""Were two runs measured with the same yardstick?

Scores can be set against each other only if the same checks, rubric, judges, graders and screens
gave them. A run keeps what it was planned on; here the part of it is compared that makes grades.
What is measured, prompts and the models that generate, may differ: that is the question.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edison_ci.store.runs import Run

_GRADING = ("checks", "judges", "safety")
_OTHER = ("command line", "quarantine.yaml", "licences.yaml", "the price of ")
"""What a run depends on and its grades do not."""


def differing_material(a: Run, b: Run) -> list[str]:
    """Return the places whose content makes the grades of two runs incomparable."""
    if a.id == b.id or a.snapshot == b.snapshot:
        return []
    old, new = _material(a), _material(b)
    return [place for place in {**old, **new} if old.get(place) != new.get(place)]


def _material(run: Run) -> dict[str, Any]:
    try:
        kept = json.loads(run.snapshot)
    except ValueError:
        return {"snapshot": run.id}
    place, written = _experiment(kept, run.experiment)
    rubric = written.get("rubric") or {}
    scored = dict(kept.get(rubric.get("path")) or {})
    # Labels say how far a judge can be trusted; its grades are the same with and without them.
    labels = (scored.pop("calibration", None) or {}).get("labels")
    subject = {place, labels, rubric.get("path"), *written.get("prompts", ())}
    subject -= {grader["prompt"] for grader in written.get("judges", {}).get("graders", ())}
    told = {
        name: value
        for name, value in kept.items()
        if name not in subject and not name.startswith((*_OTHER, "base: ")) and not _plays(value)
    }
    graded: dict[str, Any] = {key: written.get(key) for key in _GRADING}
    graded["rubric"] = [rubric.get("weight"), scored]
    return {**graded, **told}


def _experiment(kept: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    for place, value in kept.items():
        if place.startswith("base: "):
            continue  # what it was compared with has an experiment of the same name
        if isinstance(value, dict) and value.get("experiment") == name:
            return place, value
    return "", {}


def experiment_in(kept: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an experiment as a run was planned on it."""
    return _experiment(kept, name)[1]


def _plays(value: Any) -> bool:
    """Whether this is a model that only generates: it is told without parameters."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], dict)
        and value[1] is None
    )
