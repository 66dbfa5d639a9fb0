"""The Messages protocol: exactly what is sent, and what is made of every kind of reply."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.adapters import provider_for
from edison_ci.providers.anthropic import read_completion, request_body
from edison_ci.records import Completion, FinishReason, Message, Request
from tests.loopback.fixture import loopback
from tests.loopback.script import rule
from tests.providers.kitchen import KEY, ask, model

if TYPE_CHECKING:
    from edison_ci.records import Json
    from tests.loopback.server import LoopbackServer

__all__ = ["loopback"]

SCHEMA: Json = {"type": "object", "properties": {"answer": {"type": "string"}}}


async def complete(server: LoopbackServer, request: Request, path: str = "") -> Completion:
    entry = f"{{provider: anthropic, model: claude-x, base_url: '{server.url}{path}'}}"
    provider = provider_for(model(entry), environ={"ANTHROPIC_API_KEY": KEY})
    try:
        return await provider.complete(request)
    finally:
        await provider.aclose()  # type: ignore[attr-defined]  # every online adapter has it


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_a_request_is_sent_as_the_protocol_says(loopback: LoopbackServer, path: str) -> None:
    request = Request(
        "anthropic",
        "",
        "claude-x",
        (
            Message("system", "Be brief."),
            Message("user", "Two?"),
            Message("assistant", "2"),
            Message("user", "Three?"),
        ),
        {"temperature": 0.2, "max_tokens": 64, "stop": ["END"], "extra": {"top_k": 5}},
        tools=[
            {"name": "interim", "description": "Looks.", "parameters": SCHEMA},
            {"name": "bare"},
        ],
    )
    await complete(loopback, request, path)
    seen = loopback.requests[0]
    assert (seen.method, seen.path) == ("POST", "/v1/messages")
    assert seen.json == {
        "model": "claude-x",
        "max_tokens": 64,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Two?"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": "Three?"},
        ],
        "temperature": 0.2,
        "stop_sequences": ["END"],
        "top_k": 5,
        "tools": [
            {"name": "interim", "description": "Looks.", "input_schema": SCHEMA},
            {"name": "bare", "input_schema": {"type": "object"}},
        ],
    }
    assert seen.headers["x-api-key"] == KEY
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert seen.headers["content-type"] == "application/json"
    assert "authorization" not in seen.headers


async def test_only_what_must_be_there_is_added(loopback: LoopbackServer) -> None:
    await complete(loopback, ask(params={}))
    assert loopback.requests[0].json == {
        "model": "m",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": "Say hello."}],
    }


@pytest.mark.parametrize(
    "wanted", [SCHEMA, {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}]
)
async def test_an_answer_of_a_form_is_had_by_a_tool(loopback: LoopbackServer, wanted: Json) -> None:
    answer = await complete(loopback, ask(response_format=wanted))
    body = loopback.requests[0].json
    assert body["tool_choice"] == {"type": "tool", "name": "answer"}
    assert [tool["input_schema"] for tool in body["tools"]] == [SCHEMA]
    assert set(json.loads(answer.text)) == {"answer"}
    assert (answer.finish_reason, answer.tool_calls) == (FinishReason.STOP, None)


@pytest.mark.parametrize(
    "others",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "array"}},
        {"response_format": SCHEMA, "params": {"extra": {"thinking": {"type": "enabled"}}}},
        {"response_format": SCHEMA, "tools": [{"name": "interim"}]},
    ],
)
def test_a_form_that_no_tool_can_have_is_left_to_the_prompt(others: dict[str, Any]) -> None:
    assert "tool_choice" not in request_body(ask(**others))


async def test_an_answer_is_read(loopback: LoopbackServer) -> None:
    loopback.script = [rule(text="Hello, Ada!", served_model="claude-x-1")]
    answer = await complete(loopback, ask())
    assert (answer.text, answer.finish_reason) == ("Hello, Ada!", FinishReason.STOP)
    assert (answer.tokens_in, answer.tokens_out) == (2, 2)
    assert answer.served_model == "claude-x-1"


async def test_an_overloaded_service_is_asked_again(loopback: LoopbackServer) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    loopback.script = [rule(status=529, body=body)]
    with pytest.raises(CallError) as caught:
        await complete(loopback, ask())
    assert (caught.value.kind, caught.value.retried) == (ErrorKind.PROVIDER_ERROR, True)
    assert caught.value.message == "Overloaded (HTTP 529)"


def reply(**changes: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "model": "claude-x",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 4},
        **changes,
    }


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("tool_use", FinishReason.TOOL_CALLS),
        ("refusal", FinishReason.CONTENT_FILTER),
        ("pause_turn", FinishReason.OTHER),
        (None, FinishReason.OTHER),
    ],
)
def test_stop_reasons(said: str | None, reason: FinishReason) -> None:
    assert read_completion(reply(stop_reason=said), 1).finish_reason is reason


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"input_tokens": 10, "output_tokens": 4}, (10, 4, 0)),
        ({"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": 90,
          "cache_creation_input_tokens": 5}, (105, 4, 90)),
        ({"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": None}, (10, 4, 0)),
        ({"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": -3},
         (None, None, 0)),
        ({"input_tokens": "10", "output_tokens": 4}, (None, None, 0)),
        ({"input_tokens": 10}, (None, None, 0)),
        ({"input_tokens": 10**15, "output_tokens": 4}, (None, None, 0)),
        (None, (None, None, 0)),
    ],
)  # fmt: skip
def test_tokens_are_added_up(usage: object, counted: tuple[int | None, int | None, int]) -> None:
    answer = read_completion(reply(usage=usage), 1)
    assert (answer.tokens_in, answer.tokens_out, answer.cached_in) == counted


@pytest.mark.parametrize(
    ("usage", "written"),
    [
        ({}, (0, 0)),
        ({"cache_creation_input_tokens": 400}, (400, 0)),
        ({"cache_creation_input_tokens": 400, "cache_creation": {
            "ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 300}}, (400, 300)),
        ({"cache_creation_input_tokens": 400, "cache_creation": {
            "ephemeral_1h_input_tokens": 10**6}}, (400, 400)),
        ({"cache_creation_input_tokens": 400, "cache_creation": "none"}, (400, 0)),
    ],
)  # fmt: skip
def test_what_is_written_to_the_cache_is_counted_by_time(
    usage: dict[str, Any], written: tuple[int, int]
) -> None:
    told = {"input_tokens": 10, "output_tokens": 4, **usage}
    found = read_completion(reply(usage=told), 1)
    assert (found.written_in, found.written_hour_in) == written


def test_texts_and_tool_calls_are_told_apart() -> None:
    content = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "Let me "},
        {"type": "text", "text": "look."},
        {"type": "tool_use", "id": "1", "name": "interim", "input": {"at": "it"}},
        "odd",
    ]
    answer = read_completion(reply(content=content, stop_reason="tool_use"), 1)
    assert answer.text == "Let me look."
    assert answer.tool_calls == [{"tool": "interim", "arguments": {"at": "it"}}]


def test_a_form_that_was_not_filled_in_leaves_the_text() -> None:
    answer = read_completion(reply(stop_reason="refusal"), 1, formed=True)
    assert (answer.text, answer.finish_reason) == ("Hi", FinishReason.CONTENT_FILTER)


@pytest.mark.parametrize("content", [None, "Hi", {}, 7])
def test_a_reply_without_an_answer_is_a_bad_response(content: object) -> None:
    with pytest.raises(CallError, match="no answer"):
        read_completion(reply(content=content), 1)


def test_an_empty_answer_is_an_answer() -> None:
    assert read_completion(reply(content=[]), 1).text == ""


@pytest.mark.parametrize(
    ("name", "level", "sent"),
    [
        ("claude-opus-4-7", "low", ({"type": "adaptive"}, {"effort": "low"})),
        ("claude-opus-4-7", "none", ({"type": "disabled"}, None)),
        ("claude-opus-4-5", "medium", ({"type": "enabled", "budget_tokens": 2_000}, None)),
        ("claude-opus-4-5", "none", (None, None)),
        ("claude-of-tomorrow", "high", ({"type": "adaptive"}, {"effort": "high"})),
    ],
)
def test_a_level_of_reasoning_is_sent_as_each_model_takes_it(
    name: str, level: str, sent: tuple[object, object]
) -> None:
    can = model(f"{{provider: anthropic, model: {name}}}").capabilities
    body = request_body(ask(params={"max_tokens": 4_000, "reasoning": level}), can)
    assert (body.get("thinking"), body.get("output_config")) == sent
    assert "reasoning" not in body
