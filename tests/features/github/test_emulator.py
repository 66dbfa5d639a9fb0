"""The flows against a server that somebody else wrote from GitHub's documentation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.features.github.forge import Author, GitHub
from edison_ci.features.github.sticky_comment import (
    Outcome,
    Report,
    ReportMarker,
    ReportState,
    post,
)
from edison_ci.git.forge import Change, ProposalAction
from tests.features.github.emulator import emulator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.git.host import RepositoryAddress
    from tests.features.github.conftest import Clock

pytestmark = pytest.mark.daily


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepositoryAddress]:
    with emulator(tmp_path_factory.mktemp("emulator")) as found:
        yield found


@pytest.fixture
def github(address: RepositoryAddress, clock: Clock) -> GitHub:
    return GitHub(address, author=Author("octocat"), timing=clock.timing)


async def change_on(github: GitHub, name: str) -> Change:
    start = await github.git.tip("main")
    assert start is not None
    return Change(
        branch=f"edison/refine/{name}",
        base="main",
        base_commit=start,
        files={"prompts/reply.md": f"# user\nBe kind, {name}.\n".encode()},
        key=f"hash-of-{name}",
        title=f"Refine {name}",
        body="Why: kinder.",
    )


async def test_a_change_becomes_a_branch_a_commit_and_a_pull_request_once(github: GitHub) -> None:
    async with github:
        change = await change_on(github, "one")
        first = await github.propose(change)
        again = await github.propose(change)
        assert first.pull_request is not None
        assert again.pull_request is not None
        assert (first.action, again.action) == (ProposalAction.CREATED, ProposalAction.UNCHANGED)
        assert first.pull_request.number == again.pull_request.number
        assert first.commit == again.commit
        made = await github.git.commit(first.commit)
        assert made.message.endswith("\n\nEdison-Suggestion: hash-of-one\n")
        assert made.parents == (change.base_commit,)
        text = await github.read_file("prompts/reply.md", ref=change.branch)
        assert text == change.files["prompts/reply.md"]
        assert await github.read_file("prompts/reply.md", ref="main") is None

        more = replace(change, key="hash-of-two", files={"prompts/reply.md": b"# user\nTwo.\n"})
        second = await github.propose(replace(more, body="Why: shorter."))
        assert second.action is ProposalAction.UPDATED
        assert (await github.git.commit(second.commit)).parents == (first.commit,)
        pull = await github.pull_request(first.pull_request.number)
        assert pull.body == "Why: shorter."
        assert await github.git.tip(change.branch) == second.commit
        assert (await github.close_pull_request(pull.number)).state == "closed"
        assert await github.find_pull_request(change.branch) is None


async def test_a_branch_only_moves_forward(github: GitHub) -> None:
    async with github:
        change = await change_on(github, "three")
        await github.propose(change)
        base = await github.git.commit(change.base_commit)
        foreign = await github.git.create_commit(
            "by hand", tree=base.tree, parent=change.base_commit
        )
        with pytest.raises(ForgeError) as caught:
            await github.git.advance_branch(change.branch, foreign)
        assert caught.value.fault is ForgeFault.INVALID
        with pytest.raises(ForgeError) as caught:
            await github.git.create_branch(change.branch, foreign)
        assert caught.value.status == 422


async def test_one_comment_is_made_found_and_updated_among_many(github: GitHub) -> None:
    async with github:
        proposed = await github.propose(await change_on(github, "four"))
        assert proposed.pull_request is not None
        number = proposed.pull_request.number
        for index in range(105):
            await github.create_comment(number, f"chat {index}")
        marker = ReportMarker(proposed.commit, ReportState.RUNNING, 5)
        first = await post(github, number, Report("running", marker).text)
        final = replace(marker, state=ReportState.FINAL)
        second = await post(github, number, Report("done", final).text)
        third = await post(github, number, Report("done", final).text)
        late = await post(github, number, Report("late", replace(final, run_id=4)).text)
        outcomes = [each.outcome for each in (first, second, third, late)]
        assert outcomes == [
            Outcome.CREATED, Outcome.UPDATED, Outcome.UNCHANGED, Outcome.SUPERSEDED,
        ]  # fmt: skip
        ours = [c for c in await github.comments(number) if "edison-ci:report" in c.body]
        assert [c.id for c in ours] == [first.comment.id]
        assert ours[0].body.endswith("done")
        await github.delete_comment(first.comment.id)
        await github.delete_comment(first.comment.id)
