"""An application of the user as a model: what it is asked, how its reply is read, and by HTTP.

A program (`command.py`) gets this object as one line:

    {"id": 7, "model": "", "messages": [{"role": "user", "content": "..."}], "params": {}}

A reply has `text` or `tool_calls`, and anything else that the application knows:

    {"id": 7, "text": "...", "usage": {"in": 120, "out": 40}, "cost_usd": 0.0012,
     "context": ["..."], "steps": [{"name": "search", "ms": 12}]}

An endpoint gets any JSON body, and the places in its reply are named by the options of the model,
such as `choices.0.message.content`. Texts of the body are templates over `prompt` (the last message
of the user), `system`, `messages`, `params` and `model`; a text that is one variable alone becomes
the value itself, such as a list of messages.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.openai_compatible import (
    model_name,
    parse_body,
    storable,
    storable_json,
    token_count,
    tool_call,
)
from edison_ci.records import Completion, FinishReason, canonical_json
from edison_ci.templating.templates import MissingValueError, RenderError, compile_template

if TYPE_CHECKING:
    from edison_ci.config.provider_options import HttpOptions
    from edison_ci.providers.transport import Transport
    from edison_ci.records import Json, Request

SHOWN = 300
_MOST_DETAILS = 1_000_000
_DEAREST_USD = 1_000_000
_compiled = cache(compile_template)
_ALONE = re.compile(r"\{\{\s*([a-z]+)((?:\.[A-Za-z0-9_]+)*)\s*\}\}")


def asked(request: Request) -> dict[str, Any]:
    """Return what an application is asked."""
    more = {"tools": request.tools, "output": request.response_format}
    return {
        "model": request.model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "params": dict(request.params),
        **{name: value for name, value in more.items() if value},
    }


def read_answer(value: dict[str, Any], latency_ms: int) -> Completion:
    """Return the answer in a reply; raises CallError if there is none."""
    text, calls = value.get("text"), value.get("tool_calls")
    if not isinstance(text, str) and not isinstance(calls, list):
        raise CallError(ErrorKind.BAD_RESPONSE, "the reply has neither text nor tool_calls")
    counts = value.get("usage")
    usage = counts if isinstance(counts, dict) else {}
    tool_calls: list[Json] = [
        tool_call(call.get("tool", call.get("name")), call.get("arguments"))
        for call in (calls if isinstance(calls, list) else [])
        if isinstance(call, dict)
    ]
    return Completion(
        text=storable(text) if isinstance(text, str) else "",
        finish_reason=FinishReason.TOOL_CALLS if tool_calls else FinishReason.STOP,
        tokens_in=token_count(usage.get("in")),
        tokens_out=token_count(usage.get("out")),
        latency_ms=latency_ms,
        served_model=model_name(value.get("model")),
        tool_calls=tool_calls or None,
        cost_microusd=_cost(value.get("cost_usd")),
        details=_details(value),
    )


def _cost(dollars: object) -> int | None:
    """Return a cost in micro-dollars, rounded up; None if there is none."""
    if dollars is None:
        return None
    if isinstance(dollars, bool) or not isinstance(dollars, int | float):
        raise CallError(ErrorKind.BAD_RESPONSE, "cost_usd of the reply is not a number")
    if not 0 <= dollars <= _DEAREST_USD:  # also false for NaN
        raise CallError(ErrorKind.BAD_RESPONSE, f"cost_usd of the reply is {dollars}")
    return math.ceil(1e6 * dollars - 1e-9)


def _details(value: dict[str, Any]) -> Json:
    details: dict[str, Json] = {
        name: storable_json(value[name])
        for name in ("context", "steps")
        if value.get(name) is not None
    }
    if not details:
        return None
    size = len(canonical_json(details))
    if size > _MOST_DETAILS:
        message = f"context and steps of the reply have {size:,} characters; at most 1,000,000"
        raise CallError(ErrorKind.BAD_RESPONSE, message)
    return details


class HttpService:
    """A model behind an endpoint of the user."""

    def __init__(self, transport: Transport, options: HttpOptions) -> None:
        self._transport, self._options = transport, options

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or raise CallError."""
        reply = await self._transport.post(self._body(request))
        value = parse_body(reply.body)
        options, usage = self._options, self._options.usage
        if error := at(value, options.error):
            message = f"the service says: {self._transport.scrub(storable(str(error)))[:SHOWN]}"
            raise CallError(ErrorKind.BAD_RESPONSE, message, status=200)
        text = at(value, options.text)
        if not isinstance(text, str):
            message = f"the reply has no text at {options.text}"
            raise CallError(ErrorKind.BAD_RESPONSE, message, status=200)
        answer = {
            "text": text,
            "context": at(value, options.context),
            "usage": {"in": at(value, usage.tokens_in), "out": at(value, usage.tokens_out)},
            "cost_usd": at(value, usage.cost_usd),
        }
        return read_answer(answer, reply.latency_ms)

    def _body(self, request: Request) -> bytes:
        fields = asked(request)
        by_role = {m["role"]: m["content"] for m in fields["messages"]}
        values = {**fields, "prompt": by_role.get("user", ""), "system": by_role.get("system", "")}
        try:
            body = _filled(self._options.body, values)
        except (MissingValueError, RenderError) as error:
            raise CallError(ErrorKind.BAD_REQUEST, str(error), charged=False) from None
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


def at(value: Any, place: str | None) -> Any:
    """Return what a JSON value has at a place such as `choices.0.text`; None if nothing."""
    if place is None:
        return None
    for part in place.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.lstrip("-").isdecimal():
            number = int(part)
            value = value[number] if -len(value) <= number < len(value) else None
        else:
            return None
    return value


def _filled(body: Any, values: dict[str, Any]) -> Any:
    """Return the body with its templates filled in."""
    if isinstance(body, dict):
        return {key: _filled(item, values) for key, item in body.items()}
    if isinstance(body, list | tuple):
        return [_filled(item, values) for item in body]
    if not isinstance(body, str):
        return body
    if alone := _ALONE.fullmatch(body):
        return at(values, alone[1] + alone[2])
    return _compiled(body).render(values)
