"""litellm: what it is kept from doing, every exception it has, and one real call through it.

litellm is imported in a process of its own: it takes seconds and changes that process for good.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from edison_ci.config.model_entry import LITELLM_VENDORS
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.secrets import HIDDEN
from edison_ci.providers.litellm_bridge import (
    KINDS,
    Environment,
    LitellmBridge,
    Target,
    classify_exception,
)
from tests.conftest import ROOT
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nightly

CANARIES = {
    "OPENAI_API_KEY": "sk-canary-openai-0123456789",
    "ANTHROPIC_API_KEY": "sk-ant-canary-anthropic-0123456789",
    "AWS_SECRET_ACCESS_KEY": "canary-aws-0123456789",
    "HF_TOKEN": "hf_canary0123456789",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/canary",
}

CALLS = """
import asyncio, json, logging, os, socket, sys
from edison_ci.config.model_entry import LITELLM_VENDORS
from edison_ci.contracts import CallError
from edison_ci.providers.transport import Reach
from edison_ci.providers.litellm_bridge import LitellmBridge, NO_KEY, Target
from edison_ci.records import Message, Request

OWN = "sk-own-key-0123456789abcdef"
openai, anthropic, evil = json.loads(sys.argv[1])
imds = "http://169.254.169.254/v1"
out, reached = {}, []

look_up = socket.getaddrinfo

def looked_up(host, port, *args, **more):
    reached.append(f"{host}:{port}")
    if not str(host).startswith(("127.", "169.254.")):
        raise socket.gaierror("tests stay on this machine")
    return look_up(host, port, *args, **more)

