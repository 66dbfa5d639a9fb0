"""Is a reply of a service what its protocol promises, and how much of it can be believed?

A service may send anything. What is not a JSON object is a bad response; counts of tokens that
cannot be are no counts; texts are made storable.
"""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.failures import Scrubber, error_in_reply

if TYPE_CHECKING:
    from edison_ci.records import Json

MOST_TOKENS = 100_000_000
"""More than this nobody has counted."""
FIVE_MINUTES = 1.25
"""Price of a token that is written to a provider's cache, in tokens of input; who has such a price
(Anthropic, also through others) charges this for five minutes."""
_LONGEST_NAME = 200
_DEEPEST = 50
_NEAR_THE_END = 6
"""How much of a literal or an escape may be left when a text is cut in the middle of it."""


class Usage(NamedTuple):
    """What a call used; None where the service does not say or says what cannot be."""

    tokens_in: int | None
    tokens_out: int | None
    cached_in: int = 0
    write_surcharge_in: float = 0.0


def parsed(body: bytes, scrub: Scrubber) -> dict[str, Any]:
    """Return the JSON object of a reply; raises CallError for everything else."""
    text = body.decode("utf-8", errors="replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        failure = _unparsed(text, error)
    else:
        if isinstance(value, dict):
            if value.get("error"):
                raise error_in_reply(value["error"], scrub)
            return value
        failure = bad_reply("is not a JSON object")
    raise failure


def bad_reply(what: str) -> CallError:
    """Return the error for a reply that is not what it should be."""
    return CallError(ErrorKind.BAD_RESPONSE, f"the reply {what}", status=200)


def _unparsed(text: str, error: Exception) -> CallError:
    stripped = text.strip()
    if not stripped:
        return bad_reply("is empty")
    if stripped.startswith("<"):
        return bad_reply("is a web page")
    failure = bad_reply("is not JSON")
    if isinstance(error, json.JSONDecodeError):
        # JSON that is right up to its last characters was cut off on the way.
        failure.cut_off = stripped.startswith("{") and (
            error.pos >= len(stripped) - _NEAR_THE_END or "Unterminated string" in error.msg
        )
    return failure


def count(value: object) -> int | None:
    """Return a number of tokens, or None when it cannot be one."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if is_count else None  # type: ignore[return-value]  # it is an int then


def usage_of(tokens_in: object, tokens_out: object, cached_in: object) -> Usage:
    """Return what was used; half a statement is none."""
    used_in, used_out = count(tokens_in), count(tokens_out)
    if used_in is None or used_out is None:
        return Usage(None, None)
    return Usage(used_in, used_out, min(count(cached_in) or 0, used_in))


def storable(text: str) -> str:
    """Return a text without halves of characters, which no file and no database takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def storable_json(value: Any, depth: int = 0) -> Json:
    """Return JSON whose texts are storable; what is no number or nested too deep becomes null."""
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


def name_of(value: object) -> str:
    """Return the name of the model that answered, as far as it is one."""
    return storable(value[:_LONGEST_NAME]) if isinstance(value, str) else ""


def tool_call(name: object, arguments: object) -> dict[str, Json]:
    """Return a call of a tool as checks see it; arguments that are not JSON stay a text."""
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments) if arguments.strip() else {}
    return {"tool": name_of(name), "arguments": storable_json(arguments)}
