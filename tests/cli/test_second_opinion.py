"""edison regrade --judge, --rubric, --case and --failed: a second opinion that changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

RUBRIC = (
    "rubric: manners\ncriteria:\n"
    "  - {name: Politeness, description: Is polite to the person., weight: 0.5}\n"
    "  - {name: Clarity, description: Says one thing and says it well., weight: 0.5}\n"
)


@pytest.fixture
def ran(edison: Edison, mini: Folder) -> Folder:
    """A run in which one of two cases fails, with a second judge and a second rubric."""
    models = (mini.path / "models.yaml").read_text(encoding="utf-8")
    mini.write(
        "models.yaml", f"{models}second: {{provider: sim, model: judge, params: {{seed: 7}}}}\n"
    )
    mini.write("rubrics/manners.yaml", RUBRIC)
    mini.write(
        "datasets/names.jsonl",
        '{"id": "ada", "input": {"name": "Ada"}, "expected": "Ada"}\n'
        '{"id": "bo", "input": {"name": "Bo"}, "expected": "zzz"}\n',
    )
    assert edison(mini, "run", "-q").code == 0
    return mini


def opinion(edison: Edison, folder: Folder, *words: str) -> dict[str, Any]:
    done = edison(folder, "regrade", *words, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_another_judge_grades_and_nothing_changes(edison: Edison, ran: Folder) -> None:
    def stored() -> list[str]:
        commands = (["status", "--json"], ["status", "latest", "--json"], ["compare", "--gates"])
        cells = (["explain", case, "--json"] for case in ("ada", "bo"))
        return [edison(ran, *words).out for words in (*commands, *cells)]

    before = stored()
    found = opinion(edison, ran, "--judge", "second")
    assert (found["advisory"], found["judges"], found["rubric"]) == (True, ["second"], "tone")
    assert {one["case"] for one in found["answers"]} == {"ada", "bo"}
    for one in found["answers"]:
        assert one["before"]["composite"] is not None
        assert one["after"]["composite"] is not None
        assert {"Warmth", "Brevity"} <= {part["name"] for part in one["after"]["components"]}
    assert found["calls"] == 2
    assert stored() == before


def test_asking_again_costs_nothing(edison: Edison, ran: Folder) -> None:
    first = opinion(edison, ran, "--judge", "second")
    again = opinion(edison, ran, "--judge", "second")
    assert (first["calls"], again["calls"]) == (2, 0)
    assert again["answers"] == first["answers"]


def test_the_judges_of_the_run_say_the_same(edison: Edison, ran: Folder) -> None:
    found = opinion(edison, ran, "--case", "ada")
    (one,) = found["answers"]
    assert one["after"]["composite"] == pytest.approx(one["before"]["composite"])
    assert (found["calls"], found["flipped"]) == (0, 0)


def test_only_the_chosen_part_is_graded(edison: Edison, ran: Folder) -> None:
    assert [one["case"] for one in opinion(edison, ran, "--failed")["answers"]] == ["bo"]
    assert [one["case"] for one in opinion(edison, ran, "--case", "ada")["answers"]] == ["ada"]


@pytest.mark.parametrize("name", ["manners", "rubrics/manners.yaml"])
def test_another_rubric_grades(edison: Edison, ran: Folder, name: str) -> None:
    found = opinion(edison, ran, "--rubric", name)
    assert found["rubric"] == "manners"
    named = {part["name"] for one in found["answers"] for part in one["after"]["components"]}
    assert {"Politeness", "Clarity"} <= named
    assert "Warmth" not in named


def test_it_is_labelled_on_the_screen(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "regrade", "--judge", "second", "--failed")
    assert "hello  ADVISORY  1 answer of " in done.out
    assert "graded by second, rubric tone  simulated" in done.out
    assert "\nbo@small#0 " in done.out
    assert done.out.endswith("advisory: the run, its grades and its verdict stay as they are\n")
    assert "1 call to second" in done.err


def test_answers_of_another_prompt_are_left_out(edison: Edison, ran: Folder) -> None:
    prompt = (ran.path / "prompts/hello.md").read_text(encoding="utf-8")
    ran.write("prompts/hello.md", prompt.replace("one friendly", "a friendly"))
    done = edison(ran, "regrade", "--judge", "second")
    assert done.code == 2
    assert "can be graded again: its prompts or cases have changed" in done.err
    ran.write("prompts/hello.md", prompt)
    ran.write(
        "datasets/names.jsonl",
        '{"id": "ada", "input": {"name": "Ada L."}, "expected": "Ada"}\n'
        '{"id": "bo", "input": {"name": "Bo"}, "expected": "zzz"}\n',
    )
    found = opinion(edison, ran, "--judge", "second")
    assert [one["case"] for one in found["answers"]] == ["bo"]
    assert found["left_out"] == {"changed": 1, "gone": 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--judge", "secnd"], "there is no model 'secnd'\n  did you mean 'second'?"),
        (["--rubric", "maners"], "there is no rubric 'maners'\n  did you mean 'manners'?"),
        (["--case", "adda"], "has no case 'adda'\n  did you mean 'ada'?"),
        (["--case", "ada", "--failed"], "is chosen\n  see: edison status"),
        ([w for n in range(6) for w in ("--judge", f"j{n}")], "6 judges; at most 5"),
    ],
    ids=lambda x: " ".join(x[:4]) if isinstance(x, list) else "",
)
def test_what_cannot_be_graded_is_said(
    edison: Edison, ran: Folder, words: list[str], said: str
) -> None:
    done = edison(ran, "regrade", *words)
    assert done.code == 2
    assert said in done.err


def test_a_judge_that_grades_nothing_is_an_error(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "regrade", "--judge", "small", "--json")
    assert done.code == 3
    error = json.loads(done.out)["error"]
    assert error["message"].startswith("no judge graded an answer: ")


def test_an_experiment_without_a_rubric_needs_one(edison: Edison, ran: Folder) -> None:
    path = ran.path / "experiments/hello.yaml"
    kept = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.startswith(("rubric:", "judges:"))
    ]
    ran.write("experiments/hello.yaml", "\n".join([*kept, ""]))
    done = edison(ran, "regrade", "--judge", "second")
    assert done.code == 2
    assert "hello has no rubric\n  --rubric; name one: rubrics/manners.yaml" in done.err
    found = opinion(edison, ran, "--judge", "second", "--rubric", "manners")
    assert len(found["answers"]) == 2
