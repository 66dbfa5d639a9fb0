"""edison.yaml: names, people and ways to tell them."""

from __future__ import annotations

import pytest

from edison_ci.config.project import Member, ProjectFile, slug
from edison_ci.config.sections import Notification
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
        ("name: a\non: [alert]\nwebhook_env: HOOK\n", []),
        ("name: a\non: [alert]\nsmtp: {host_env: M, from: a@b.example, to: [c@d.example]}\n", []),
        (
            "name: a\non: [alert]\n",
            [
                "1:1: a notification needs exactly one of webhook_env, smtp or github_issues; this "
                "has none (add webhook_env: NAME_OF_VARIABLE, smtp: {...} or github_issues: true)"
            ],
        ),
        (
            "name: a\non: [alert]\nwebhook_env: HOOK\n"
            "smtp: {host_env: M, from: a@b.example, to: [c@d.example]}\n",
            [
                "4:7: a notification needs exactly one of webhook_env, smtp or github_issues; "
                "this has webhook_env and smtp (write one entry for each)"
            ],
        ),
        (
            "name: a\non: [alert, budget, alert]\nwebhook_env: HOOK\n",
            ["2:21: 'alert' is listed twice (remove one)"],
        ),
        (
            "name: a\non: [alert]\nsmtp: {host_env: M, from: me, to: [you]}\n",
            [
                "3:27: 'me' is not an e-mail address (write name@example.com)",
                "3:36: 'you' is not an e-mail address (write name@example.com)",
            ],
        ),
        (
            "name: a\non: [run_failed]\ngithub_issues: true\n",
            [
                "2:6: run_failed has no end, so an issue for it would stay open "
                "(use alert, budget, schedule_missed)"
            ],
        ),
        (
            "name: a\non: [alert]\nwebhook_env: HOOK\nformat: slack\nsecret_env: S\n",
            ["5:13: only a webhook with format json is signed (remove secret_env)"],
        ),
        (
            "name: a\non: [alert]\ngithub_issues: true\nformat: teams\n",
            ["4:9: format teams is for webhooks (remove format)"],
        ),
        (
            "name: a\non: [alert]\nsmtp: {host_env: M, from: a@b.example, to: [c@d.example], "
            "user_env: U}\n",
            ["3:69: smtp has user_env and no password_env (add password_env, or remove user_env)"],
        ),
        (
            "name: a\non: [alert]\nsmtp: {host_env: M, from: a@b.example, to: [c@d.example], "
            "user_env: U, password_env: P, starttls: false}\n",
            ["3:99: a password is never sent without TLS (remove starttls: false)"],
        ),
    ],
)
def test_a_notification_goes_one_way(text: str, messages: list[str]) -> None:
    assert said(Notification, text) == messages


def test_each_recipient_has_a_name_of_its_own_and_private_texts_stay_here() -> None:
    one = "  - {name: a, on: [alert], webhook_env: HOOK}\n"
    two = "  - {name: A, on: [alert], github_issues: true}\n"
    assert said(ProjectFile, f"{HEAD}notifications:\n{one}{two}") == [
        "5:12: 'A' is the name of two recipients (entry 1 has it already; choose another)"
    ]
    texts = one.replace("HOOK", "HOOK, texts: true")
    private = f"{HEAD}settings: {{private: true}}\nnotifications:\n{texts}"
    assert said(ProjectFile, private) == [
        "5:54: settings.private keeps texts on this machine (remove texts: true)"
    ]


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
