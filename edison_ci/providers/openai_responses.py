"""The Responses protocol of OpenAI, for the models that have no other.

Nothing is kept at the service (`store: false`). The answer is a list of items: what the model
thought, what it says and the tools that it calls.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci.config.models import UNKNOWN, Capabilities
from edison_ci.providers.openai_compatible import (
    OpenAIModel,
    Usage,
    bad_reply,
    model_name,
    parse_reply,
    read_usage,
    storable,
    token_count,
    tool_call,
    wrap_format,
    wrap_tools,
)
from edison_ci.records import Completion, FinishReason

if TYPE_CHECKING:
    from edison_ci.providers.transport import Transport
    from edison_ci.records import Json, Request

_as_json = json.JSONEncoder(ensure_ascii=False).encode
_FEWEST = 16
"""Tokens of output that the protocol asks for at least."""
_INCOMPLETE = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}


class OpenAIResponses(OpenAIModel):
    """A model behind a responses endpoint."""

    def __init__(self, transport: Transport, can: Capabilities = UNKNOWN) -> None:
        super().__init__(transport)
        self._can = can

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or raise CallError."""
        reply = await self._transport.post(_as_json(request_body(request, self._can)).encode())
        return read_completion(parse_reply(reply.body, self._transport.scrub), reply.latency_ms)


def request_body(request: Request, can: Capabilities = UNKNOWN) -> dict[str, Any]:
    """Return the body of a request, without defaults."""
    params = dict(request.params)
    extra = params.pop("extra", None)
    body: dict[str, Any] = dict(extra) if isinstance(extra, dict) else {}
    body |= {"model": request.model, "store": False}
    roles = {} if can.system else {"system": "user"}
    body["input"] = [
        {"role": roles.get(m.role, m.role), "content": m.content} for m in request.messages
    ]
    if isinstance(most := params.pop("max_tokens", None), int):
        body["max_output_tokens"] = max(most, _FEWEST)
    if (level := params.pop("reasoning", None)) is not None:
        body["reasoning"] = {"effort": level}
    body |= params
    if request.tools:
        tools = wrap_tools(request.tools)
        body["tools"] = [_tool(tool["function"]) for tool in tools]
    if request.response_format is not None:
        body["text"] = {"format": _format(wrap_format(request.response_format))}
    return body


def _tool(function: object) -> dict[str, Any]:
    """Return a tool; the protocol asks for all of its fields."""
    fields = function if isinstance(function, dict) else {}
    form = {"type": "object", "properties": {}}
    return {"type": "function", "parameters": form, "strict": False, **fields}


def _format(form: Json) -> Json:
    """Return the form of the answer; the protocol has its fields on one level."""
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return form
    inner = form.get("json_schema")
    return {"type": "json_schema", **(inner if isinstance(inner, dict) else {})}


def read_completion(value: dict[str, Any], latency_ms: int) -> Completion:
    """Return the answer in a reply, or raise CallError when there is none."""
    output = value.get("output")
    if not isinstance(output, list):
        raise bad_reply("has no answer in it")
    items = [item for item in output if isinstance(item, dict)]
    calls = [item for item in items if item.get("type") == "function_call"]
    usage = _usage(value.get("usage"))
    return Completion(
        text=storable("".join(_texts(items))),
        finish_reason=_finish(value, calls=bool(calls)),
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cached_in=usage.cached_in,
        written_in=usage.written_in,
        latency_ms=latency_ms,
        served_model=model_name(value.get("model")),
        tool_calls=[tool_call(c.get("name"), c.get("arguments")) for c in calls] or None,
    )


def _texts(items: list[dict[str, Any]]) -> list[str]:
    """Return what the model says: text, or why it refuses."""
    parts = [
        part
        for item in items
        if item.get("type") == "message" and isinstance(item.get("content"), list)
        for part in item["content"]
        if isinstance(part, dict)
    ]
    texts = [part.get("text", part.get("refusal")) for part in parts]
    return [text for text in texts if isinstance(text, str)]


def _finish(value: dict[str, Any], *, calls: bool) -> FinishReason:
    if value.get("status") == "incomplete":
        details = value.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        return _INCOMPLETE.get(str(reason), FinishReason.OTHER)
    if calls:
        return FinishReason.TOOL_CALLS
    return FinishReason.STOP if value.get("status") == "completed" else FinishReason.OTHER


def _usage(usage: object) -> Usage:
    if not isinstance(usage, dict):
        return Usage(None, None)
    details = usage.get("input_tokens_details")
    counts = details if isinstance(details, dict) else {}
    used = read_usage(
        usage.get("input_tokens"), usage.get("output_tokens"), counts.get("cached_tokens")
    )
    written = token_count(counts.get("cache_write_tokens")) or 0
    return used._replace(written_in=min(written, (used.tokens_in or 0) - used.cached_in))
