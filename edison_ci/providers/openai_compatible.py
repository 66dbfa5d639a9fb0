"""The chat completions protocol of OpenAI.

Used by OpenAI, Azure, Ollama, vLLM and many others: one body and one reply; only the address and
the headers (`adapters.py`) and the name of one parameter differ.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import math
import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.failures import Scrubber, error_in_reply
from edison_ci.records import Completion, FinishReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.config.models import Model
    from edison_ci.providers.batches import OpenAIBatches
    from edison_ci.providers.transport import Transport
    from edison_ci.records import Json, Request


# A service may send anything. A reply that is not a JSON object is a bad response; impossible token
# counts are ignored; texts are made storable.
MOST_TOKENS = 100_000_000
"""Larger counts are not plausible."""
_LONGEST_NAME = 200
_DEEPEST = 50
_EVENTS = re.compile(r"(?:data|event|id|retry)?:")
"""How a line of an event stream begins."""


class Usage(NamedTuple):
    """The usage of a call; None if it is missing or impossible."""

    tokens_in: int | None
    tokens_out: int | None
    cached_in: int = 0
    written_in: int = 0
    written_hour_in: int = 0


def parse_reply(body: bytes, scrub: Scrubber) -> dict[str, Any]:
    """Return the JSON object of a reply; raises CallError for any other reply."""
    value = parse_body(body)
    if not isinstance(value, dict):
        raise bad_reply("is not a JSON object")
    if value.get("error"):
        raise error_in_reply(value["error"], scrub)
    return value


def parse_body(body: bytes) -> Any:
    """Return the JSON of a reply; raises CallError that says what is there in its place."""
    text = body.decode("utf-8", errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        failure = _parse_error(body, text)
    raise failure


def bad_reply(what: str) -> CallError:
    """Return the error for a malformed reply."""
    return CallError(ErrorKind.BAD_RESPONSE, f"the reply {what}", status=200)


def _parse_error(body: bytes, text: str) -> CallError:
    if body.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return bad_reply("begins with a byte order mark, which JSON must not have")
    stripped = text.strip()
    if _EVENTS.match(stripped):
        return bad_reply("is an event stream in place of JSON, though none was asked for")
    # Anything else is more likely the fault of the way than of the service, which said 200.
    failure = bad_reply(
        "is empty"
        if not stripped
        else "is a web page, perhaps of a proxy"
        if stripped.startswith("<")
        else "is not JSON"
    )
    failure.garbled = True
    return failure


def token_count(value: object) -> int | None:
    """Return a number of tokens; None if the value cannot be one."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if is_count else None  # type: ignore[return-value]  # it is an int then


def read_usage(tokens_in: object, tokens_out: object, cached_in: object) -> Usage:
    """Return the usage; empty unless both counts are valid."""
    used_in, used_out = token_count(tokens_in), token_count(tokens_out)
    if used_in is None or used_out is None:
        return Usage(None, None)
    return Usage(used_in, used_out, min(token_count(cached_in) or 0, used_in))


def storable(text: str) -> str:
    """Return a text without lone surrogates, which cannot be stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def storable_json(value: Any, depth: int = 0) -> Json:
    """Return JSON with storable texts; NaN, infinity and deep nesting become null."""
    if depth > _DEEPEST:
        return None
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [storable_json(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {storable(str(key)): storable_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float) else None


def model_name(value: object) -> str:
    """Return the name of the model that answered; empty if it is not a string."""
    return storable(value[:_LONGEST_NAME]) if isinstance(value, str) else ""


def tool_call(name: object, arguments: object) -> dict[str, Json]:
    """Return a tool call for checks; arguments that are not JSON stay a string."""
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments) if arguments.strip() else {}
    return {"tool": model_name(name), "arguments": storable_json(arguments)}


_NEW_LIMIT = "max_completion_tokens"
_TAKES_MAX_TOKENS = re.compile(r"(?:ft:)?(?:gpt-3|gpt-4|chatgpt-4)")
"""Older models of OpenAI; all others require `max_completion_tokens`."""
_REASONS = re.compile(r"(?:^|[^a-z0-9])(?:o[1-9]|gpt-?[5-9])(?![0-9])")
"""Names of deployments of models that require `max_completion_tokens`."""
# Created once: `json.dumps` would create an encoder for each call.
_as_json = json.JSONEncoder(ensure_ascii=False).encode
_FINISH = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
}
_FORMATS = frozenset({"text", "json_object", "json_schema"})


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences of a service."""

    limit: str = "max_tokens"
    """Name of the parameter for the longest answer."""
    names_model: bool = True
    """Whether the body names the model; for Azure the address does."""
    system: str = "system"
    """The role of system messages; some models have none and take them from the user."""


