"""Were two runs graded alike?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from edison_ci.records import RunStatus
from edison_ci.results.snapshot import grading_hash
from edison_ci.store.runs import Run

EXPERIMENT: dict[str, Any] = {
    "objective": "Be kind.",
    "prompts": ["prompts/p.md"],
    "models": [["small", "small", {}]],
    "checks": [{"check": "python", "value": "checks/own.py:check"}],
    "rubric": {"path": "rubrics/r.yaml", "weight": 1},
    "judges": {"pointwise": ["judge"], "graders": []},
    "safety": {"pii": "flag"},
    "gates": [],
    "repeats": 1,
}
SNAPSHOT: dict[str, Any] = {
    "experiments/e.yaml": EXPERIMENT,
    "prompts/p.md": ["aaaa", "none"],
    "rubrics/r.yaml": {"criteria": ["Warmth"]},
    "models.yaml: small": [{"model": "small"}, None],
    "models.yaml: judge": [{"model": "judge"}, {}],
    "the price of small": {"tokens_in": 1},
    "checks/own.py": "d1",
    "judges/pointwise.md": "d2",
    "recordings/small.jsonl": "d3",
    "edison.yaml: settings": {"allow_code": True},
    "quarantine.yaml": [],
    "command line": {"selection": {}},
}


def stick(changes: dict[str, Any]) -> str:
    return grading_hash(run(json.dumps({**SNAPSHOT, **changes})))


def run(snapshot: str) -> Run:
    return Run(
        id="r",
        experiment="e",
        trigger="cli",
        status=RunStatus.COMPLETED,
        verdict=None,
        plan_hash="",
        snapshot=snapshot,
        labels={},
        cells_planned=0,
        complete=True,
        simulated=False,
        partial=False,
        stopped_by=None,
        reused=0,
        base_ref=None,
        base_commit=None,
        owner=None,
        created_at="",
        finished_at=None,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"prompts/p.md": ["bbbb", "none"]},
        {"models.yaml: small": [{"model": "other"}, None]},
        {"models.yaml: large": [{"model": "large"}, None]},
        {"the price of small": None},
        {"recordings/small.jsonl": "d4"},
        {"quarantine.yaml": ["c1"]},
        {"command line": {"selection": {"limit": 3}}},
        {"base: rubrics/r.yaml": {}},
        {"experiments/e.yaml": {**EXPERIMENT, "gates": [1], "models": [], "repeats": 3}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_subjects_and_money_are_not_part_of_the_yardstick(changes: dict[str, Any]) -> None:
    assert stick(changes) == stick({})


@pytest.mark.parametrize(
    "changes",
    [
        {"rubrics/r.yaml": {"criteria": ["Brevity"]}},
        {"models.yaml: judge": [{"model": "judge-2"}, {}]},
        {"checks/own.py": "d4"},
        {"judges/pointwise.md": "d4"},
        {"experiments/e.yaml": {**EXPERIMENT, "objective": "Be brief."}},
        {"experiments/e.yaml": {**EXPERIMENT, "checks": []}},
        {"experiments/e.yaml": {**EXPERIMENT, "safety": {"pii": "block"}}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_grades_is_part_of_the_yardstick(changes: dict[str, Any]) -> None:
    assert stick(changes) != stick({})


@pytest.mark.parametrize("snapshot", ["", "[]", "{}"])
def test_a_run_without_a_snapshot_has_a_yardstick_of_its_own(snapshot: str) -> None:
    assert grading_hash(run(snapshot)) == grading_hash(run("{}")) != stick({})
