"""A change is found again by its trailer, on any machine, and no name is used twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import UsageError
from edison_ci.forge.address import Hosting, hosting_of
from edison_ci.forge.branches import Whereabouts, find_in_git, find_on_github
from edison_ci.forge.models import Change
from edison_ci.forge.plain import PlainGit
from edison_ci.git.repository import Repository
from tests.conftest import Folder
from tests.forge.fake_github import TOKEN

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.forge.github import GitHub
    from tests.forge.fake_github import FakeGitHub

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
    assert Whereabouts(frozenset(taken)).name_for("hello") == "edison/refine/hello-11"
    assert Whereabouts().name_for("hello") == "edison/refine/hello-1"
    assert Whereabouts(branch="edison/refine/hello-2").name_for("hello") == "edison/refine/hello-2"


async def test_another_machine_finds_what_was_proposed(clone: Folder, tmp_path: Path) -> None:
    made = await PlainGit(repository(clone), "origin").propose(change(clone))
    other = Folder(tmp_path / "other")
    clone.git("clone", "--quiet", str(tmp_path / "remote.git"), str(other.path))
    clone.git("push", "--quiet", "origin", "main:edison/refine/hello-7")  # by somebody else
    found = find_in_git(repository(other), "origin", "hello", KEY)
    assert (found.branch, found.commit, found.merged) == (made.branch, made.commit, False)
    assert found.taken == {"edison/refine/hello-1", "edison/refine/hello-7"}
    assert other.git("status", "--porcelain") == ""
    unknown = find_in_git(repository(other), "origin", "hello", "feedfeed")
    assert (unknown.branch, unknown.name_for("hello")) == (None, "edison/refine/hello-8")


async def test_behind_a_commit_of_a_person_and_after_a_merge_it_is_found_too(
    clone: Folder,
) -> None:
    made = await PlainGit(repository(clone), None).propose(change(clone))
    clone.git("switch", "--quiet", made.branch)
    clone.git("commit", "--quiet", "--allow-empty", "--message", "By hand")
    found = find_in_git(repository(clone), None, "hello", KEY)
    assert (found.branch, found.commit, found.merged) == (made.branch, made.commit, False)
    clone.git("switch", "--quiet", "main")
    clone.git("merge", "--quiet", "--no-ff", "--no-edit", made.branch)
    clone.git("branch", "--quiet", "--delete", "--force", made.branch)
    found = find_in_git(repository(clone), None, "hello", KEY)
    assert (found.branch, found.commit, found.merged) == (None, made.commit, True)


def test_a_message_that_only_mentions_the_trailer_is_not_the_change(clone: Folder) -> None:
    clone.git("commit", "--quiet", "--allow-empty", "--message", f"see Edison-Suggestion: {KEY}")
    assert find_in_git(repository(clone), None, "hello", KEY) == Whereabouts()


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
        found = await find_on_github(github.git, "hello", KEY)
        assert (found.branch, found.commit) == ("edison/refine/hello-3", made.commit)
        assert found.taken == {"edison/refine/hello-3"}
        other = await find_on_github(github.git, "hello", "feedfeed")
        assert (other.branch, other.name_for("hello")) == (None, "edison/refine/hello-4")


# --- where it goes --------------------------------------------------------------------------------


def test_without_a_token_branches_are_pushed_and_offline_they_stay(clone: Folder) -> None:
    url = clone.git("remote", "get-url", "origin")
    assert hosting_of(repository(clone), {}) == Hosting("origin", url)
    assert hosting_of(repository(clone), {}, offline=True) == Hosting()
    assert hosting_of(repository(clone), {"GITHUB_TOKEN": TOKEN}) == Hosting("origin", url)
    assert hosting_of(repository(clone), {}).compare_url("main", "b") is None


def test_github_is_known_by_its_remote_and_a_link_needs_no_token(clone: Folder) -> None:
    clone.git("remote", "set-url", "origin", "git@github.com:acme/prompts.git")
    hosting = hosting_of(repository(clone), {})
    assert hosting.address is None
    link = "https://github.com/acme/prompts/compare/main...edison/refine/hello-1?expand=1"
    assert hosting.compare_url("main", "edison/refine/hello-1") == link
    known = hosting_of(repository(clone), {"GH_TOKEN": TOKEN})
    assert known.address is not None
    assert (known.address.repository, known.by_api) == ("acme/prompts", False)
    assert known.compare_url("main", "edison/refine/hello-1") == link


def test_in_a_workflow_commits_are_made_through_github(clone: Folder) -> None:
    job = {"GITHUB_ACTIONS": "true", "GITHUB_TOKEN": TOKEN, "GITHUB_REPOSITORY": "acme/prompts"}
    assert hosting_of(repository(clone), job).by_api
    assert not hosting_of(repository(clone), {"GITHUB_ACTIONS": "true"}).by_api
