"""No key in use leaves the process, whatever a provider sends back and whatever is asked for.

The server repeats the key in answers, errors, headers, redirects and names, as it is and in other
forms. Then every file, every stream and every request to GitHub is searched, and decoded first.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes

import pytest

from tests.features.github.conftest import open_pull
from tests.features.github.fake_github import TOKEN, FakeGitHub
from tests.features.github.fake_state import REPOSITORY
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder, Result
    from tests.loopback.script import Rule

pytestmark = pytest.mark.daily

KEY = 'c4N4ry/Kx+9=v"q\\z7~Lmnop'
"""Like no vendor's key, and with characters that JSON, addresses and base64 write differently."""
JUDGE_KEY = "second-c4N4ry-0123456789"
UNUSED = "third_c4N4ry_of_another_program"
SECRETS = (KEY, JUDGE_KEY, UNUSED, TOKEN)
HEAD = "b" * 40


def forms(secret: str) -> list[str]:
    raw = secret.encode()
    basic = base64.b64encode(b"user:" + raw).decode()
    escaped = json.dumps(json.dumps({"Authorization": f"Bearer {secret}"}))
    spelt = "".join(f"\\u{ord(letter):04x}" for letter in secret)
    return [secret, basic, quote(secret, safe=""), escaped, raw.hex(), f'"{spelt}"']


def error(text: str) -> dict[str, Any]:
    return {"error": {"message": f"this is what came: {text}", "code": text}}


def completion(text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **more}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    return {"id": KEY, "model": "m-1", "choices": [choice], "usage": usage}


