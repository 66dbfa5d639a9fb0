"""The hash of a request: it changes with everything that can change the answer, and only then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.judges.judge import Judge
from edison_ci.records import Message, Request
from tests.providers.kitchen import KEY, model

if TYPE_CHECKING:
    from edison_ci.config.models import Model

AZURE = "provider: azure, base_url: 'https://x.example', model: gpt-4o"
VERTEX = "provider: vertex, model: gemini-2.5-pro"
HTTP = "provider: http, base_url: 'https://x.example'"
OTHER = "provider: openai_compatible, model: m"


def hash_of(served: Model) -> str:
    return Judge.of(served).request((Message("user", "Hi"),)).request_hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            f"{{{AZURE}, options: {{deployment: good, api_version: '2024-10-21'}}}}",
            f"{{{AZURE}, options: {{deployment: poor, api_version: '2024-10-21'}}}}",
        ),
        (
            f"{{{AZURE}, options: {{deployment: good, api_version: '2024-10-21'}}}}",
            f"{{{AZURE}, options: {{deployment: good, api_version: '2025-01-01-preview'}}}}",
        ),
        (
            f"{{{VERTEX}, options: {{project: one, location: us-central1}}}}",
            f"{{{VERTEX}, options: {{project: two, location: us-central1}}}}",
        ),
        (
            f"{{{VERTEX}, options: {{project: one, location: us-central1}}}}",
            f"{{{VERTEX}, options: {{project: one, location: europe-west4}}}}",
        ),
        (
            "{provider: bedrock, model: m, options: {region: eu-central-1}}",
            "{provider: bedrock, model: m, options: {region: us-east-1}}",
        ),
        (
            "{provider: openai, model: m}",
            "{provider: openai, model: m, options: {organization: o}}",
        ),
        (
            f"{{{OTHER}, base_url: 'https://a.example'}}",
            f"{{{OTHER}, base_url: 'https://b.example'}}",
        ),
        (f"{{{OTHER}, base_url_env: A_URL}}", f"{{{OTHER}, base_url_env: B_URL}}"),
        (
            f"{{{HTTP}, options: {{body: {{}}, headers: {{X-Variant: a}}}}}}",
            f"{{{HTTP}, options: {{body: {{}}, headers: {{X-Variant: b}}}}}}",
        ),
        (
            "{provider: sim, model: script, options: {file: a.jsonl}}",
            "{provider: sim, model: script, options: {file: b.jsonl}}",
        ),
        (
            "{provider: sim, model: small, options: {seed: 1}}",
            "{provider: sim, model: small, options: {seed: 2}}",
        ),
        (
            "{provider: replay, model: m, store: a.jsonl}",
            "{provider: replay, model: m, store: b.jsonl}",
        ),
    ],
)
def test_what_can_change_an_answer_is_another_request(one: str, other: str) -> None:
    assert hash_of(model(one)) != hash_of(model(other))


def test_another_protocol_is_another_request() -> None:
    chat = model("{provider: openai, model: gpt-4o}")
    assert not chat.capabilities.responses
    able = replace(chat, capabilities=replace(chat.capabilities, responses=True))
    assert hash_of(chat) != hash_of(able)


@pytest.mark.parametrize(
    "more",
    [
        "price: {in: 1, out: 2}",
        "limits: {timeout_s: 5, concurrency: 1, rpm: 10, attempts: 1}",
        "key_env: OTHER_KEY",
        "fallback: []",
    ],
)
def test_what_cannot_change_an_answer_is_not(more: str) -> None:
    entry = f"{AZURE}, options: {{deployment: d, api_version: '2024-10-21'}}"
    assert hash_of(model(f"{{{entry}}}")) == hash_of(model(f"{{{entry}, {more}}}"))


def test_delays_and_faults_of_the_simulator_are_not() -> None:
    slow = "{provider: sim, model: small, options: {latency_ms: 30, error_rate: 0.5}}"
    assert hash_of(model(slow)) == hash_of(model("{provider: sim, model: small}"))


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "api-key", "x-auth-token"])
def test_a_header_with_a_key_is_not_in_the_hash(name: str) -> None:
    def with_header(value: str) -> Model:
        return model(f"{{{HTTP}, options: {{body: {{}}, headers: {{{name}: {value}}}}}}}")

    assert KEY not in with_header(KEY).endpoint
    assert hash_of(with_header(KEY)) == hash_of(with_header("another"))


def test_a_model_without_options_has_the_hash_of_its_address() -> None:
    served = model("{provider: openai, model: gpt-4o}")
    messages = (Message("user", "Hi"),)
    plain = Request("openai", "https://api.openai.com/v1", "gpt-4o", messages, {})
    assert replace(plain, endpoint=served.endpoint).request_hash == plain.request_hash
