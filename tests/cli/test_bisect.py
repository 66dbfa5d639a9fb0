"""edison bisect: the commit that broke a case, found in few tries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

COMMITS = 16
CULPRIT = 11


def commit(folder: Folder, message: str) -> str:
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", message)
    return folder.git("rev-parse", "HEAD")


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project in Git whose model repeats what it is sent, graded by one check."""
    mini.edit("models.yaml", "model: small}", "model: echo}")
    mini.edit("experiments/hello.yaml", "rubric: rubrics/tone.yaml\n", "")
    mini.edit("experiments/hello.yaml", "judges: {pointwise: [judge]}\n", "")
    mini.write(".gitignore", ".edison/\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    return mini


@pytest.fixture
def broken(project: Folder) -> tuple[Folder, list[str]]:
    """Sixteen commits, of which one loses the name."""
    commits = []
    for number in range(COMMITS):
        name = "{{ name | first }}" if number >= CULPRIT else "{{ name }}"
        project.write(
            "prompts/hello.md",
            f"---\nid: hello\n---\n# user\nSay hello to {name} in {number // 3 + 1} friendly "
            "sentences, and say nothing else.\n",
        )
        project.write("notes.txt", f"{number}\n")
        commits.append(commit(project, f"step {number}"))
    return project, commits


def told(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "bisect", "hello", "--case", "ada", "--json", *args)
    assert done.code == 0, done.all
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def bought(folder: Folder) -> int:
    with opened(folder.path / ".edison/results.db") as connection:
        return int(connection.execute("select count(*) from attempt").fetchone()[0])


def test_the_commit_that_broke_a_case_is_found_with_its_diff(
    edison: Edison, broken: tuple[Folder, list[str]]
) -> None:
    project, commits = broken
    found = told(edison, project)
    assert (found["verdict"], found["case"]) == ("found", "ada")
    assert found["simulated"] is True
    (culprit,) = found["commits"]
    assert (culprit["id"], culprit["subject"]) == (commits[CULPRIT], f"step {CULPRIT}")
    assert culprit["date"].startswith("20")
    assert found["failing"] == [{"prompt": "hello", "model": "small"}]
    assert "+Say hello to {{ name | first }}" in found["diffs"]["prompts/hello.md"]
    assert len(found["tried"]) <= 8
    assert bought(project) <= 6, "what is sent alike is asked once"
    again = edison(project, "bisect", "hello", "--case", "ada", "--good", "HEAD~15")
    assert again.out.splitlines()[0].endswith("  simulated")
    assert again.out.splitlines()[1].startswith(commits[CULPRIT])
    assert "bad   step 15 (hello with small: contains expected: " in again.err
    assert bought(project) <= 6


def test_a_case_that_passes_is_not_broken(edison: Edison, broken: tuple[Folder, list[str]]) -> None:
    project, commits = broken
    found = told(edison, project, "--bad", commits[CULPRIT - 1])
    assert (found["verdict"], len(found["tried"])) == ("passes", 1)


def test_a_wrong_good_commit_is_told(edison: Edison, broken: tuple[Folder, list[str]]) -> None:
    project, _ = broken
    done = edison(project, "bisect", "hello", "--case", "ada", "--good", "HEAD~1")
    assert (done.code, "does not pass at 'HEAD~1' either" in done.err) == (2, True)
    done = edison(project, "bisect", "hello", "--case", "ada", "--bad", "HEAD~9", "--good", "HEAD")
    assert done.code == 0, "it passes there, so that no good commit is needed"
    done = edison(project, "bisect", "hello", "--case", "ada", "--good", "nothere")
    assert done.code == 2
    assert edison(project, "bisect", "hello", "--case", "eve").code == 2


def test_a_case_that_never_passed_is_told(edison: Edison, project: Folder) -> None:
    project.edit("prompts/hello.md", "{{ name }}", "{{ name | first }}")
    commit(project, "start")
    project.write("notes.txt", "x\n")
    commit(project, "more")
    assert told(edison, project)["verdict"] == "always"


def test_commits_that_cannot_be_tried_are_passed_over(edison: Edison, project: Folder) -> None:
    commit(project, "start")
    for number in range(3):
        project.write("edison.yaml", f"version: {number + 7}\n")
        commit(project, f"invalid {number}")
    project.write("edison.yaml", "version: 1\nproject: mini\n")
    project.edit("prompts/hello.md", "{{ name }}", "{{ name | first }}")
    last = commit(project, "lose the name")
    found = told(edison, project)
    assert found["verdict"] == "between"
    assert [c["subject"] for c in found["commits"]] == [
        "lose the name", "invalid 2", "invalid 1", "invalid 0",
    ]  # fmt: skip
    assert found["commits"][0]["id"] == last
    assert {tried["outcome"] for tried in found["tried"]} == {"good", "bad", "skip"}


def test_a_changed_model_can_break_a_case_as_well(edison: Edison, project: Folder) -> None:
    project.edit("prompts/hello.md", "hello to {{ name }}", "hello to Ada, {{ name }}")
    project.edit("experiments/hello.yaml", "{{ expected }}", "and nothing else")
    commit(project, "start")
    project.edit("models.yaml", "model: echo}", "model: small}")
    commit(project, "another model")
    done = edison(project, "bisect", "hello", "--case", "ada")
    assert "another model" in done.out
    assert "It changed no failing prompt" in done.out


def test_a_budget_stops_the_search_and_keeps_what_was_asked(
    edison: Edison, broken: tuple[Folder, list[str]]
) -> None:
    project, _ = broken
    project.edit(
        "models.yaml",
        "model: echo}",
        "model: echo, price: {in: 1, out: 1}, params: {max_tokens: 50}}",
    )
    commit(project, "prices")
    done = edison(project, "bisect", "hello", "--case", "ada", "--budget", "0.0002")
    assert (done.code, "--budget has no room" in done.err) == (4, True), done.all
    assert bought(project) >= 1


def test_a_search_needs_git(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "bisect", "hello", "--case", "ada")
    assert (done.code, "not in a Git repository" in done.err) == (2, True)
