"""A sandbox shows the system, the interpreter and what belongs to the code, and no home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edison_ci.checks.child import paths_for_check, paths_for_program

pytestmark = pytest.mark.daily


def shows(paths: list[str], place: Path) -> bool:
    return any(place.is_relative_to(path) for path in paths)


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in (".git/config", "app/main.py", "beside.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    return folder


def test_neither_code_sees_homes_or_what_running_programs_keep(root: Path) -> None:
    homes = (Path.home(), Path("/home"), Path("/root"))
    sessions = (Path("/run"), Path("/proc"), Path("/sys"), Path("/tmp"), Path("/var/tmp"))
    for paths in (paths_for_check(root, "sh"), paths_for_program(["sh"], (), root)):
        assert not [place for place in (*homes, *sessions, Path("/dev")) if shows(paths, place)]
        assert not shows(paths, root / ".git/config")
        assert shows(paths, Path("/usr/bin"))


@pytest.mark.parametrize("entry", ["", "bin"])
def test_a_search_path_that_leads_to_the_project_or_a_home_shows_neither(
    root: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    for folder in (root, Path.home()):
        executable(folder / "bin/tool")
        executable(folder / "tool")
        (folder / "include").mkdir()
        monkeypatch.setenv("PATH", str(folder / entry))
        for paths in (paths_for_check(root, "tool"), paths_for_program(["tool"], (), root)):
            assert not shows(paths, root / ".git")
            assert not shows(paths, Path.home() / ".netrc")


def test_a_check_sees_the_project_and_a_program_does_not(root: Path) -> None:
    for name in ("app/main.py", "beside.txt"):
        assert shows(paths_for_check(root, "sh"), root / name)
        assert not shows(paths_for_program(["sh"], (), root), root / name)


def test_an_interpreter_is_shown_with_its_environment_through_links(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = executable(tmp_path / "pythons/3.12/bin/python3.12")
    (tmp_path / "pythons/3.12/include").mkdir()
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text("")
    (environment / "bin/python9").symlink_to(python)
    monkeypatch.setenv("PATH", f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}")
    paths = paths_for_program(["python9"], (), root)
    assert shows(paths, environment / "lib/site-packages")
    assert shows(paths, tmp_path / "pythons/3.12/lib")
    assert not shows(paths, tmp_path / "pythons")


def test_a_shim_is_shown_with_the_interpreters_that_it_starts(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "versions/shims/python9")
    monkeypatch.setenv("PATH", str(tmp_path / "versions/shims"))
    place = tmp_path / "versions/installed/bin/python9"
    assert shows(paths_for_program(["python9"], (), root), place)
    assert shows(paths_for_check(root, "sh"), place), "a script may start it"


@pytest.mark.parametrize("folder", ["tools", ".local"])
def test_of_a_program_that_is_no_interpreter_its_file_is_shown(
    root: Path, tmp_path: Path, folder: str
) -> None:
    tool = executable(tmp_path / folder / "bin/tool")
    if folder == ".local":  # many programs share it, and some keep secrets there
        (tmp_path / folder / "include").mkdir()
    (tmp_path / folder / ".credentials").write_text("secret")
    paths = paths_for_program([str(tool)], (), root)
    assert shows(paths, tool)
    assert not shows(paths, tmp_path / folder / ".credentials")


def test_a_file_of_the_project_is_not_shown_by_its_whole_path(root: Path) -> None:
    tool = executable(root / "other/bin/tool")
    (root / "other/include").mkdir()
    assert not shows(paths_for_program([str(tool)], (), root), tool)


def test_a_named_folder_is_shown_without_git(root: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    (models / ".git").mkdir(parents=True)
    (models / "weights").write_text("x")
    paths = paths_for_program(["sh"], (models, root), root)
    assert shows(paths, models / "weights")
    assert shows(paths, root / "beside.txt")
    assert not shows(paths, models / ".git")
    assert not shows(paths, root / ".git")
