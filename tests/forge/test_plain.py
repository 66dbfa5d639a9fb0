"""Without a forge a change is a branch, a push over real HTTP, and a patch that applies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.forge.models import Change, Deed
from edison_ci.forge.plain import PlainGit
from edison_ci.git.repository import Repository
from tests.conftest import Folder
from tests.forge.git_remote import GitRemote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.forge.models import Proposer

BRANCH = "edison/refine/hello-1"


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[GitRemote]:
    served = tmp_path / "served"
    bare = Folder(served)
    served.mkdir()
    bare.git("init", "--quiet", "--bare", "--initial-branch=main", "prompts.git")
    bare.git("-C", "prompts.git", "config", "http.receivepack", "true")
    with GitRemote(served) as server:
        yield server


@pytest.fixture
def clone(folder: Folder, remote: GitRemote) -> Folder:
    folder.git("init", "--quiet", "--initial-branch=main")
    folder.git("config", "user.name", "Ada")
    folder.git("config", "user.email", "ada@example.org")
    folder.git("remote", "add", "origin", f"{remote.url}/prompts.git")
    folder.write("prompts/hello.md", "# user\nHello.\n")
    folder.write("other.md", "other\n")
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", "start")
    folder.git("push", "--quiet", "origin", "main")
    return folder


def change(clone: Folder, text: str = "# user\nHello, friend.\n", key: str = "0123abcd") -> Change:
    return Change(
        branch=BRANCH,
        base="main",
        base_commit=clone.git("rev-parse", "main"),
        files={"prompts/hello.md": text.encode()},
        key=key,
        title="Be friendly",
    )


def plain(clone: Folder, remote: str | None = "origin") -> PlainGit:
    repository = Repository.find(clone.path)
    assert repository is not None
    return PlainGit(repository, remote)


def test_plain_git_proposes(clone: Folder) -> None:
    proposer: Proposer = plain(clone)
    assert proposer is not None


async def test_a_change_is_a_branch_that_is_pushed_and_a_patch_that_applies(
    clone: Folder, tmp_path: Path
) -> None:
    clone.write("other.md", "being edited\n")
    clone.write("prompts/hello.md", "being edited too\n")
    clone.git("add", "other.md")
    before = clone.git("status", "--porcelain")
    made = await plain(clone).propose(change(clone))
    assert (made.deed, made.pull_request, made.compare_url) == (Deed.CREATED, None, None)
    assert clone.git("status", "--porcelain") == before  # nobody's work is touched
    assert clone.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert clone.git("ls-remote", "origin", BRANCH).split()[0] == made.commit
    assert clone.git("show", "--format=%an <%ae>%n%B", "--name-only", made.commit).split("\n") == [
        "Ada <ada@example.org>",
        "Be friendly",
        "",
        "Edison-Suggestion: 0123abcd",
        "",
        "",
        "prompts/hello.md",
    ]
    url = clone.git("remote", "get-url", "origin")
    other = Folder(tmp_path / "other")
    clone.git("clone", "--quiet", url, str(other.path))
    other.write("a.patch", made.patch)
    other.git("apply", "a.patch")
    assert other.read("prompts/hello.md") == "# user\nHello, friend.\n"


async def test_the_same_change_is_made_once_and_the_next_goes_on_top(clone: Folder) -> None:
    git = plain(clone)
    first = await git.propose(change(clone))
    again = await git.propose(change(clone))
    assert (again.deed, again.commit) == (Deed.UNCHANGED, first.commit)
    second = await git.propose(change(clone, "# user\nHi.\n", "beefbeef"))
    assert second.deed is Deed.UPDATED
    assert clone.git("rev-parse", f"{BRANCH}~1") == first.commit
    assert clone.git("ls-remote", "origin", BRANCH).split()[0] == second.commit


async def test_a_branch_of_somebody_else_is_left_alone_here_and_there(
    clone: Folder, tmp_path: Path
) -> None:
    await plain(clone).propose(change(clone))
    other = Folder(tmp_path / "other")
    clone.git("clone", "--quiet", clone.git("remote", "get-url", "origin"), str(other.path))
    other.git("checkout", "--quiet", BRANCH)
    other.write("prompts/hello.md", "by hand\n")
    other.git("commit", "--quiet", "--all", "--message", "By hand")
    other.git("push", "--quiet", "origin", BRANCH)
    with pytest.raises(ForgeError, match="cannot be pushed") as caught:
        await plain(clone).propose(change(clone, "# user\nHi.\n", "beefbeef"))
    assert caught.value.fault is ForgeFault.CONFLICT
    assert clone.git("ls-remote", "origin", BRANCH).split()[0] == other.git("rev-parse", "HEAD")
    clone.git("fetch", "--quiet", "origin")
    clone.git("branch", "--force", BRANCH, f"origin/{BRANCH}")
    with pytest.raises(ForgeError, match="not ours"):
        await plain(clone).propose(change(clone, "# user\nHi.\n", "beefbeef"))


async def test_a_branch_that_moves_meanwhile_is_not_overwritten(clone: Folder) -> None:
    class Racing(PlainGit):
        def commit(self, change: Change, parent: str) -> str:
            made = super().commit(change, parent)
            clone.git("branch", "--force", BRANCH, theirs)
            return made

    git = plain(clone)
    await git.propose(change(clone))
    theirs = clone.git("commit-tree", "-m", "By hand", "-p", BRANCH, f"{BRANCH}^{{tree}}")
    with pytest.raises(UsageError, match="update-ref failed"):
        await Racing(git.repository, None).propose(change(clone, "# user\nHi.\n", "beefbeef"))
    assert clone.git("rev-parse", BRANCH) == theirs


async def test_without_a_remote_the_branch_stays_here(clone: Folder, remote: GitRemote) -> None:
    count = len(remote.requests)
    made = await plain(clone, None).propose(change(clone))
    assert clone.git("rev-parse", BRANCH) == made.commit
    assert len(remote.requests) == count
    assert made.patch.startswith(b"From ")
    assert "no forge" in made.why


async def test_no_hook_runs(clone: Folder, tmp_path: Path) -> None:
    for name in ("pre-push", "pre-commit", "post-commit", "reference-transaction"):
        hook = clone.write(f".git/hooks/{name}", f"#!/bin/sh\ntouch {tmp_path}/PWNED\nexit 1\n")
        hook.chmod(0o755)
    clone.git("config", "core.fsmonitor", f"touch {tmp_path}/PWNED")
    await plain(clone).propose(change(clone))
    assert not (tmp_path / "PWNED").exists()


async def test_a_remote_that_is_not_there_and_a_nameless_author_are_told(clone: Folder) -> None:
    with pytest.raises(ForgeError, match="cannot be pushed") as caught:
        await plain(clone, "nowhere").propose(change(clone))
    assert caught.value.fault is ForgeFault.UNAVAILABLE
    clone.git("config", "user.useConfigOnly", "true")
    clone.git("config", "--unset", "user.email")
    with pytest.raises(UsageError, match="cannot make a commit") as nameless:
        await plain(clone).propose(replace(change(clone), key="beefbeef"))
    assert "git config user.name" in nameless.value.hint
