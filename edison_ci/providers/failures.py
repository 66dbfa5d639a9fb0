"""Error replies of providers: their kind, their message, and when to retry.

Vendors have little in common: a status, and somewhere in the body a code, a type and a message.
Only this module knows their wording. Nothing here uses the network.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.marks import shortened
from edison_ci.documents.secrets import MASK, forms_of, redacted, remember

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LONGEST_MESSAGE = 300
_SHORTEST_SECRET = 6
_READ_BYTES = 1_000_000
_READ_CHARS = 20_000
"""Limits of the body of an error and of one text that are read."""

# Compiled at the first failure.
_QUOTA = (
    r"insufficient_quota|insufficient_balance|insufficient balance|billing_hard_limit|"
    r"billing_not_active|credit balance is too low|credits? (?:are )?(?:exhausted|depleted)"
)
_CONTEXT = (
    r"context_length|context length|context window|context limit|maximum context|"
    r"prompt is too long|input is too long|too many (?:input )?tokens|"
    r"exceeds? the (?:available )?context|exceed_context_size|input token count|model_max_prompt"
)
_FILTER = (
    r"content_filter|content_policy|content policy|content management policy|content filter|"
    r"responsibleaipolicy|usage polic|safety system|moderation_blocked|flagged by"
)
_KEY = r"invalid_api_key|incorrect api key|api key not valid|api_key_invalid"
_MODEL = (
    r"model_not_found|deploymentnotfound|unknown_model|invalid model|model .{0,100}does not exist|"
    r"model .{0,100}not found"
)
_LOADING = (
    r"\bloading\b|\bbeing loaded\b|\bwarming up\b|\bstarting up\b|\bcold start|\bscaling up\b|"
    r"\bbooting\b"
)
_WORDS: tuple[tuple[str, ErrorKind], ...] = (
    (_QUOTA, ErrorKind.QUOTA),
    (_KEY, ErrorKind.INVALID_KEY),
    (_CONTEXT, ErrorKind.CONTEXT_LENGTH),
    (_FILTER, ErrorKind.CONTENT_FILTER),
    (_MODEL, ErrorKind.MODEL_NOT_FOUND),
)
"""Kinds of refused requests (400, 413, 422) by their wording, the most specific first."""
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
    """Masks secrets in messages of others: the keys in use, and strings that look like one.

    Every user of a key creates one, so that the process knows all keys in use.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        longer = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        remember(longer)
        forms = {form for secret in longer for form in (secret, *forms_of(secret))}
        self._forms = sorted(forms, key=len, reverse=True)

    def __repr__(self) -> str:
        return "Scrubber(...)"

    def __call__(self, text: str) -> str:
        """Return a message for display: short, on one line, without secrets."""
        text = text[:_READ_CHARS]
        for form in self._forms:
            text = text.replace(form, MASK)
        text = "".join(c if c.isprintable() else " " for c in redacted(text))
        return shortened(" ".join(text.split()), LONGEST_MESSAGE)


def status_error(
    status: int, body: bytes, scrub: Scrubber, *, retry_after_s: float | None = None
) -> CallError:
    """Return the error for a reply with a status of failure."""
    error = _parse_body(body)
    kind = classify(status, error)
    message = scrub(error.message) or "no message"
    failure = CallError(
        kind,
        f"{message} (HTTP {status})",
        status=status,
        retry_after_s=retry_after_s,
        charged=_may_be_charged(status, kind, error),
    )
    failure.loading = status == 503 and re.search(_LOADING, error.words) is not None
    return failure


def error_in_reply(error: object, scrub: Scrubber) -> CallError:
    """Return the error for a reply with a status of success and an error in its body."""
    message = scrub(_message_of(error)) or "no message"
    return CallError(
        ErrorKind.BAD_RESPONSE, f"an error instead of an answer: {message}", status=200
    )


def classify(status: int, body: ErrorBody) -> ErrorKind:
    """Return the kind of an error by its status and wording."""
    if status == 429:
        return ErrorKind.QUOTA if re.search(_QUOTA, body.words) else ErrorKind.RATE_LIMIT
    if status == 403 and re.search(_FILTER, body.words):
        return ErrorKind.CONTENT_FILTER  # not INVALID_KEY, which would close the client
    if status in _STATUS:
        return _STATUS[status]
    if status in (400, 413, 422):
        for pattern, kind in _WORDS:
            if re.search(pattern, body.words):
                return kind
        return ErrorKind.BAD_REQUEST
    if status >= 500:
        return ErrorKind.PROVIDER_ERROR
    return ErrorKind.BAD_REQUEST if status >= 400 else ErrorKind.BAD_RESPONSE


_NOT_CHARGED = frozenset({500, 503, 529})
"""Failures that the vendor itself reports instead of an answer. A gateway replies with 502 and 504
whatever became of the request behind it."""


def _may_be_charged(status: int, kind: ErrorKind, body: ErrorBody) -> bool:
    # A refused request costs nothing, but Azure bills prompts that its filter refused and those
    # that timed out (408). After a 5xx the work may have been done, unless the vendor says itself
    # that there is no answer.
    refused = 400 <= status < 500 and status != 408
    failed = status in _NOT_CHARGED and body.of_vendor
    return not (refused or failed) or kind is ErrorKind.CONTENT_FILTER


