"""What does GitHub mean when it does not do what it was asked, and how long to wait then?

A limit is a 403 or a 429: `retry-after` says how long, or `x-ratelimit-remaining: 0` until when,
or the message speaks of a secondary limit, after which GitHub wants a minute, doubling. A limited
request was not carried out. Behind a proxy, or when GitHub is down, the body may be an HTML page.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.providers.retry_after import retry_after_s

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

    from edison_ci.forge.transport import Reply

SECONDARY_WAIT_S = 60.0
PERMISSIONS_HEADER = "x-accepted-github-permissions"

_SECONDARY = re.compile(r"secondary rate limit|abuse detection|rate limit exceeded", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>(.{1,300}?)</title>", re.IGNORECASE | re.DOTALL)
_READ_BYTES = 200_000
_FAULTS = {
    400: ForgeFault.INVALID,
    401: ForgeFault.UNAUTHORIZED,
    403: ForgeFault.FORBIDDEN,
    404: ForgeFault.NOT_FOUND,
    405: ForgeFault.CONFLICT,
    409: ForgeFault.CONFLICT,
    410: ForgeFault.NOT_FOUND,
    412: ForgeFault.CONFLICT,
    422: ForgeFault.INVALID,
    451: ForgeFault.FORBIDDEN,
}
_HINTS = {
    ForgeFault.UNAUTHORIZED: "the token is wrong or has expired",
    ForgeFault.NOT_FOUND: "it is not there, or the token may not see it",
    ForgeFault.UNAVAILABLE: "GitHub may be down; run the command again later",
    ForgeFault.LIMITED: "wait, then run the command again",
}


def is_limited(reply: Reply) -> bool:
    """Tell whether a limit refused the request."""
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    if reply.status != HTTPStatus.FORBIDDEN:
        return False
    spent = reply.headers.get("x-ratelimit-remaining", "").strip() == "0"
    return spent or "retry-after" in reply.headers or bool(_SECONDARY.search(said(reply)))


def limit_wait_s(reply: Reply, *, times: int, now: dt.datetime) -> float:
    """Return how long a limit wants us to wait; `times` counts the refusals before this one."""
    headers = {
        name: value
        for name, value in reply.headers.items()
        if name == "retry-after" or name.startswith("x-ratelimit-re")
    }
    told = retry_after_s(headers, now)
    if told is not None:
        # The reset is told in whole seconds: one more, so as not to be early.
        return told if "retry-after" in headers else told + 1
    return SECONDARY_WAIT_S * 2.0**times


def outage_wait_s(reply: Reply | None, *, times: int, now: dt.datetime) -> float:
    """Return how long to wait before asking again after a failure that is nobody's limit."""
    told = reply.headers.get("retry-after") if reply is not None else None
    asked_s = retry_after_s({"retry-after": told}, now) if told else None
    return max(2.0**times, asked_s or 0.0)


def refusal(what: str, reply: Reply, scrub: Callable[[str], str]) -> ForgeError:
    """Return the error for a reply that is no success; `what` says what was asked for."""
    words = scrub(said(reply)) or _phrase(reply.status)
    if 300 <= reply.status < 400:
        where = scrub(reply.headers.get("location", "nowhere"))
        return ForgeError(
            f"GitHub sent us on to {where} when asked to {what}, which is not followed",
            fault=ForgeFault.MOVED,
            status=reply.status,
            hint="the repository may have a new name: use it in GITHUB_REPOSITORY",
        )
    fault = _fault(reply)
    hint = _HINTS.get(fault, "")
    accepted = reply.headers.get(PERMISSIONS_HEADER)
    if fault is ForgeFault.FORBIDDEN and accepted:
        hint = f"the token needs: {scrub(accepted)}"
    message = f"GitHub refused to {what}: {words} (status {reply.status})"
    if fault is ForgeFault.UNAVAILABLE:
        message = f"GitHub failed to {what}: {words} (status {reply.status})"
    return ForgeError(message, fault=fault, status=reply.status, hint=hint)


def said(reply: Reply) -> str:
    """Return what the body of a refusal says, in words."""
    body = reply.body[:_READ_BYTES]
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        found = _TITLE.search(body)
        return found[1].decode("utf-8", "replace") if found else ""
    if not isinstance(value, dict):
        return ""
    words = [str(value.get("message") or ""), *_details(value.get("errors"))]
    return "; ".join(dict.fromkeys(word for word in words if word))


def _details(errors: Any) -> Iterator[str]:
    for error in errors if isinstance(errors, list) else [errors]:
        if isinstance(error, str):
            yield error
        elif isinstance(error, dict):
            where = " ".join(str(error[key]) for key in ("field", "code") if error.get(key))
            yield str(error.get("message") or where)


def _fault(reply: Reply) -> ForgeFault:
    if is_limited(reply):
        return ForgeFault.LIMITED
    if reply.status >= 500:
        return ForgeFault.UNAVAILABLE
    return _FAULTS.get(reply.status, ForgeFault.INVALID)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"