def find_dialect(model: Model) -> Dialect:
    """Return the dialect of a service for a model."""
    can = model.capabilities
    system = "system" if can.system else "user"
    if model.provider == "openai":
        old = _TAKES_MAX_TOKENS.match(model.model) is not None
        return Dialect("max_tokens" if old else "max_completion_tokens", system=system)
    if model.provider == "azure":
        new = bool(can.reasoning) or _REASONS.search(model.model.lower()) is not None
        limit = "max_completion_tokens" if new else "max_tokens"
        return Dialect(limit, names_model=False, system=system)
    return Dialect(system=system)


class OpenAIModel:
    """A model whose batches are opened when they are asked for."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.open_batches: Callable[[], OpenAIBatches] | None = None

    @cached_property
    def batches(self) -> OpenAIBatches | None:
        """The batches of the model, if it has some."""
        return None if self.open_batches is None else self.open_batches()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
        batches: OpenAIBatches | None = vars(self).get("batches")
        if batches is not None:
            await batches.transport.aclose()


class OpenAICompatible(OpenAIModel):
    """A model behind a chat completions endpoint."""

    def __init__(self, transport: Transport, dialect: Dialect | None = None) -> None:
        super().__init__(transport)
        self._dialect = dialect or Dialect()

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or raise CallError."""
        try:
            reply = await self._transport.post(self._body(request))
        except CallError as error:
            if self._dialect.limit != "max_tokens" or _NEW_LIMIT not in error.message:
                raise
            # A service for newer models of OpenAI; the refused call was not charged.
            self._dialect = replace(self._dialect, limit=_NEW_LIMIT)
            reply = await self._transport.post(self._body(request))
        return read_completion(parse_reply(reply.body, self._transport.scrub), reply.latency_ms)

    def _body(self, request: Request) -> bytes:
        return _as_json(request_body(request, self._dialect)).encode()


def request_body(request: Request, dialect: Dialect) -> dict[str, Any]:
    """Return the body of a request, without defaults."""
    params = dict(request.params)
    extra = params.pop("extra", None)
    body: dict[str, Any] = dict(extra) if isinstance(extra, dict) else {}
    if dialect.names_model:
        body["model"] = request.model
    body["messages"] = [
        {"role": dialect.system if m.role == "system" else m.role, "content": m.content}
        for m in request.messages
    ]
    names = {"max_tokens": dialect.limit, "reasoning": "reasoning_effort"}
    for name, value in params.items():
        body[names.get(name, name)] = value
    if request.tools:
        body["tools"] = wrap_tools(request.tools)
    if request.response_format is not None:
        body["response_format"] = wrap_format(request.response_format)
    return body


def wrap_tools(tools: Json) -> list[Any]:
    """Return tools in the form of the protocol: functions only, none that the service runs."""
    wrapped: list[Any] = []
    for tool in tools if isinstance(tools, list) else []:
        inner = tool.get("function", tool) if isinstance(tool, dict) else tool
        wrapped.append({"type": "function", "function": inner})
    return wrapped


def wrap_format(form: Json) -> Json:
    """Return the form of the answer: a JSON Schema is wrapped, a format stays as it is."""
    if isinstance(form, dict) and form.get("type") in _FORMATS:
        return form
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": form}}


def read_completion(value: dict[str, Any], latency_ms: int) -> Completion:
    """Return the answer in a reply, or raise CallError when there is none."""
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise bad_reply("has no answer in it")
    calls = message.get("tool_calls")
    usage = _usage(value.get("usage"))
    return Completion(
        text=storable(_text(message)),
        finish_reason=_FINISH.get(str(choice.get("finish_reason")), FinishReason.OTHER),
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cached_in=usage.cached_in,
        written_in=usage.written_in,
        latency_ms=latency_ms,
        served_model=model_name(value.get("model")),
        tool_calls=_calls(calls) if isinstance(calls, list) and calls else None,
    )


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str) and content:
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) else ""


def _calls(calls: list[Any]) -> Json:
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    return [tool_call(f.get("name"), f.get("arguments")) for f in functions if isinstance(f, dict)]


def _usage(usage: object) -> Usage:
    if not isinstance(usage, dict):
        return Usage(None, None)
    details = usage.get("prompt_tokens_details")
    counts = details if isinstance(details, dict) else {}
    cached = counts.get("cached_tokens")
    if cached is None:
        cached = usage.get("prompt_cache_hit_tokens")  # DeepSeek's name for it
    # The second is the name that proxies use for models of Anthropic.
    written = counts.get("cache_write_tokens") or usage.get("cache_creation_input_tokens")
    used = read_usage(usage.get("prompt_tokens"), usage.get("completion_tokens"), cached)
    if used.tokens_in is None or used.tokens_out is None:
        return used
    # xAI and Gemini leave the tokens of reasoning out of the completion, and charge for them.
    total = token_count(usage.get("total_tokens")) or 0
    return used._replace(
        tokens_out=max(used.tokens_out, total - used.tokens_in),
        written_in=min(token_count(written) or 0, used.tokens_in - used.cached_in),
    )
