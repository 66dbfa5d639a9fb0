"""What pages let people decide, and as whom."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.load import load_project
from edison_ci.errors import UsageError
from edison_ci.operate.actors import Actor, Identity, Role
from edison_ci.operate.site import site_at
from edison_ci.review.actions import ReviewActions
from edison_ci.store.suggestions import Status
from tests.cli.conftest import Edison, bare, edison, github, repo  # a repository, and its GitHub
from tests.forge.fake_state import Grant
from tests.suggested import PATH, keep, stored, suggestion_for

if TYPE_CHECKING:
    from edison_ci.review.actions import Permissions
    from edison_ci.store.suggestions import Suggestion
    from tests.conftest import Folder
    from tests.forge.fake_github import FakeGitHub

__all__ = ["bare", "edison", "github", "repo"]
PERSON = "ghp_tokenOfBo0123456789abcdef"
HERE = Actor(Identity("git", email="ada@example.org"), Role.OWNER)
AWAY = Actor(Identity("web", email="cy@example.org"), Role.REVIEWER)
CLERK = ReviewActions()


@pytest.fixture
def pull(
    edison: Edison, repo: Folder, github: FakeGitHub, monkeypatch: pytest.MonkeyPatch
) -> Suggestion:
    """A suggestion with a pull request; the token of the machine is Bo's."""
    one = keep(repo, suggestion_for(repo))
    done = edison(repo, "propose", "--open-pr", "--json")
    assert done.code == 0, done.all
    github.grants[PERSON] = Grant("bo", is_bot=False)
    monkeypatch.setenv("GITHUB_TOKEN", PERSON)
    return stored(repo, one)


def permissions(folder: Folder, actor: Actor, one: Suggestion) -> Permissions:
    return CLERK.permissions(load_project(folder.path), actor, stored(folder, one))


def test_a_pull_request_is_approved_as_whoever_serves(
    repo: Folder, pull: Suggestion, github: FakeGitHub
) -> None:
    said = permissions(repo, HERE, pull)
    assert said.approve == (True, "Pull request 1 gets an approving review of yours. "
                            "It is not merged.")  # fmt: skip
    assert said.reject.says.startswith("Pull request 1 is closed with your reason.")
    done = CLERK.approve(site_at(repo.path), HERE, pull.id, "proposed")
    assert (done.suggestion.status, done.suggestion.decided_by) == (
        Status.APPROVED,
        "ada@example.org",
    )
    assert [review["user"]["login"] for review in github.state.reviews[1]] == ["bo"]
    again = CLERK.approve(site_at(repo.path), HERE, pull.id, "proposed")
    assert again.suggestion == done.suggestion
    assert len(github.state.reviews[1]) == 1
    assert permissions(repo, HERE, pull).approve.says == (
        "It is approved; merge pull request 1, then `edison review sync`."
    )


def test_nobody_decides_about_a_pull_request_with_the_token_of_somebody_else(
    repo: Folder, pull: Suggestion, github: FakeGitHub
) -> None:
    site, said = site_at(repo.path), permissions(repo, AWAY, pull)
    for way in (said.approve, said.reject):
        assert not way.open
        assert "the token of this server is not yours" in way.says
    with pytest.raises(UsageError, match="token of this server is not yours"):
        CLERK.approve(site, AWAY, pull.id, "proposed")
    with pytest.raises(UsageError, match="token of this server is not yours"):
        CLERK.reject(site, AWAY, pull.id, "proposed", "no")
    done = CLERK.comment(site, AWAY, pull.id, "What about refunds?")
    assert done.notes == ("it is kept here, and not shown on pull request 1: there is no token",)
    assert github.state.reviews == {}
    assert stored(repo, pull).status is Status.PROPOSED


def test_somebody_away_approves_what_has_no_pull_request_as_themselves(repo: Folder) -> None:
    one = keep(repo, suggestion_for(repo))
    done = CLERK.approve(site_at(repo.path), AWAY, one.id, "proposed")
    assert (done.suggestion.status, done.suggestion.decided_by) == (
        Status.APPLIED,
        "cy@example.org",
    )
    ((actor, known_by),) = [
        (row["actor"], row["known_by"])
        for row in json.loads(repo.edison("audit", "--json").out)["rows"]
    ]
    assert (actor, known_by) == ("cy@example.org", "web")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (Status.TRIED, "It was not shown to help. To insist on it: `edison propose"),
        (Status.REJECTED, "It is rejected already."),
    ],
)
def test_what_stands_in_the_way_is_said(repo: Folder, status: Status, said: str) -> None:
    one = keep(repo, suggestion_for(repo, status=status))
    assert permissions(repo, HERE, one).approve.says.startswith(said)
    assert not permissions(repo, HERE, one).approve.open


def test_where_a_commit_would_go_is_said_or_why_none_can_be_made(
    repo: Folder, mini: Folder
) -> None:
    one = keep(repo, suggestion_for(repo))
    assert permissions(repo, HERE, one).approve == (
        True, f"One commit on the branch `main` here changes `{PATH}`.")  # fmt: skip
    repo.git("checkout", "--quiet", "--detach")
    assert permissions(repo, HERE, one).approve == (
        False, "No branch is checked out, so the commit would be on none.")  # fmt: skip
    viewer = Actor(HERE.identity, Role.VIEWER)
    refused = permissions(repo, viewer, one)
    assert {way.open for way in (refused.approve, refused.reject, refused.edit, refused.comment)}\
        == {False}  # fmt: skip
    assert "review needs a reviewer; ada@example.org is a viewer" in refused.approve.says
