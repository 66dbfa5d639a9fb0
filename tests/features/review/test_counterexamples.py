"""A counterexample is a row of the dataset that has the case, on a branch of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.api.counterexamples import CaseEntry, add_counterexample, origin_of
from edison_ci.config.load import load_project
from edison_ci.errors import UsageError
from edison_ci.proposals.context import ReviewContext

if TYPE_CHECKING:
    from edison_ci.proposals.file_proposal import Proposed
    from tests.conftest import Folder
    from tests.features.github.fake_github import FakeGitHub

NOTE = "Names with an accent were left out."
JSONL = "datasets/names.jsonl"


def add(
    folder: Folder, name: str = "Zoë", expected: str = "Zoë", *, note: str = NOTE, case: str = "ada"
) -> Proposed:
    project = load_project(folder.path)
    origin = origin_of(project, project.experiment("hello"), case)
    review = ReviewContext.of(project)
    given = CaseEntry({"name": name}, expected, note)
    return add_counterexample(review, origin, given, "cy@example.org")


def with_dataset(folder: Folder, path: str, text: str, more: str = "") -> None:
    """Replace the dataset of the project, and commit it."""
    folder.write(path, text)
    experiment = folder.read("experiments/hello.yaml")
    entry = f"dataset: {path}" if not more else f"datasets: [{{path: {path}, {more}}}]"
    folder.write("experiments/hello.yaml", experiment.replace(f"dataset: {JSONL}", entry))
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", "another dataset")


def test_a_case_is_added_by_a_pull_request(repo: Folder, github: FakeGitHub) -> None:
    before = repo.read(JSONL), repo.git("rev-parse", "main")
    done = add(repo)
    branch = done.result.branch
    assert branch.startswith("edison/cases/names-")
    lines = repo.git("show", f"{branch}:{JSONL}").splitlines()
    assert lines[:-1] == before[0].splitlines()
    assert json.loads(lines[-1]) == {
        "id": "ada-counterexample",
        "input": {"name": "Zoë"},
        "expected": "Zoë",
        "tags": ["counterexample"],
    }
    pull = github.state.pulls[1]
    assert pull.title.startswith("Add a case to names: Names with an accent")
    assert "cy@example.org" in pull.body
    assert (repo.read(JSONL), repo.git("rev-parse", "main")) == before
    repo.git("merge", "--quiet", branch)
    repo.git("push", "--quiet", "origin", "main")
    second = add(repo, "Søren", "Søren")
    last = repo.git("show", f"{second.result.branch}:{JSONL}").splitlines()[-1]
    assert json.loads(last)["id"] == "ada-counterexample-2"


@pytest.mark.parametrize(
    ("path", "text", "more", "line"),
    [
        (
            "datasets/names.csv",
            "id,name,expected,tags\nada,Ada,Ada,short;plain\n",
            "",
            'ada-counterexample,"Zoë, ""Z""",Zoë,short;plain;counterexample',
        ),
        (
            "datasets/names.csv",
            "who,expected\nAda,Ada",
            "map: {who: name}",
            '"Zoë, ""Z""",Zoë',
        ),
        (
            "datasets/names.yaml",
            "# people\n- id: ada\n  input: {name: Ada}\n  cluster: family\n",
            "",
            '- id: ada-counterexample\n  input:\n    name: "Zoë, \\"Z\\""\n  expected: "Zoë"\n'
            '  tags: ["counterexample"]\n  cluster: family',
        ),
    ],
)
def test_a_case_is_written_in_the_form_of_its_file(
    repo: Folder, path: str, text: str, more: str, line: str
) -> None:
    with_dataset(repo, path, text, more)
    case = next(iter(load_project(repo.path).cases(load_project(repo.path).experiment("hello"))))
    done = add(repo, 'Zoë, "Z"', "Zoë", case=str(case.id))
    assert repo.git("show", f"{done.result.branch}:{path}") == f"{text.rstrip()}\n{line}"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "Ada", "expected": "Ada"}, "it equals the case 'ada'"),
        ({"note": "short"}, "the note has 5 characters; 10 to 500"),
        ({"case": "nobody"}, "no longer has the case 'nobody'"),
        ({"name": f"ghp_{'a1B2c3' * 6}"}, "secret|token|key"),
    ],
)
def test_what_is_no_case_is_refused(repo: Folder, fields: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        add(repo, **fields)
    assert "edison/" not in repo.git("branch", "--list")


def test_a_column_that_is_not_there_is_named(repo: Folder) -> None:
    with_dataset(repo, "datasets/names.csv", "id,name\nada,Ada\n")
    with pytest.raises(UsageError, match=r"names.csv has no column 'expected'"):
        add(repo)


def test_a_case_keeps_what_the_filters_of_its_file_need(repo: Folder) -> None:
    text = '{"id": "ada", "input": {"name": "Ada"}, "tags": ["short"], "metadata": {"a": 1}}\n'
    with_dataset(repo, "datasets/few.jsonl", text, "where: {tags: [short]}")
    done = add(repo)
    row = json.loads(repo.git("show", f"{done.result.branch}:datasets/few.jsonl").split("\n")[-1])
    assert (row["tags"], row["metadata"]) == (["short", "counterexample"], {"a": 1})
