"""A file is replaced whole or not at all, and what is written down goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.documents.files import in_repository, replace_file
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_is_there_keeps_its_mode_and_a_new_one_is_made(tmp_path: Path) -> None:
    known, new = tmp_path / "known.yaml", tmp_path / "folder/new.yaml"
    known.write_text("old")
    known.chmod(0o640)
    for path in (known, new):
        replace_file(tmp_path, str(path.relative_to(tmp_path)), b"new")
        assert path.read_text() == "new"
    assert known.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [new.parent, known], "nothing is left beside them"
    assert [*new.parent.iterdir()] == [new]


def test_the_note_comes_before_the_change_and_its_failure_prevents_it(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text("old")
    seen: list[str] = []
    replace_file(tmp_path, path.name, b"new", just_before=lambda: seen.append(path.read_text()))
    assert (seen, path.read_text()) == (["old"], "new")

    def refuse() -> None:
        raise UsageError("the audit is full")

    with pytest.raises(UsageError, match="the audit is full"):
        replace_file(tmp_path, path.name, b"newer", just_before=refuse)
    assert path.read_text() == "new"
    assert [*tmp_path.iterdir()] == [path]


def test_what_cannot_be_written_is_told_and_not_noted(tmp_path: Path) -> None:
    seen: list[int] = []
    (tmp_path / "a file").touch()
    with pytest.raises(UsageError, match=r"file\.yaml cannot be written"):
        replace_file(tmp_path, "a file/file.yaml", b"x", just_before=lambda: seen.append(1))
    assert seen == []


def test_nothing_is_written_through_a_folder_that_is_a_link(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (root, elsewhere):
        folder.mkdir()
    (root / ".edison").symlink_to(elsewhere)
    (root / "file").symlink_to(elsewhere / "file")
    for name in (".edison/trust.yaml", ".edison/new/x", "../elsewhere/x"):
        with pytest.raises(UsageError, match="is a link to another place"):
            replace_file(root, name, b"x", just_before=pytest.fail)
    replace_file(root, "file", b"x")
    assert ([*elsewhere.iterdir()], (root / "file").read_bytes()) == ([], b"x")


def test_only_a_workflow_is_written_outside_of_the_project(tmp_path: Path) -> None:
    root = tmp_path / "a/project"
    root.mkdir(parents=True)
    replace_file(*in_repository(root, "../../.github/workflows/edison.yml"), b"x")
    assert (tmp_path / ".github/workflows/edison.yml").read_bytes() == b"x"
    for path in ("../x", "../../etc/x", "a/../../x", "../.github/../x", "../a/.github/x"):
        with pytest.raises(UsageError, match="is a link to another place"):
            replace_file(*in_repository(root, path), b"x")
    assert sorted(each.name for each in tmp_path.iterdir()) == [".github", "a"]
    assert [*root.parent.iterdir()] == [root]