def hear(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        reached.append(f"{args[1][0]}:{args[1][1]}")
        if not args[1][0].startswith("127."):
            raise OSError("tests stay on this machine")

socket.getaddrinfo = looked_up
sys.addaudithook(hear)

async def ask(name, target, text):
    bridge = LitellmBridge(target)
    request = Request("litellm", "", target.model, (Message("system", "Be kind."),
                      Message("user", text)), {"max_tokens": 9, "temperature": 0.5})
    try:
        answer = await bridge.complete(request)
        out[name] = {"text": answer.text, "tokens": [answer.tokens_in, answer.tokens_out],
                     "finish": answer.finish_reason, "served": answer.served_model}
    except CallError as error:
        out[name] = {"kind": error.kind, "charged": error.charged, "status": error.status,
                     "retry_after_s": error.retry_after_s, "message": error.message,
                     "chain": repr(error.__cause__) + repr(error.__context__)}
    out.setdefault("hidden", "OPENAI_API_KEY" not in os.environ)
    await bridge.aclose()

async def main():
    keyless = Target("openai/m", openai, {"api_key": NO_KEY, "api_base": openai})
    own = Target("openai/m", openai, {"api_key": OWN, "api_base": openai}, (OWN,), 1.0)
    other = Target("anthropic/claude-x", anthropic, {"api_key": OWN, "api_base": anthropic}, (OWN,))
    closed = "http://127.0.0.1:9/v1"
    nowhere = Target("openai/m", closed, {"api_key": OWN, "api_base": closed}, (OWN,))
    astray = Target("openai/m", openai, {"api_key": OWN, "api_base": evil}, (OWN,))
    metadata = Target("openai/m", imds, {"api_key": OWN, "api_base": imds}, (OWN,))
    confined = Target("openai/m", openai, own.arguments, (OWN,), 1.0, Reach.PUBLIC)
    await ask("keyless", keyless, "Say hello.")
    for text in ("good", "redirect", "busy", "wrong key", "fail", "hang", "close"):
        await ask(text, own, text)
    await ask("anthropic", other, "good")
    await ask("anthropic redirect", other, "redirect")
    await ask("nowhere", nowhere, "good")
    await ask("astray", astray, "good")
    await ask("metadata", metadata, "good")
    await ask("confined", confined, "good")
    called = set(reached)
    for vendor, address in LITELLM_VENDORS.items():
        reached.clear()
        name, target = f"at {vendor}", Target(f"{vendor}/m", address, {"api_key": OWN}, (OWN,), 5.0)
        await ask(name, target, "good")
        out[name]["reached"] = sorted(set(reached))
    out["called"] = sorted(called)
    out["back"] = "OPENAI_API_KEY" in os.environ
    out["dotenv"] = os.environ.get("FROM_DOTENV")
    out["tiktoken"] = os.environ.get("TIKTOKEN_CACHE_DIR")
    import litellm
    from litellm import exceptions
    from edison_ci.providers.litellm_bridge import KINDS
    classes = {c for c in [*vars(exceptions).values(), *litellm.LITELLM_EXCEPTION_TYPES]
               if isinstance(c, type) and issubclass(c, BaseException)
               and c.__module__.startswith("litellm")}
    classes |= {getattr(litellm, n) for n in dir(litellm) if n.endswith(("Error", "Exception"))
                and isinstance(getattr(litellm, n), type)
                and issubclass(getattr(litellm, n), BaseException)
                and getattr(litellm, n).__module__.startswith("litellm")}
    out["classes"] = sorted(c.__name__ for c in classes)
    out["unmapped"] = sorted(c.__name__ for c in classes if c.__name__ not in KINDS)
    out["handlers"] = [n for n in ("LiteLLM", "LiteLLM Router")
                       if not logging.getLogger(n).disabled]

asyncio.run(main())
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of all calls, which are made once for all processes of the tests."""
    here = tmp_path_factory.getbasetemp()
    shared = here.parent if "PYTEST_XDIST_WORKER" in os.environ else here
    kept = shared / "litellm.json"
    with (shared / "litellm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(json.dumps(made_calls(tmp_path_factory.mktemp("litellm"))))
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def made_calls(folder: Path) -> dict[str, Any]:
    """Make all calls in one child process, and return what it and the servers saw."""
    (folder / ".env").write_text("FROM_DOTENV=read\n")
    with LoopbackServer() as evil, LoopbackServer() as server:
        message = {"error": {"message": "Incorrect API key: sk-own-key-0123456789abcdef"}}
        server.script = [
            rule(contains="redirect", do="redirect", location=f"{evil.url}/v1/chat/completions"),
            rule(contains="busy", status=429, headers={"retry-after": "7"}),
            rule(contains="wrong key", status=401, body=message),
            rule(contains="fail", status=500),
            rule(contains="hang", do="hang"),
            rule(contains="close", do="close"),
        ]
        addresses = json.dumps([server.openai_url, server.url, evil.openai_url])
        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", "-c", CALLS, addresses],
            cwd=folder,
            env={**os.environ, **CANARIES, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        requests = [(seen.path, seen.headers, seen.json) for seen in server.requests]
        return {
            **json.loads(done.stdout.splitlines()[-1]),
            "requests": requests,
            "evil": len(evil.requests),
            "own": [f"127.0.0.1:{urlsplit(server.url).port}", "127.0.0.1:9"],
            "stdout": done.stdout,
            "stderr": done.stderr,
        }


@pytest.mark.nightly
def test_a_real_call_goes_through(told: dict[str, Any]) -> None:
    assert told["good"]["text"].startswith("The answer is ")
    assert told["good"]["tokens"] == [3, 4]
    assert (told["good"]["finish"], told["good"]["served"]) == ("stop", "m")
    path, headers, body = told["requests"][1]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == "Bearer sk-own-key-0123456789abcdef"
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "good"},
        ],
        "max_tokens": 9,
        "temperature": 0.5,
    }
    assert told["anthropic"]["text"].startswith("The answer is ")


@pytest.mark.nightly
def test_it_finds_no_key_by_itself(told: dict[str, Any]) -> None:
    assert told["requests"][0][1]["authorization"] == "Bearer no-key"
    assert told["hidden"]
    assert told["back"]
    everything = json.dumps(told["requests"])
    assert "canary" not in everything


def test_no_host_but_the_model_s_is_called(told: dict[str, Any]) -> None:
    assert told["evil"] == 0
    for name in ("astray", "metadata", "confined"):
        assert (told[name]["kind"], told[name]["charged"]) == ("BAD_REQUEST", False), name
    assert "the model is at http://127.0.0.1:" in told["astray"]["message"]
    assert "link-local" in told["metadata"]["message"]
    assert "in CI such hosts must be listed in" in told["confined"]["message"]
    ports = {place.rpartition(":")[2] for place in told["called"] if place[:9] == "127.0.0.1"}
    assert ports <= {"None", *(place.rpartition(":")[2] for place in told["own"])}
    assert {place for place in told["called"] if place[:9] != "127.0.0.1"} == {
        "169.254.169.254:None"  # looked up, which asks nobody, and refused
    }
    for vendor, address in LITELLM_VENDORS.items():
        host = address.removeprefix("https://")
        assert told[f"at {vendor}"]["reached"] == [f"{host}:443", f"{host}:None"]


def test_each_call_is_made_once(told: dict[str, Any]) -> None:
    said = [body["messages"][-1]["content"] for _, _, body in told["requests"]]
    for text in ("busy", "wrong key", "fail", "hang", "close"):
        assert said.count(text) == 1


def test_redirects_are_not_followed(told: dict[str, Any]) -> None:
    assert told["evil"] == 0
    for name in ("redirect", "anthropic redirect"):
        assert (told[name]["kind"], told[name]["charged"]) == ("BAD_RESPONSE", False)


def test_failures_are_told_in_our_words(told: dict[str, Any]) -> None:
    expected = {
        "busy": ("RATE_LIMIT", False, 7.0),
        "wrong key": ("INVALID_KEY", False, None),
        "fail": ("PROVIDER_ERROR", True, None),
        "hang": ("TIMEOUT", True, None),
        "nowhere": ("NETWORK", False, None),
    }
    for name, (kind, charged, wait) in expected.items():
        got = told[name]
        assert (name, got["kind"], got["charged"]) == (name, kind, charged)
        assert got["retry_after_s"] == wait
    assert told["close"]["charged"]
    assert ErrorKind(told["close"]["kind"]) in (ErrorKind.NETWORK, ErrorKind.PROVIDER_ERROR)


def test_no_key_is_seen_anywhere(told: dict[str, Any]) -> None:
    shown = told["stdout"] + told["stderr"]
    assert "sk-own-key" not in shown
    assert "canary" not in shown


def test_nothing_is_done_that_nobody_asked_for(told: dict[str, Any]) -> None:
    assert told["dotenv"] is None
    assert told["tiktoken"] is None
    assert told["handlers"] == []
    assert "Traceback" not in told["stderr"]
    assert "Unclosed" not in told["stderr"]


def test_every_exception_is_mapped(told: dict[str, Any]) -> None:
    assert len(told["classes"]) > 25
    assert told["unmapped"] == []


# --- without litellm ------------------------------------------------------------------------------


def raised(name: str, message: str = "no", *parents: type) -> Exception:
    kind = type(name, parents or (Exception,), {})
    error = kind(message)
    assert isinstance(error, Exception)
    return error


def test_a_class_means_what_its_name_says(subtests: pytest.Subtests) -> None:
    for name, kind in KINDS.items():
        with subtests.test(name=name):
            assert classify_exception(raised(name), "no") is kind


def test_a_subclass_is_what_its_parent_is() -> None:
    parent = type("RateLimitError", (Exception,), {})
    assert classify_exception(raised("NewKindOfLimit", "no", parent), "no") is ErrorKind.RATE_LIMIT


@pytest.mark.parametrize(
    ("name", "message", "kind"),
    [
        ("RateLimitError", "insufficient_quota", ErrorKind.QUOTA),
        ("BadRequestError", "maximum context length is 5", ErrorKind.CONTEXT_LENGTH),
        ("BadRequestError", "content_filter", ErrorKind.CONTENT_FILTER),
        ("SomethingElse", "?", ErrorKind.BAD_RESPONSE),
    ],
)
def test_words_say_more_than_classes(name: str, message: str, kind: ErrorKind) -> None:
    assert classify_exception(raised(name, message), message) is kind


def test_the_environment_is_put_back_after_the_last_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LANG_KIND", "kept")
    before = dict(os.environ)
    environment = Environment()
    environment.hide()
    environment.hide()
    assert not set(CANARIES) & set(os.environ)
    assert os.environ["LANG_KIND"] == "kept"
    environment.show()
    assert not set(CANARIES) & set(os.environ)
    environment.show()
    assert dict(os.environ) == before
    assert HIDDEN == {}


async def test_a_bridge_that_was_never_used_closes_without_litellm() -> None:
    bridge = LitellmBridge(Target("openai/m", "", {"api_key": "sk-canary-12345678"}))
    await bridge.aclose()
    assert "canary" not in f"{bridge!r} {bridge._target!r}"
    assert "litellm" not in sys.modules


def test_a_failure_of_unknown_kind_may_have_been_charged() -> None:
    bridge = LitellmBridge(Target("openai/m", "", {}, ("sk-canary-12345678",)))
    error = bridge._translate(ValueError("odd sk-canary-12345678"))
    assert isinstance(error, CallError)
    assert (error.kind, error.charged) == (ErrorKind.BAD_RESPONSE, True)
    assert "canary" not in str(error)
