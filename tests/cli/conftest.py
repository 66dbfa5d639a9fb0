"""Repositories to run commands in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import Edison, Folder, edison
from tests.forge.fake_github import TOKEN, FakeGitHub
from tests.forge.fake_state import REPOSITORY
from tests.forge.mirror import mirror

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Edison", "edison"]


@pytest.fixture
def repo(mini: Folder) -> Folder:
    """The small project in a repository without a remote."""
    mini.git("config", "--global", "user.name", "Ada")
    mini.git("config", "--global", "user.email", "ada@example.org")
    mini.write(".gitignore", ".edison/*.db*\n.edison/locks/\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    return mini


@pytest.fixture
def bare(repo: Folder, tmp_path: Path) -> Folder:
    """The bare repository that the project is pushed to."""
    remote = Folder(tmp_path / "remote.git")
    remote.path.mkdir()
    remote.git("init", "--quiet", "--bare", "--initial-branch=main")
    repo.git("remote", "add", "origin", str(remote.path))
    repo.git("push", "--quiet", "--set-upstream", "origin", "main")
    return remote


@pytest.fixture
def github(repo: Folder, bare: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    """A strict GitHub for the bare repository: what is pushed there is what it knows."""
    with FakeGitHub() as server:
        mirror(server, bare)
        monkeypatch.setattr("edison_ci.forge.api.WRITE_GAP_S", 0.0)  # the fake needs no rest
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        monkeypatch.setenv("GITHUB_SERVER_URL", server.url)
        monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        yield server
