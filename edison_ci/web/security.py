"""Security headers of every response, and requests that are refused."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import OrderedDict
from dataclasses import field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from edison_ci._dataclass import dataclass
from edison_ci.operate.accounts import network_of
from edison_ci.operate.actors import Role
from edison_ci.web.databases import served_by
from edison_ci.web.identity import KNOWN, address_of, entering, header, site_now
from edison_ci.web.routing import LONGEST_NEXT, PREFIX, SIGN_IN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from edison_ci.operate.actors import Actor
    from edison_ci.web.databases import Served

    App = Callable[[Mapping[str, Any], Any, Any], Awaitable[None]]
    from collections.abc import Callable


# A page does work for every facet and writes a link for every parameter into every other, so that
# an address with hundreds of them takes seconds and returns hundreds of megabytes. Rows, time and
# the length of a value are bounded by the settings of Datasette and of SQLite (`serving`).
MOST_QUERY = 8_000
"""Characters of a query, SQL included."""
MOST_PARAMETERS = 100
MOST_FACETS = 5
MOST_REPEATED = 25
"""Values of one parameter that belongs to Datasette."""
LONGEST_VALUE = 50_000_000
"""Bytes of a text that SQLite reads or makes for a page."""
_REMEMBERED = 10_000
_MINUTE_S = 60.0


def too_much(query: str) -> str:
    """Return why a query asks for too much, or ''."""
    if len(query) > MOST_QUERY:
        return f"The address has more than {MOST_QUERY:,} characters of parameters."
    try:
        names = [name for name, _ in parse_qsl(query, True, max_num_fields=MOST_PARAMETERS)]
    except ValueError:
        return f"The address has more than {MOST_PARAMETERS} parameters."
    facets = sum(name.startswith("_facet") and name != "_facet_size" for name in names)
    if facets > MOST_FACETS:
        return f"The address asks for {facets} facets; at most {MOST_FACETS}."
    own = [name for name in names if name.startswith("_")]
    if any(own.count(name) > MOST_REPEATED for name in set(own)):
        return f"The address repeats a parameter more than {MOST_REPEATED} times."
    return ""


class RateLimit:
    """Counts requests by address: a bucket of tokens for each, refilled in a minute.

    Whoever has been away longest is forgotten when there are too many to remember; a full bucket
    says nothing that is worth remembering.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = float(per_minute), clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens that were left, and when, by address."""

    def wait_s(self, address: str) -> int:
        """Count a request; return 0, or in how many seconds the next one is welcome."""
        now, who = self._clock(), network_of(address)
        left, since = self._left.pop(who, (self._most, now))
        left = min(self._most, left + (now - since) * self._most / _MINUTE_S)
        allowed = left >= 1
        self._left[who] = (left - 1 if allowed else left, now)
        while len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)
        return 0 if allowed else max(1, math.ceil((1 - left) * _MINUTE_S / self._most))


_LENGTH = 0
"""SQLITE_LIMIT_LENGTH."""
MOST_SENT = 1_000_000
"""Bytes of a form; nothing that people write is longer."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_ALWAYS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
PAGE_HEADERS = {
    **_ALWAYS,
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "private, no-cache",
}
"""Headers of our pages: whatever a model wrote, it runs nothing and loads nothing."""
KEEP = "x-edison-keep"
"""Header of a file of ours: how long it may be kept, whoever asks."""
_CORE_HEADERS = {
    **_ALWAYS,
    # Datasette's own pages have scripts and styles in their text.
    "content-security-policy": (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
}
_STRICT = {"strict-transport-security": "max-age=31536000"}
_FILES = re.compile(rf"(?:{PREFIX}|/-)/static(?:-plugins)?/[^?]*")
"""Files of programs, which a page needs several of; they are not counted."""
_FOR_MEMBERS = re.compile(
    rf"{PREFIX}(?:/.*)?|/-/static(?:-plugins)?/.*|/-/(?:actor|jump|tables)(?:\.json)?"
)
"""What of `/-/` is there for every member; Datasette's own pages about itself are for owners."""
_OPEN = re.compile(rf"{PREFIX}/(?:sign-in|health|static/[a-z.]+)")
"""What is there for everybody: no results, and of our health only whether it is good."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer in place of a page."""

    status: int
    words: str
    headers: Mapping[str, str] = field(default_factory=dict)


def guarded(datasette: Any, app: App) -> App:
    """Return the application with a guard before it, if `edison serve` started it."""
    known = served_by(datasette)
    most = known.door.per_minute if known is not None else 0
    limit = RateLimit(most, time.monotonic) if most else None

    async def guard(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        served = served_by(datasette)
        if served is None or scope["type"] != "http":
            await app(scope, receive, send)
            return
        send = _with_headers(send, _STRICT if served.door.tls else {})
        refusal = _refusal(scope, served)
        if refusal is None and limit is not None and not _FILES.fullmatch(_path(scope)):
            refusal = _too_many(limit.wait_s(address_of(served, scope)), most)
        if refusal is None and served.door.sign_in:
            actor = await entering(served, scope)
            scope = {**scope, KNOWN: actor}
            if actor is None and not _OPEN.fullmatch(_path(scope)):
                refusal = _nobody(datasette, scope)
            elif actor is not None and _is_for_owners(scope, actor):
                refusal = Refusal(403, "Pages of Datasette about itself are for owners.")
                await asyncio.to_thread(_note, served, actor, _path(scope))
        if refusal is not None:
            await _refuse(send, refusal)
            return
        await app(scope, receive, send)

    return guard


def bounded(connection: Any, datasette: Any) -> None:
    """Bound the length of what SQLite reads or makes, if `edison serve` started it."""
    if served_by(datasette) is not None:
        connection.setlimit(_LENGTH, LONGEST_VALUE)


def _refusal(scope: Mapping[str, Any], served: Served) -> Refusal | None:
    """Return what to say of a request that no page is to see."""
    host = header(scope, b"host").casefold()
    name, _, port = host.rpartition(":")
    named = (name if port.isdecimal() else host).strip("[]")
    if served.hosts is not None and named not in served.hosts:
        said = "This server is only there for the address that `edison serve` named."
        return Refusal(421, said)
    if said := too_much(scope.get("query_string", b"").decode("latin-1")):
        return Refusal(400, said)
    if scope["method"] in _SAFE:
        return None
    if _from_elsewhere(scope, host, secure=served.door.tls):
        return Refusal(403, "This form was sent by a page of another site.")
    length = header(scope, b"content-length")
    if not length.isdecimal():
        return Refusal(411, "The length of what is sent has to be said.")
    if int(length) > MOST_SENT:
        return Refusal(413, f"That is more than {MOST_SENT:,} bytes.")
    return None


def _too_many(wait_s: int, most: int) -> Refusal | None:
    if not wait_s:
        return None
    said = f"That is more than {most:,} requests in a minute. Come back in {wait_s} s."
    return Refusal(429, said, {"retry-after": str(wait_s)})


def _is_for_owners(scope: Mapping[str, Any], actor: Actor) -> bool:
    """Whether somebody else than an owner asks Datasette about itself: its threads, say."""
    path = _path(scope)
    return (
        path.startswith("/-/")
        and not _FOR_MEMBERS.fullmatch(path)
        and (actor.role is not Role.OWNER)
    )


def _note(served: Served, actor: Actor, path: str) -> None:
    site = site_now(served.root)
    site.note(site.entry(actor, "refused: look at Datasette itself", path[:200]))


def _nobody(datasette: Any, scope: Mapping[str, Any]) -> Refusal:
    """Return what to say to whoever is not signed in: browsers are shown where to do it."""
    browser = scope["method"] in ("GET", "HEAD") and "text/html" in header(scope, b"accept")
    if not browser or header(scope, b"authorization"):
        said = "Sign in, or send a token as Authorization: Bearer TOKEN."
        return Refusal(401, said, {"www-authenticate": "Bearer"})
    wanted = _path(scope)
    if query := scope.get("query_string", b"").decode("latin-1"):
        wanted += f"?{query}"
    address = datasette.urls.path(SIGN_IN)
    if len(wanted) <= LONGEST_NEXT:
        address += f"?{urlencode({'next': wanted})}"
    return Refusal(303, "Sign in first.", {"location": address})


def _path(scope: Mapping[str, Any]) -> str:
    """Return the path as Datasette reads it: not decoded."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").partition("?")[0]


def _from_elsewhere(scope: Mapping[str, Any], host: str, *, secure: bool) -> bool:
    """Whether a browser says that a page of another site sends this; others say nothing.

    Cross-origin protection as in Go 1.25 (Valsorda, 2025); a token in the form is not enough to
    protect signing in, and Datasette 1.0 has no tokens.
    """
    if site := header(scope, b"sec-fetch-site"):
        return site not in ("same-origin", "none")
    origin = header(scope, b"origin").casefold()
    scheme, _, place = origin.partition("://")
    return bool(origin) and (place != host or (secure and scheme != "https"))


async def _refuse(send: Any, refusal: Refusal) -> None:
    body = f"{refusal.words}\n".encode()
    told = {"content-type": "text/plain; charset=utf-8", **PAGE_HEADERS, **refusal.headers}
    told["cache-control"] = "private, no-store"
    headers = [(key.encode(), value.encode("latin-1")) for key, value in told.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _kept(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Let files be kept that say so: Datasette 0.65 forbids it to whoever sends a cookie."""
    kept = next((value for key, value in headers if key.decode() == KEEP), None)
    if kept is None:
        return headers
    others = [(k, v) for k, v in headers if k.decode().lower() not in (KEEP, "cache-control")]
    return [*others, (b"cache-control", kept)]


def _with_headers(
    send: Any, more: Mapping[str, str]
) -> Callable[[dict[str, Any]], Awaitable[None]]:
    async def sent(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = _kept(list(message.get("headers", [])))
            there = {bytes(key).lower() for key, _ in headers}
            headers += [
                (key.encode(), value.encode())
                for key, value in {**_CORE_HEADERS, **more}.items()
                if key.encode() not in there
            ]
            message = {**message, "headers": headers}
        await send(message)

    return sent
