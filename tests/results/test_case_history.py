"""The texts of a case in the history of its file, and its results by text, with bounded work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.load import load_project
from edison_ci.results import case_history
from edison_ci.results.case_history import CaseTexts, case_texts, results_by_text
from tests.cli.conftest import edison, repo  # a repository without a remote
from tests.opened import opened

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

__all__ = ["edison", "repo"]
FILE = "datasets/names.jsonl"


def texts_of(folder: Folder, case: str) -> CaseTexts | None:
    project = load_project(folder.path)
    return case_texts(project, project.experiment("hello"), case)


def commit(folder: Folder, text: str, subject: str, path: str = FILE) -> None:
    folder.write(path, text)
    folder.git("add", "--all")
    author = "--author=Eve & Co <eve@example.org>"
    folder.git("commit", "--quiet", author, "--message", subject)


def row(case: str, name: str, **more: object) -> str:
    return json.dumps({"id": case, "input": {"name": name}, "expected": name, **more}) + "\n"


def told(found: CaseTexts | None) -> list[tuple[object, str | None]]:
    assert found is not None
    return [(each.case.inputs["name"], each.change and each.change.subject) for each in found.texts]


def test_each_text_has_the_commit_that_brought_it(repo: Folder) -> None:
    commit(repo, row("ada", "Ada L.") + row("bo", "Bo"), "longer")
    commit(repo, row("bo", "Bo") + row("ada", "Ada L."), "moved")
    commit(repo, row("bo", "Bob") + row("ada", "Ada L.", tags=["x"]), "another row, and a tag")
    repo.write(FILE, row("ada", "Ada Lovelace") + row("bo", "Bob"))
    found = texts_of(repo, "ada")
    assert told(found) == [("Ada Lovelace", None), ("Ada L.", "longer"), ("Ada", "start")]
    assert found is not None
    change = found.texts[1].change
    assert change is not None
    assert change.author == "Eve & Co <eve@example.org>"
    assert change.date[:2] == "20"
    assert (found.path, found.commits, found.searched) == (FILE, 4, 4)
    assert told(texts_of(repo, "bo")) == [("Bob", "another row, and a tag"), ("Bo", "start")]


def test_a_case_that_is_gone_or_came_back_is_found(repo: Folder) -> None:
    first = repo.read(FILE)
    commit(repo, row("bo", "Bo"), "without ada")
    assert told(texts_of(repo, "ada")) == [("Ada", "start")]
    commit(repo, "not json\n" + row("ada", "Eve"), "broken")
    commit(repo, first, "back")
    assert told(texts_of(repo, "ada")) == [("Ada", "back"), ("Eve", "broken"), ("Ada", "start")]
    assert texts_of(repo, "nobody") is None


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("datasets/a.csv", ["id,name\nada,Ada\nbo,Bo\n", 'id,name\nbo,"B\no"\nada,"A, L."\n']),
        ("datasets/a.yaml", ["- {id: ada, input: {name: Ada}}\n",
                             "# x\n- id: ada\n  input:\n    name: A, L.\n"]),
    ],
)  # fmt: skip
def test_other_formats_have_a_history_too(repo: Folder, path: str, texts: list[str]) -> None:
    repo.edit("experiments/hello.yaml", FILE, path)
    repo.edit("experiments/hello.yaml", 'checks:\n  - contains: "{{ expected }}"\n', "")
    for number, text in enumerate(texts):
        commit(repo, text, f"text {number}", path)
    assert told(texts_of(repo, "ada")) == [("A, L.", "text 1"), ("Ada", "text 0")]


def test_a_row_without_an_id_is_found_by_its_content(repo: Folder) -> None:
    commit(repo, '{"input": {"name": "Cy"}, "expected": "Cy"}\n', "no id")
    commit(repo, repo.read(FILE) + row("d", "Dee"), "more")
    project = load_project(repo.path)
    case = next(iter(project.cases(project.experiment("hello"))))
    assert told(texts_of(repo, case.id)) == [("Cy", "no id")]


def test_the_work_is_bounded(repo: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        commit(repo, row("ada", f"Ada {number}") + row("bo", "Bo"), f"text {number}")
    monkeypatch.setattr(case_history, "MOST_COMMITS", 9)
    found = texts_of(repo, "ada")
    assert found is not None
    assert (len(found.texts), found.commits, found.searched) == (9, 9, 9)
    monkeypatch.setattr(case_history, "MOST_TEXTS", 4)
    found = texts_of(repo, "ada")
    assert found is not None
    assert (len(found.texts), found.searched) == (4, 4)
    size = len(repo.read(FILE))
    monkeypatch.setattr(case_history, "MOST_SEARCHED", 3 * size)
    monkeypatch.setattr(case_history, "MOST_TEXTS", 50)
    found = texts_of(repo, "bo")
    assert found is not None
    assert found.searched == 3
    monkeypatch.setattr(case_history, "MOST_BYTES", 10)
    assert texts_of(repo, "ada") is None


def test_a_row_that_did_not_change_is_not_parsed_again(
    repo: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "datasets/a.yaml"
    repo.edit("experiments/hello.yaml", FILE, path)
    same = "- {id: ada, input: {name: Ada}, expected: Ada}\n"
    for number in range(30):
        commit(repo, same + f"- {{id: c{number}, input: {{name: C}}}}\n", f"text {number}", path)
    monkeypatch.setattr(case_history, "MOST_PARSED", 200)  # two of the texts
    found = texts_of(repo, "ada")
    assert told(found) == [("Ada", "text 0")]
    assert found is not None
    assert found.searched == 30


def test_results_are_counted_by_text(edison: Edison, repo: Folder) -> None:
    assert edison(repo, "run", "-q").code == 0
    assert edison(repo, "run", "-q").code == 0
    repo.write(FILE, row("ada", "Ada Lovelace") + row("bo", "Bo"))
    assert edison(repo, "run", "-q").code == 0
    with opened(repo.path / ".edison/results.db") as connection:
        runs = [run for (run,) in connection.execute("select id from run order by created_at")]
        found = results_by_text(connection, "hello", "ada")
        assert results_by_text(connection, "other", "ada") == {}
    texts = texts_of(repo, "ada")
    assert texts is not None
    new, old = (found[each.hash] for each in texts.texts)
    assert (new.answers, new.first_run, new.last_run) == (1, runs[2], runs[2])
    assert (old.answers, old.first_run, old.last_run) == (2, runs[0], runs[1])
    assert (old.models, old.decided) == (("small",), 2)
    assert 0 <= old.mean <= 1
