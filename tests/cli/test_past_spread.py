"""The plan of a comparison says what the gate of the last one said, by the same differences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.stats.power import cases_for_margin

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

HELLO = "experiments/hello.yaml"
PROMPT = "prompts/hello.md"
GATE = "{metric: composite, no_worse_than: base, margin: 5pp}"
CASES = 40


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project in a repository whose head loses a quarter of the cases and gains as many."""
    rows = ({"id": f"c{i:02}", "input": {"name": f"P{i:02}"}} for i in range(CASES))
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    answers = [
        {"match": f"/kind.*P{digit}[0-4]/" if kind else f"/friendly.*P{digit}[5-9]/", "text": "Go."}
        for digit in range(4)
        for kind in (True, False)
    ]
    answers += [{"match": "", "text": "Good morning!"}]
    mini.write("answers.jsonl", "".join(json.dumps(row) + "\n" for row in answers))
    mini.write(
        "models.yaml", "small: {provider: sim, model: script, options: {file: answers.jsonl}}\n"
    )
    mini.write(
        HELLO,
        "experiment: hello\nobjective: Greet people by their name in a friendly way.\n"
        "prompts: [prompts/hello.md]\nmodels: [small]\ndataset: datasets/names.jsonl\n"
        f"checks: [contains: morning]\ngates: [{GATE}]\n",
    )
    mini.write(PROMPT, "---\nid: hello\n---\n# user\nIn a friendly way greet {{ name }}.\n")
    mini.write(".gitignore", ".edison/results.db*\n.edison/locks/\n.edison/snapshots/\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    mini.edit(PROMPT, "a friendly way", "a kind way")
    return mini


def plan(edison: Edison, folder: Folder) -> dict[str, Any]:
    (found,) = json.loads(edison(folder, "plan", "--json").out)["experiments"]
    assert isinstance(found, dict)
    return found


def compared(edison: Edison, folder: Folder) -> dict[str, Any]:
    done = edison(folder, "run", "--against", "main", "--json")
    found: dict[str, Any] = json.loads(done.out)["runs"][0]
    return found


def test_the_plan_needs_the_cases_that_the_gate_asked_for(edison: Edison, project: Folder) -> None:
    assumed = plan(edison, project)
    assert (assumed["sd"], assumed["cases_for_margin"]) == (None, 200)
    run = compared(edison, project)
    (gate,) = run["gates"]
    assert gate["verdict"] == "inconclusive"
    measured = plan(edison, project)
    assert measured["sd"] == pytest.approx((40 / 39) ** 0.5), "each case loses or gains everything"
    assert measured["cases_for_margin"] == CASES + gate["n_more"]
    assert measured["cases_for_margin"] == cases_for_margin(measured["sd"]).value
    assert measured["smallest_effect"] > 3 * assumed["smallest_effect"]
    said = edison(project, "plan").out
    assert f"differences vary by 101.3 points, as measured in run {run['run_id']}" in said
    assert "as is typical" not in said


def test_another_margin_is_planned_with_the_same_measurement(
    edison: Edison, project: Folder
) -> None:
    compared(edison, project)
    project.edit(HELLO, "margin: 5pp", "margin: 20%")
    found = plan(edison, project)
    # The base passes half of the cases, so a fifth of its score is 10 points.
    assert found["margin"] == pytest.approx(0.1)
    assert found["cases_for_margin"] == cases_for_margin(found["sd"], margin=0.1).value
    assert not any("relative" in reason for reason in found["reasons"])


def test_clusters_count_in_the_plan_as_in_the_gate(edison: Edison, project: Folder) -> None:
    rows = (
        {"id": f"c{i:02}", "input": {"name": f"P{i:02}"}, "cluster": f"d{i % 20}"}
        for i in range(CASES)
    )
    project.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    project.git("add", "datasets")
    project.git("commit", "--quiet", "--message", "clusters")
    (gate,) = compared(edison, project)["gates"]
    found = plan(edison, project)
    assert found["cases_for_margin"] == CASES + gate["n_more"]
    clusters = cases_for_margin(found["sd"]).value
    assert clusters is not None
    assert found["cases_for_margin"] == 2 * clusters


def test_equal_answers_measure_nothing(edison: Edison, project: Folder) -> None:
    project.edit(PROMPT, "a kind way", "a friendly way")
    compared(edison, project)
    assert plan(edison, project)["sd"] is None
