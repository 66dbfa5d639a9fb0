"""edison import traces: shown first, then appended to the dataset or proposed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.features.importing.spans import asked, document, lines

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder
    from tests.features.github.fake_github import FakeGitHub

pytestmark = pytest.mark.daily

DATASET = "datasets/names.jsonl"


@pytest.fixture
def project(repo: Folder) -> Folder:
    """A project in a repository, and a file of three calls next to it."""
    spans = document(asked("Cy", 1), asked("Di at di@example.org", 2), asked("Ada", 3))
    repo.write("../spans.jsonl", lines(spans))
    return repo


def imported(edison: Edison, folder: Folder, *args: str, code: int = 0) -> dict[str, Any]:
    words = ("../spans.jsonl", "--dataset", DATASET, "--input", "name", *args)
    done = edison(folder, "import", "traces", *words, "--json")
    assert done.code == code, done.all
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def test_nothing_is_written_before_it_is_asked_for(edison: Edison, project: Folder) -> None:
    before = project.read(DATASET)
    words = ("../spans.jsonl", "--dataset", DATASET, "--input", "name")
    done = edison(project, "import", "traces", *words)
    assert done.code == 0
    first, *rest = done.out.splitlines()
    assert first == f"would add  2 cases to {DATASET}"
    assert [line.split("  ")[-1] for line in rest[:2]] == ["Cy", "Di at [E-MAIL]"]
    assert rest[2:] == ["3 calls read, 1 known already", "personal data redacted: 1 e-mail"]
    assert done.err == "nothing was written: add --write, or --pull-request\n"
    assert project.read(DATASET) == before
    assert project.git("branch", "--list", "edison/*") == ""


def test_written_cases_run_and_are_not_added_twice(edison: Edison, project: Folder) -> None:
    before = project.read(DATASET)
    assert edison(project, "run", "-q").code == 0
    found = imported(edison, project, "--write")
    assert (found["written"], found["new"], found["duplicates"]) == (True, 2, 1)
    assert found["personal_data_redacted"] == {"e-mail": 1}
    text = project.read(DATASET)
    assert text.startswith(before)
    assert len(text.splitlines()) == 4
    assert "di@example.org" not in text
    assert edison(project, "validate").code == 0
    (run,) = json.loads(edison(project, "run", "--json").out)["runs"]
    assert (run["cells"]["total"], run["cells"]["ok"]) == (4, 4)
    again = imported(edison, project, "--write")
    assert (again["written"], again["new"], again["duplicates"]) == (False, 0, 3)
    assert project.read(DATASET) == text
    rows = json.loads(edison(project, "admin", "audit", "--json").out)["rows"]
    (row,) = (each for each in rows if each["action"] == "import traces")
    assert row["after"]["new"] == 2
    assert "Cy" not in json.dumps(row), "the audit log has no texts"


def test_a_dataset_that_is_not_there_yet_is_created(edison: Edison, project: Folder) -> None:
    words = ("import", "traces", "../spans.jsonl", "--dataset", "datasets/new/prod.jsonl")
    assert edison(project, *words, "--write", "--keep-personal-data").code == 0
    rows = [json.loads(line) for line in project.read("datasets/new/prod.jsonl").splitlines()]
    assert [row["input"]["message"] for row in rows] == ["Cy", "Di at di@example.org", "Ada"]


def test_without_a_forge_there_is_a_branch_to_push(edison: Edison, project: Folder) -> None:
    project.write(DATASET, project.read(DATASET) + '{"id": "mine", "input": {"name": "Me"}}\n')
    before = project.git("status", "--porcelain")
    words = ("../spans.jsonl", "--dataset", DATASET, "--input", "name", "--pull-request")
    done = edison(project, "import", "traces", *words)
    assert done.code == 0, done.all
    branch = project.git("branch", "--list", "--format=%(refname:short)", "edison/*")
    assert branch.startswith("edison/traces/names-")
    assert f"branch {branch} at " in done.out
    assert f"git push REMOTE {branch}" in done.err
    assert project.git("status", "--porcelain") == before
    text = project.git("show", f"{branch}:{DATASET}")
    assert text.startswith(project.git("show", f"main:{DATASET}"))
    assert (len(text.splitlines()), "Me" in text) == (4, False), "the cases of main, and the new"
    again = imported(edison, project, "--pull-request")
    assert (again["branch"], again["action"]) == (branch, "unchanged")
    project.git("reset", "--quiet", "--hard")
    project.git("merge", "--quiet", branch)
    assert imported(edison, project, "--pull-request")["branch"] is None, "all are known"


def test_a_pull_request_is_opened_once_and_has_no_texts(
    edison: Edison, project: Folder, github: FakeGitHub
) -> None:
    found = imported(edison, project, "--pull-request")
    assert found["pull_request"], found
    (pull,) = github.state.pulls.values()
    assert (pull.title, pull.base) == (f"Add 2 cases from traces to {DATASET}", "main")
    assert "personal data redacted: 1 e-mail" in pull.body
    assert "Cy" not in pull.body
    assert project.git("ls-remote", "origin", found["branch"])
    imported(edison, project, "--pull-request")
    assert len(github.state.pulls) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("spans.jsonl",), "is not a file"),
        (("../spans.jsonl", "--dataset", "x.csv"), "is not a .jsonl file"),
        (("../spans.jsonl", "--dataset", "../out.jsonl"), "leaves the project"),
        (("../spans.jsonl", "--input", "history"), "is not a valid name of an input"),
        (("../spans.jsonl", "--write", "--pull-request"), "exclude each other"),
        (("edison.yaml",), "is not a .jsonl or .json file"),
    ],
)
def test_bad_words_are_refused(
    edison: Edison, project: Folder, args: tuple[str, ...], said: str
) -> None:
    done = edison(project, "import", "traces", "--dataset", DATASET, *args)
    assert (done.code, said in done.err) == (2, True), done.err


def test_a_dataset_with_a_bad_row_stays_as_it_is(edison: Edison, project: Folder) -> None:
    project.write(DATASET, project.read(DATASET) + "{\n")
    before = project.read(DATASET)
    words = ("import", "traces", "../spans.jsonl", "--dataset", DATASET, "--write")
    done = edison(project, *words)
    assert (done.code, f"{DATASET}:3:" in done.err) == (2, True)
    assert project.read(DATASET) == before


def test_a_viewer_may_not_write(edison: Edison, project: Folder) -> None:
    project.edit(
        "edison.yaml", "project: mini\n",
        "project: mini\nmembers:\n  - {github: owner, role: owner}\n",
    )  # fmt: skip
    before = project.read(DATASET)
    assert (
        edison(project, "import", "traces", "../spans.jsonl", "--dataset", DATASET, "--write").code
        == 2
    )
    assert project.read(DATASET) == before
