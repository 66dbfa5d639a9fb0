"""No key is written for a host that the project does not trust."""

from __future__ import annotations

from typing import Any

import pytest

from edison_ci.config.trust import TrustedKey, TrustFile
from edison_ci.documents.json_text import json_marks
from edison_ci.documents.marks import Document
from edison_ci.importing.drafts import ModelDraft
from edison_ci.importing.fidelity import Fidelity, Node
from edison_ci.importing.providers import provider_entry, set_access

TRUSTING = TrustFile(keys=(TrustedKey(env="MY_KEY", hosts=("https://gate.test",)),))


def settled(id: str, config: dict[str, Any], trust: TrustFile | None = None) -> dict[str, Any]:
    entry, _ = provider_entry(id)
    assert entry is not None
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
