"""Commands run in this process, where starting one is too slow, and repositories to run them in."""

from __future__ import annotations

import contextlib
import io
import logging
import signal
import sys
from typing import TYPE_CHECKING, Protocol

import pytest

from edison_ci.cli.app import run
from tests.conftest import Folder, Result
from tests.forge.fake_github import TOKEN, FakeGitHub
from tests.forge.fake_state import REPOSITORY
from tests.forge.mirror import mirror

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Edison(Protocol):
    """Runs a command in a folder."""

    def __call__(self, folder: Folder, *args: str, encoding: str = "utf-8") -> Result: ...


@pytest.fixture
def edison(monkeypatch: pytest.MonkeyPatch) -> Iterator[Edison]:
    """Run commands in this process, and put back what a process of its own would take along."""
    before, logger = signal.getsignal(signal.SIGTERM), logging.getLogger("edison_ci")

    def invoke(folder: Folder, *args: str, encoding: str = "utf-8") -> Result:
        monkeypatch.chdir(folder.path)
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        err = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        code = -1
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                run(list(args))
            except SystemExit as ended:
                assert isinstance(ended.code, int)
                code = ended.code
            sys.stdout.flush()
        return Result(code, _text(out), _text(err))

    yield invoke
    signal.signal(signal.SIGTERM, before)
    logger.handlers.clear()
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode(stream.encoding)


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
