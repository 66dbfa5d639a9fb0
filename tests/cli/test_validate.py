"""edison validate: of everything, of some files, and as pre-commit calls it."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

SECOND = {
    "experiments/other.yaml": (
        "experiment: other\n"
        "objective: Say goodbye to people by their name, kindly.\n"
        "prompts: [prompts/bye.md]\n"
        "models: [small]\n"
        "dataset: datasets/names.jsonl\n"
        "checks: [{icontains: bye}]\n"
    ),
    "prompts/bye.md": "Say goodbye to {{ name }} in one friendly sentence, and nothing else.\n",
}


@pytest.fixture
def two(mini: Folder) -> Folder:
    """A project with two experiments."""
    for name, text in SECOND.items():
        mini.write(name, text)
    return mini


def test_a_sound_project_says_what_it_has(edison: Edison, two: Folder) -> None:
    done = edison(two, "validate")
    assert (done.code, done.out) == (0, "")
    assert done.err == "ok: 2 experiments, 2 prompts, 1 rubric, 2 models, 4 cases\n"


def test_every_problem_is_told_with_its_place_and_a_hint(edison: Edison, mini: Folder) -> None:
    mini.edit("experiments/hello.yaml", "models: [small]", "models: [smal]")
    mini.edit("prompts/hello.md", "{{ name }}", "{{ nmae }}")
    done = edison(mini, "validate")
    assert done.code == 2
    assert done.out == (
        "experiments/hello.yaml:4:10: error: unknown model 'smal'\n    did you mean 'small'?\n"
    )
    assert done.err == "1 error\n"
    mini.edit("experiments/hello.yaml", "models: [smal]", "models: [small]")
    assert edison(mini, "validate").out == (
        "prompts/hello.md:5:17: error: no case has a value for 'nmae'\n    did you mean 'name'?\n"
    )


def test_a_warning_is_told_and_is_no_failure_unless_strict(edison: Edison, mini: Folder) -> None:
    mini.edit("models.yaml", "small: {", "odd: {provider: ollama, model: x}\nsmall: {")
    done = edison(mini, "validate")
    assert (done.code, ": warning: " in done.out) == (0, True)
    assert done.err.endswith("2 cases, 1 warning\n")
    assert edison(mini, "validate", "--strict").code == 2
    told = json.loads(edison(mini, "validate", "--strict", "--json").out)
    assert (told["ok"], told["problems"][0]["severity"]) == (False, "warning")


def test_a_fault_in_edison_yaml_hides_no_other_file(edison: Edison, mini: Folder) -> None:
    mini.edit("edison.yaml", "project: mini\n", "project: mini\nbudgets: 3\nmembers: [{role: x}]\n")
    mini.edit("experiments/hello.yaml", "checks:", "chekcs:")
    mini.edit("rubrics/tone.yaml", "weight: ", "wieght: ")
    told = json.loads(edison(mini, "validate", "--json").out)["problems"]
    assert {problem["file"] for problem in told} == {
        "edison.yaml", "experiments/hello.yaml", "rubrics/tone.yaml",
    }  # fmt: skip
    assert edison(mini, "run").code == 2, "nothing goes on without its members"
    mini.edit("edison.yaml", "budgets: 3", "paths: 3")
    told = json.loads(edison(mini, "validate", "--json").out)["problems"]
    assert {problem["file"] for problem in told} == {"edison.yaml"}, "others are who knows where"


# --- some files -----------------------------------------------------------------------------------


def test_a_file_shows_its_own_problems_and_not_those_of_others(edison: Edison, two: Folder) -> None:
    two.edit("prompts/bye.md", "{{ name }}", "{{ name | sort }}")
    two.write("rubrics/tone.yaml", two.read("rubrics/tone.yaml").replace("0.5", "0.4"))
    shown = edison(two, "validate", "prompts/bye.md").out
    assert "prompts/bye.md:1:" in shown
    assert "rubrics/tone.yaml" not in shown


@pytest.mark.parametrize(
    ("named", "broken", "old", "new"),
    [
        ("prompts/hello.md", "datasets/names.jsonl", '"name": "Ada"', '"nam": "Ada"'),
        ("datasets/names.jsonl", "prompts/hello.md", "{{ name }}", "{{ nome }}"),
        ("rubrics/tone.yaml", "experiments/hello.yaml", "composite", "criterion.Speed"),
        ("models.yaml", "experiments/hello.yaml", "models: [small]", "models: [smal]"),
        ("prompts", "prompts/hello.md", "{{ name }}", "{{ nome }}"),
        (".", "prompts/hello.md", "{{ name }}", "{{ nome }}"),
    ],
)
def test_a_file_shows_what_it_breaks_elsewhere(
    edison: Edison, two: Folder, named: str, broken: str, old: str, new: str
) -> None:
    two.edit(broken, old, new)
    assert edison(two, "validate", named).out != ""


def test_a_file_that_an_unreadable_experiment_may_use_shows_that_experiment(
    edison: Edison, mini: Folder
) -> None:
    (mini.path / "rubrics/tone.yaml").rename(mini.path / "rubrics/voice.yaml")
    mini.edit("rubrics/voice.yaml", "rubric: tone", "rubric: voice")
    done = edison(mini, "validate", "rubrics/voice.yaml")
    assert done.code == 2
    assert "rubrics/tone.yaml does not exist" in done.out


def test_a_declared_type_shows_the_rows_that_lack_it(edison: Edison, mini: Folder) -> None:
    mini.edit("prompts/hello.md", "id: hello", "id: hello\ninputs: {name: number}")
    done = edison(mini, "validate", "prompts/hello.md")
    assert done.code == 2
    assert "datasets/names.jsonl:1:" in done.out


@pytest.mark.parametrize(
    ("path", "said"),
    [("nowhere.md", "does not exist"), ("/", "there is no edison.yaml in /")],
)
def test_a_path_that_is_no_part_of_a_project_is_refused(
    edison: Edison, mini: Folder, path: str, said: str
) -> None:
    done = edison(mini, "validate", path)
    assert done.code == 2
    assert said in done.err


def test_an_absolute_path_and_one_from_below_are_taken(edison: Edison, mini: Folder) -> None:
    mini.edit("prompts/hello.md", "id: hello", "id: hallo")
    below = type(mini)(mini.path / "rubrics")
    for path in (str(mini.path / "prompts/hello.md"), "../prompts/hello.md"):
        assert "../prompts/hello.md:2:5: error" in edison(below, "validate", path).out


def test_files_of_several_projects_are_checked_in_their_own(edison: Edison, mini: Folder) -> None:
    top = mini.path.parent / "top"
    top.mkdir()
    mini.path.rename(top / "one")
    whole, one, two = (type(mini)(top / name) for name in (".", "one", "two"))
    for path in one.path.rglob("*"):
        if path.is_file():
            two.write(path.relative_to(one.path).as_posix(), path.read_bytes())
    paths = ("one/prompts/hello.md", "two/models.yaml")
    done = edison(whole, "validate", *paths)
    assert done.code == 0
    assert done.err.startswith("ok: 2 projects, 2 experiments")
    one.edit("prompts/hello.md", "id: hello", "id: hallo")
    two.edit("models.yaml", "provider: sim", "provider: simm")
    done = edison(whole, "validate", *paths)
    assert done.code == 2
    assert "one/prompts/hello.md:2:5: error" in done.out
    assert "two/models.yaml:1:" in done.out
    told = json.loads(edison(whole, "validate", *paths, "--json").out)
    assert {p["file"] for p in told["problems"]} >= {"one/prompts/hello.md", "two/models.yaml"}


def test_the_hook_calls_what_is_there(edison: Edison, mini: Folder) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["pass_filenames"] is True
    name, *words = shlex.split(hook["entry"])
    assert name == "edison"
    staged = [p.relative_to(mini.path).as_posix() for p in mini.path.rglob("*") if p.is_file()]
    assert edison(mini, *words, *staged).code == 0
    mini.edit("prompts/hello.md", "id: hello", "id: hallo")
    assert edison(mini, *words, "prompts/hello.md").code == 2
    assert edison(mini, *words, "models.yaml").code == 2, "shared: everything is checked"


def test_rows_are_checked_although_their_experiment_is_invalid(mini: Folder) -> None:
    mini.edit("experiments/hello.yaml", "prompts:", "promts:")
    mini.write("datasets/names.jsonl", '{"id": "a", "input": {"name": "A"}, "difficulty": 9}\n')
    said = mini.edison("validate").out
    assert "experiments/hello.yaml:3:1: error: unknown key 'promts'" in said
    assert "datasets/names.jsonl:1:51: error: row 1: difficulty is 9" in said


def test_a_large_dataset_that_no_experiment_names_is_left_alone(mini: Folder) -> None:
    mini.write("datasets/archive.jsonl", "{}\n" + " " * 10_000_001)
    assert mini.edison("validate").code == 0
