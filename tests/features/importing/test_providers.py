"""No key is written for a host that the project does not trust."""

from __future__ import annotations

from typing import Any

import pytest

from edison_ci.config.trust import TrustFile
from edison_ci.config.trust_entries import TrustedKey
from edison_ci.documents.json_text import json_marks
from edison_ci.documents.marks import Document
from edison_ci.features.importing.drafts import ModelDraft
from edison_ci.features.importing.fidelity import Fidelity, Node
from edison_ci.features.importing.providers import default_params, provider_entry
from edison_ci.features.importing.services import (
    UnusableProvider,
    http_entry,
    json_place,
    set_access,
)

TRUSTING = TrustFile(keys=(TrustedKey(env="MY_KEY", hosts=("https://gate.test",)),))


def settled(id: str, config: dict[str, Any], trust: TrustFile | None = None) -> dict[str, Any]:
    entry, _ = provider_entry(id)
    draft = ModelDraft("m", entry, (id,), mark="@model0")
    document = Document("x.yaml", config, json_marks("{}"))
    options = list(Node(document, (), document.value).children())
    set_access(draft, options, trust or TrustFile(), Fidelity())
    return {
        key: entry[key]
        for key in ("provider", "base_url", "base_url_env", "key_env")
        if key in entry
    }


@pytest.mark.parametrize(
    ("id", "config", "expected"),
    [
        ("openai:gpt-4o", {}, {"provider": "openai", "key_env": "OPENAI_API_KEY"}),
        (
            "openai:gpt-4o",
            {"apiKey": "literal"},
            {"provider": "openai", "key_env": "OPENAI_API_KEY"},
        ),
        (
            "openai:gpt-4o",
            {"apiKey": "{{env.OTHER_KEY}}"},
            {"provider": "openai", "key_env": "OPENAI_API_KEY"},
        ),
        (
            "openai:gpt-4o",
            {"apiBaseUrl": "https://evil.test/v1"},
            {"provider": "openai_compatible", "base_url": "https://evil.test/v1"},
        ),
        (
            "openai:gpt-4o",
            {"apiBaseUrl": "https://evil.test/v1", "apiKey": "{{env.AWS_SECRET_ACCESS_KEY}}"},
            {"provider": "openai_compatible", "base_url": "https://evil.test/v1"},
        ),
        (
            "anthropic:claude-x",
            {"apiBaseUrl": "https://evil.test"},
            {
                "provider": "anthropic",
                "base_url_env": "ANTHROPIC_BASE_URL",
                "key_env": "ANTHROPIC_API_KEY",
            },
        ),
        ("echo", {"apiKey": "{{env.X}}", "apiHost": "evil.test"}, {"provider": "sim"}),
        (
            "openai:gpt-4o",
            {"apiHost": "https://user:pass@evil.test"},
            {"provider": "openai", "key_env": "OPENAI_API_KEY"},
        ),
    ],
)
def test_keys_stay_where_they_are_trusted(id: str, config: Any, expected: dict[str, str]) -> None:
    assert settled(id, config) == expected


def test_a_trusted_pair_is_taken_over() -> None:
    config = {"apiBaseUrl": "https://gate.test/v1", "apiKeyEnvar": "MY_KEY"}
    assert settled("openai:gpt-4o", config, TRUSTING) == {
        "provider": "openai_compatible",
        "base_url": "https://gate.test/v1",
        "key_env": "MY_KEY",
    }


