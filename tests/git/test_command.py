"""Git is found, fed and stopped safely."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import UsageError
from edison_ci.git import command
from edison_ci.git.command import GitOutput, run_git
from edison_ci.git.repository import Repository, commit_names

if TYPE_CHECKING:
    from pathlib import Path


def environment_of_git(cwd: Path) -> dict[str, str]:
    listed = run_git("-c", "alias.variables=!env -0", "variables", cwd=cwd)
    pairs = (entry.partition("=") for entry in listed.out.decode().split("\0")[:-1])
    return {name: value for name, _, value in pairs}


def test_git_does_not_see_keys_or_foreign_git_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "GITHUB_TOKEN", "GIT_DIR", "GIT_EXTERNAL_DIFF", "GIT_TRACE"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent")
    monkeypatch.setenv("https_proxy", "http://proxy.example.org")
    seen = environment_of_git(tmp_path)
    assert "canary" not in seen.values()
    assert seen["SSH_AUTH_SOCK"] == "/agent"
    assert seen["https_proxy"] == "http://proxy.example.org"


def test_git_neither_asks_nor_locks_nor_translates(tmp_path: Path) -> None:
    seen = environment_of_git(tmp_path)
    assert seen["GIT_TERMINAL_PROMPT"] == seen["GIT_OPTIONAL_LOCKS"] == "0"
    assert seen["GIT_CONFIG_NOSYSTEM"] == seen["GIT_NO_REPLACE_OBJECTS"] == "1"
    assert seen["LC_ALL"] == "C"


def test_git_missing_from_the_path_is_said_clearly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Repository.find(tmp_path) is None
    (tmp_path / ".git").mkdir()
    with pytest.raises(UsageError, match="Git is not installed") as caught:
        Repository.find(tmp_path)
    assert "install Git" in caught.value.hint


def test_a_program_named_git_in_the_repository_is_not_taken_for_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imposter = tmp_path / "git"
    imposter.write_text("#!/bin/sh\ntouch PWNED\n")
    imposter.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([".", "", os.environ["PATH"]]))
    assert run_git("version", cwd=tmp_path).line.startswith("git version")
    assert not (tmp_path / "PWNED").exists()


def test_a_command_that_hangs_is_ended_with_its_helpers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LOCAL_TIMEOUT_S", 0.5)
    os.mkfifo(tmp_path / "lifeline")
    lifeline = os.open(tmp_path / "lifeline", os.O_RDONLY | os.O_NONBLOCK)
    hang = "alias.hang=!exec > lifeline; echo alive; exec tail -f /dev/null"
    with pytest.raises(UsageError, match="did not finish"):
        run_git("-c", hang, "hang", cwd=tmp_path)
    while True:  # the line ends when nobody holds its other end any more
        readable, _, _ = select.select([lifeline], [], [], 10)
        assert readable
        if os.read(lifeline, 100) == b"":
            break
    os.close(lifeline)


def test_a_complaint_keeps_the_credentials_in_an_address_to_itself() -> None:
    err = b"hint: more\nfatal: unable to access 'https://x-token:s3cret@example.org/a.git/'\n"
    assert GitOutput(128, b"", err).reason == (
        "fatal: unable to access 'https://***@example.org/a.git/'"
    )
    assert GitOutput(1, b"", b"").reason == "no reason given"


def test_a_commit_that_is_asked_for_by_its_id_is_called_by_it_once() -> None:
    commit = "0123456789" * 4
    assert commit_names("main", commit) == ("main", "01234567")
    assert commit_names(commit, commit) == commit_names(commit[:10], commit) == ("01234567",)
