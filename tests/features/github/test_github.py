"""Every operation against a strict GitHub; each message is held against GitHub's description."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.github_api import approved_by_person
from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.features.github.forge import GitHub, decode_content, suggestion_text
from edison_ci.git.forge import Change, ChangedFile, ReviewDecision, SuggestedLines
from tests.features.github.conftest import open_pull
from tests.features.github.fake_github import TOKEN, FakeGitHub, Fault
from tests.features.github.fake_routes import ROUTES
from tests.features.github.fake_state import Grant
from tests.features.github.openapi import description

if TYPE_CHECKING:
    from edison_ci.git.forge import Forge
    from tests.features.github.conftest import Clock

pytestmark = pytest.mark.daily


def test_github_is_a_forge(github: GitHub) -> None:
    forge: Forge = github
    assert forge is not None


def test_every_path_we_use_is_open_to_the_token_of_a_workflow() -> None:
    for method, template in ROUTES:
        path = template.replace("{owner}", "acme").replace("{repo}", "prompts")
        about = description().operation(method, path).about
        assert about["x-github"]["enabledForGitHubApps"], template
        assert about["x-github"].get("deprecationDate") is None, template


@pytest.mark.parametrize(("name", "prefix"), [("api.github.com", ""), ("ghes-3.17", "/api/v3")])
async def test_every_request_we_can_send_is_one_that_github_describes(
    clock: Clock, name: str, prefix: str
) -> None:
    """The fake refuses what is not described, so it is enough to send each once."""
    with FakeGitHub(name=name, prefix=prefix) as server:
        open_pull(server)
        pull = server.state.pulls[1]
        pull.diff_lines = {"README.md": {1, 2, 3}}
        server.grants[TOKEN].permissions["issues"] = "write"
        async with GitHub(server.address(), timing=clock.timing) as github:
            made = await github.create_comment(1, "hello")
            await github.update_comment(made.id, "hello again")
            await github.comments(1)
            await github.delete_comment(made.id)
            issue = await github.create_issue("Score fell", "by 12 points")
            assert issue in await github.open_issues()
            await github.close_issue(issue.number)
            await github.changed_files(1)
            await github.reviews.create(1, decision=ReviewDecision.APPROVE, commit=pull.head_sha)
            lines = [SuggestedLines("README.md", 1, 3, "x"), SuggestedLines("README.md", 1, 1, "y")]
            await github.reviews.suggest(1, lines, commit=pull.head_sha)
            await github.reviews.of(1)
            await github.reviews.line_comments(1)
            blob = await github.git.create_blob(b"x")
            assert await github.git.read_blob(blob) == b"x"
            await github.read_file("README.md", ref="main")
            tip = await github.git.tip("main")
            assert await github.git.tips("mai") == {"main": tip}
            assert tip is not None
            change = Change("edison/a", "main", tip, {"a.md": b"a"}, "key-1", "Title", draft=True)
            proposed = await github.propose(change)
            await github.propose(replace(change, key="key-2", body="more"))
            assert proposed.pull_request is not None
            await github.close_pull_request(proposed.pull_request.number)
            await github.merge_pull_request(1, head_sha=(await github.pull_request(1)).head_sha)
        server.state.workflows["edison-run.yml"] = {"experiment": {"required": True}}
        server.grants[TOKEN].permissions["actions"] = "write"
        async with GitHub(server.address(), timing=clock.timing) as github:
            branch = await github.default_branch()
            await github.dispatch_workflow("edison-run.yml", branch, {"experiment": "hello"})
            server.grants[TOKEN].permissions["administration"] = "read"
            assert not (await github.protection(branch)).pull_request
        server.grants[TOKEN].permissions["actions"] = "read"
        assert not await approved_by_person("trial", server.address(), "7")
        used = {(r.method, server.template(r)) for r in server.requests}
    assert used == set(ROUTES)


async def test_a_comment_lives_and_dies(fake: FakeGitHub, github: GitHub) -> None:
    async with github:
        made = await github.create_comment(1, "hello")
        assert github.is_ours(made)
        changed = await github.update_comment(made.id, "bye")
        assert (changed.id, changed.body) == (made.id, "bye")
        assert [c.body for c in await github.comments(1)] == ["bye"]
        await github.delete_comment(made.id)
        await github.delete_comment(made.id)  # gone is gone
        assert await github.comments(1) == []
        with pytest.raises(ForgeError) as caught:
            await github.update_comment(made.id, "again")
    assert caught.value.fault is ForgeFault.NOT_FOUND


@pytest.mark.parametrize("method", ["create", "update"])
async def test_github_refuses_a_body_that_is_too_long(
    fake: FakeGitHub, github: GitHub, method: str
) -> None:
    long = "x" * 65_537
    async with github:
        made = await github.create_comment(1, "x" * 65_536)
        with pytest.raises(ForgeError, match="Body is too long"):
            if method == "create":
                await github.create_comment(1, long)
            else:
                await github.update_comment(made.id, long)


async def test_a_pull_request_is_found_by_its_branch(fake: FakeGitHub, github: GitHub) -> None:
    for number in range(40):
        open_pull(fake, f"other-{number}")
    fork = fake.state.pulls[open_pull(fake, "from-fork")]
    fork.head_owner = "eve"
    async with github:
        found = await github.find_pull_request("topic")
        assert found is not None
        assert (found.number, found.head_ref, found.base_ref) == (1, "topic", "main")
        assert found.author.login == "ada"
        assert await github.find_pull_request("nowhere") is None
        assert await github.find_pull_request("from-fork") is None
        theirs = await github.find_pull_request("from-fork", owner="eve")
        assert theirs is not None
        assert theirs.head_repository == "eve/prompts"
        assert (await github.close_pull_request(1)).state == "closed"
        assert await github.find_pull_request("topic") is None


async def test_a_pull_request_is_merged_only_as_it_was_seen(
    fake: FakeGitHub, github: GitHub
) -> None:
    async with github:
        pull = await github.pull_request(1)
        with pytest.raises(ForgeError) as caught:
            await github.merge_pull_request(1, head_sha="f" * 40)
        assert caught.value.fault is ForgeFault.CONFLICT
        assert await github.merge_pull_request(1, head_sha=pull.head_sha) == pull.head_sha
        merged = await github.pull_request(1)
        assert (merged.state, merged.merged) == ("closed", True)
        assert (pull.merge_commit, pull.merged_by) == (None, None)
        assert (merged.merge_commit, merged.merged_by) == (pull.head_sha, "github-actions[bot]")


async def test_changed_files_have_their_former_names(fake: FakeGitHub, github: GitHub) -> None:
    new = {"filename": "prompts/b.md", "status": "renamed", "previous_filename": "prompts/a.md"}
    fake.state.pulls[1].files = [new, {"filename": "x.md", "status": "added"}]
    fake.state.pulls[1].files[0]["patch"] = "@@ -1 +1 @@"
    fake.state.pulls[1].files[1]["patch"] = ""
    async with github:
        assert await github.changed_files(1) == [
            ChangedFile("prompts/b.md", "renamed", "prompts/a.md", "@@ -1 +1 @@"),
            ChangedFile("x.md", "added"),
        ]


async def test_a_list_that_github_cuts_is_refused(fake: FakeGitHub, github: GitHub) -> None:
    fake.state.pulls[1].files = [{"filename": f"{n}.md", "status": "added"} for n in range(3000)]
    async with github:
        with pytest.raises(ForgeError, match="3,000 files or more"):
            await github.changed_files(1)


async def test_a_file_is_read_at_a_commit(fake: FakeGitHub, github: GitHub) -> None:
    state = fake.state
    large = b"x" * 1_500_000
    files = {"a b/ü.md": b"\xff\x00text", "empty.md": b"", "large.md": large}
    tree = state.put_tree({name: state.put_blob(data) for name, data in files.items()})
    state.refs["heads/feature/x"] = state.put_commit("files", tree, [])
    async with github:
        for name, data in files.items():
            assert await github.read_file(name, ref="feature/x") == data
        assert await github.read_file("README.md", ref="feature/x") is None
        assert await github.read_file("README.md", ref="main") == b"# prompts\n"
        fake.faults.append(Fault(200, body=b'[{"type": "file"}]'))
        assert await github.read_file("prompts", ref="main") is None  # a folder


@pytest.mark.parametrize("content", ["eHl6enl=", "eHl6enk", "eHl6!enk=", "eHl6 enk=", "-_-_"])
def test_content_that_github_did_not_encode_is_not_read(content: str) -> None:
    assert decode_content("eHl6\nenk=\n", "base64") == b"xyzzy"
    with pytest.raises(ForgeError) as unreadable:
        decode_content(content, "base64")
    assert unreadable.value.fault is ForgeFault.UNREADABLE


# --- reviews --------------------------------------------------------------------------------------


async def test_a_review_decides(fake: FakeGitHub, github: GitHub) -> None:
    async with github:
        made = await github.reviews.create(1, decision=ReviewDecision.APPROVE)
        assert (made.state, made.author.is_bot) == ("APPROVED", True)
        await github.reviews.create(1, decision=ReviewDecision.REQUEST_CHANGES, body="too long")
        states = [review.state for review in await github.reviews.of(1)]
        assert states == ["APPROVED", "CHANGES_REQUESTED"]
        fake.state.pulls[1].author = Grant()
        with pytest.raises(ForgeError, match="approve your own"):
            await github.reviews.create(1, decision=ReviewDecision.APPROVE)


async def test_lines_are_suggested_in_batches(fake: FakeGitHub, github: GitHub) -> None:
    pull = fake.state.pulls[1]
    pull.diff_lines = {"prompts/a.md": set(range(1, 100))}
    wanted = [SuggestedLines("prompts/a.md", n, n + n % 2, f"line {n}") for n in range(1, 46)]
    async with github:
        made = await github.reviews.suggest(1, wanted, commit=pull.head_sha, body="Kinder.")
        assert [review.body for review in made] == ["Kinder.", "", ""]
        comments = await github.reviews.line_comments(1)
        assert len(comments) == 45
        assert comments[0].body == "```suggestion\nline 1\n```"
        with pytest.raises(ForgeError, match="part of the diff"):
            outside = SuggestedLines("prompts/a.md", 500, 500, "x")
            await github.reviews.suggest(1, [outside], commit=pull.head_sha)


@pytest.mark.parametrize(
    ("text", "fence"), [("a", "```"), ("```\ncode\n```", "````"), ("x ```` y", "`````")]
)
def test_a_suggestion_cannot_leave_its_fence(text: str, fence: str) -> None:
    made = suggestion_text(SuggestedLines("a.md", 1, 1, text, note="Why"))
    assert made == f"Why\n\n{fence}suggestion\n{text}\n{fence}"


def test_a_suggestion_may_take_lines_away() -> None:
    assert suggestion_text(SuggestedLines("a.md", 1, 2, "")) == "```suggestion\n```"
