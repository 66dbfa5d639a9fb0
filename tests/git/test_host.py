"""A token goes to the host that the runner names, or to github.com, and nowhere else."""

from __future__ import annotations

import pytest

from edison_ci.errors import UsageError
from edison_ci.git.host import RepositoryAddress, repository_address

pytestmark = pytest.mark.daily

RUNNER = {
    "GITHUB_TOKEN": "ghs_abc",
    "GITHUB_REPOSITORY": "acme/prompts",
    "GITHUB_API_URL": "https://git.acme.example/api/v3",
    "GITHUB_SERVER_URL": "https://git.acme.example",
}


def test_the_runner_says_where_also_on_enterprise() -> None:
    found = repository_address(RUNNER, remote="git@github.com:eve/other.git")
    assert found.repository_url == "https://git.acme.example/api/v3/repos/acme/prompts"
    assert found.owner == "acme"
    assert found.compare_url("main", "edison/refine/a-1") == (
        "https://git.acme.example/acme/prompts/compare/main...edison/refine/a-1?expand=1"
    )


@pytest.mark.parametrize(
    ("remote", "repository"),
    [
        ("https://github.com/acme/prompts.git", "acme/prompts"),
        ("https://github.com/acme/prompts", "acme/prompts"),
        ("https://user:secret@github.com/acme/prompts/", "acme/prompts"),
        ("git@github.com:acme/prompts.git", "acme/prompts"),
        ("ssh://git@github.com/acme/my.prompts.git", "acme/my.prompts"),
    ],
)
def test_elsewhere_a_remote_on_github_says_where(remote: str, repository: str) -> None:
    found = repository_address({"GH_TOKEN": "ghp_abc"}, remote=remote)
    assert found.repository == repository
    assert found.api_url == "https://api.github.com"


OTHER_REMOTES = [
    None,
    "",
    "https://evil.example/acme/prompts.git",
    "https://github.com.evil.example/acme/prompts",
    "https://evil.example/github.com/acme/prompts",
    "https://evil.example/?https://github.com/acme/prompts",
    "git@evil.example:github.com/acme",
    "http://github.com/acme/prompts",
    "/srv/git/prompts.git",
]


def test_no_other_remote_gets_a_token(subtests: pytest.Subtests) -> None:
    for remote in OTHER_REMOTES:
        with (
            subtests.test(remote=remote),
            pytest.raises(UsageError, match="which repository"),
        ):
            repository_address({"GITHUB_TOKEN": "ghp_abc"}, remote=remote)


MISLEADING = [
    {"GITHUB_API_URL": "http://git.acme.example/api/v3"},
    {"GITHUB_API_URL": "https://user:pw@git.acme.example"},
    {"GITHUB_API_URL": "https://"},
    {"GITHUB_API_URL": "https://host:port/"},
    {"GITHUB_API_URL": "https://[::1"},
    {"GITHUB_API_URL": "git.acme.example"},
    {"GITHUB_API_URL": "https://git.acme.example/?x=1"},
    {"GITHUB_SERVER_URL": "javascript:alert(1)"},
    {"GITHUB_REPOSITORY": "acme"},
    {"GITHUB_REPOSITORY": "acme/prompts/.."},
    {"GITHUB_REPOSITORY": "../prompts"},
    {"GITHUB_REPOSITORY": "acme/prompts?x"},
    {"GITHUB_TOKEN": "two words"},
    {"GITHUB_TOKEN": "line\r\nX-Evil: 1"},
    {"GITHUB_TOKEN": "schlüssel"},
    {"GITHUB_TOKEN": ""},
]


def test_what_could_leak_or_mislead_is_refused(subtests: pytest.Subtests) -> None:
    for changed in MISLEADING:
        with subtests.test(changed=changed):
            with pytest.raises(UsageError) as caught:
                repository_address({**RUNNER, **changed})
            assert caught.value.hint


def test_a_token_is_not_in_what_an_address_looks_like() -> None:
    assert "ghs_abc" not in repr(repository_address(RUNNER))
    assert "ghs_abc" not in str(RepositoryAddress("acme/prompts", "ghs_abc"))
