"""What pages let people decide, and as whom."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.site import Actor, Identity, Role, open_site
from edison_ci.config.load import load_project
from edison_ci.errors import UsageError
from edison_ci.features.review.actions import ReviewActions
from edison_ci.records import SuggestionStatus
from tests.features.github.fake_state import Grant
from tests.suggested import PATH, keep, stored, suggestion_for

if TYPE_CHECKING:
    from edison_ci.features.review.actions import Permissions
    from edison_ci.store.suggestions import Suggestion
    from tests.conftest import Edison, Folder
    from tests.features.github.fake_github import FakeGitHub

PERSON = "ghp_tokenOfBo0123456789abcdef"
HERE = Actor(Identity("git", email="ada@example.org"), Role.OWNER)
AWAY = Actor(Identity("web", email="cy@example.org"), Role.REVIEWER)
ACTIONS = ReviewActions()


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
    return ACTIONS.permissions(load_project(folder.path), actor, stored(folder, one))


def test_a_pull_request_is_approved_with_the_token_of_the_server(
    repo: Folder, pull: Suggestion, github: FakeGitHub
) -> None:
    said = permissions(repo, HERE, pull)
    assert said.approve == (
        True,
        "Adds your approving review to pull request 1, without merging it.",
    )
    assert said.reject.text.startswith("Closes pull request 1 with your reason.")
    done = ACTIONS.approve(open_site(repo.path), HERE, pull.id, "proposed")
    assert (done.suggestion.status, done.suggestion.decided_by) == (
        SuggestionStatus.APPROVED,
        "ada@example.org",
    )
    assert [review["user"]["login"] for review in github.state.reviews[1]] == ["bo"]
    again = ACTIONS.approve(open_site(repo.path), HERE, pull.id, "proposed")
    assert again.suggestion == done.suggestion
    assert len(github.state.reviews[1]) == 1
    assert permissions(repo, HERE, pull).approve.text == (
        "It is approved: merge pull request 1, then run `edison review sync`."
    )


def test_a_remote_user_cannot_decide_with_the_token_of_the_server(
    repo: Folder, pull: Suggestion, github: FakeGitHub
) -> None:
    site, said = open_site(repo.path), permissions(repo, AWAY, pull)
    for option in (said.approve, said.reject):
        assert not option.allowed
        assert "token of this server is not yours" in option.text
    with pytest.raises(UsageError, match="token of this server is not yours"):
        ACTIONS.approve(site, AWAY, pull.id, "proposed")
    with pytest.raises(UsageError, match="token of this server is not yours"):
        ACTIONS.reject(site, AWAY, pull.id, "proposed", "no")
    done = ACTIONS.comment(site, AWAY, pull.id, "What about refunds?")
    assert done.notes == (
        "stored here, but not posted on pull request 1: there is no GitHub token",
    )
    assert github.state.reviews == {}
    assert stored(repo, pull).status is SuggestionStatus.PROPOSED


def test_a_remote_user_approves_a_suggestion_without_a_pull_request(repo: Folder) -> None:
    one = keep(repo, suggestion_for(repo))
    done = ACTIONS.approve(open_site(repo.path), AWAY, one.id, "proposed")
    assert (done.suggestion.status, done.suggestion.decided_by) == (
        SuggestionStatus.APPROVED,
        "cy@example.org",
    )
    assert "edison/refine/hello-1" in repo.git("branch", "--list")
    assert {
        (row["actor"], row["known_by"], row["action"])
        for row in json.loads(repo.edison("admin", "audit", "--json").out)["rows"]
    } == {("cy@example.org", "web", "propose"), ("cy@example.org", "web", "review approve")}


def test_approving_opens_a_pull_request_and_leaves_the_default_branch(
    repo: Folder, github: FakeGitHub
) -> None:
    one = keep(repo, suggestion_for(repo))
    assert "and opens a pull request" in permissions(repo, HERE, one).approve.text
    before = repo.git("rev-parse", "main")
    done = ACTIONS.approve(open_site(repo.path), HERE, one.id, "proposed")
    assert done.suggestion.status is SuggestionStatus.APPROVED
    assert done.suggestion.pull_request == 1
    assert done.notes[0] == "Pull request #1 has the change, for `main`."
    assert done.notes[1].endswith("/pull/1")
    assert len(github.state.pulls) == 1
    assert repo.git("rev-parse", "main") == before


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (SuggestionStatus.TRIED, "It is not shown to help. To propose it anyway: `edison propose"),
        (SuggestionStatus.REJECTED, "It is already rejected."),
    ],
)
def test_the_reason_why_approval_is_impossible_is_shown(
    repo: Folder, status: SuggestionStatus, said: str
) -> None:
    one = keep(repo, suggestion_for(repo, status=status))
    assert permissions(repo, HERE, one).approve.text.startswith(said)
    assert not permissions(repo, HERE, one).approve.allowed


def test_what_approving_would_do_is_shown_to_those_who_may(repo: Folder, mini: Folder) -> None:
    one = keep(repo, suggestion_for(repo))
    allowed, text = permissions(repo, HERE, one).approve
    assert allowed
    assert text.startswith(f"Puts the change of `{PATH}` on a separate branch")
    viewer = Actor(HERE.identity, Role.VIEWER)
    refused = permissions(repo, viewer, one)
    options = (refused.approve, refused.reject, refused.edit, refused.comment)
    assert not any(option.allowed for option in options)
    assert "review needs a reviewer; ada@example.org is a viewer" in refused.approve.text
