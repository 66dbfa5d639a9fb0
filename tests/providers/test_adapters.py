"""Which adapter a model gets, and what happens to its keys on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.trust import TrustFile
from edison_ci.contracts import CallError
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import UsageError
from edison_ci.features.simulator.provider import SimulatedProvider
from edison_ci.providers.adapters import WithEmbeddings, provider_for
from edison_ci.providers.anthropic import Anthropic
from edison_ci.providers.litellm_bridge import NO_KEY, LitellmBridge
from edison_ci.providers.openai_compatible import OpenAICompatible
from edison_ci.providers.resilience import Adapting
from tests.loopback.fixture import loopback
from tests.providers.kitchen import KEY, ask, model

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider
    from tests.loopback.server import LoopbackServer

__all__ = ["loopback"]

KEYS = {
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_API_KEY": KEY,
    "AZURE_OPENAI_API_KEY": KEY,
    "GROQ_API_KEY": KEY,
    "AWS_ACCESS_KEY_ID": "AKIA-canary",
    "AWS_SECRET_ACCESS_KEY": "canary-secret",
    "GOOGLE_APPLICATION_CREDENTIALS": "/run/canary.json",
}
AZURE = (
    "{provider: azure, base_url: 'https://x.openai.azure.com', "
    'options: {deployment: d, api_version: "2024-10-21"}}'
)
BEDROCK = (
    "{provider: bedrock, model: anthropic.claude-x, options: {region: eu-central-1}, "
    "key_env: {access_key_id: AWS_ACCESS_KEY_ID, secret_access_key: AWS_SECRET_ACCESS_KEY}}"
)
VERTEX = (
    "{provider: vertex, model: gemini-x, options: {project: p, location: us-central1}, "
    "key_env: GOOGLE_APPLICATION_CREDENTIALS}"
)
ONLINE = {
    "{provider: openai, model: gpt-4o}": OpenAICompatible,
    AZURE: OpenAICompatible,
    "{provider: ollama, model: llama}": OpenAICompatible,
    "{provider: openai_compatible, model: x, base_url: 'https://x.example/v1'}": OpenAICompatible,
    "{provider: anthropic, model: claude-x}": Anthropic,
    BEDROCK: LitellmBridge,
    VERTEX: LitellmBridge,
    "{provider: litellm, model: groq/llama, key_env: GROQ_API_KEY}": LitellmBridge,
}


def inner_provider(wanted: Model) -> Any:
    """Return the adapter of a model, inside of what adapts its parameters."""
    provider = provider_for(wanted, environ=KEYS)
    assert isinstance(provider, Adapting)
    inner = provider._inner
    return inner.chat if isinstance(inner, WithEmbeddings) else inner


@pytest.mark.parametrize(("entry", "kind"), ONLINE.items())
def test_every_provider_has_its_adapter(entry: str, kind: type) -> None:
    assert isinstance(inner_provider(model(entry)), kind)


@pytest.mark.parametrize("name", ["small", "large", "echo", "judge"])
async def test_simulated_models_answer(name: str) -> None:
    provider = provider_for(model(f"{{provider: sim, model: {name}}}"))
    assert isinstance(provider, SimulatedProvider)
    assert (await provider.complete(ask(model=name))).served_model == f"sim/{name}"


async def test_a_script_answers_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "script.jsonl").write_text(
        '{"match": "hello", "text": "Hi!"}\n\n{"match": "fail", "error": "RATE_LIMIT"}\n'
        '{"match": "odd", "error": "NO_SUCH"}\n'
    )
    entry = "{provider: sim, model: script, options: {file: script.jsonl}}"
    provider = provider_for(model(entry), tree=WorkingTree(tmp_path))
    assert (await provider.complete(ask("Say hello."))).text == "Hi!"
    for text, kind in [("fail", "RATE_LIMIT"), ("odd", "NO_SUCH"), ("other", "BAD_REQUEST")]:
        with pytest.raises(CallError, match=kind):
            await provider.complete(ask(text))


@pytest.mark.parametrize("name", ["refiner", "assistant"])
async def test_the_refiner_and_the_assistant_answer_as_any_model_does(name: str) -> None:
    provider = provider_for(model(f"{{provider: sim, model: {name}}}"))
    answer = await provider.complete(ask("Improve this prompt: reply to a customer.", model=name))
    assert answer.served_model == f"sim/{name}"
    assert answer.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "script.jsonl:1"),
        ('{"match": "a"}\n[]', "script.jsonl:2"),
        ('{"matsch": "a"}', "matsch"),
    ],
)
def test_a_script_that_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "script.jsonl").write_text(text)
    entry = "{provider: sim, model: script, options: {file: script.jsonl}}"
    with pytest.raises(UsageError, match=said):
        provider_for(model(entry), tree=WorkingTree(tmp_path))


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_a_key_that_is_not_there_is_named(value: str | None) -> None:
    environ = {} if value is None else {"OPENAI_API_KEY": value}
    with pytest.raises(UsageError, match="OPENAI_API_KEY, which is not set") as caught:
        provider_for(model("{provider: openai, model: gpt-4o}"), environ=environ)
    assert "set the environment variable OPENAI_API_KEY" in caught.value.hint


@pytest.mark.parametrize("value", ["sk-canary\nX-Evil: 1", "sk-canäry", "sk-canary\x00"])
def test_a_value_that_cannot_be_a_key_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        provider_for(model("{provider: openai, model: x}"), environ={"OPENAI_API_KEY": value})
    assert "can" not in str(caught.value).replace("cannot", "")


async def test_blanks_around_a_key_are_no_part_of_it(loopback: LoopbackServer) -> None:
    entry = f"{{provider: openai, model: m, base_url: '{loopback.openai_url}'}}"
    provider: Any = provider_for(model(entry), environ={"OPENAI_API_KEY": f" {KEY}\n"})
    await provider.complete(ask())
    await provider.aclose()
    assert loopback.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_the_environment_is_that_of_the_process_unless_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    provider_for(model("{provider: openai, model: gpt-4o}"))


@pytest.mark.parametrize("entry", ONLINE)
def test_no_adapter_shows_its_keys(entry: str) -> None:
    provider: Provider = provider_for(model(entry), environ=KEYS)
    assert "canary" not in f"{provider!r} {provider!s}"
    for part in vars(provider).values():
        assert "canary" not in f"{part!r}"


def test_a_key_goes_only_where_trust_allows() -> None:
    entry = "{provider: openai, model: m, base_url: 'https://evil.example/v1'}"
    with pytest.raises(UsageError, match=r"OPENAI_API_KEY to https://evil\.example:443"):
        provider_for(model(entry), environ=KEYS, trust=TrustFile())
    allowed = TrustFile.model_validate(
        {"keys": [{"env": "OPENAI_API_KEY", "hosts": ["https://evil.example:443"]}]}
    )
    provider_for(model(entry), environ=KEYS, trust=allowed)


@pytest.mark.parametrize("trust", [None, TrustFile()])
def test_an_address_from_the_environment_is_checked_too(trust: TrustFile | None) -> None:
    entry = model("{provider: openai, model: m, base_url_env: WHERE}")
    with pytest.raises(UsageError, match=r"to https://evil\.example:443"):
        provider_for(entry, environ={**KEYS, "WHERE": "https://evil.example/v1"}, trust=trust)
    good = {**KEYS, "WHERE": "https://api.openai.com/v1"}
    provider_for(entry, environ=good, trust=trust)


@pytest.mark.parametrize(
    "value", ["", "nowhere", "ftp://x", "https://me:canary@x.example", "http://"]
)
def test_an_address_that_is_none_is_named_by_its_variable(value: str) -> None:
    entry = model("{provider: openai, model: m, base_url_env: WHERE}")
    with pytest.raises(UsageError, match="WHERE") as caught:
        provider_for(entry, environ={**KEYS, "WHERE": value})
    assert "canary" not in str(caught.value)


# --- offline --------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", [entry for entry in ONLINE if "ollama" not in entry])
def test_offline_refuses_what_is_not_here(entry: str) -> None:
    with pytest.raises(UsageError, match="--offline"):
        provider_for(model(entry), environ=KEYS, offline=True)


@pytest.mark.parametrize(
    "entry",
    [
        "{provider: ollama, model: llama}",
        "{provider: sim, model: small}",
        "{provider: openai_compatible, model: x, base_url: 'http://127.0.0.1:8000/v1'}",
        "{provider: openai_compatible, model: x, base_url: 'http://[::1]:8000/v1'}",
    ],
)
def test_offline_allows_what_is_here(entry: str) -> None:
    provider_for(model(entry), environ={}, offline=True)


# --- litellm's names ------------------------------------------------------------------------------


def arguments(entry: str) -> dict[str, Any]:
    provider = inner_provider(model(entry))
    return {"model": provider._target.model, **provider._target.arguments}


def test_bedrock_is_told_its_keys_and_region() -> None:
    assert arguments(BEDROCK) == {
        "model": "bedrock/anthropic.claude-x",
        "aws_access_key_id": "AKIA-canary",
        "aws_secret_access_key": "canary-secret",
        "aws_region_name": "eu-central-1",
    }


def test_vertex_is_told_its_project_and_credentials() -> None:
    assert arguments(VERTEX) == {
        "model": "vertex_ai/gemini-x",
        "vertex_project": "p",
        "vertex_location": "us-central1",
        "vertex_credentials": "/run/canary.json",
    }


def test_litellm_is_told_what_the_model_says_and_never_left_to_look_for_keys() -> None:
    entry = (
        "{provider: litellm, model: groq/llama, base_url: 'https://x.example', "
        "options: {organization: o}}"
    )
    assert arguments(entry) == {
        "model": "groq/llama",
        "organization": "o",
        "api_key": NO_KEY,
        "api_base": "https://x.example",
    }
