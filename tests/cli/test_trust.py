"""edison trust: who may send what where, explained and edited."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder, Result

pytestmark = pytest.mark.daily

TRUST = ".edison/trust.yaml"
HOST = "https://llm.example:8443"
WRITTEN = """\
# who may send what where
version: 1
keys:
  # our gateway, run by the platform team
  - {env: GATE_KEY, hosts: ["https://gate.example"]}  # reviewed in May
budget_usd_max: 20  # a job
"""


@pytest.fixture
def project(mini: Folder) -> Folder:
    mini.write(
        "models.yaml",
        "small: {provider: openai, model: gpt-5-mini}\n"
        f"own: {{provider: openai_compatible, model: m, base_url: '{HOST}/v1', key_env: OWN_KEY, "
        "price: free}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    mini.write(TRUST, WRITTEN)
    return mini


def value_of(done: Result) -> Any:
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_check_says_what_allows_each_key_and_what_to_add(
    edison: Edison, project: Folder
) -> None:
    refused = edison(project, "trust", "check")
    assert refused.code == 2
    assert refused.out.splitlines() == [
        "allowed  small: OPENAI_API_KEY to https://api.openai.com:443, by the built-in pair",
        f"refused  own: OWN_KEY to {HOST}, which nothing allows",
    ]
    assert f"edison trust add OWN_KEY {HOST}" in refused.err
    assert "no model sends GATE_KEY to https://gate.example:443" in refused.err
    assert edison(project, "trust", "add", "OWN_KEY", HOST).code == 0
    allowed = edison(project, "trust", "check", "own")
    assert allowed.out == f"allowed  own: OWN_KEY to {HOST}, by its entry in trust.yaml\n"
    assert edison(project, "trust", "check", "owl").err.count("own") == 1


def test_an_added_pair_keeps_comments_and_the_rest(edison: Edison, project: Folder) -> None:
    done = edison(project, "trust", "add", "OWN_KEY", HOST)
    assert done.out == f"trusted OWN_KEY may now be sent to {HOST}\n"
    first, comment = WRITTEN.partition("budget_usd_max")[0], "budget_usd_max: 20  # a job\n"
    text = project.read(TRUST)
    assert text.startswith(first) and text.endswith(comment)
    assert "OWN_KEY" in text[len(first) : -len(comment)]
    again = edison(project, "trust", "add", "OWN_KEY", f"{HOST}/")
    assert again.code == 2 and project.read(TRUST) == text
    (row,) = value_of(edison(project, "admin", "audit", "--json"))["rows"]
    assert (row["action"], row["entity"], row["after"]) == ("trust add", "OWN_KEY", {"host": HOST})


def test_a_file_is_made_where_there_is_none(edison: Edison, mini: Folder) -> None:
    asked = ("trust", "add", "OWN_KEY", "http://10.0.0.5:8000")
    refused = edison(mini, *asked)
    assert (refused.code, "without encryption" in refused.err) == (2, True)
    assert "add --unencrypted" in refused.err and not (mini.path / TRUST).exists()
    plain = edison(mini, *asked, "--unencrypted")
    assert plain.code == 0 and "without encryption" in plain.out
    assert edison(mini, "trust", "add", "LOCAL_KEY", "http://127.0.0.1:8000").code == 0
    assert value_of(edison(mini, "trust", "list", "--json"))["pairs"] == [
        {"key": key, "hosts": host, "by": "trust.yaml", "models": []}
        for key, host in (
            ("OWN_KEY", "http://10.0.0.5:8000"),
            ("LOCAL_KEY", "http://127.0.0.1:8000"),
        )
    ]


@pytest.mark.parametrize(
    ("key", "host"),
    [
        ("OWN_KEY", "llm.example"),
        ("OWN_KEY", "https://*.example"),
        ("OWN_KEY", "https://llm.example/v1"),
        ("OWN_KEY", "https://llm.example:99999"),
        ("own-key", HOST),
        ("GITHUB_TOKEN", HOST),
    ],
)
def test_what_is_no_pair_is_refused(edison: Edison, project: Folder, key: str, host: str) -> None:
    assert edison(project, "trust", "add", key, host).code == 2
    assert project.read(TRUST) == WRITTEN


def test_a_file_that_cannot_be_edited_safely_is_left_alone(edison: Edison, mini: Folder) -> None:
    text = "{version: 1, keys: [{env: A_KEY, hosts: ['https://a.example']}]}\n"
    mini.write(TRUST, text)
    done = edison(mini, "trust", "add", "OWN_KEY", HOST)
    pairs = value_of(edison(mini, "trust", "list", "--json"))["pairs"]
    if done.code == 0:
        assert [pair["key"] for pair in pairs] == ["A_KEY", "OWN_KEY"]
    else:
        assert "edit it by hand" in done.err and mini.read(TRUST) == text


def test_the_list_names_everything_that_is_trusted(edison: Edison, project: Folder) -> None:
    project.write(
        TRUST,
        WRITTEN + "hosts: ['http://10.0.0.5:8000']\ncode: {allow: true, paths: [checks]}\n"
        "programs: [{model: bot, env: [BOT_KEY], network: true}]\n",
    )
    done = edison(project, "trust", "list")
    lines = done.out.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["GATE_KEY", "https://gate.example:443", "trust.yaml"],
        ["OPENAI_API_KEY", "https://api.openai.com", "built"],
    ]
    assert lines[3:] == [
        "program bot: gets BOT_KEY, uses the network",
        "http://10.0.0.5:8000: CI may call it without a key",
        "code in pull requests: checks",
    ]


def test_only_admins_add_pairs(edison: Edison, project: Folder) -> None:
    project.write("edison.yaml", "version: 1\nproject: mini\nmembers:\n"
                  "  - {email: ed@example.com, role: editor}\n"
                  "  - {email: ann@example.com, role: owner}\n")  # fmt: skip
    project.git("init", "--quiet")
    project.git("config", "user.email", "ed@example.com")
    done = edison(project, "trust", "add", "OWN_KEY", HOST)
    assert done.code == 2 and "trust add needs an admin" in done.err
    assert project.read(TRUST) == WRITTEN


def test_an_identity_in_place_of_a_key_is_explained(edison: Edison, mini: Folder) -> None:
    mini.write(
        "models.yaml",
        "small: {provider: azure, base_url: 'https://acme.openai.azure.com', price: free, "
        "options: {deployment: small, api_version: 2024-10-21}}\n"
        "judge: {provider: sim, model: judge}\n",
    )
    tenant = "11111111-2222-3333-4444-555555555555"
    mini.write(
        TRUST,
        f"identities: {{azure: {{tenant: {tenant}, client: {tenant}, "
        "hosts: ['https://acme.openai.azure.com']}}\n",
    )
    assert edison(mini, "validate").code == 0
    checked = edison(mini, "trust", "check")
    assert (checked.code, checked.out) == (
        0,
        "allowed  small: credentials of a job to https://acme.openai.azure.com:443, "
        "by the identity in trust.yaml\n",
    )
    listed = edison(mini, "trust", "list").out
    assert f"azure in jobs of GitHub without a key: tenant {tenant}" in listed
    assert "identity, in jobs of GitHub" in edison(mini, "secrets", "list").out
    mini.edit(TRUST, "hosts: ['https://acme", "hosts: ['https://other")
    assert edison(mini, "trust", "check").code == 2
    assert edison(mini, "validate").code == 2
