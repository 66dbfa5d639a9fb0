"""Would the real service refuse this body? What the vendors' published schemas and the table say.

Facts of the OpenAPI description of OpenAI (2026-08-21): the names in the bodies of chat completions
and responses, their ranges and roles. Of the Messages protocol of Anthropic: the same, from its
reference. What each model takes is in the table of models.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from edison_ci.config.prices import load_prices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.loopback.protocols import Chat

CHAT = frozenset({
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "messages", "metadata", "modalities", "model",
    "moderation", "n", "parallel_tool_calls", "prediction", "presence_penalty",
    "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort",
    "response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream",
    "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user",
    "verbosity", "web_search_options",
})  # fmt: skip
RESPONSES = frozenset({
    "background", "context_management", "conversation", "include", "input", "instructions",
    "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation",
    "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier",
    "service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice",
    "tools", "top_logprobs", "top_p", "truncation", "user",
})  # fmt: skip
MESSAGES = frozenset({
    "cache_control", "container", "context_management", "max_tokens", "messages", "metadata",
    "model", "output_config", "service_tier", "speed", "stop_sequences", "stream", "system",
    "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p",
})  # fmt: skip
RANGES = {
    "temperature": (0, 2), "top_p": (0, 1), "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2), "max_output_tokens": (16, 10**9),
    "max_completion_tokens": (1, 10**9), "max_tokens": (1, 10**9),
}  # fmt: skip
SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "logprobs", "stop")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def _moderations(body: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"unknown parameter: {name!r}" for name in body.keys() - {"input", "model"})
    said = body.get("input")
    texts = said if isinstance(said, list) else [said]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        yield "'input' is a text, or texts, and none is empty"
    if "model" in body and "moderation" not in str(body["model"]):
        yield f"{body['model']} is not a moderation model"


def refusal(chat: Chat, provider: str | None = None) -> str | None:
    """Return the message with which the service would refuse a request; None if it would not."""
    kind = provider or ("anthropic" if chat.protocol == "anthropic" else "openai")
    row = load_prices().models.get(f"{kind}/{chat.model}", {})
    if chat.protocol == "moderations":
        return next(_moderations(chat.body), None)
    check = {"openai": _chat, "responses": _responses, "anthropic": _messages}[chat.protocol]
    found = [*_ranges(chat.body), *check(chat.body, row), *_tools(chat.body, row)]
    return next(iter([*found, *_context(chat, row)]), None)


def _ranges(body: Mapping[str, Any]) -> Iterator[str]:
    for name, (low, high) in RANGES.items():
        value = body.get(name)
        if value is not None and not low <= value <= high:
            yield f"Invalid '{name}': must be between {low} and {high}."


def _tools(body: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[str]:
    if body.get("tools") and row and not row.get("tools"):
        yield "tools is not supported in this model."
    if not body.get("tools"):
        for name in body.keys() & {"tool_choice", "parallel_tool_calls"}:
            yield f"'{name}' is only allowed when 'tools' are specified."


def _context(chat: Chat, row: Mapping[str, Any]) -> Iterator[str]:
    """Refuse what is too long, at four characters a token."""
    most, body = row.get("context"), chat.body
    if most is None:
        return
    wanted = body.get("max_completion_tokens") or body.get("max_tokens") or 0
    if row.get("reasoning") and chat.protocol == "openai":
        wanted = 0  # the table has the input alone
    tokens = len(chat.said) // 4 + wanted
    if tokens > most:
        yield (
            f"This model's maximum context length is {most} tokens. However, you requested "
            f"{tokens} tokens."
        )


def _strict_schema(schema: Any) -> Iterator[str]:
    """Refuse schemas of objects that are not closed, as OpenAI does for `strict`."""
    if not isinstance(schema, dict):
        return
    inner = schema.get("properties", {})
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield "Invalid schema: 'additionalProperties' is required to be supplied and false."
        if set(schema.get("required", ())) != set(inner):
            yield "Invalid schema: 'required' is required to include every key in properties."
    for each in [*inner.values(), schema.get("items")]:
        yield from _strict_schema(each)


def _unknown(body: Mapping[str, Any], known: frozenset[str]) -> Iterator[str]:
    for name in body.keys() - known:
        yield f"Unknown parameter: '{name}'."


def _chat(body: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(body, CHAT)
    if row.get("mode") == "responses":
        yield "This model is only supported in v1/responses and not in v1/chat/completions."
    yield from _roles(body["messages"], {"developer", "system", "user", "assistant"}, row)
    levels, level = row.get("reasoning", []), body.get("reasoning_effort")
    yield from _reasoning(body, row, level)
    if levels and "max_tokens" in body:
        yield "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    yield from _size(body.get("max_completion_tokens") or body.get("max_tokens"), row)
    if not 1 <= len(body.get("stop", ["x"])) <= 4:
        yield "Invalid 'stop': array too long. Expected at most 4."
    yield from _form(body.get("response_format"), body["messages"], row)
    for tool in body.get("tools", ()):
        if set(tool) != {"type", "function"} or not NAME.fullmatch(tool["function"]["name"]):
            yield "Invalid 'tools'."


def _responses(body: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(body, RESPONSES)
    yield from _roles(body["input"], {"developer", "system", "user", "assistant"}, row)
    yield from _reasoning(body, row, body.get("reasoning", {}).get("effort"))
    yield from _size(body.get("max_output_tokens"), row)
    wanted = body.get("text", {}).get("format")
    if wanted is not None and wanted["type"] == "json_schema":
        if not {"type", "schema", "name"} <= wanted.keys():
            yield "Missing required parameter: 'text.format.name'."
        if not row.get("schema", True):
            yield "'text.format' of type 'json_schema' is not supported with this model."
        if wanted.get("strict"):
            yield from _strict_schema(wanted.get("schema"))
    else:
        yield from _form(wanted, body["input"], row)
    for tool in body.get("tools", ()):
        if not {"type", "name", "strict", "parameters"} <= tool.keys():
            yield "Missing required parameter: 'tools[0].parameters'."


def _messages(body: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[str]:
    for name in body.keys() - MESSAGES:
        yield f"{name}: Extra inputs are not permitted"
    if "max_tokens" not in body:
        yield "max_tokens: Field required"
    yield from _roles(body["messages"], {"user", "assistant"}, {})
    if row.get("sampling") is False:
        for name in body.keys() & {"temperature", "top_p", "top_k"}:
            yield f"`{name}` is deprecated for this model."
    if {"temperature", "top_p"} <= body.keys():
        yield "`temperature` and `top_p` cannot both be specified for this model."
    if body.get("temperature", 0) > 1:
        yield "temperature: must be at most 1"
    yield from _thinking(body, row)
    yield from _size(body.get("max_tokens"), row)
    yield from _tool_use(body)
    form = body.get("output_config", {}).get("format")
    if form is not None and (not row.get("schema") or form.keys() != {"type", "schema"}):
        yield "output_config.format: is not supported by this model"


def _tool_use(body: Mapping[str, Any]) -> Iterator[str]:
    for tool in body.get("tools", ()):
        keys = tool.get("input_schema", {}).get("properties", {})
        if not NAME.fullmatch(tool["name"]) or not all(map(PROPERTY.fullmatch, keys)):
            yield "tools.0.custom.input_schema.properties: Property keys should match pattern"
    chosen = body.get("tool_choice", {}).get("name")
    if chosen is not None and chosen not in [tool["name"] for tool in body.get("tools", ())]:
        yield f"tool_choice: '{chosen}' is not in tools"


def _thinking(body: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[str]:
    thinking, levels = body.get("thinking", {}), row.get("reasoning", [])
    kind, effort = thinking.get("type"), body.get("output_config", {}).get("effort")
    adaptive = row.get("thinking") == "adaptive"
    if kind == "disabled" and "none" not in levels:
        yield "thinking: this model always thinks"
    if kind == "adaptive" and not adaptive:
        yield "thinking.type: adaptive is not supported by this model"
    if effort is not None and effort not in levels:
        yield f"output_config.effort: {effort} is not supported by this model"
    if kind == "enabled":
        if row.get("sampling") is False:
            yield "thinking.type: enabled is not supported by this model, use adaptive"
        if not 1_024 <= thinking.get("budget_tokens", 0) < body["max_tokens"]:
            yield "thinking.budget_tokens: must be at least 1024 and less than max_tokens"
        if body.keys() & {"temperature", "top_k"} or "tool_choice" in body:
            yield "`temperature` may only be set to 1 when thinking is enabled"


def _roles(
    messages: list[dict[str, Any]], known: set[str], row: Mapping[str, Any]
) -> Iterator[str]:
    for message in messages:
        if message["role"] not in known or not isinstance(message["content"], str):
            yield f"Invalid value: '{message['role']}'."
        if message["role"] == "system" and row.get("system") is False:
            yield "Unsupported value: 'messages[0].role' does not support 'system'."
        if not message["content"]:
            yield "messages: text content blocks must be non-empty"
    if not any(message["role"] == "user" for message in messages):
        yield "messages: at least one message is required"


def _reasoning(body: Mapping[str, Any], row: Mapping[str, Any], level: str | None) -> Iterator[str]:
    levels = row.get("reasoning", [])
    if level is not None and row and level not in levels:
        yield f"Unsupported value: 'reasoning_effort' does not support '{level}' with this model."
    if (levels and level != "none") or row.get("sampling") is False:
        for name in SAMPLING:
            if name in body:
                yield f"Unsupported parameter: '{name}' is not supported with this model."


def _size(wanted: int | None, row: Mapping[str, Any]) -> Iterator[str]:
    most = row.get("max_out")
    if wanted is not None and most is not None and wanted > most:
        yield f"max_tokens is too large: {wanted}. This model supports at most {most}."


def _form(
    wanted: Mapping[str, Any] | None, messages: list[dict[str, Any]], row: Mapping[str, Any]
) -> Iterator[str]:
    if wanted is None:
        return
    if wanted["type"] == "json_object" and not any(
        "json" in message["content"].lower() for message in messages
    ):
        yield "'messages' must contain the word 'json' in some form."
    if wanted["type"] == "json_schema":
        if not row.get("schema", True):
            yield "'response_format' of type 'json_schema' is not supported with this model."
        if not NAME.fullmatch(wanted["json_schema"].get("name", "")):
            yield "Missing required parameter: 'response_format.json_schema.name'."
        if wanted["json_schema"].get("strict"):
            yield from _strict_schema(wanted["json_schema"].get("schema"))
