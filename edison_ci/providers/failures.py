"""Error replies of providers, by what they mean.

Vendors agree on little: a status, and somewhere in the body a code, a type and a message. This is
the one place that knows their words. Nothing here touches the network.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.marks import shortened
from edison_ci.documents.secrets import MASK, forms_of, redacted, remember

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_MESSAGE = 300
_SHORTEST_SECRET = 6
_READ_BYTES = 1_000_000
_READ_CHARS = 20_000
"""How much of an error's body, and of one text, is looked at."""

_QUOTA = re.compile(
    r"insufficient_quota|insufficient_balance|insufficient balance|billing_hard_limit|"
    r"billing_not_active|credit balance is too low|credits? (?:are )?(?:exhausted|depleted)"
)
_CONTEXT = re.compile(
    r"context_length|context length|context window|context limit|maximum context|"
    r"prompt is too long|input is too long|too many (?:input )?tokens|"
    r"exceeds? the (?:available )?context|exceed_context_size|input token count|model_max_prompt"
)
_FILTER = re.compile(
    r"content_filter|content_policy|content policy|content management policy|content filter|"
    r"responsibleaipolicy|usage polic|safety system|moderation_blocked|flagged by"
)
_KEY = re.compile(r"invalid_api_key|incorrect api key|api key not valid|api_key_invalid")
_MODEL = re.compile(
    r"model_not_found|deploymentnotfound|unknown_model|invalid model|model .{0,100}does not exist|"
    r"model .{0,100}not found"
)
_WORDS: tuple[tuple[re.Pattern[str], ErrorKind], ...] = (
    (_QUOTA, ErrorKind.QUOTA),
    (_KEY, ErrorKind.INVALID_KEY),
    (_CONTEXT, ErrorKind.CONTEXT_LENGTH),
    (_FILTER, ErrorKind.CONTENT_FILTER),
    (_MODEL, ErrorKind.MODEL_NOT_FOUND),
)
"""What the words of a refused request (400, 413, 422) mean, the most telling first."""
_STATUS = {
    401: ErrorKind.INVALID_KEY,
    402: ErrorKind.QUOTA,
    403: ErrorKind.INVALID_KEY,
    404: ErrorKind.MODEL_NOT_FOUND,
    408: ErrorKind.PROVIDER_ERROR,
    409: ErrorKind.PROVIDER_ERROR,
    425: ErrorKind.PROVIDER_ERROR,
}


class Scrubber:
    """Takes secrets out of what others say: our own keys, and whatever looks like one.

    Whoever uses a key has one of these, so that the process knows every key that is in use.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        remember(known)
        forms = {form for secret in known for form in (secret, *forms_of(secret))}
        self._forms = sorted(forms, key=len, reverse=True)

    def __repr__(self) -> str:
        return "Scrubber(...)"

    def __call__(self, text: str) -> str:
        """Return a message that may be shown: short, on one line, without secrets."""
        text = text[:_READ_CHARS]
        for form in self._forms:
            text = text.replace(form, MASK)
        text = "".join(c if c.isprintable() else " " for c in redacted(text))
        return shortened(" ".join(text.split()), LONGEST_MESSAGE)


def refusal(
    status: int, body: bytes, scrub: Scrubber, *, retry_after_s: float | None = None
) -> CallError:
    """Return the error for a reply whose status is not a success."""
    said = _said(body)
    kind = kind_of(status, said)
    message = scrub(said.message) or "no message"
    return CallError(
        kind,
        f"{message} (status {status})",
        status=status,
        retry_after_s=retry_after_s,
        charged=_may_be_charged(status, kind),
    )


def error_in_reply(error: object, scrub: Scrubber) -> CallError:
    """Return the error for a reply that succeeds by its status and fails by its body."""
    message = scrub(_message_of(error)) or "no message"
    return CallError(
        ErrorKind.BAD_RESPONSE, f"an error instead of an answer: {message}", status=200
    )


def kind_of(status: int, said: Said) -> ErrorKind:
    """Return what a status and the words beside it mean."""
    if status == 429:
        return ErrorKind.QUOTA if _QUOTA.search(said.words) else ErrorKind.RATE_LIMIT
    if status == 403 and _FILTER.search(said.words):
        return ErrorKind.CONTENT_FILTER  # a wrong key would close the lane
    if status in _STATUS:
        return _STATUS[status]
    if status in (400, 413, 422):
        for pattern, kind in _WORDS:
            if pattern.search(said.words):
                return kind
        return ErrorKind.BAD_REQUEST
    if status >= 500:
        return ErrorKind.PROVIDER_ERROR
    return ErrorKind.BAD_REQUEST if status >= 400 else ErrorKind.BAD_RESPONSE


def _may_be_charged(status: int, kind: ErrorKind) -> bool:
    # A request that was refused costs nothing, but Azure bills the prompts its filter has read
    # and those it gave up on (408). Who fails with 5xx may have done the work.
    refused = 400 <= status < 500 and status != 408
    return not refused or kind is ErrorKind.CONTENT_FILTER


class Said:
    """What the body of an error says."""

    __slots__ = ("message", "words")

    def __init__(self, message: str, words: str) -> None:
        self.message = message
        self.words = words
        """Codes, types and message in lower case, to search in."""


def _said(body: bytes) -> Said:
    text = body[:_READ_BYTES].decode("utf-8", errors="replace").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if text.startswith("<"):
            text = "a web page instead of an answer"
        return Said(text, text[:_READ_CHARS].lower())
    message = _message_of(value)
    return Said(message, " ".join(_texts(value, 0))[:_READ_CHARS].lower())


def _message_of(value: object) -> str:
    """Return the message of an error's body, wherever the vendor put it."""
    if isinstance(value, list) and value:
        return _message_of(value[0])
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    for key in ("error", "message", "detail", "Message", "error_description"):
        if found := _message_of(value.get(key)):
            return found
    return ""


def _texts(value: object, depth: int) -> Iterator[str]:
    """Yield the texts in an error's body: its codes and types, and more words of the same."""
    if isinstance(value, str):
        yield value[:1_000]
    elif depth < 6 and isinstance(value, dict):
        for item in value.values():
            yield from _texts(item, depth + 1)
    elif depth < 6 and isinstance(value, list):
        for item in value[:20]:
            yield from _texts(item, depth + 1)
