"""What of .edison is for Git, whichever command comes first."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.proposal_terms import refuse_committed_results
from edison_ci.documents.files import IGNORED_BY_GIT, may_be_committed
from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

MEMBERS = "members:\n  - {email: test@example.com, role: owner}\n"
FIRST = {
    "a run": ("run", "--yes"),
    "a run that fails": ("run", "--yes", "--budget", "0"),
    "a trusted key": ("trust", "add", "MY_KEY", "http://127.0.0.1:8971"),
    "a sealed key": ("secrets", "keygen"),
    "an account": ("roles", "token", "test@example.com", "--name", "ci"),
    "a prompt that is tried": ("try", "hello"),
}


def in_git(folder: Folder) -> list[str]:
    """Add everything, and return what is in Git of .edison, or of results elsewhere."""
    folder.git("add", "--all")
    paths = folder.git("ls-files").splitlines()
    return [path for path in paths if ".edison" in path or ".db" in path]


@pytest.mark.parametrize("first", FIRST)
def test_no_command_leaves_results_for_git(edison: Edison, mini: Folder, first: str) -> None:
    mini.git("init", "--quiet")
    mini.git("config", "user.email", "test@example.com")
    mini.write("edison.yaml", mini.read("edison.yaml") + MEMBERS)
    edison(mini, *FIRST[first])
    assert mini.read(".edison/.gitignore") == IGNORED_BY_GIT
    edison(mini, "run", "--yes")
    assert (mini.path / ".edison/results.db").exists()
    paths = in_git(mini)
    assert ".edison/.gitignore" in paths
    assert all(may_be_committed(path) for path in paths), paths


def test_what_is_for_git_stays_visible(edison: Edison, folder: Folder) -> None:
    folder.git("init", "--quiet")
    assert edison(folder, "init").code == 0
    assert edison(folder, "run", "--yes", "--limit", "3").code == 0
    for name in ("secrets.yaml", "prices.json"):
        folder.write(f".edison/{name}", "")
    schemas = {f".edison/schemas/{path.name}" for path in (ROOT / "schemas").glob("*.json")}
    names = (".gitignore", "prices.json", "secrets.yaml", "trust.yaml")
    assert {*in_git(folder)} == {f".edison/{name}" for name in names} | schemas
    folder.git("commit", "--quiet", "--message", "all")
    refuse_committed_results(folder.path, ".edison/results.db")  # as a job for a proposal does


def test_an_ignore_file_of_the_user_stays(edison: Edison, mini: Folder) -> None:
    mini.write(".edison/.gitignore", "*.db\n")
    assert edison(mini, "run", "--yes").code == 0
    assert mini.read(".edison/.gitignore") == "*.db\n"
    target = mini.path / "elsewhere"
    (mini.path / ".edison/.gitignore").unlink()
    (mini.path / ".edison/.gitignore").symlink_to(target)
    assert edison(mini, "run", "--yes").code == 0
    assert not target.exists(), "written through a link"


def test_validate_shows_results_in_git_and_how_to_remove_them(edison: Edison, mini: Folder) -> None:
    mini.git("init", "--quiet")
    assert edison(mini, "run", "--yes").code == 0
    assert "is in Git" not in edison(mini, "validate").all
    mini.write(".edison/it's own.txt", "")
    mini.git("add", "--force", "--", ".edison")
    shown = edison(mini, "validate")
    assert (shown.code, edison(mini, "validate", "--strict").code) == (0, 2)
    assert "warning: .edison/it's own.txt is in Git, and so are " in shown.all
    command = shown.all.split("remove it from Git: ")[1].split(")\n")[0].splitlines()[0]
    mini.git(*shlex.split(command)[1:])
    assert "is in Git" not in edison(mini, "validate").all
    assert (mini.path / ".edison/results.db").exists()


def test_validate_shows_results_elsewhere_that_git_would_take(edison: Edison, mini: Folder) -> None:
    mini.git("init", "--quiet")
    mini.write("edison.yaml", mini.read("edison.yaml") + "results: data/own.db\n")
    shown = edison(mini, "validate").all
    assert "warning: Git does not ignore data/own.db" in shown
    hint = "echo '/data/own.db*' >> .gitignore"
    assert hint in shown
    subprocess.run(["sh", "-c", hint], cwd=mini.path, check=True)
    assert edison(mini, "run", "--yes").code == 0
    assert "does not ignore" not in edison(mini, "validate").all
    assert in_git(mini) == [".edison/.gitignore"]
