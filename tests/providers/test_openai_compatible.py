"""Chat completions: exactly what is sent, and what is made of every kind of reply."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.adapters import provider_for
from edison_ci.providers.openai_compatible import (
    Dialect,
    find_dialect,
    read_completion,
    request_body,
)
from edison_ci.records import Completion, FinishReason, Message, Request
from tests.loopback.fixture import loopback
from tests.loopback.script import rule
from tests.providers.kitchen import KEY, ask, model
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from edison_ci.records import Json
    from tests.loopback.server import LoopbackServer

__all__ = ["loopback"]

TOOL: Json = [
    {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]
SCHEMA: Json = {"type": "object", "properties": {"answer": {"type": "string"}}}


async def complete(entry: str, request: Request) -> Completion:
    """Ask the model of a registry's line, as a run would."""
    provider = provider_for(model(entry), environ={"OPENAI_API_KEY": KEY, "AZURE_KEY": KEY})
    try:
        return await provider.complete(request)
    finally:
        await provider.aclose()  # type: ignore[attr-defined]  # every online adapter has it


# --- what is sent ---------------------------------------------------------------------------------


async def test_a_request_is_sent_as_the_protocol_says(loopback: LoopbackServer) -> None:
    request = Request(
        "openai_compatible",
        "",
        "llama-3",
        (
            Message("system", "Be brief."),
            Message("user", "Two?"),
            Message("assistant", "2"),
            Message("user", "Größe?"),
        ),
        {
            "temperature": 0.2,
            "max_tokens": 64,
            "top_p": 0.9,
            "frequency_penalty": 0.5,
            "presence_penalty": -0.5,
            "seed": 7,
            "stop": ["END"],
            "extra": {"logit_bias": {"50256": -100}},
        },
        tools=TOOL,
        response_format=SCHEMA,
    )
    entry = f"{{provider: openai_compatible, model: llama-3, base_url: '{loopback.openai_url}'}}"
    await complete(entry, request)
    seen = loopback.requests[0]
    assert (seen.method, seen.path) == ("POST", "/v1/chat/completions")
    assert seen.json == {
        "model": "llama-3",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Two?"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": "Größe?"},
        ],
        "temperature": 0.2,
        "max_tokens": 64,
        "top_p": 0.9,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "seed": 7,
        "stop": ["END"],
        "logit_bias": {"50256": -100},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "Weather of a city.",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                },
            }
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA},
        },
    }
    assert seen.headers["content-type"] == "application/json"
    assert "authorization" not in seen.headers


async def test_only_what_was_written_is_sent(loopback: LoopbackServer) -> None:
    entry = f"{{provider: openai_compatible, model: m, base_url: '{loopback.openai_url}'}}"
    await complete(entry, ask(params={}))
    assert loopback.requests[0].json == {
        "model": "m",
        "messages": [{"role": "user", "content": "Say hello."}],
    }


async def test_openai_gets_its_key_and_organization(loopback: LoopbackServer) -> None:
    entry = (
        f"{{provider: openai, model: gpt-5-mini, base_url: '{loopback.openai_url}', "
        "options: {organization: org-1}}"
    )
    await complete(entry, ask(model="gpt-5-mini", params={"temperature": 1.0, "max_tokens": 9}))
    seen = loopback.requests[0]
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["openai-organization"] == "org-1"
    assert seen.json == {
        "model": "gpt-5-mini",
        "messages": [{"role": "user", "content": "Say hello."}],
        "temperature": 1.0,
        "max_completion_tokens": 9,
    }


@pytest.mark.parametrize("root", ["", "/", "/openai"])
async def test_azure_is_asked_at_its_deployment(loopback: LoopbackServer, root: str) -> None:
    entry = (
        f"{{provider: azure, base_url: '{loopback.url}{root}', key_env: AZURE_KEY, "
        'options: {deployment: "our gpt/4o", api_version: "2024-10-21"}}'
    )
    answer = await complete(entry, ask(params={"max_tokens": 9}))
    seen = loopback.requests[0]
    path = "/openai/deployments/our%20gpt%2F4o/chat/completions?api-version=2024-10-21"
    assert seen.path == path
    assert seen.headers["api-key"] == KEY
    assert "authorization" not in seen.headers
    assert seen.json == {
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 9,
    }
    assert answer.served_model == "deployed"


