"""edison roles check and sync."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.features.github.fake_github import TOKEN

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder
    from tests.features.github.fake_github import FakeGitHub

pytestmark = pytest.mark.daily

MEMBERS = """members:
  - {github: ada, email: ada@example.org, role: owner}
  - {github: bob, email: bob@example.org, role: reviewer}
"""
STRICT: list[dict[str, Any]] = [
    {
        "type": "pull_request",
        "parameters": {
            "required_approving_review_count": 1,
            "require_code_owner_review": True,
            "dismiss_stale_reviews_on_push": True,
            "require_last_push_approval": True,
            "required_review_thread_resolution": False,
        },
    },
    {"type": "non_fast_forward"},
    {"type": "deletion"},
]


@pytest.fixture
def people(repo: Folder) -> Folder:
    repo.edit("edison.yaml", "project: mini\n", f"project: mini\n{MEMBERS}")
    return repo


def messages(done: Any, code: str) -> list[str]:
    return [f["message"] for f in json.loads(done.out)["findings"] if f["code"] == code]


def test_sync_writes_what_check_finds_missing(edison: Edison, people: Folder) -> None:
    assert edison(people, "roles", "sync", "--check").code == 1
    found = edison(people, "roles", "check")
    assert found.code == 1
    assert "problem  the repository has no CODEOWNERS" in found.out
    assert "not looked at  the protected branch: no GITHUB_TOKEN" in found.out
    done = edison(people, "roles", "sync")
    assert done.out == ".github/CODEOWNERS is written: commit it\n"
    assert "Require review from Code Owners" in done.err
    text = people.read(".github/CODEOWNERS")
    assert "/prompts/" in text
    assert "@ada @bob\n" in text
    assert edison(people, "roles", "sync", "--check").code == 0
    assert edison(people, "roles", "sync").out == ".github/CODEOWNERS is up to date\n"
    assert people.read(".github/CODEOWNERS") == text
    found = edison(people, "roles", "check")
    assert (found.code, "no problem found" in found.out) == (0, True)
    audit = json.loads(edison(people, "admin", "audit", "--json").out)["rows"]
    assert [row["action"] for row in audit if row["action"].startswith("roles")] == ["roles sync"]


def test_code_owners_that_disagree_are_named_with_their_line(
    edison: Edison, people: Folder
) -> None:
    edison(people, "roles", "sync")
    text = people.read(".github/CODEOWNERS")
    people.write(".github/CODEOWNERS", f"{text}/prompts/ @mallory\n/models.yaml\n* @acme/all\n")
    line = len(text.splitlines())
    found = edison(people, "roles", "check", "--json")
    assert found.code == 0  # the last line counts for everything: a team, which is not known here
    assert len(messages(found, "team")) > 5
    people.write(".github/CODEOWNERS", f"{text}/prompts/ @mallory\n/models.yaml\n")
    found = edison(people, "roles", "check", "--json")
    assert found.code == 1
    assert messages(found, "code-owners") == [
        f".github/CODEOWNERS:{line + 1}: @mallory may approve prompts/hello.md, which needs the "
        "role reviewer or above",
        f".github/CODEOWNERS:{line + 1}: @ada, @bob may not approve prompts/hello.md, a reviewer "
        "may",
        f".github/CODEOWNERS:{line + 2}: models.yaml has no code owner, so anyone may approve it",
    ]


def test_only_an_admin_writes_code_owners(edison: Edison, people: Folder) -> None:
    people.git("config", "--global", "user.email", "bob@example.org")
    done = edison(people, "roles", "sync")
    assert done.code == 2
    assert "roles sync needs an admin; bob@example.org is a reviewer" in done.err
    assert not (people.path / ".github" / "CODEOWNERS").exists()


def test_a_shared_address_and_two_identities_are_noticed(edison: Edison, people: Folder) -> None:
    for name, email in (
        ("Ada", "ada@example.org"),
        ("Carl", "Ada@example.org"),
        ("ADA ", "7+bob@users.noreply.github.com"),
        ("Nobody", "else@example.org"),
    ):
        author = f"--author={name} <{email}>"
        people.git("commit", "--allow-empty", "--quiet", "--message", "x", author)
    found = edison(people, "roles", "check", "--json")
    (shared,) = messages(found, "shared-email")
    assert "Ada" in shared
    assert "Carl" in shared
    assert "ada@example.org" in shared
    (both,) = messages(found, "two-identities")
    assert "ada" in both
    assert "bob" in both


def test_the_protection_of_the_branch_is_compared(
    edison: Edison, people: Folder, github: FakeGitHub
) -> None:
    edison(people, "roles", "sync")
    people.write(".github/workflows/edison.yml", "on: pull_request\n")
    found = edison(people, "roles", "check", "--json")
    assert found.code == 1
    assert messages(found, "protection") == [
        "main: commits can be pushed without a pull request",
        "main: a pull request is merged with fewer approvals than 1",
        "main: CODEOWNERS is not enforced",
        "main: an approval counts for commits that came after it",
        "main: an approver can push the last commit themselves",
        "main: not required: evaluate",
        "main: force pushes can rewrite it",
        "main: it can be deleted",
    ]
    assert "administration: read" in json.loads(found.out)["not_looked_at"][0]
    github.state.rules = STRICT
    found = edison(people, "roles", "check", "--json")
    assert messages(found, "protection") == ["main: not required: evaluate"]
    github.grants[TOKEN].permissions["administration"] = "read"
    github.state.classic = {
        "required_status_checks": {"contexts": ["evaluate"], "url": "u", "contexts_url": "u",
                                   "strict": True, "checks": []},
    }  # fmt: skip
    found = edison(people, "roles", "check", "--json")
    assert (found.code, json.loads(found.out)["not_looked_at"]) == (0, [])
    assert not github.sent("PUT")
    assert not github.sent("POST")
    offline = edison(people, "roles", "check", "--offline", "--json")
    assert "disabled by --offline" in json.loads(offline.out)["not_looked_at"][0]


def test_a_project_without_members_has_nothing_to_compare(edison: Edison, repo: Folder) -> None:
    found = edison(repo, "roles", "check")
    assert found.code == 0
    assert "everyone with write access is an owner" in found.out


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("{email: ADA@Example.org, github: bob, role: viewer}",
         "is the address of two members, first of entry 1"),
        ('{email: "\\uFF41da@example.org", role: viewer}', "is the address of two members"),
        ("{email: 12+Ada@users.noreply.github.com, role: viewer}",
         "is the account 'ada' of entry 1"),
        ("{github: ADA, role: viewer}", "is listed twice, first in entry 1"),
    ],
)  # fmt: skip
def test_one_person_with_two_entries_is_refused(
    edison: Edison, repo: Folder, second: str, said: str
) -> None:
    first = "{github: ada, email: ada@example.org, role: owner}"
    repo.edit("edison.yaml", "project: mini\n",
              f"project: mini\nmembers:\n  - {first}\n  - {second}\n")  # fmt: skip
    done = edison(repo, "roles", "check")
    assert done.code == 2
    assert said in done.err
