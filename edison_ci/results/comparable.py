"""Runs that can stand side by side: complete, and graded alike.

Prompts and generating models are what a comparison is about; what must not differ is the yardstick:
objective, checks, rubric, graders, judges and screens, and the models and files behind them. Cases
are matched one by one elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from edison_ci.store.runs import NO_TRIAL, find_run

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.store.runs import Run


# Scores can be set against each other only if the same checks, rubric, judges, graders and screens
# gave them. A run keeps what it was planned on; here the part of it is compared that makes grades.
# What is measured, prompts and the models that generate, may differ: that is the question.
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
    place, written = _written_experiment(kept, run.experiment)
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


def _written_experiment(kept: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    for place, value in kept.items():
        if place.startswith("base: "):
            continue  # what it was compared with has an experiment of the same name
        if isinstance(value, dict) and value.get("experiment") == name:
            return place, value
    return "", {}


def experiment_in(kept: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an experiment as a run was planned on it."""
    return _written_experiment(kept, name)[1]


def _plays(value: Any) -> bool:
    """Whether this is a model that only generates: it is told without parameters."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], dict)
        and value[1] is None
    )


MOST_RUNS = 200
"""Of the newest complete runs, so many are looked through for further versions and models."""


def complete_runs(
    connection: sqlite3.Connection, experiment: str, most: int, *, trials: bool = False
) -> list[Run]:
    """Return the newest complete runs of an experiment, newest first; trials where asked for."""
    rows = connection.execute(
        "select id from run where experiment = ? and complete = 1 and status = 'COMPLETED' "
        f"{'' if trials else f'and {NO_TRIAL} '}order by created_at desc, rowid desc limit ?",
        (experiment, most),
    )
    return [find_run(connection, run_id) for (run_id,) in rows.fetchall()]


def measured_experiments(connection: sqlite3.Connection) -> list[str]:
    """Return the experiments that have a complete run, by name."""
    rows = connection.execute(
        "select distinct experiment from run where complete = 1 and status = 'COMPLETED' order by 1"
    )
    return [name for (name,) in rows]


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