LIMIT_NAMES = [
    ("openai", "gpt-4o", "max_tokens"),
    ("openai", "gpt-4.1-mini", "max_tokens"),
    ("openai", "ft:gpt-4o:mine", "max_tokens"),
    ("openai", "gpt-3.5-turbo", "max_tokens"),
    ("openai", "o1", "max_completion_tokens"),
    ("openai", "o4-mini", "max_completion_tokens"),
    ("openai", "gpt-5.2", "max_completion_tokens"),
    ("openai", "something-new", "max_completion_tokens"),
    ("azure", "prod", "max_tokens"),
    ("azure", "gpt-4o", "max_tokens"),
    ("azure", "o3-mini", "max_completion_tokens"),
    ("azure", "our-gpt-5", "max_completion_tokens"),
    ("openai_compatible", "o1-like", "max_tokens"),
    ("ollama", "gpt-5", "max_tokens"),
]


def test_each_model_is_told_its_limit_by_the_name_it_knows(subtests: pytest.Subtests) -> None:
    for provider, name, limit in LIMIT_NAMES:
        with subtests.test(provider=provider, name=name):
            named = replace(model("{provider: ollama, model: m}"), provider=provider, model=name)
            body = request_body(ask(params={"max_tokens": 9}), find_dialect(named))
            assert {key: body[key] for key in body if key.startswith("max")} == {limit: 9}


def test_what_is_extra_does_not_replace_what_is_asked() -> None:
    extra: Json = {"messages": [], "temperature": 2, "reasoning_effort": "low"}
    body = request_body(ask(params={"temperature": 0.5, "extra": extra}), Dialect())
    assert body["messages"] == [{"role": "user", "content": "Say hello."}]
    assert (body["temperature"], body["reasoning_effort"]) == (0.5, "low")


@pytest.mark.parametrize("wanted", [{"type": "json_object"}, {"type": "json_schema", "x": 1}])
def test_a_format_is_passed_on_as_it_is(wanted: Json) -> None:
    assert request_body(ask(response_format=wanted), Dialect())["response_format"] == wanted


# --- what comes back ------------------------------------------------------------------------------


async def test_an_answer_is_read(loopback: LoopbackServer) -> None:
    loopback.script = [rule(text="Hello, Ada!", served_model="m-2026-01-01")]
    entry = f"{{provider: ollama, model: m, base_url: '{loopback.openai_url}'}}"
    answer = await complete(entry, ask())
    assert answer.text == "Hello, Ada!"
    assert answer.finish_reason is FinishReason.STOP
    assert (answer.tokens_in, answer.tokens_out, answer.cached_in) == (2, 2, 0)
    assert answer.served_model == "m-2026-01-01"
    assert 0 <= answer.latency_ms < 1000 * PATIENCE_S


async def test_tool_calls_are_read(loopback: LoopbackServer) -> None:
    entry = f"{{provider: ollama, model: m, base_url: '{loopback.openai_url}'}}"
    answer = await complete(entry, ask(tools=TOOL))
    assert answer.finish_reason is FinishReason.TOOL_CALLS
    assert answer.text == ""
    calls: Any = answer.tool_calls
    assert [call["tool"] for call in calls] == ["get_weather"]
    assert set(calls[0]["arguments"]) == {"answer"}


def reply(**changes: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hi", **changes.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **changes.pop("choice", {})}
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    return {"model": "m", "choices": [choice], "usage": usage, **changes}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("tool_calls", FinishReason.TOOL_CALLS),
        ("function_call", FinishReason.TOOL_CALLS),
        ("eos", FinishReason.OTHER),
        (None, FinishReason.OTHER),
        (7, FinishReason.OTHER),
    ],
)
def test_finish_reasons(said: object, reason: FinishReason) -> None:
    assert read_completion(reply(choice={"finish_reason": said}), 1).finish_reason is reason


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None}, ""),
        ({"content": ""}, ""),
        ({"content": None, "refusal": "I will not."}, "I will not."),
        ({"content": [{"type": "thinking"}, {"type": "text", "text": "Hi"}]}, "Hi"),
        ({"content": "half \ud83d of a pair"}, "half \ufffd of a pair"),
    ],
)
def test_texts_in_all_their_forms(message: dict[str, Any], text: str) -> None:
    answer = read_completion(reply(message=message), 1)
    assert answer.text.encode() == text.encode()


def test_a_proxy_may_tell_what_was_written_to_a_cache() -> None:
    told = {"prompt_tokens": 500, "completion_tokens": 4, "cache_creation_input_tokens": 400}
    assert read_completion(reply(usage=told), 1).written_in == 400
    assert read_completion(reply(usage={**told, "prompt_tokens": "x"}), 1).written_in == 0


