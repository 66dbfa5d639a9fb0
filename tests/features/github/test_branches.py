"""A change is found again by its trailer, on any machine, and no name is used twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.git.forge import Change, ProposalAction
from edison_ci.git.host import RepositoryHost, find_host
from edison_ci.git.repository import Repository
from edison_ci.proposals.branches import (
    BranchState,
    PlainGit,
    find_branch_in_git,
    find_branch_on_github,
)
from tests.conftest import Folder
from tests.features.github.fake_github import TOKEN
from tests.features.github.git_remote import GitRemote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.features.github.forge import GitHub
    from edison_ci.git.forge import Proposer
    from tests.features.github.fake_github import FakeGitHub

pytestmark = pytest.mark.daily

KEY = "0123456789abcdef"


@pytest.fixture
def clone(folder: Folder, tmp_path: Path) -> Folder:
    Folder(tmp_path).git("init", "--quiet", "--bare", "--initial-branch=main", "remote.git")
    folder.git("config", "--global", "user.name", "Ada")
    folder.git("config", "--global", "user.email", "ada@example.org")
    folder.git("init", "--quiet", "--initial-branch=main")
    folder.write("prompts/hello.md", "# user\nHello.\n")
    folder.git("add", "--all")
    folder.git("commit", "--quiet", "--message", "start")
    folder.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    folder.git("push", "--quiet", "--set-upstream", "origin", "main")
    return folder


def repository(folder: Folder) -> Repository:
    found = Repository.find(folder.path)
    assert found is not None
    return found


def change(folder: Folder, branch: str = "edison/refine/hello-1", key: str = KEY) -> Change:
    base = folder.git("rev-parse", "main")
    return Change(branch, "main", base, {"prompts/hello.md": b"# user\nHi.\n"}, key, "Hi")


def test_the_first_free_number_follows_the_highest_one() -> None:
    taken = {"edison/refine/hello-2", "edison/refine/hello-10", "edison/refine/hello-again-40"}
    assert BranchState(frozenset(taken)).name_for("hello") == "edison/refine/hello-11"
    assert BranchState().name_for("hello") == "edison/refine/hello-1"
    assert BranchState(branch="edison/refine/hello-2").name_for("hello") == "edison/refine/hello-2"


async def test_another_machine_finds_what_was_proposed(clone: Folder, tmp_path: Path) -> None:
    made = await PlainGit(repository(clone), "origin").propose(change(clone))
    other = Folder(tmp_path / "other")
    clone.git("clone", "--quiet", str(tmp_path / "remote.git"), str(other.path))
    clone.git("push", "--quiet", "origin", "main:edison/refine/hello-7")  # by somebody else
    found = find_branch_in_git(repository(other), "origin", "hello", KEY)
    assert (found.branch, found.commit, found.merged) == (made.branch, made.commit, False)
    assert found.taken == {"edison/refine/hello-1", "edison/refine/hello-7"}
    assert other.git("status", "--porcelain") == ""
    unknown = find_branch_in_git(repository(other), "origin", "hello", "feedfeed")
    assert (unknown.branch, unknown.name_for("hello")) == (None, "edison/refine/hello-8")


async def test_behind_a_commit_of_a_person_and_after_a_merge_it_is_found_too(
    clone: Folder,
) -> None:
    made = await PlainGit(repository(clone), None).propose(change(clone))
    clone.git("switch", "--quiet", made.branch)
    clone.git("commit", "--quiet", "--allow-empty", "--message", "By hand")
    found = find_branch_in_git(repository(clone), None, "hello", KEY)
    assert (found.branch, found.commit, found.merged) == (made.branch, made.commit, False)
    clone.git("switch", "--quiet", "main")
    clone.git("merge", "--quiet", "--no-ff", "--no-edit", made.branch)
    clone.git("branch", "--quiet", "--delete", "--force", made.branch)
    found = find_branch_in_git(repository(clone), None, "hello", KEY)
    assert (found.branch, found.commit, found.merged) == (None, made.commit, True)


def test_a_message_that_only_mentions_the_trailer_is_not_the_change(clone: Folder) -> None:
    clone.git("commit", "--quiet", "--allow-empty", "--message", f"see Edison-Suggestion: {KEY}")
    assert find_branch_in_git(repository(clone), None, "hello", KEY) == BranchState()


async def test_the_next_change_goes_on_from_what_the_remote_has(
    clone: Folder, tmp_path: Path
) -> None:
    made = await PlainGit(repository(clone), "origin").propose(change(clone))
    other = Folder(tmp_path / "other")
    clone.git("clone", "--quiet", str(tmp_path / "remote.git"), str(other.path))
    again = await PlainGit(repository(other), "origin").propose(change(other))
    assert again.commit == made.commit
    more = replace(change(other, key="feedfeed"), files={"prompts/hello.md": b"# user\nHey.\n"})
    await PlainGit(repository(other), "origin").propose(more)
    assert other.git("rev-parse", f"origin/{made.branch}~1") == made.commit


async def test_a_branch_that_somebody_works_on_is_left_alone(clone: Folder) -> None:
    await PlainGit(repository(clone), None).propose(change(clone))
    clone.git("switch", "--quiet", "edison/refine/hello-1")
    before = clone.git("rev-parse", "HEAD")
    with pytest.raises(UsageError, match="is checked out"):
        await PlainGit(repository(clone), None).propose(change(clone, key="feedfeed"))
    assert clone.git("rev-parse", "HEAD") == before
    assert clone.git("status", "--porcelain") == ""


async def test_github_is_asked_for_the_branches_of_the_experiment(
    fake: FakeGitHub, github: GitHub
) -> None:
    main = fake.state.refs["heads/main"]
    base = Change("edison/refine/hello-3", "main", main, {"a.md": b"a"}, KEY, "Title")
    async with github:
        made = await github.propose(base)
        state = fake.state
        by_hand = state.put_commit("by hand", state.commits[made.commit]["tree"], [made.commit])
        state.refs["heads/edison/refine/hello-3"] = by_hand
        state.refs["heads/edison/refine/hello-again-9"] = main
        found = await find_branch_on_github(github.git, "hello", KEY)
        assert (found.branch, found.commit) == ("edison/refine/hello-3", made.commit)
        assert found.taken == {"edison/refine/hello-3"}
        other = await find_branch_on_github(github.git, "hello", "feedfeed")
        assert (other.branch, other.name_for("hello")) == (None, "edison/refine/hello-4")


# --- where it goes --------------------------------------------------------------------------------


def test_without_a_token_branches_are_pushed_and_offline_they_stay(clone: Folder) -> None:
    url = clone.git("remote", "get-url", "origin")
    assert find_host(repository(clone), {}) == RepositoryHost("origin", url)
    assert find_host(repository(clone), {}, offline=True) == RepositoryHost()
    assert find_host(repository(clone), {"GITHUB_TOKEN": TOKEN}) == RepositoryHost("origin", url)
    assert find_host(repository(clone), {}).compare_url("main", "b") is None


def test_github_is_known_by_its_remote_and_a_link_needs_no_token(clone: Folder) -> None:
    clone.git("remote", "set-url", "origin", "git@github.com:acme/prompts.git")
    hosting = find_host(repository(clone), {})
    assert hosting.address is None
    link = "https://github.com/acme/prompts/compare/main...edison/refine/hello-1?expand=1"
    assert hosting.compare_url("main", "edison/refine/hello-1") == link
    known = find_host(repository(clone), {"GH_TOKEN": TOKEN})
    assert known.address is not None
    assert (known.address.repository, known.by_api) == ("acme/prompts", False)
    assert known.compare_url("main", "edison/refine/hello-1") == link


def test_in_a_workflow_commits_are_made_through_github(clone: Folder) -> None:
    job = {"GITHUB_ACTIONS": "true", "GITHUB_TOKEN": TOKEN, "GITHUB_REPOSITORY": "acme/prompts"}
    assert find_host(repository(clone), job).by_api
    assert not find_host(repository(clone), {"GITHUB_ACTIONS": "true"}).by_api


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
def plain_clone(folder: Folder, remote: GitRemote) -> Folder:
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


def plain_change(
    plain_clone: Folder, text: str = "# user\nHello, friend.\n", key: str = "0123abcd"
) -> Change:
    return Change(
        branch=BRANCH,
        base="main",
        base_commit=plain_clone.git("rev-parse", "main"),
        files={"prompts/hello.md": text.encode()},
        key=key,
        title="Be friendly",
    )


def plain(plain_clone: Folder, remote: str | None = "origin") -> PlainGit:
    repository = Repository.find(plain_clone.path)
    assert repository is not None
    return PlainGit(repository, remote)


def test_plain_git_proposes(plain_clone: Folder) -> None:
    proposer: Proposer = plain(plain_clone)
    assert proposer is not None


async def test_a_change_is_a_branch_that_is_pushed_and_a_patch_that_applies(
    plain_clone: Folder, tmp_path: Path
) -> None:
    plain_clone.write("other.md", "being edited\n")
    plain_clone.write("prompts/hello.md", "being edited too\n")
    plain_clone.git("add", "other.md")
    before = plain_clone.git("status", "--porcelain")
    made = await plain(plain_clone).propose(plain_change(plain_clone))
    assert (made.action, made.pull_request, made.compare_url) == (
        ProposalAction.CREATED,
        None,
        None,
    )
    assert plain_clone.git("status", "--porcelain") == before  # nobody's work is touched
    assert plain_clone.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert plain_clone.git("ls-remote", "origin", BRANCH).split()[0] == made.commit
    assert plain_clone.git("show", "--format=%an <%ae>%n%B", "--name-only", made.commit).split(
        "\n"
    ) == [
        "Ada <ada@example.org>",
        "Be friendly",
        "",
        "Edison-Suggestion: 0123abcd",
        "",
        "",
        "prompts/hello.md",
    ]
    url = plain_clone.git("remote", "get-url", "origin")
    other = Folder(tmp_path / "other")
    plain_clone.git("clone", "--quiet", url, str(other.path))
    other.write("a.patch", made.patch)
    other.git("apply", "a.patch")
    assert other.read("prompts/hello.md") == "# user\nHello, friend.\n"


async def test_the_same_change_is_made_once_and_the_next_goes_on_top(
    plain_clone: Folder,
) -> None:
    git = plain(plain_clone)
    first = await git.propose(plain_change(plain_clone))
    again = await git.propose(plain_change(plain_clone))
    assert (again.action, again.commit) == (ProposalAction.UNCHANGED, first.commit)
    second = await git.propose(plain_change(plain_clone, "# user\nHi.\n", "beefbeef"))
    assert second.action is ProposalAction.UPDATED
    assert plain_clone.git("rev-parse", f"{BRANCH}~1") == first.commit
    assert plain_clone.git("ls-remote", "origin", BRANCH).split()[0] == second.commit


async def test_a_branch_of_somebody_else_is_left_alone_here_and_there(
    plain_clone: Folder, tmp_path: Path
) -> None:
    await plain(plain_clone).propose(plain_change(plain_clone))
    other = Folder(tmp_path / "other")
    plain_clone.git(
        "clone",
        "--quiet",
        plain_clone.git("remote", "get-url", "origin"),
        str(other.path),
    )
    other.git("checkout", "--quiet", BRANCH)
    other.write("prompts/hello.md", "by hand\n")
    other.git("commit", "--quiet", "--all", "--message", "By hand")
    other.git("push", "--quiet", "origin", BRANCH)
    with pytest.raises(ForgeError, match="cannot push") as caught:
        await plain(plain_clone).propose(plain_change(plain_clone, "# user\nHi.\n", "beefbeef"))
    assert caught.value.fault is ForgeFault.CONFLICT
    assert plain_clone.git("ls-remote", "origin", BRANCH).split()[0] == other.git(
        "rev-parse", "HEAD"
    )
    plain_clone.git("fetch", "--quiet", "origin")
    plain_clone.git("branch", "--force", BRANCH, f"origin/{BRANCH}")
    with pytest.raises(ForgeError, match="of another author"):
        await plain(plain_clone).propose(plain_change(plain_clone, "# user\nHi.\n", "beefbeef"))


async def test_a_branch_that_moves_meanwhile_is_not_overwritten(plain_clone: Folder) -> None:
    class Racing(PlainGit):
        def commit(self, plain_change: Change, parent: str) -> str:
            made = super().commit(plain_change, parent)
            plain_clone.git("branch", "--force", BRANCH, theirs)
            return made

    git = plain(plain_clone)
    await git.propose(plain_change(plain_clone))
    theirs = plain_clone.git("commit-tree", "-m", "By hand", "-p", BRANCH, f"{BRANCH}^{{tree}}")
    with pytest.raises(UsageError, match="update-ref failed"):
        await Racing(git.repository, None).propose(
            plain_change(plain_clone, "# user\nHi.\n", "beefbeef")
        )
    assert plain_clone.git("rev-parse", BRANCH) == theirs


async def test_without_a_remote_the_branch_stays_here(
    plain_clone: Folder, remote: GitRemote
) -> None:
    count = len(remote.requests)
    made = await plain(plain_clone, None).propose(plain_change(plain_clone))
    assert plain_clone.git("rev-parse", BRANCH) == made.commit
    assert len(remote.requests) == count
    assert made.patch.startswith(b"From ")
    assert "no pull requests" in made.why


async def test_no_hook_runs(plain_clone: Folder, tmp_path: Path) -> None:
    for name in ("pre-push", "pre-commit", "post-commit", "reference-transaction"):
        hook = plain_clone.write(
            f".git/hooks/{name}", f"#!/bin/sh\ntouch {tmp_path}/PWNED\nexit 1\n"
        )
        hook.chmod(0o755)
    plain_clone.git("config", "core.fsmonitor", f"touch {tmp_path}/PWNED")
    await plain(plain_clone).propose(plain_change(plain_clone))
    assert not (tmp_path / "PWNED").exists()


async def test_a_remote_that_is_not_there_and_a_nameless_author_are_told(
    plain_clone: Folder,
) -> None:
    with pytest.raises(ForgeError, match="cannot push") as caught:
        await plain(plain_clone, "nowhere").propose(plain_change(plain_clone))
    assert caught.value.fault is ForgeFault.UNAVAILABLE
    plain_clone.git("config", "user.useConfigOnly", "true")
    plain_clone.git("config", "--unset", "user.email")
    with pytest.raises(UsageError, match="cannot create a commit") as nameless:
        await plain(plain_clone).propose(replace(plain_change(plain_clone), key="beefbeef"))
    assert "git config user.name" in nameless.value.hint