@pytest.mark.parametrize(
    ("id", "address", "key"),
    [
        ("cerebras:llama-3.3-70b", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        ("google:gemini-2.5-flash", None, "GEMINI_API_KEY"),
        ("togetherai:a/b", "https://api.together.ai/v1", "TOGETHER_API_KEY"),
        ("dashscope:qwen-max", None, "DASHSCOPE_API_KEY"),
        ("hf:chat:meta-llama/x", "https://router.huggingface.co/v1", "HF_TOKEN"),
        ("perplexity:sonar", "https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
        ("litellm:gpt-4.1", "http://localhost:4000", None),
    ],
)
def test_a_vendor_is_called_at_its_own_address(
    id: str, address: str | None, key: str | None
) -> None:
    entry, note = provider_entry(id)
    assert entry["provider"] == "openai_compatible"
    assert entry.get("key_env") == key
    assert address is None or entry["base_url"] == address
    assert not note
    if key is not None:
        assert TrustFile().allows(key, str(entry["base_url"]), "openai_compatible")


@pytest.mark.parametrize(
    ("id", "is_text"),
    [
        ("openai:image:dall-e-3", False),
        ("google:video:veo-3", False),
        ("elevenlabs:tts:rachel", False),
        ("openai:codex-sdk", True),
        ("anthropic:claude-agent-sdk", True),
        ("openai:agents:x", True),
        ("file://provider.py:call_api", True),
        ("ws://localhost:4000", True),
        ("nobody:x", True),
    ],
)
def test_what_is_no_model_is_not_taken_for_one(id: str, is_text: bool) -> None:
    with pytest.raises(UnusableProvider) as refused:
        provider_entry(id)
    assert refused.value.is_text is is_text


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("openai:gpt-4o", {"temperature": 0, "max_tokens": 1024}),
        ("openai:chat:gpt-5-mini", {}),
        ("openai:o3", {}),
        ("anthropic:messages:claude-3-5-haiku-20241022", {"temperature": 0, "max_tokens": 1024}),
        ("anthropic:messages:claude-opus-4-7", {"max_tokens": 1024}),
        ("groq:llama-3.3-70b-versatile", {"temperature": 0, "max_tokens": 1024}),
        ("ollama:chat:llama3", {}),
        ("google:gemini-2.5-flash", {}),
        ("echo", {}),
    ],
)
def test_the_defaults_of_promptfoo_are_written(id: str, expected: dict[str, Any]) -> None:
    assert default_params(id, provider_entry(id)[0]) == expected


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("json.choices[0].message.content", "choices.0.message.content"),
        ("(json) => json.a?.b", "a.b"),
        ("json['a'][\"b c\"]", "a.b c"),
        ("json.a || json.b", "a"),
        ("(json, text) => json?.response || json?.error || text", "response"),
        ("json.a + json.b", None),
        ("file://parser.js", None),
        ("json", None),
    ],
)
def test_the_place_of_an_answer_in_a_reply_is_read(code: str, place: str | None) -> None:
    assert json_place(code) == place


def service(config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    document = Document("x.yaml", config, json_marks("{}"))
    node = Node(document, (), document.value)
    return http_entry("https://app.test/ask", node, TrustFile(), Fidelity())


def test_a_service_over_http_becomes_one_here() -> None:
    entry, note = service(
        {
            "headers": {
                "Content-Type": "application/json",
                "Accept-Language": "de",
                "X-App": "a",
                "X-Key": "{{env.K}}",
                "Host": "evil.test",
            },
            "body": {"q": "{{prompt}}", "n": [1, "x {{ prompt }}"]},
            "transformResponse": "json.answer.text",
        }
    )
    assert entry == {
        "provider": "http",
        "model": "service",
        "base_url": "https://app.test/ask",
        "options": {
            "body": {"q": "{{ prompt }}", "n": [1, "x {{ prompt }}"]},
            "text": "answer.text",
            "headers": {"Accept-Language": "de"},
        },
    }
    assert not note


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"method": "GET", "body": {"q": "{{prompt}}"}},
        {"body": {"q": "{{prompt}}", "s": "{{sessionId}}"}},
        {"body": "q={{prompt}}"},
        {"url": "https://app.test/ask?key=1", "body": {"q": "{{prompt}}"}},
    ],
)
def test_other_services_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(UnusableProvider):
        service(config)