def test_openai_tells_what_was_written_to_its_cache() -> None:
    details = {"cached_tokens": 100, "cache_write_tokens": 300}
    told = {"prompt_tokens": 500, "completion_tokens": 4, "prompt_tokens_details": details}
    found = read_completion(reply(usage=told), 1)
    assert (found.tokens_in, found.cached_in, found.written_in) == (500, 100, 300)


def test_reasoning_that_is_not_in_the_completion_is_charged_as_output() -> None:
    told = {"prompt_tokens": 500, "completion_tokens": 4, "total_tokens": 1504}
    assert read_completion(reply(usage=told), 1).tokens_out == 1004
    assert read_completion(reply(usage={**told, "total_tokens": 504}), 1).tokens_out == 4
    assert read_completion(reply(usage={**told, "total_tokens": "many"}), 1).tokens_out == 4


USAGES = [
    ({"prompt_tokens": 10, "completion_tokens": 4}, (10, 4, 0)),
    ({"prompt_tokens": 10, "completion_tokens": 4,
      "prompt_tokens_details": {"cached_tokens": 6}}, (10, 4, 6)),
    ({"prompt_tokens": 10, "completion_tokens": 4, "prompt_cache_hit_tokens": 6}, (10, 4, 6)),
    ({"prompt_tokens": 10, "completion_tokens": 4,
      "prompt_tokens_details": {"cached_tokens": 600}}, (10, 4, 10)),
    ({"prompt_tokens": 10, "completion_tokens": 4,
      "prompt_tokens_details": {"cached_tokens": -1}}, (10, 4, 0)),
    ({"prompt_tokens": 0, "completion_tokens": 0}, (0, 0, 0)),
    (None, (None, None, 0)),
    ("none", (None, None, 0)),
    ({}, (None, None, 0)),
    ({"prompt_tokens": 10}, (None, None, 0)),
    ({"prompt_tokens": -10, "completion_tokens": 4}, (None, None, 0)),
    ({"prompt_tokens": "10", "completion_tokens": "4"}, (None, None, 0)),
    ({"prompt_tokens": 10.5, "completion_tokens": 4}, (None, None, 0)),
    ({"prompt_tokens": True, "completion_tokens": 4}, (None, None, 0)),
    ({"prompt_tokens": 10**18, "completion_tokens": 4}, (None, None, 0)),
    ({"prompt_tokens": [10], "completion_tokens": {}}, (None, None, 0)),
]  # fmt: skip


def test_counts_that_cannot_be_are_no_counts(subtests: pytest.Subtests) -> None:
    for usage, counted in USAGES:
        with subtests.test(usage=usage):
            answer = read_completion(reply(usage=usage), 1)
            assert (answer.tokens_in, answer.tokens_out, answer.cached_in) == counted


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"city": "Oslo"}', {"city": "Oslo"}),
        ("", {}),
        ("{city", "{city"),
        ({"city": "Oslo"}, {"city": "Oslo"}),
        ('{"x": NaN}', {"x": None}),
        (None, None),
    ],
)
def test_arguments_in_all_their_forms(arguments: object, read: Json) -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    answer = read_completion(reply(message={"content": None, "tool_calls": calls}), 1)
    assert answer.tool_calls == [{"tool": "f", "arguments": read}]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": "none"},
        {"choices": [None]},
        {"choices": [{}]},
        {"choices": [{"message": "Hi"}]},
        {"choices": [{"delta": {"content": "Hi"}}]},
    ],
)
def test_a_reply_without_an_answer_is_a_bad_response(value: dict[str, Any]) -> None:
    with pytest.raises(CallError) as caught:
        read_completion(value, 1)
    assert (caught.value.kind, caught.value.charged) == (ErrorKind.BAD_RESPONSE, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.nightly
@given(st.fixed_dictionaries({"role": JSON, "content": JSON, "tool_calls": JSON}), JSON, JSON, JSON)
def test_whatever_comes_back_is_an_answer_or_a_bad_response(
    message: dict[str, Any], usage: Any, served: Any, finish: Any
) -> None:
    choice = {"message": message, "finish_reason": finish}
    answer = read_completion({"choices": [choice], "usage": usage, "model": served}, 1)
    answer.text.encode()
    assert answer.tokens_in is None or answer.tokens_in >= 0


async def test_another_model_than_asked_for_is_told(loopback: LoopbackServer) -> None:
    loopback.script = [rule(served_model="cheaper-one")]
    entry = f"{{provider: ollama, model: m, base_url: '{loopback.openai_url}'}}"
    assert (await complete(entry, ask())).served_model == "cheaper-one"
