"""Arguments that may be left out: the only experiment, the only prompt and the newest run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def two(mini: Folder) -> Folder:
    """A project with two experiments and two prompts."""
    experiment = (mini.path / "experiments/hello.yaml").read_text(encoding="utf-8")
    prompt = (mini.path / "prompts/hello.md").read_text(encoding="utf-8")
    mini.write(
        "experiments/second.yaml",
        experiment.replace("experiment: hello", "experiment: second").replace(
            "prompts/hello.md", "prompts/bye.md"
        ),
    )
    mini.write("prompts/bye.md", prompt.replace("id: hello", "id: bye"))
    return mini


EXPERIMENT = [
    ["refine", "--yes"],
    ["optimize", "--yes"],
    ["loop", "--yes"],
    ["bisect", "--case", "ada"],
    ["quarantine", "add", "ada", "--reason", "flaky"],
]
PROMPT = [["try"], ["try", "--dry-run"], ["history"], ["promote", "current"]]


@pytest.mark.parametrize("words", EXPERIMENT, ids=" ".join)
def test_the_only_experiment_needs_no_name(edison: Edison, mini: Folder, words: list[str]) -> None:
    done = edison(mini, *words)
    assert "which experiment" not in done.err
    assert "Missing argument" not in done.err


@pytest.mark.parametrize("words", EXPERIMENT, ids=" ".join)
def test_one_of_several_experiments_is_to_be_named(
    edison: Edison, two: Folder, words: list[str]
) -> None:
    done = edison(two, *words)
    assert done.code == 2
    assert "error: which experiment? The project has 2\n  name one: hello, second\n" in done.err


@pytest.mark.parametrize("words", PROMPT, ids=" ".join)
def test_the_only_prompt_needs_no_name(edison: Edison, mini: Folder, words: list[str]) -> None:
    named = [*words[:1], "hello", *words[1:]]
    before = edison(mini, *named)
    assert edison(mini, *words).out.replace(" already", "") == before.out
    assert edison(mini, *words).code == 0


@pytest.mark.parametrize("words", PROMPT, ids=" ".join)
def test_one_of_several_prompts_is_to_be_named(
    edison: Edison, two: Folder, words: list[str]
) -> None:
    done = edison(two, *words)
    assert done.code == 2
    assert "error: which prompt? The project has 2\n  name one: bye, hello\n" in done.err


def test_a_grader_beside_the_only_prompt_is_not_meant(edison: Edison, mini: Folder) -> None:
    mini.write("prompts/tone.md", "---\nid: tone\ntype: grader\n---\nGrade: {{ output }}\n")
    assert "case ada" in edison(mini, "try", "--dry-run").err


def test_a_case_leaves_quarantine_without_its_experiment(edison: Edison, two: Folder) -> None:
    for name in ("hello", "second"):
        edison(two, "quarantine", "add", name, "ada", "--reason", "flaky")
    done = edison(two, "quarantine", "remove", "ada")
    assert (done.code, "name one: hello, second" in done.err) == (2, True)
    assert edison(two, "quarantine", "remove", "hello", "ada").code == 0
    assert edison(two, "quarantine", "remove", "ada").out == (
        "ada of second is no longer in quarantine\n"
    )
    assert "'ada' of any experiment is not in quarantine" in (
        edison(two, "quarantine", "remove", "ada").err
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["quarantine", "add", "--reason", "x"], "Missing argument 'CASE'."),
        (["promote"], "Missing argument 'VERSION'."),
        (["promote", "hello", "v1", "v2"], "Got unexpected extra argument (v2)"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_what_cannot_be_left_out_is_asked_for(
    edison: Edison, mini: Folder, words: list[str], said: str
) -> None:
    done = edison(mini, *words)
    assert (done.code, f"error: {said}" in done.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["regrade", "--yes"],
        ["rerun", "--cell", "ada"],
        ["runs", "watch"],
        ["grade", "--list"],
        ["resume"],
    ],
    ids=" ".join,
)
def test_the_newest_run_is_taken_and_named(edison: Edison, mini: Folder, words: list[str]) -> None:
    run = json.loads(edison(mini, "run", "--json").out)["runs"][0]["run_id"]
    assert f"newest run: {run} of hello\n" in edison(mini, *words).err
    assert "newest run" not in edison(mini, "report", "latest").err
