"""edison.yaml: names, people and ways to tell them."""

from __future__ import annotations

import pytest

from edison_ci.config.project import Member, Notification, ProjectFile, slug
from tests.config.said import said

HEAD = "version: 1\nproject: mini\n"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Customer Support", "customer-support"),
        ("a_b--c  d", "a-b-c-d"),
        ("-x-", "x"),
        ("A" * 60, "a" * 50),
        (("abcd " * 20).strip(), "abcd-" * 9 + "abcd"),
    ],
)
def test_a_slug_is_kebab_case_of_at_most_fifty_characters(name: str, expected: str) -> None:
    assert slug(name) == expected
    assert len(slug(name)) <= 50
    assert ProjectFile(version=1, project=name).slug == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "team/mini",
            "'team/mini' contains a character that is not allowed "
            "(use letters, digits, spaces, '-' and '_')",
        ),
        (
            "caf\u00e9",
            "'caf\u00e9' contains U+00E9 (latin small letter e with acute) "
            "(use letters, digits, spaces, '-' and '_')",
        ),
        ("--", "'--' has no letter or digit (write a name such as my-project)"),
    ],
)
def test_a_project_s_name_is_readable(name: str, message: str) -> None:
    assert said(ProjectFile, f'version: 1\nproject: "{name}"\n') == [f"2:10: {message}"]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("github: ada\nrole: owner\n", []),
        ("email: ada@example.com\nrole: viewer\n", []),
        ("github: ada_acme\nemail: ada@example.com\nrole: admin\n", []),
        (
            "role: owner\n",
            ["1:1: a member has neither github nor email (add github: LOGIN or email: ...)"],
        ),
        ("github: ada\nrole: Owner\n", ["2:7: role is 'Owner' (did you mean 'owner'?)"]),
        (
            "email: ada\nrole: owner\n",
            ["1:8: 'ada' is not an e-mail address (write name@example.com)"],
        ),
        (
            "github: -ada\nrole: owner\n",
            [
                "1:9: '-ada' is not a GitHub login "
                "(write it without the @, as in the URL of the profile)"
            ],
        ),
    ],
)
def test_a_member_is_somebody_with_a_role(text: str, messages: list[str]) -> None:
    assert said(Member, text) == messages


def test_somebody_is_a_member_once_whatever_the_case_of_the_name() -> None:
    members = (
        "members:\n  - {github: ada, role: owner}\n  - {email: a@b.example, role: editor}\n"
        "  - {github: ADA, email: a@B.example, role: viewer}\n"
    )
    assert said(ProjectFile, HEAD + members) == [
        "6:14: 'ADA' is listed twice, first in entry 1 (keep the one with the correct role)"
    ]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("on: [alert]\nwebhook_env: HOOK\n", []),
        ("on: [alert]\nsmtp: {host_env: M, from: a@b.example, to: [c@d.example]}\n", []),
        (
            "on: [alert]\n",
            [
                "1:1: a notification needs exactly one of webhook_env or smtp; this has none "
                "(add webhook_env: NAME_OF_VARIABLE or smtp: {...})"
            ],
        ),
        (
            "on: [alert]\nwebhook_env: HOOK\n"
            "smtp: {host_env: M, from: a@b.example, to: [c@d.example]}\n",
            [
                "3:7: a notification needs exactly one of webhook_env or smtp; "
                "this has webhook_env and smtp (write one entry for each)"
            ],
        ),
        (
            "on: [alert, budget, alert]\nwebhook_env: HOOK\n",
            ["1:21: 'alert' is listed twice (remove one)"],
        ),
        (
            "on: [alert]\nsmtp: {host_env: M, from: me, to: [you]}\n",
            [
                "2:27: 'me' is not an e-mail address (write name@example.com)",
                "2:36: 'you' is not an e-mail address (write name@example.com)",
            ],
        ),
    ],
)
def test_a_notification_goes_one_way(text: str, messages: list[str]) -> None:
    assert said(Notification, text) == messages


@pytest.mark.parametrize("version", ["true", "1.0", '"1"', "null", "[1]"])
def test_the_version_is_the_number_one_and_nothing_like_it(version: str) -> None:
    (message,) = said(ProjectFile, f"version: {version}\nproject: mini\n")
    assert message.startswith("1:10: version is ")
    assert message.endswith("(write version: 1)")


def test_everything_but_version_and_name_has_a_default() -> None:
    file = ProjectFile(version=1, project="mini")
    assert file.paths.models == "models.yaml"
    assert file.results == ".edison/results.db"
    assert file.members == ()
    assert file.notifications == ()
