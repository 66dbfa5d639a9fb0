"""What an application of the user is asked, and how its reply is read.

A program gets this object as one line; an endpoint gets the body that its options describe.

    {"id": 7, "model": "", "messages": [{"role": "user", "content": "..."}], "params": {}}

A reply has `text` or `tool_calls`, and whatever else the application knows:

    {"id": 7, "text": "...", "usage": {"in": 120, "out": 40}, "cost_usd": 0.0012,
     "context": ["..."], "steps": [{"name": "search", "ms": 12}]}
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.openai_compatible import (
    model_name,
    storable,
    storable_json,
    token_count,
    tool_call,
)
from edison_ci.records import Completion, FinishReason, canonical_json

if TYPE_CHECKING:
    from edison_ci.records import Json, Request

SHOWN = 300
_MOST_DETAILS = 1_000_000
_DEAREST_USD = 1_000_000


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
    told = value.get("usage")
    usage = told if isinstance(told, dict) else {}
    found = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    listed: Json = [
        tool_call(call.get("tool", call.get("name")), call.get("arguments")) for call in found
    ]
    return Completion(
        text=storable(text) if isinstance(text, str) else "",
        finish_reason=FinishReason.TOOL_CALLS if found else FinishReason.STOP,
        tokens_in=token_count(usage.get("in")),
        tokens_out=token_count(usage.get("out")),
        latency_ms=latency_ms,
        served_model=model_name(value.get("model")),
        tool_calls=listed or None,
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
    found: dict[str, Json] = {
        name: storable_json(value[name])
        for name in ("context", "steps")
        if value.get(name) is not None
    }
    if not found:
        return None
    size = len(canonical_json(found))
    if size > _MOST_DETAILS:
        message = f"context and steps of the reply have {size:,} characters; at most 1,000,000"
        raise CallError(ErrorKind.BAD_RESPONSE, message)
    return found
