"""The judge of the fake is itself judged: it accepts GitHub's examples and refuses mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.github.openapi import ContractError, description
from tests.features.github.trim_openapi import NAMES, PATHS

pytestmark = pytest.mark.daily

REPO = "/repos/acme/prompts"


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_github_are_as_github_describes_them(name: str) -> None:
    github = description(name)
    comment = github.operation("POST", f"{REPO}/issues/1/comments")
    github.check_reply(comment, 201, github.example("POST", PATHS[0], 201))
    pull = github.operation("GET", f"{REPO}/pulls/1")
    # GitHub's own example lacks a key that GitHub's own schema requires of teams.
    example = {**github.example("GET", PATHS[3], 200), "requested_teams": []}
    github.check_reply(pull, 200, example)


WRONG_REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/issues/1/comments", None),
    ("POST", "/issues/1/comments", {}),
    ("POST", "/issues/1/comments", {"body": 3}),
    ("POST", "/issues/1/comments", {"body": "x", "bodytext": "y"}),
    ("GET", "/issues/1/comments?per-page=100", None),
    ("GET", "/issues/1/comments?per_page=many", None),
    ("GET", "/pulls?state=opened", None),
    ("POST", "/pulls/1/reviews", {"event": "APPROVED"}),
    ("PATCH", "/pulls/1", {"state": "done"}),
    ("POST", "/git/trees", {"tree": [{"path": "x", "mode": "644", "sha": "0"}]}),
    ("PATCH", "/git/refs/heads/main", {"sha": "0" * 40, "force": "no"}),
    ("DELETE", "/issues/comments/1", {"body": "x"}),
    ("GET", "/no/such/path", None),
    ("PUT", "/issues/1/comments", {"body": "x"}),
]


def test_a_request_that_github_would_not_take_is_refused(subtests: pytest.Subtests) -> None:
    for method, path, body in WRONG_REQUESTS:
        with (
            subtests.test(method=method, path=path, body=body),
            pytest.raises((ContractError, ValueError)),
        ):
            description().check_request(method, REPO + path, body)


def test_a_reply_that_github_would_not_give_is_refused() -> None:
    github = description()
    operation = github.operation("POST", f"{REPO}/issues/1/comments")
    reply = github.example("POST", PATHS[0], 201)
    for change in ({"id": "1"}, {"user": 3}, {"html_url": None}):
        with pytest.raises(ContractError):
            github.check_reply(operation, 201, {**reply, **change})
    with pytest.raises(ContractError):
        github.check_reply(operation, 200, reply)