def echo_of(number: int) -> Rule:
    """Return what the server does with a case: it repeats the key, in one way or another."""
    all_forms = " ".join(forms(KEY))
    headers = {"x-echo": KEY, "retry-after": "0", "set-cookie": f"k={quote(KEY)}"}
    call = {"id": KEY, "type": "function", "function": {"name": KEY, "arguments": f'"{KEY}"'}}
    said: list[dict[str, Any]] = [
        {"text": f"Person {all_forms}"},
        {"text": "Person", "served_model": KEY, "headers": headers},
        {"body": completion("Person", tool_calls=[call])},
        {"status": 400, "body": error(all_forms), "headers": headers},
        {"status": 500, "body": error(KEY), "headers": headers},
        {"status": 422, "body": f"<html>{all_forms}</html>"},
        {"do": "redirect", "location": f"https://elsewhere.example/?key={quote(KEY)}&{KEY}"},
        {"do": "answer", "body": error(all_forms)},
        {"do": "answer", "body": f"{{{KEY}"},
        {"do": "answer", "body": {KEY: [KEY], "choices": [{"finish_reason": KEY}]}},
        {"do": "answer", "body": {**completion(f"x {KEY}"), "usage": {KEY: KEY}}},
        {"status": 429, "body": error(KEY), "headers": {**headers, "x-more": KEY}, "times": 1},
    ]
    # A good answer in between keeps the client open.
    deed = {"text": f"Person {KEY}"} if number % 2 else said[number // 2]
    return rule(model="m-1", contains=f"Person {number:02}", **deed)


CASES = 24
JUDGED = json.dumps(
    {
        "scores": {
            "Warmth": {"score": 1, "reason": f"{JUDGE_KEY} {KEY} {forms(JUDGE_KEY)[1]}"},
            "Brevity": {"score": 0, "reason": forms(JUDGE_KEY)[2]},
        },
        "flags": [],
    }
)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    rules = [echo_of(number) for number in range(CASES)]
    with LoopbackServer([*rules, rule(model="j-1", text=JUDGED)]) as running:
        yield running


@pytest.fixture
def project(mini: Folder, server: LoopbackServer) -> Folder:
    names = [{"id": f"c{i:02}", "input": {"name": f"Person {i:02}"}} for i in range(CASES)]
    mini.write("datasets/names.jsonl", "".join(json.dumps(row) + "\n" for row in names))
    model = f"provider: openai_compatible, base_url: '{server.openai_url}'"
    model += ", price: {in: 1, out: 1}, limits: {attempts: 1, concurrency: 1}"
    mini.write(
        "models.yaml",
        f"small: {{{model}, model: m-1, key_env: SHOP_LLM}}\n"
        f"judge: {{{model}, model: j-1, key_env: JUDGE_LLM}}\n",
    )
    host = server.url
    mini.write(
        ".edison/trust.yaml",
        f"version: 1\nkeys:\n  - {{env: SHOP_LLM, hosts: ['{host}']}}\n"
        f"  - {{env: JUDGE_LLM, hosts: ['{host}']}}\n",
    )
    mini.edit("experiments/hello.yaml", "{{ expected }}", "Person")
    mini.write("experiments/hello.yaml", mini.read("experiments/hello.yaml") + "max_errors: 95%\n")
    mini.git("init", "--quiet", "--initial-branch=main")
    mini.git("add", "--all")
    mini.git("commit", "--quiet", "--message", "start")
    return mini


def decoded(data: bytes) -> Iterator[bytes]:
    """Yield what data says, read in every way that somebody who looks for a key would read it."""
    yield data
    yield unquote_to_bytes(data.replace(b"+", b" "))
    yield unquote_to_bytes(data)
    plain = data
    for _ in range(3):  # JSON in JSON in JSON
        plain = re.sub(rb"\\u00([0-9a-f]{2})", lambda m: bytes.fromhex(m[1].decode()), plain)
        plain = re.sub(rb'\\(["\\/])', rb"\1", plain)
        yield plain
    for token in set(re.findall(rb"[A-Za-z0-9+/_-]{11,}", data)):
        text = token.replace(b"-", b"+").replace(b"_", b"/")
        for start in range(4):
            part = text[start:]
            yield base64.b64decode(part[: len(part) // 4 * 4])
    for token in set(re.findall(rb"(?i)[0-9a-f]{16,}", data)):
        for start in range(2):
            part = token[start:]
            yield bytes.fromhex(part[: len(part) // 2 * 2].decode())


def assert_clean(what: str, data: bytes) -> None:
    for reading in decoded(data):
        for secret in SECRETS:
            raw = secret.encode()
            pieces = [raw[i : i + 12] for i in range(len(raw) - 11)]
            for piece in pieces:
                at = reading.find(piece)
                around = reading[max(at - 150, 0) : at + 60]
                assert at < 0, f"{what} has a piece of {secret!r}: {around!r}"


def files_below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".git" not in path.relative_to(folder).parts:
            yield path


def test_the_search_finds_every_form() -> None:
    for form in forms(KEY):
        with pytest.raises(AssertionError):
            assert_clean("a file", f"something {form} else".encode())
    assert_clean("a file", b"nothing at all, but some letters and 0123456789abcdef0123456789")


def test_no_key_leaves_the_process(
    edison: Edison, project: Folder, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"SHOP_LLM": KEY, "JUDGE_LLM": JUDGE_KEY, "OTHER_API_TOKEN": UNUSED}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    said: dict[str, Result] = {}

    def process(*args: str) -> None:
        said[" ".join(args)] = project.edison(*args)

    def command(*args: str) -> None:
        said[" ".join(args)] = edison(project, *args)

    reports = ["--junit", "j.xml", "--markdown", "r.md", "--sarif", "s.json"]
    process("run", "--debug", "-vv", "--record", "rec.jsonl", *reports)
    keys = {request.headers["authorization"] for request in server.requests}
    assert keys == {f"Bearer {KEY}", f"Bearer {JUDGE_KEY}"}, "the keys were really sent"
    process("run", "--no-cache", "--json", "--log-json", "--debug")
    command("status", "latest", "--json")
    command("runs", "watch", "latest", "--json")
    command("explain", "c00@small", "--json")
    command("report", "--format", "json")
    command("admin", "cache", "export", "all.jsonl")
    command("admin", "db", "backup")
    server.script = [rule(status=401, body=error(" ".join(forms(KEY))))]
    command("models", "test", "--debug")
    command("try", "hello", "--case", "c01", "--debug", "--json")
    with FakeGitHub() as fake:
        open_pull(fake)
        for name, value in actions(project, fake).items():
            monkeypatch.setenv(name, value)
        command("admin", "db", "adopt")  # what was run before counts as of this job
        command("github", "summary")
        command("github", "annotations")
        command("github", "comment")
        sent = json.dumps([[str(r), r.body] for r in fake.requests])
        assert fake.state.comments, said["github comment"].all
    assert said["models test --debug"].code == 3
    assert {done.code for done in said.values()} <= {0, 1, 3}, said
    answered = (project.path / "rec.jsonl").read_text(encoding="utf-8")
    assert "[key]" in answered, "answers say that something was taken out"
    for words, done in said.items():
        assert_clean(words, done.all.encode())
    assert_clean("requests to GitHub", sent.encode())
    found = list(files_below(project.path))
    assert {"results.db", "r.md", "s.json", "j.xml", "all.jsonl", "summary.md", "output"} <= {
        path.name for path in found
    }
    for path in found:
        assert_clean(str(path), path.read_bytes())


def actions(project: Folder, fake: FakeGitHub) -> dict[str, str]:
    """Return the environment of a job for pull request 1."""
    repository = {"id": 1, "owner": {"login": "acme"}, "default_branch": "main"}
    side = {"sha": HEAD, "ref": "topic", "repo": repository}
    base = {**side, "sha": project.git("rev-parse", "HEAD"), "ref": "main"}
    pull = {"number": 1, "head": side, "base": base}
    event = {"repository": repository, "pull_request": pull}
    file = project.write("event.json", json.dumps(event))
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_API_URL": fake.url,
        "GITHUB_SERVER_URL": fake.url,
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_TOKEN": TOKEN,
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_EVENT_PATH": str(file),
        "GITHUB_RUN_ID": "7",
        "RUNNER_TEMP": str(project.path.parent),
        "GITHUB_STEP_SUMMARY": str(project.path / "summary.md"),
        "GITHUB_OUTPUT": str(project.path / "output"),
    }
