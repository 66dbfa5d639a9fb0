"""A change is offered once, on a branch of its own, and nobody's work is overwritten."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.features.github.forge import GitHub
from edison_ci.git.forge import Change, ProposalAction
from tests.features.github.conftest import open_pull
from tests.features.github.fake_github import TOKEN, FakeGitHub, Fault
from tests.features.github.fake_state import Grant

if TYPE_CHECKING:
    from tests.features.github.conftest import Clock

pytestmark = pytest.mark.daily

BRANCH = "edison/refine/support-reply-1"


@pytest.fixture
def change(fake: FakeGitHub) -> Change:
    return Change(
        branch=BRANCH,
        base="main",
        base_commit=fake.state.refs["heads/main"],
        files={"prompts/support-reply.md": "# user\nBe kind, süß.\n".encode()},
        key="0123456789abcdef",
        title="Ask for  kindness",
        body="| before | after |",
        message="Weak: Empathy.",
    )


async def test_a_change_is_one_signed_commit_and_a_pull_request(
    fake: FakeGitHub, github: GitHub, change: Change
) -> None:
    async with github:
        made = await github.propose(change)
    assert made.action is ProposalAction.CREATED
    assert made.pull_request is not None
    assert (made.pull_request.title, made.pull_request.body) == ("Ask for kindness", change.body)
    kept = fake.state.commits[made.commit]
    assert kept["parents"] == [change.base_commit]
    assert kept["message"] == (
        "Ask for kindness\n\nWeak: Empathy.\n\nEdison-Suggestion: 0123456789abcdef\n"
    )
    (path,) = change.files
    assert fake.state.file_at(BRANCH, path) == change.files[path]
    assert fake.state.file_at(BRANCH, "README.md") == b"# prompts\n"
    (sent,) = fake.sent("POST", "/git/commits")
    assert not {"author", "committer", "signature"} & set(sent.body)  # so that GitHub signs it
    (tree,) = fake.sent("POST", "/git/trees")
    assert {entry["mode"] for entry in tree.body["tree"]} == {"100644"}


async def test_the_same_change_is_never_offered_twice(
    fake: FakeGitHub, github: GitHub, change: Change
) -> None:
    async with github:
        first = await github.propose(change)
        count = len(fake.state.commits)
        again = await github.propose(change)
    assert again.action is ProposalAction.UNCHANGED
    assert again.commit == first.commit
    assert len(fake.state.commits) == count
    assert len(fake.state.pulls) == 2  # with the one of the fixture
    assert fake.sent("PATCH") == []


@pytest.mark.parametrize("how", ["closed", "merged"])
@pytest.mark.parametrize("branch", ["kept", "deleted"])
async def test_what_people_decided_about_is_not_offered_again(
    fake: FakeGitHub, github: GitHub, change: Change, how: str, branch: str
) -> None:
    async with github:
        first = await github.propose(change)
        assert first.pull_request is not None
        number = first.pull_request.number
        if how == "closed":
            await github.close_pull_request(number)
        else:
            await github.merge_pull_request(number, head_sha=first.commit)
        if branch == "deleted":
            del fake.state.refs[f"heads/{BRANCH}"]
        count = len(fake.requests)
        again = await github.propose(change)
        assert {r.method for r in fake.requests[count:]} == {"GET"}
        assert (again.action, again.commit) == (ProposalAction.UNCHANGED, first.commit)
        assert again.pull_request is not None
        assert (again.pull_request.number, again.pull_request.state) == (number, "closed")
        assert again.why == f"pull request {number} with this change was {how}"
        newer = await github.propose(replace(change, key="fedcba98"))
    assert newer.pull_request is not None
    assert newer.pull_request.number == number + 1


async def test_a_pull_request_of_a_fork_with_the_same_branch_is_not_ours(
    fake: FakeGitHub, github: GitHub, change: Change
) -> None:
    theirs = fake.state.pulls[open_pull(fake, BRANCH, title="Mine")]
    theirs.head_owner = "eve"
    del fake.state.refs[f"heads/{BRANCH}"]
    async with github:
        await github.propose(change)
    assert theirs.title == "Mine"


async def test_a_new_version_goes_on_top_and_updates_the_pull_request(
    fake: FakeGitHub, github: GitHub, change: Change
) -> None:
    async with github:
        first = await github.propose(change)
        files = {"prompts/support-reply.md": b"# user\nBe brief.\n"}
        second = await github.propose(replace(change, key="fedcba98", files=files, body="new"))
    assert second.action is ProposalAction.UPDATED
    assert fake.state.commits[second.commit]["parents"] == [first.commit]
    assert second.pull_request is not None
    assert second.pull_request.body == "new"
    assert [r.body["force"] for r in fake.sent("PATCH", "/git/refs/")] == [False]


async def test_a_branch_with_somebody_elses_commit_is_left_alone(
    fake: FakeGitHub, github: GitHub, change: Change
) -> None:
    state = fake.state
    async with github:
        first = await github.propose(change)
        tree = state.commits[first.commit]["tree"]
        theirs = state.put_commit("Fix a typo", tree, [first.commit])
        state.refs[f"heads/{BRANCH}"] = theirs
        with pytest.raises(ForgeError, match="of another author") as caught:
            await github.propose(replace(change, key="fedcba98"))
    assert caught.value.fault is ForgeFault.CONFLICT
    assert state.refs[f"heads/{BRANCH}"] == theirs


async def test_a_commit_that_arrives_meanwhile_is_not_overwritten(
    fake: FakeGitHub, clock: Clock, change: Change
) -> None:
    state = fake.state

    async with GitHub(fake.address(), timing=clock.timing) as github:
        first = await github.propose(change)
        advance = github.git.advance_branch

        async def raced(branch: str, sha: str) -> None:
            tree = state.commits[first.commit]["tree"]
            if state.refs[f"heads/{BRANCH}"] == first.commit:
                state.refs[f"heads/{BRANCH}"] = state.put_commit("By hand", tree, [first.commit])
            await advance(branch, sha)

        vars(github.git)["advance_branch"] = raced
        with pytest.raises(ForgeError, match="of another author"):
            await github.propose(replace(change, key="fedcba98"))
    assert state.commits[state.refs[f"heads/{BRANCH}"]]["message"] == "By hand"


async def test_a_branch_may_have_any_name_that_git_takes(
    fake: FakeGitHub, github: GitHub, change: Change
) -> None:
    fake.state.refs["heads/développement#2%"] = fake.state.refs["heads/main"]
    async with github:
        named = replace(change, base="développement#2%", branch="edison/süß&gut")
        made = await github.propose(named)
    assert made.pull_request is not None
    assert made.pull_request.base_ref == "développement#2%"
    assert fake.state.refs["heads/edison/süß&gut"] == made.commit


@pytest.mark.parametrize("path", ["/git/refs", "/pulls"])
async def test_a_lost_reply_makes_nothing_twice(
    fake: FakeGitHub, github: GitHub, change: Change, path: str
) -> None:
    fake.faults.append(Fault(502, "POST", path, after=True))
    async with github:
        made = await github.propose(change)
    assert made.pull_request is not None
    assert len(fake.sent("POST", path)) == 1
    assert len(fake.state.pulls) == 2


async def test_a_pull_request_that_appears_meanwhile_is_updated(
    fake: FakeGitHub, github: GitHub, change: Change
) -> None:
    async with github:
        await github.propose(change)
        behind = Fault(200, "GET", "/pulls?", body=b"[]", times=2)  # a list that is behind
        fake.faults.append(behind)
        again = await github.propose(replace(change, body="newer"))
    assert again.action is ProposalAction.UPDATED
    assert len(fake.sent("POST", "/pulls")) == 2
    assert again.pull_request is not None
    assert again.pull_request.body == "newer"


@pytest.mark.parametrize("how", ["setting", "permission", "422"])
async def test_where_nobody_may_open_one_there_is_a_branch_and_a_link(
    fake: FakeGitHub, github: GitHub, change: Change, how: str
) -> None:
    if how == "setting":
        fake.state.may_open_pull_requests = False
    elif how == "permission":
        fake.grants[TOKEN] = Grant(permissions={"contents": "write", "pull_requests": "read"})
    else:
        said = b'{"message": "GitHub Actions is not permitted to create or approve pull requests"}'
        fake.faults.append(Fault(422, "POST", "/pulls", body=said))
    async with github:
        made = await github.propose(change)
    assert made.pull_request is None
    assert made.compare_url == f"{fake.url}/acme/prompts/compare/main...{BRANCH}?expand=1"
    assert "HTTP 4" in made.why
    assert fake.state.refs[f"heads/{BRANCH}"] == made.commit


async def test_without_the_right_to_write_nothing_is_made(
    fake: FakeGitHub, github: GitHub, change: Change
) -> None:
    fake.grants[TOKEN] = Grant(permissions={"contents": "read", "pull_requests": "write"})
    async with github:
        with pytest.raises(ForgeError) as caught:
            await github.propose(change)
    assert caught.value.fault is ForgeFault.FORBIDDEN
    assert "contents=write" in caught.value.hint


async def test_a_long_description_and_title_are_cut(
    fake: FakeGitHub, github: GitHub, change: Change
) -> None:
    async with github:
        made = await github.propose(replace(change, title="t" * 400, body="| row |\n" * 20_000))
    assert made.pull_request is not None
    assert len(made.pull_request.title) == 250
    assert len(made.pull_request.body) <= 60_000
    assert "more rows" in made.pull_request.body


@pytest.mark.parametrize(
    "changed",
    [
        {"branch": "main"},
        {"branch": "a..b"},
        {"branch": "-x"},
        {"branch": "x.lock"},
        {"branch": "a b"},
        {"branch": ".a"},
        {"branch": "a:b"},
        {"branch": "a\\b"},
        {"branch": "a\nb"},
        {"branch": "a/"},
        {"branch": "@{u}"},
        {"branch": "a/.b"},
        {"base": "../main"},
        {"key": "x"},
        {"key": "has space"},
        {"key": "new\nline"},
        {"files": {}},
        {"files": {".github/workflows/ci.yml": b""}},
        {"files": {"a/.GitHub/x": b""}},
        {"files": {".git/config": b""}},
        {"files": {"../x": b""}},
        {"files": {"/etc/passwd": b""}},
        {"files": {"a//b": b""}},
        {"files": {"a\nb": b""}},
        {"files": {"a\\b": b""}},
        {"files": {"": b""}},
        {"files": {".": b""}},
    ],
    ids=str,
)
async def test_what_should_never_be_proposed_is_refused(
    fake: FakeGitHub, github: GitHub, change: Change, changed: dict[str, Any]
) -> None:
    async with github:
        with pytest.raises(UsageError) as caught:
            await github.propose(replace(change, **changed))
    assert caught.value.hint
    assert fake.requests == []
