"""Files of the project are read again when they have changed, and only then."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from edison_ci.web.workspace import git_state, project_in
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DAY = dt.date(2026, 11, 15)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "customer-support", target)
    return target


def test_a_project_is_kept_until_a_file_changes(folder: Path) -> None:
    first = project_in(folder, DAY)
    assert first is not None
    assert project_in(folder, DAY) is first
    prompt = folder / next(each.path for each in first.prompts.values())
    prompt.write_text(prompt.read_text("utf-8") + "\nAnd be brief.\n", "utf-8")
    second = project_in(folder, DAY)
    assert second is not None
    assert {p.version for p in second.prompts.values()} != {
        p.version for p in first.prompts.values()
    }
    assert project_in(folder, DAY) is second
    assert project_in(folder, DAY + dt.timedelta(days=1)) is not second


def test_a_project_is_read_again_when_a_file_comes_or_goes(folder: Path) -> None:
    first = project_in(folder, DAY)
    assert first is not None
    prompt = folder / next(each.path for each in first.prompts.values())
    text = prompt.read_text("utf-8").replace("support-reply", "another")
    prompt.with_name("another.md").write_text(text, "utf-8")
    second = project_in(folder, DAY)
    assert second is not first
    (folder / "edison.yaml").unlink()
    assert project_in(folder, DAY) is None


def test_the_state_of_git_changes_with_every_commit_and_branch(folder: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)

    assert git_state(folder) is None
    git("init", "-q", "-b", "main")
    seen = [git_state(folder)]
    for words in (
        ("commit", "-q", "--allow-empty", "-m", "one"),
        ("branch", "other"),
        ("checkout", "-q", "other"),
        ("commit", "-q", "--allow-empty", "-m", "two"),
        ("pack-refs", "--all"),
    ):
        git(*words)
        seen.append(git_state(folder))
        assert git_state(folder) == seen[-1]
    assert None not in seen
    assert len(set(seen)) == len(seen)
    (folder / ".git").rename(folder / "elsewhere")
    (folder / ".git").write_text(f"gitdir: {folder / 'elsewhere'}\n")
    assert git_state(folder) is None
