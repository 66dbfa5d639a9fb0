"""An endpoint of the user as a model: any JSON body, and any place of the answer in the reply.

Texts of the body are templates over `prompt` (the last message of the user), `system`, `messages`,
`params` and `model`; a text that is one variable alone becomes the value itself, such as a list of
messages. Places in the reply are written as `choices.0.message.content`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.application import SHOWN, asked, read_answer
from edison_ci.providers.openai_compatible import parse_body, storable
from edison_ci.templating.templates import MissingValueError, RenderError, compile_template

if TYPE_CHECKING:
    from edison_ci.config.provider_options import HttpOptions
    from edison_ci.providers.transport import Transport
    from edison_ci.records import Completion, Request

_compiled = cache(compile_template)
_ALONE = re.compile(r"\{\{\s*([a-z]+)((?:\.[A-Za-z0-9_]+)*)\s*\}\}")


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
            said = self._transport.scrub(storable(str(error)))[:SHOWN]
            raise CallError(ErrorKind.BAD_RESPONSE, f"the service says: {said}", status=200)
        text = at(value, options.text)
        if not isinstance(text, str):
            message = f"the reply has no text at {options.text}"
            raise CallError(ErrorKind.BAD_RESPONSE, message, status=200)
        found = {
            "text": text,
            "context": at(value, options.context),
            "usage": {"in": at(value, usage.tokens_in), "out": at(value, usage.tokens_out)},
            "cost_usd": at(value, usage.cost_usd),
        }
        return read_answer(found, reply.latency_ms)

    def _body(self, request: Request) -> bytes:
        told = asked(request)
        by_role = {m["role"]: m["content"] for m in told["messages"]}
        values = {**told, "prompt": by_role.get("user", ""), "system": by_role.get("system", "")}
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
