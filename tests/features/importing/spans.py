"""OTLP JSON as the file exporter of a collector writes it."""

from __future__ import annotations

import json
from typing import Any

NANOSECONDS = 1_790_000_000_000_000_000


def any_value(value: Any) -> dict[str, Any]:
    """A value as OTLP JSON has it: whole numbers are texts."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": attributes(value)}}
    return {"stringValue": value}


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def span(number: int = 1, events: Any = (), **values: Any) -> dict[str, Any]:
    """A span of a call; `gen_ai__request__model` is the attribute gen_ai.request.model."""
    named = {key.replace("__", "."): value for key, value in values.items()}
    return {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": "chat",
        "startTimeUnixNano": str(NANOSECONDS),
        "attributes": attributes({"gen_ai.operation.name": "chat", **named}),
        "events": [{"name": name, "attributes": attributes(content)} for name, content in events],
    }


def document(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": list(spans)}]}]}


def message(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text} for text in texts]}


def asked(text: str, number: int = 1, **values: Any) -> dict[str, Any]:
    """A span in which a user asks one thing."""
    told = json.dumps([message("user", text)])
    return span(number, gen_ai__input__messages=told, **values)


def lines(*documents: dict[str, Any]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in documents).encode()
