"""Repositories to run commands in."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Edison, Folder, edison
from tests.features.github.fake_github import TOKEN, FakeGitHub
from tests.features.github.fake_state import REPOSITORY
from tests.features.github.mirror import mirror
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Edison", "edison"]


@dataclass(frozen=True)
class Kept:
    """Folders that many tests begin with, each made once in a process and copied from then on."""

    place: Path

    def begin(self, name: str, folder: Folder, make: Callable[[], object]) -> Folder:
        """Return the folder as `make` leaves it."""
        kept = self.place / name
        if not kept.exists():
            make()
            shutil.copytree(folder.path, kept, symlinks=True)
        else:
            shutil.rmtree(folder.path)
            shutil.copytree(kept, folder.path, symlinks=True)
        return folder


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return Kept(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[LoopbackServer]:
    """The server that the base trusts; `loopback` is that of a stranger."""
    with LoopbackServer(ledger=tmp_path / "ours.jsonl") as server:
        yield server


def every(nth: int, support: Folder) -> int:
    """Leave every third case, say, of the customer-support project, and return their number."""
    left = 0
    for path in sorted((support.path / "datasets").glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[::nth]
        path.write_text("".join(lines), encoding="utf-8")
        left += len(lines)
    return left


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
        monkeypatch.setattr(
            "edison_ci.access.github_api.WRITE_GAP_S", 0.0
        )  # the fake needs no rest
        monkeypatch.setenv("GITHUB_API_URL", server.url)
        monkeypatch.setenv("GITHUB_SERVER_URL", server.url)
        monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
        yield server