class ErrorBody:
    """The message and the wording of the body of an error."""

    __slots__ = ("message", "of_vendor", "words")

    def __init__(self, message: str, words: str, *, of_vendor: bool = False) -> None:
        self.message = message
        self.words = words
        """Codes, types and message in lower case, for searching."""
        self.of_vendor = of_vendor
        """Whether it is the error object of a vendor, and not the page of a server before it."""


def _parse_body(body: bytes) -> ErrorBody:
    text = body[:_READ_BYTES].decode("utf-8", errors="replace").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if text.startswith("<"):
            text = "a web page instead of an answer"
        return ErrorBody(text, text[:_READ_CHARS].lower())
    message = _message_of(value)
    words = " ".join(_texts(value, 0))[:_READ_CHARS].lower()
    return ErrorBody(message, words, of_vendor=_is_error_object(value))


def _is_error_object(value: object) -> bool:
    """Whether a body is an error as vendors of models write it.

    It has an `error` with a text, or says that it is one. Servers before them write other keys.
    """
    if isinstance(value, list):
        return len(value) == 1 and _is_error_object(value[0])
    if not isinstance(value, dict):
        return False
    named = "error" in (value.get("object"), value.get("type"))
    return bool(_message_of(value.get("error"))) or (named and bool(_message_of(value)))


def _message_of(value: object) -> str:
    """Return the message in the body of an error, for any vendor."""
    if isinstance(value, list) and value:
        return _message_of(value[0])
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    for key in ("error", "message", "detail", "Message", "error_description"):
        if message := _message_of(value.get(key)):
            return message
    return ""


def _texts(value: object, depth: int) -> Iterator[str]:
    """Yield all strings in the body of an error: codes, types and messages."""
    if isinstance(value, str):
        yield value[:1_000]
    elif depth < 6 and isinstance(value, dict):
        for item in value.values():
            yield from _texts(item, depth + 1)
    elif depth < 6 and isinstance(value, list):
        for item in value[:20]:
            yield from _texts(item, depth + 1)


_RESET = re.compile(
    r"x-ratelimit-reset(?:-[a-z-]+)?|anthropic-ratelimit-[a-z-]+-reset", re.IGNORECASE
)
_DURATION = re.compile(r"(?=[0-9.])(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?"
                       r"(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,12}(?:\.\d{1,9})?)ms)?")  # fmt: skip
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_EPOCH_S = 1_000_000_000
"""A larger number of seconds is a time since 1970 and not a duration."""
_LONGEST_TEXT = 100


def retry_after_s(headers: Mapping[str, str], now: dt.datetime) -> float | None:
    """Return the seconds to wait by the headers of a reply; None if they have no valid value.

    Names of headers are in lower case. `retry-after-ms` and `retry-after` (seconds or a date) take
    precedence over the reset of rate limits: a duration (`1s`, `6m0s`, `20ms`), a time (ISO-8601),
    or seconds. Values that are past, negative or malformed count as missing. Dates are compared
    with the date of the reply, as the clock here may be wrong.
    """
    now = _moment(headers.get("date", "")[:_LONGEST_TEXT]) or now
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _positive(milliseconds / 1000)
    stated = headers.get("retry-after")
    if stated is not None:
        return _positive(_seconds_or_date(stated, now))
    return max(_resets(headers, now), default=None)


def _resets(headers: Mapping[str, str], now: dt.datetime) -> Iterator[float]:
    """Yield the seconds until each exhausted limit is reset."""
    for name, value in headers.items():
        if not _RESET.fullmatch(name):
            continue
        left = _number(headers.get(name.lower().replace("reset", "remaining"), ""))
        seconds = _positive(duration_s(value, now))
        if seconds is not None and not left:
            yield seconds


def duration_s(text: str, now: dt.datetime) -> float | None:
    """Return the seconds of a duration, a time or a number; negative if it is past."""
    text = text.strip()
    if len(text) > _LONGEST_TEXT:
        return None
    match = _DURATION.fullmatch(text)
    if match and any(match.groups()):
        days, hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
        return days * 86_400 + hours * 3_600 + minutes * 60 + seconds + milliseconds / 1000
    return _seconds_or_date(text, now)


def _seconds_or_date(text: str, now: dt.datetime) -> float | None:
    text = text.strip()
    if len(text) > _LONGEST_TEXT:
        return None
    number = _number(text)
    if number is not None:
        if number >= _EPOCH_S * 1000:
            number /= 1000
        return number - now.timestamp() if number >= _EPOCH_S else number
    moment = _moment(text)
    return None if moment is None else (moment - now).total_seconds()


def _moment(text: str) -> dt.datetime | None:
    """Return the time of an HTTP date or ISO-8601; UTC without a zone."""
    for parse in (parsedate_to_datetime, dt.datetime.fromisoformat):
        try:
            moment = parse(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return None


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _positive(seconds: float | None) -> float | None:
    return seconds if seconds is not None and math.isfinite(seconds) and seconds > 0 else None
