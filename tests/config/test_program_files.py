"""The files of a program: what it sees, and what makes it another program."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.load import load_project
from edison_ci.config.program_files import program_files, with_code, write_program
from edison_ci.documents.files import OverlayTree, WorkingTree
from edison_ci.documents.marks import Fault
from edison_ci.git.objects import CommitTree
from edison_ci.git.repository import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.config.models import Model
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

COMMITTED = (
    "app/.rules",
    "app/main.py",
    "app/node_modules/left/index.js",
    "app/package-lock.json",
    "shared.py",
)


@pytest.fixture
def model(mini: Folder) -> Model:
    mini.write(
        "models.yaml",
        "small: {provider: command, options: {run: [x], files: [app, shared.py]}, price: free}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    mini.write(".gitignore", "*.log\n")
    for path in (*COMMITTED, "beside.py", "app/__pycache__/main.pyc", "app/debug.log"):
        mini.write(path, path)
    (mini.path / "app/link").symlink_to("/etc/passwd")
    return load_project(mini.path).models["small"]


def committed(mini: Folder) -> Repository:
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    repository = Repository.find(mini.path)
    assert repository is not None
    return repository


def test_they_are_the_same_in_the_working_tree_and_in_its_commit(
    mini: Folder, model: Model
) -> None:
    repository = committed(mini)
    commit = CommitTree(repository, repository.resolve("HEAD"))
    tree = WorkingTree(mini.path)
    assert program_files(model, tree) == program_files(model, commit) == [*COMMITTED]
    assert program_files(model, OverlayTree(tree, "prompts/hello.md", "x")) == [*COMMITTED]
    assert with_code(model, tree).code == with_code(model, commit).code


@pytest.mark.parametrize("path", [*COMMITTED, "app/new.py", "app/.env.defaults"])
def test_each_of_them_makes_it_another_program(mini: Folder, model: Model, path: str) -> None:
    committed(mini)
    before = with_code(model, WorkingTree(mini.path)).identity()
    mini.write(path, "changed")
    assert with_code(model, WorkingTree(mini.path)).identity() != before


@pytest.mark.parametrize("path", ["beside.py", "app/debug.log", "app/__pycache__/main.pyc"])
def test_no_other_file_does_and_none_is_there(
    mini: Folder, model: Model, path: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    committed(mini)
    tree = WorkingTree(mini.path)
    before = with_code(model, tree).identity()
    mini.write(path, "changed")
    assert with_code(model, tree).identity() == before
    folder = tmp_path_factory.mktemp("program")
    write_program(model, tree, folder)
    written = [at for at in folder.rglob("*") if not at.is_dir()]
    assert sorted(at.relative_to(folder).as_posix() for at in written) == [*COMMITTED]
    assert all(at.stat().st_mode & 0o111 for at in written), "each may be the program that is run"


def test_a_program_whose_files_git_ignores_has_none(
    mini: Folder, model: Model, tmp_path: Path
) -> None:
    committed(mini)
    ignored = replace(model, options={**model.options, "files": ["app/debug.log"]})
    with pytest.raises(Fault, match=r"Git has no file at app/debug\.log"):
        write_program(ignored, WorkingTree(mini.path), tmp_path)


def test_without_git_they_are_all_files_but_those_that_python_writes(
    mini: Folder, model: Model
) -> None:
    files = program_files(model, WorkingTree(mini.path))
    assert files == sorted([*COMMITTED, "app/debug.log", "app/link"])
    linked = replace(model, options={**model.options, "files": ["app/link"]})
    assert with_code(linked, WorkingTree(mini.path)).code, "a link that leaves has no content"
