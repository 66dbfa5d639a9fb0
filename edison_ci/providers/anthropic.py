"""The Messages protocol of Anthropic.

The system message is separate and `max_tokens` is required. For an answer of a given form newer
models take a JSON Schema; older ones must call a tool, whose arguments are the answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci.config.models import FEWEST_TO_THINK, UNKNOWN, Capabilities
from edison_ci.providers.openai_compatible import (
    Usage,
    bad_reply,
    model_name,
    parse_reply,
    read_usage,
    storable,
    storable_json,
    token_count,
    tool_call,
)
from edison_ci.records import Completion, FinishReason, canonical_json

if TYPE_CHECKING:
    from edison_ci.providers.batches import AnthropicBatches
    from edison_ci.providers.transport import Transport
    from edison_ci.records import Json, Request

VERSION = "2023-06-01"
"""Version of the protocol, sent as `anthropic-version`."""
FORM = "answer"
"""Name of the tool for an answer of a given form."""
_DEFAULT_MAX_TOKENS = 4096
_FINISH = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "refusal": FinishReason.CONTENT_FILTER,
}
_RENAMED = {"stop": "stop_sequences"}
_THINKS = {"low": 0.25, "medium": 0.5, "high": 0.8}
"""The share of `max_tokens` for thinking, for models that take a number of tokens."""


class Anthropic:
    """A model behind the Messages endpoint."""

    def __init__(self, transport: Transport, can: Capabilities = UNKNOWN) -> None:
        self._transport, self._can = transport, can
        self.batches: AnthropicBatches | None = None

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or raise CallError."""
        asked = request_body(request, self._can)
        body = json.dumps(asked, ensure_ascii=False).encode()
        reply = await self._transport.post(body)
        value = parse_reply(reply.body, self._transport.scrub)
        return read_completion(value, reply.latency_ms, formed=is_formed(asked))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
        if self.batches is not None:
            await self.batches.transport.aclose()


def request_body(request: Request, can: Capabilities = UNKNOWN) -> dict[str, Any]:
    """Return the body of a request, always with `max_tokens`."""
    params = dict(request.params)
    extra = params.pop("extra", None)
    body: dict[str, Any] = dict(extra) if isinstance(extra, dict) else {}
    body["model"] = request.model
    body["max_tokens"] = params.pop("max_tokens", _DEFAULT_MAX_TOKENS)
    system = "\n\n".join(m.content for m in request.messages if m.role == "system")
    if system:
        body["system"] = system
    body["messages"] = [
        {"role": m.role, "content": m.content} for m in request.messages if m.role != "system"
    ]
    _think(body, params.pop("reasoning", None), can)
    for name, value in params.items():
        body[_RENAMED.get(name, name)] = value
    schema = _schema(request.response_format)
    if schema is not None and can.schema:
        answer_form = {"type": "json_schema", "schema": schema}
        body["output_config"] = {**body.get("output_config", {}), "format": answer_form}
        schema = None
    if request.tools:
        body["tools"] = wrap_tools(request.tools)
    elif schema is not None and "thinking" not in body and "output_config" not in body:
        # With thinking a tool call cannot be forced; the prompt has to ask for the form.
        form = "The form of the answer. Give the whole answer through this tool."
        body["tools"] = [{"name": FORM, "description": form, "input_schema": schema}]
        body["tool_choice"] = {"type": "tool", "name": FORM}
    return body


def is_formed(body: dict[str, Any]) -> bool:
    """Whether the model has to give its answer through a tool."""
    return bool((body.get("tool_choice") or {}).get("name") == FORM)


def _think(body: dict[str, Any], level: object, can: Capabilities) -> None:
    """Add how much the model thinks; its thinking counts as output, within `max_tokens`."""
    adaptive = can.adaptive or not can.known  # what is not in the table is newer than it
    if level is None:
        return
    if level == "none":
        if adaptive:
            body["thinking"] = {"type": "disabled"}
    elif adaptive:
        body["thinking"] = {"type": "adaptive"}
        body["output_config"] = {**body.get("output_config", {}), "effort": level}
    else:
        share = _THINKS.get(str(level), _THINKS["high"])
        tokens = max(FEWEST_TO_THINK, int(share * body["max_tokens"]))
        body["thinking"] = {"type": "enabled", "budget_tokens": tokens}


def wrap_tools(tools: Json) -> list[Any]:
    """Return tools in the form of the protocol, with `input_schema`."""
    written: list[Any] = []
    for tool in tools if isinstance(tools, list) else []:
        inner = tool.get("function", tool) if isinstance(tool, dict) else {}
        if isinstance(inner, dict):
            schema = inner.get("input_schema") or inner.get("parameters") or {"type": "object"}
            kept = {key: inner[key] for key in ("name", "description") if key in inner}
            written.append({**kept, "input_schema": schema})
    return written


def _schema(form: Json) -> Json:
    """Return the schema of the answer if it is an object, else None."""
    if not isinstance(form, dict) or form.get("type") in ("text", "json_object"):
        return None
    if form.get("type") == "json_schema":
        inner = form.get("json_schema")
        form = inner.get("schema") if isinstance(inner, dict) else None
    is_object = isinstance(form, dict) and form.get("type") == "object"
    return form if is_object else None


def read_completion(value: dict[str, Any], latency_ms: int, *, formed: bool = False) -> Completion:
    """Return the answer in a reply; raises CallError if there is none.

    If it was `formed` by a tool, the arguments are its text.
    """
    content = value.get("content")
    if not isinstance(content, list):
        raise bad_reply("has no answer in it")
    blocks = [block for block in content if isinstance(block, dict)]
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    text = "".join(text for text in texts if isinstance(text, str))
    reason = _FINISH.get(str(value.get("stop_reason")), FinishReason.OTHER)
    if formed and calls:
        text = canonical_json(storable_json(calls[0].get("input")))
        reason = FinishReason.STOP if reason is FinishReason.TOOL_CALLS else reason
        calls = []
    usage = _usage(value.get("usage"))
    return Completion(
        text=storable(text),
        finish_reason=reason,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cached_in=usage.cached_in,
        written_in=usage.written_in,
        written_hour_in=usage.written_hour_in,
        latency_ms=latency_ms,
        served_model=model_name(value.get("model")),
        tool_calls=[tool_call(c.get("name"), c.get("input")) for c in calls] if calls else None,
    )


def _usage(usage: object) -> Usage:
    """Return the usage; Anthropic counts cached tokens separately."""
    if not isinstance(usage, dict):
        return Usage(None, None)
    fresh = token_count(usage.get("input_tokens"))
    written = token_count(usage.get("cache_creation_input_tokens") or 0)
    read = token_count(usage.get("cache_read_input_tokens") or 0)
    if fresh is None or written is None or read is None:
        return Usage(None, None)
    used = read_usage(fresh + written + read, usage.get("output_tokens"), read)
    if used.tokens_in is None:
        return used
    by_time = usage.get("cache_creation")
    hour = by_time.get("ephemeral_1h_input_tokens") if isinstance(by_time, dict) else 0
    return used._replace(written_in=written, written_hour_in=min(token_count(hour) or 0, written))
