"""A key that was put where it does not belong is never shown, whatever is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CANARIES = {
    "openai": "sk-proj-" + "c4N4ry" * 6,
    "anthropic": "sk-ant-api03-" + "c4N4ry" * 6,
    "aws": "AKIA" + "C4N4RYC4N4RYC4N4",
    "github": "ghp_" + "c4N4ry" * 6,
    "google": "AIza" + "c4N4r" * 7,
    "slack": "xoxb-" + "123456789012-c4N4ryc4N4ry",
    "jwt": "eyJ" + "c4N4ry" * 3 + ".eyJ" + "c4N4ry" * 3 + "." + "c4N4ry" * 3,
    "long": "sk-proj-" + "c4N4ry" * 26,
    "password": "https://user:c4N4ryc4N4ry@example.com",
}
COMMANDS = (
    ["validate"],
    ["validate", "--debug"],
    ["validate", "--json", "-vv"],
    ["plan", "--debug"],
    ["plan", "--json"],
    ["models", "list", "--debug"],
    ["try", "--dry-run", "hello", "--debug"],
    ["try", "--dry-run", "hello", "--json"],
    ["doctor", "--debug"],
    ["admin", "prices", "--debug"],
)


def assert_unseen(edison: Edison, folder: Folder, secret: str) -> None:
    tell_tale = secret[8:]
    for args in COMMANDS:
        said = edison(folder, *args).all
        assert tell_tale not in said, args
        assert secret[-12:] not in said, args
        assert "c4N4ryc4N4ry" not in said, args
        assert "a bug in edison" not in said, args


@pytest.mark.parametrize("secret", CANARIES.values(), ids=list(CANARIES))
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("edison.yaml", "project: mini", "project: KEY"),
        ("edison.yaml", "project: mini", 'project: mini\nKEY: "1"'),
        ("models.yaml", "provider: sim", "provider: KEY"),
        ("models.yaml", "model: small", "model: small, key_env: KEY"),
        ("models.yaml", "model: small", "model: small, api_key: KEY"),
        ("experiments/hello.yaml", "models: [small]", "models: [KEY]"),
        ("prompts/hello.md", "Say hello", "Say KEY"),
        ("rubrics/tone.yaml", "rubric: tone", "rubric: KEY"),
        ("datasets/names.jsonl", '"name": "Ada"', '"name": "KEY"'),
    ],
)
def test_a_key_in_a_file_is_never_shown(
    edison: Edison, mini: Folder, secret: str, name: str, old: str, new: str
) -> None:
    mini.edit(name, old, new.replace("KEY", secret))
    assert_unseen(edison, mini, secret)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".edison/trust.yaml", "version: 1\nkeys: [{env: KEY, hosts: [KEY]}]\n"),
        ("quarantine.yaml", "version: 1\ncases: [{experiment: KEY, case: KEY, reason: KEY}]\n"),
        (".edison/prices.json", '{"models": {"KEY": {"in": "KEY"}}}'),
        ("edison.yaml", "version: KEY\nproject: [KEY]\nKEY: {KEY: KEY}\n"),
        ("models.yaml", "KEY: {provider: openai, model: KEY, base_url: KEY, price: KEY}\n"),
        ("experiments/hello.yaml", "experiment: KEY\nobjective: KEY\nprompts: KEY\ngates: [KEY]\n"),
        ("prompts/hello.md", "---\nid: KEY\nparams: {temperature: KEY}\n---\n{{ KEY }}\n"),
        ("rubrics/tone.yaml", "rubric: tone\ncriteria: [{name: KEY, weight: KEY}]\n"),
        ("datasets/names.jsonl", '{"id": "KEY", "KEY": "KEY", "difficulty": "KEY"}\nKEY\n'),
        ("datasets/names.jsonl", '{"id": 1, "input": {"name": {"KEY": "KEY"}}}\n'),
    ],
)
def test_a_key_in_a_wrong_place_is_never_shown(
    edison: Edison, mini: Folder, name: str, text: str
) -> None:
    for secret in (CANARIES["openai"], CANARIES["github"]):
        mini.write(name, text.replace("KEY", secret))
        assert_unseen(edison, mini, secret)


@pytest.mark.parametrize("secret", [CANARIES["openai"], CANARIES["github"]], ids=["openai", "git"])
@pytest.mark.parametrize(
    "args",
    [
        ["KEY"],
        ["plan", "KEY"],
        ["try", "--dry-run", "KEY"],
        ["try", "--dry-run", "hello", "--set", "KEY"],
        ["try", "--dry-run", "hello", "--set", "KEY=1"],
        ["try", "--dry-run", "hello", "--set", "name=KEY"],
        ["try", "--dry-run", "hello", "--case", "KEY"],
        ["admin", "schema", "KEY"],
        ["validate", "KEY"],
        ["-C", "KEY", "validate"],
        ["admin", "prices", "show", "KEY"],
        ["admin", "prices", "update", "--from", "KEY"],
        ["plan", "--changed-since", "KEY"],
        ["plan", "--KEY"],
    ],
    ids=" ".join,
)
def test_a_key_on_the_command_line_is_not_repeated(
    edison: Edison, mini: Folder, args: list[str], secret: str
) -> None:
    words = [word.replace("KEY", secret) for word in args]
    for flags in ([], ["--json"], ["--debug"]):
        assert secret[8:] not in edison(mini, *words, *flags).all


def test_the_value_of_a_key_is_never_shown_only_whether_it_is_set(
    edison: Edison, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.edit("models.yaml", "small: {", "mini: {provider: openai, model: gpt-4o-mini}\nsmall: {")
    monkeypatch.setenv("OPENAI_API_KEY", "not-like-any-known-key-c4N4ryc4N4ry")
    for args in COMMANDS:
        assert "c4N4ry" not in edison(mini, *args).all
    assert "OPENAI_API_KEY is set" in edison(mini, "doctor").out
    assert "OPENAI_API_KEY" in edison(mini, "models").out
    assert "(not set)" not in edison(mini, "models").out


def test_render_says_that_it_cut_something_short(edison: Edison, mini: Folder) -> None:
    secret = CANARIES["openai"]
    done = edison(mini, "try", "--dry-run", "hello", "--set", f"name={secret}")
    assert "Say hello to sk-p... in one" in done.out
    assert "look like keys are redacted" in done.err
