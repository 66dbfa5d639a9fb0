"""edison try --dry-run: the exact request for one case."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

TYPED = (
    "---\nid: typed\n"
    "inputs: {items: list, count: number, on: boolean, who: {type: string, default: you}}\n---\n"
    "# system\nBe brief.\n\n# user\n"
    "{% for item in items %}- {{ item.name }}\n{% endfor %}{{ count }} {{ on }} {{ who }}, and so"
    " on, as told.\n"
)


def test_the_screen_shows_every_section_with_its_tokens(edison: Edison, support: Folder) -> None:
    done = edison(support, "try", "--dry-run", "support-reply")
    assert done.code == 0
    assert done.out.startswith("--- system (~21 tokens)\nYou answer e-mails for Kettle & Crag")
    assert "\n--- user (~" in done.out
    assert "Customer: Maren" in done.out
    lines = done.err.splitlines()
    assert lines[0].startswith("support-reply v1 (")
    assert lines[0].endswith("), case return-green-blanket")
    assert lines[1] == "small: sim/small (temperature=1.0, max_tokens=4096)"
    assert lines[2] == "~109 tokens (about 4 bytes a token)"


@pytest.mark.parametrize(
    "name", ["hello", "prompts/hello.md", "./prompts/hello.md", "prompts/hello"]
)
def test_a_prompt_is_named_by_id_or_path(edison: Edison, mini: Folder, name: str) -> None:
    assert edison(mini, "try", "--dry-run", name).code == 0


def test_a_path_is_taken_from_where_one_is(edison: Edison, mini: Folder) -> None:
    below = type(mini)(mini.path / "prompts")
    assert edison(below, "try", "--dry-run", "hello.md").code == 0
    assert edison(below, "try", "--dry-run", str(mini.path / "prompts" / "hello.md")).code == 0


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["helo"], "there is no prompt 'helo'", "did you mean 'hello'?"),
        (["zzz"], "there is no prompt 'zzz'", "prompts: hello"),
        (["hello", "--case", "adaa"], "hello has no case 'adaa'", "did you mean 'ada'?"),
        (["hello", "--case", "Ada"], "hello has no case 'Ada'", "did you mean 'ada'?"),
        (["hello", "--model", "smal"], "hello has no model 'smal'", "did you mean 'small'?"),
        (["hello", "--experiment", "x"], "there is no experiment 'x'", "experiments: hello"),
        (["hello", "--set", "nome=x"], "hello has no variable 'nome'", "did you mean 'name'?"),
        (["hello", "--set", "name"], "--set 'name' is not NAME=VALUE", "write --set name="),
        (["hello", "--set", "=x"], "--set '=x' is not NAME=VALUE", "write --set name="),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_a_name_that_is_not_there_gets_a_hint(
    edison: Edison, mini: Folder, words: list[str], said: str, hint: str
) -> None:
    done = edison(mini, "try", "--dry-run", *words)
    assert (done.code, done.out) == (2, "")
    assert f"error: {said}\n  {hint}" in done.err


def test_among_many_cases_the_first_are_named(edison: Edison, support: Folder) -> None:
    done = edison(support, "try", "--dry-run", "support-reply", "--case", "zzzzzz")
    assert "  the first are: return-green-blanket, return-how, refund-before-rent\n" in done.err


def test_a_case_is_chosen_by_id(edison: Edison, mini: Folder) -> None:
    assert "hello to Bo in" in edison(mini, "try", "--dry-run", "hello", "--case", "bo").out


def test_a_variable_can_be_set(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "try", "--dry-run", "hello", "--set", "name=a=b {{ name }}")
    assert "hello to a=b {{ name }} in" in done.out, "data is never a template"


def test_a_missing_value_is_always_an_error(edison: Edison, mini: Folder) -> None:
    mini.write("datasets/names.jsonl", '{"id": "a", "x": 1}\n{"id": "b", "name": "Bo"}\n')
    done = edison(mini, "try", "--dry-run", "hello")
    assert (done.code, done.out) == (2, "")
    assert "error: name is missing for case 'a'\n" in done.err
    assert "variables given: x; set more with --set NAME=VALUE" in done.err
    assert edison(mini, "try", "--dry-run", "hello", "--case", "b").code == 0
    assert edison(mini, "try", "--dry-run", "hello", "--set", "name=Cy").code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("items=x", "items is not JSON"),
        ("items={}", "items is not a list"),
        ("count=true", "count is not a number"),
        ("on=1", "on is not a boolean"),
    ],
)
def test_a_variable_of_another_type_is_json(
    edison: Edison, mini: Folder, given: str, said: str
) -> None:
    mini.write("prompts/typed.md", TYPED)
    good = ["--set", 'items=[{"name": "a"}]', "--set", "count=3", "--set", "on=false"]
    done = edison(mini, "try", "--dry-run", "typed", *good)
    assert "- a\n3 false you, and so on" in done.out
    done = edison(mini, "try", "--dry-run", "typed", *good, "--set", given)
    assert done.code == 2
    assert said in done.err


def test_an_attribute_that_is_missing_inside_a_value_is_an_error(
    edison: Edison, mini: Folder
) -> None:
    mini.write("prompts/typed.md", TYPED)
    done = edison(
        mini,
        "try",
        "--dry-run",
        "typed",
        "--set",
        "items=[{}]",
        "--set",
        "count=3",
        "--set",
        "on=true",
    )
    assert done.code == 2
    assert "name is missing for case 'static'" in done.err


def test_a_prompt_of_no_experiment_has_no_cases(edison: Edison, mini: Folder) -> None:
    mini.write("prompts/alone.md", "Write one kind sentence about anything that you like today.\n")
    done = edison(mini, "try", "--dry-run", "alone")
    assert (done.code, done.out.startswith("--- user")) == (0, True)
    done = edison(mini, "try", "--dry-run", "alone", "--case", "ada")
    assert (
        "error: there are no cases to choose from\n  no experiment with a dataset uses" in done.err
    )
    done = edison(mini, "try", "--dry-run", "alone", "--experiment", "hello")
    assert "does not use prompts/alone.md\n  no experiment does" in done.err


def test_a_grader_sees_the_expected_answer_and_is_given_an_output(
    edison: Edison, mini: Folder
) -> None:
    mini.write(
        "prompts/grade.md",
        "---\nid: grade\ntype: grader\n---\n"
        "Is {{ output }} a kind way to greet {{ expected }}? Answer yes or no, nothing else.\n",
    )
    mini.edit(
        "experiments/hello.yaml",
        "[judge]}",
        "[judge], graders: [{prompt: prompts/grade.md, by: judge}]}",
    )
    done = edison(mini, "try", "--dry-run", "grade", "--set", "output=Hi!")
    assert "Is Hi! a kind way to greet Ada?" in done.out
    assert edison(mini, "try", "--dry-run", "grade").code == 2


def test_a_model_configuration_shows_what_it_is_sent(edison: Edison, mini: Folder) -> None:
    mini.edit(
        "experiments/hello.yaml",
        "models: [small]",
        "models: [small, {use: small, params: {temperature: [0.2, 0.7], max_tokens: 50}}]",
    )
    name = "small[temperature=0.7,max_tokens=50]"
    told = json.loads(edison(mini, "try", "--dry-run", "hello", "--model", name, "--json").out)
    assert (told["model"], told["params"]) == (name, {"temperature": 0.7, "max_tokens": 50})


# --- labels ---------------------------------------------------------------------------------------


def label(edison: Edison, folder: Folder) -> str:
    return str(
        json.loads(edison(folder, "try", "--dry-run", "hello", "--json").out)["prompt"]["label"]
    )


def test_labels_follow_the_texts_on_the_default_branch(edison: Edison, mini: Folder) -> None:
    assert label(edison, mini) == "v1"
    mini.git("init", "--quiet", "--initial-branch=main")
    assert label(edison, mini).startswith("v0+")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "one")
    assert label(edison, mini) == "v1"
    mini.git("checkout", "--quiet", "-b", "feature")
    mini.edit("prompts/hello.md", "friendly", "kind")
    shown = label(edison, mini)
    assert shown.startswith("v1+")
    assert len(shown) == len("v1+") + 8
    mini.git("commit", "--quiet", "--all", "--message", "two")
    mini.git("checkout", "--quiet", "main")
    mini.git("merge", "--quiet", "--no-ff", "--message", "merge", "feature")
    assert label(edison, mini) == "v2"
    mini.edit("prompts/hello.md", "kind", "friendly")
    assert label(edison, mini) == "v1", "a text keeps its label"
    mini.edit("prompts/hello.md", "id: hello", "id: hello\ndescription: only for people")
    assert label(edison, mini) == "v1", "what reaches no model makes no version"
