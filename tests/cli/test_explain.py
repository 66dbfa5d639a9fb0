"""edison explain: a grade, taken apart."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

SECRET = "sk-proj-" + "a1B2" * 8


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project whose grade has a weighted check, a rubric with a floor, and a judge."""
    mini.edit("experiments/hello.yaml", "checks:\n", "checks:\n  - words: {max: 3, weight: 1}\n")
    mini.edit("rubrics/tone.yaml", "rubric: tone\n", "rubric: tone\npass_at: 0.4\n")
    return mini


def told(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "explain", *args, "--json")
    assert done.code == 0, done.all
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def test_a_failure_is_explained_by_the_parts_that_fail(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    done = edison(project, "explain", "ada@small")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("ada@small#0  ")
    assert lines[1].startswith("hello v1 (")
    assert lines[2].startswith("fails: check words max 3 has 0 of 100 (the answer has ")
    assert "name: Ada" in lines
    assert "--- reply of judge, answer 0" in lines
    assert "answer 0: $0" in done.err


def test_the_arithmetic_gives_the_score(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    found = told(edison, project, "ada@small#0")
    parts = {(part["kind"], part["name"]): part for part in found["components"]}
    rubric, words = parts["rubric", "tone"], parts["check", "words max 3"]
    assert (rubric["threshold"], rubric["weight"]) == (0.4, 1)
    assert (words["threshold"], words["score"], words["passed"]) == (1.0, 0.0, False)
    score = 100 * rubric["score"]
    assert f"1 x {score:.1f}".removesuffix(".0") in found["arithmetic"]
    assert found["composite"] == pytest.approx(rubric["score"] / 2)
    assert found["case"]["input"] == {"name": "Ada"}
    assert found["answer"]["raw"] == found["answer"]["text"]
    assert [said["model"] for said in found["judgments"]] == ["judge"]
    assert '"scores"' in found["judgments"][0]["text"]


def test_a_cell_is_found_by_its_id_in_whatever_run_it_is(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    first = told(edison, project, "bo@small")
    edison(project, "run", "-q")
    assert told(edison, project, first["cell"])["run_id"] == first["run_id"]
    assert told(edison, project, "bo@small")["run_id"] != first["run_id"]
    named = told(edison, project, "bo@small", "--run", first["run_id"])
    assert named["cell"] == first["cell"]
    assert edison(project, "explain", "eve@small").code == 2
    assert edison(project, "explain", "0123456789ab").code == 2


def test_thresholds_are_those_of_then(edison: Edison, project: Folder) -> None:
    edison(project, "run", "-q")
    project.edit("experiments/hello.yaml", "max: 3", "max: 300")
    project.edit("rubrics/tone.yaml", "pass_at: 0.4", "pass_at: 0.9")
    parts = {part["name"]: part for part in told(edison, project, "ada@small")["components"]}
    assert parts["tone"]["threshold"] == 0.4
    assert parts["words max 3"]["threshold"] is None, "nobody knows any more what it was"


def test_further_takes_are_listed_and_a_changed_case_is_not_shown(
    edison: Edison, project: Folder
) -> None:
    edison(project, "run", "-q")
    edison(project, "rerun", "latest", "--cell", "ada@small", "-q")
    assert "answer 1, not of this run" in edison(project, "explain", "ada@small").err
    project.edit("datasets/names.jsonl", '"name": "Ada"', '"name": "Eve"')
    found = told(edison, project, "ada@small")
    assert found["case"] == {"id": "ada", "changed": True}
    assert (found["answer_no"], [one["answer_no"] for one in found["answers"]]) == (0, [0, 1])


def test_what_looks_like_a_key_is_cut_short(edison: Edison, project: Folder) -> None:
    project.edit("models.yaml", "model: small}", "model: echo}")
    edison(project, "run", "-q")
    with opened(project.path / ".edison/results.db") as connection:
        connection.execute(
            "update component set reason = ? where name = 'words max 3'", (f"saw {SECRET}",)
        )
    done = edison(project, "explain", "ada@small")
    assert "sk-p..." in done.out
    assert SECRET not in done.all
    assert SECRET not in edison(project, "explain", "ada@small", "--json").out


def test_a_blocked_answer_is_shown_to_nobody(edison: Edison, project: Folder) -> None:
    project.edit("models.yaml", "model: small}", "model: echo}")
    project.edit("prompts/hello.md", "Say hello", "Write to someone@example.com and say hello")
    project.edit("experiments/hello.yaml", "gates:", "safety: {pii: block}\ngates:")
    edison(project, "run", "-q")
    done = edison(project, "explain", "ada@small")
    assert "blocked: pii" in done.out
    assert "blocked, therefore not shown" in done.out
    assert "someone@" not in done.all
    assert told(edison, project, "ada@small")["answer"] is None


def test_what_counts_of_an_answer_is_shown_beside_it(edison: Edison, project: Folder) -> None:
    project.edit("models.yaml", "model: small}", "model: echo}")
    project.edit("prompts/hello.md", "Say hello", "<response>Say hello</response> and wave")
    edison(project, "run", "-q")
    found = told(edison, project, "ada@small")
    assert found["answer"]["text"] == "Say hello"
    assert "--- graded text" in edison(project, "explain", "ada@small").out


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("adda@small", "did you mean 'ada'?"),
        ("ada@smal", "did you mean 'small'?"),
        ("ada@small#7", "repeats: #0"),
        ("0000", "cases: ada, bo"),
    ],
)
def test_a_wrong_part_of_a_name_is_told(
    edison: Edison, project: Folder, cell: str, said: str
) -> None:
    edison(project, "run", "-q")
    for command in (["explain", cell], ["rerun", "latest", "--cell", cell]):
        done = edison(project, *command)
        assert (done.code, said in done.err) == (2, True), done.err


def test_with_two_prompts_it_asks_which_cell_is_meant(edison: Edison, project: Folder) -> None:
    project.write(
        "prompts/other.md", project.read("prompts/hello.md").replace("id: hello", "id: other")
    )
    project.edit(
        "experiments/hello.yaml", "[prompts/hello.md]", "[prompts/hello.md, prompts/other.md]"
    )
    edison(project, "run", "-q")
    for command in (["explain", "ada@small"], ["rerun", "latest", "--cell", "ada@small"]):
        done = edison(project, *command)
        assert done.code == 2
        assert "ada@small is a cell of 2 prompts; which one?" in done.err
    ids = re.findall(r"([0-9a-f]{12}) \((hello|other)\)", done.err)
    assert [name for _, name in ids] == ["hello", "other"]
    assert [told(edison, project, cell)["prompt"]["id"] for cell, _ in ids] == ["hello", "other"]


def test_a_wrong_prompt_or_model_of_ab_is_told(edison: Edison, project: Folder) -> None:
    project.write(
        "prompts/other.md", project.read("prompts/hello.md").replace("id: hello", "id: other")
    )
    project.edit(
        "experiments/hello.yaml", "[prompts/hello.md]", "[prompts/hello.md, prompts/other.md]"
    )
    edison(project, "run", "-q")
    assert "did you mean 'other'?" in edison(project, "compare", "--prompts", "hello", "othr").err
    assert (
        "did you mean 'small'?"
        in edison(project, "compare", "--prompts", "hello", "other", "--model", "smal").err
    )
    assert "did you mean 'latest'?" in edison(project, "explain", "ada@small", "--run", "lates").err


def test_what_has_no_threshold_shows_no_pass(edison: Edison, mini: Folder) -> None:
    mini.edit(
        "experiments/hello.yaml", "gates:\n", "gates:\n  - {metric: check.contains, at_least: 1%}\n"
    )
    mini.edit("rubrics/tone.yaml", "name: Brevity,", "name: Brevity, min: 0.01,")
    for floor, rubric in (("min: 0.01", True), ("", None)):
        mini.edit("rubrics/tone.yaml", "min: 0.01,", f"{floor},".removeprefix(","))
        run = json.loads(edison(mini, "run", "--json").out)["runs"][0]
        passes = {(one["kind"], one["name"]): one["passed"] for one in run["components"]}
        assert passes["check", "contains expected"] is not None
        assert passes["criterion", "Warmth"] is None
        assert passes["criterion", "Brevity"] == (run["cells"]["ok"] if rubric else None)
        assert passes["rubric", "tone"] == (run["cells"]["ok"] if rubric else None)
        assert run["pass_rate"]["n"] == run["cells"]["ok"]
        gate = next(one for one in run["gates"] if one["metric"] == "check.contains")
        assert gate["n"] == run["cells"]["ok"], "the kind of the check is enough"
    parts = {one["name"]: one["passed"] for one in told(edison, mini, "bo@small")["components"]}
    assert (parts["Warmth"], parts["tone"]) == (None, None)
    lines = edison(mini, "explain", "bo@small").out.splitlines()
    assert [line.split()[0] for line in lines if "criterion" in line or "rubric" in line] == [
        "-"
    ] * 3
