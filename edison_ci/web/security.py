"""Security of `edison serve`: response headers, request limits and access checks."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections import OrderedDict
from dataclasses import field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from edison_ci._dataclass import dataclass
from edison_ci.access.site import Actor, Role
from edison_ci.web.databases import settings_of
from edison_ci.web.identity import (
    KNOWN,
    address_of,
    authenticate,
    caller_key,
    current_site,
    header,
)
from edison_ci.web.page_context import LONGEST_NEXT, PREFIX, SIGN_IN, TRANSFER
from edison_ci.web.traces import begin_trace, error_mark

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from edison_ci.web.databases import ServerSettings

    App = Callable[[Mapping[str, Any], Any, Any], Awaitable[None]]

logger = logging.getLogger(__name__)
_ERROR = 400
"""Status from which a response is an error."""

# Datasette works for every facet and repeats every parameter in every link, so an address with
# hundreds of them takes seconds and returns hundreds of megabytes. Rows, time and value length are
# limited by the settings of Datasette and SQLite (`serving`).
MOST_QUERY = 8_000
"""Most characters of a query string, including SQL."""
MOST_PARAMETERS = 100
MOST_FACETS = 5
MOST_REPEATED = 25
"""Most values of one Datasette parameter."""
LONGEST_VALUE = 50_000_000
"""Most bytes of a value in SQLite."""
_REMEMBERED = 10_000
_MINUTE_S = 60.0


def query_problem(query: str) -> str:
    """Return why a query string is refused, or ''."""
    if len(query) > MOST_QUERY:
        return f"The address has more than {MOST_QUERY:,} characters of parameters."
    try:
        names = [name for name, _ in parse_qsl(query, True, max_num_fields=MOST_PARAMETERS)]
    except ValueError:
        return f"The address has more than {MOST_PARAMETERS} parameters."
    facets = sum(name.startswith("_facet") and name != "_facet_size" for name in names)
    if facets > MOST_FACETS:
        return f"The address requests {facets} facets; at most {MOST_FACETS} are allowed."
    own = [name for name in names if name.startswith("_")]
    if any(own.count(name) > MOST_REPEATED for name in set(own)):
        return f"The address repeats a parameter more than {MOST_REPEATED} times."
    return ""


class RateLimit:
    """A token bucket for each caller (`caller_key`), refilled within a minute.

    With too many callers the least recently used are dropped; their buckets are full again.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = float(per_minute), clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Remaining tokens and time of the last request, by caller."""

    def wait_s(self, caller: str) -> int:
        """Count a request; return 0, or the seconds until the next one is allowed."""
        now = self._clock()
        left = self._tokens(caller, now)
        allowed = left >= 1
        self._left[caller] = (left - 1 if allowed else left, now)
        self._left.move_to_end(caller)
        while len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)
        return 0 if allowed else max(1, math.ceil((1 - left) * _MINUTE_S / self._most))

    def is_spent(self, caller: str) -> bool:
        """Whether a request would be refused now."""
        return self._tokens(caller, self._clock()) < 1

    def _tokens(self, caller: str, now: float) -> float:
        left, since = self._left.get(caller, (self._most, now))
        return min(self._most, left + (now - since) * self._most / _MINUTE_S)


class Once:
    """Tells what is done for the first time in a while; of very many the oldest are dropped."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._done: OrderedDict[tuple[str, str], float] = OrderedDict()

    def is_first(self, who: str, what: str) -> bool:
        """Remember an action of a person; whether it was not done in the last hours."""
        now = self._clock()
        since = self._done.get((who, what))
        if since is not None and now - since < _NOTED_S:
            return False
        self._done[who, what] = now
        self._done.move_to_end((who, what))
        while len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)
        return True


_NOTED_S = 12 * 3_600
"""A download of the same table, and a sign-in by a proxy, are audited once in so long."""
_LENGTH = 0
"""SQLITE_LIMIT_LENGTH."""
MOST_SENT = 1_000_000
"""Most bytes of a form."""
MOST_PART = 8_000_000
"""Most bytes of a part of a pushed bundle."""
_UPLOAD = re.compile(rf"{TRANSFER}/uploads/[0-9a-f]{{64}}")
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
"""Headers of the pages: content from models can neither run nor load anything."""
KEEP = "x-edison-keep"
"""Internal header of a static file with its cache-control value."""
_CORE_HEADERS = {
    **_ALWAYS,
    # Datasette's own pages have inline scripts and styles.
    "content-security-policy": (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
}
_STRICT = {"strict-transport-security": "max-age=31536000"}
_FILES = re.compile(rf"(?:{PREFIX}|/-)/static(?:-plugins)?/[^?]*")
"""Static files, which do not count for the rate limit."""
_FOR_MEMBERS = re.compile(
    rf"{PREFIX}(?:/.*)?|/-/static(?:-plugins)?/.*|/-/(?:actor|jump|tables)(?:\.json)?"
)
"""Paths below `/-/` for every member; Datasette's pages about itself are for owners."""
_API = f"{PREFIX}/api/"
"""Beginning of the addresses of the HTTP interface, whose errors are JSON."""
_OPEN = re.compile(
    rf"{PREFIX}/(?:sign-in(?:/github(?:/callback)?|/invitation)?|health|ready|static/[a-z.]+|api/.*)"
)
"""Paths without sign-in: no results, only the overall health, and what asks for a token itself."""
_PAGE = re.compile(rf"{PREFIX}(?:/([a-z-]+)?(?:/.*)?)?")
PAGE_NAMES = frozenset({
    "alerts", "api", "audit", "cell", "compare", "costs", "dataset", "datasets", "experiment",
    "health", "help", "leaderboard", "loop", "loops", "metrics", "models", "projects",
    "prompt", "prompts", "ready", "run", "schedules", "search", "sign-in", "sign-out", "static",
    "suggestion", "suggestions", "try", "you",
})  # fmt: skip
"""First parts of the addresses of pages, by which requests are counted."""


def page_name(path: str) -> str:
    """Return by which name a request is counted; the names do not depend on who asks."""
    match = _PAGE.fullmatch(path)
    if match is None:
        return "datasette"
    name = match[1] or "home"
    return name if name in PAGE_NAMES or name == "home" else "other"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused request: status, text and headers."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)


def with_guard(datasette: Any, app: App) -> App:
    """Wrap an application with the security checks, if `edison serve` started it."""
    once = Once(time.monotonic)

    async def guard(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        settings = settings_of(datasette)
        if settings is None or scope["type"] != "http":
            await app(scope, receive, send)
            return
        send = _counted(send, settings, scope, begin_trace(scope))
        send = _with_headers(send, _STRICT if settings.access.tls else {})
        actor: Actor | None = None
        refusal = _request_refusal(scope, settings)
        if refusal is None and settings.access.sign_in:
            actor = await authenticate(settings, scope, audited=_has_requests(settings, scope))
            scope = {**scope, KNOWN: actor}
        if refusal is None:
            refusal = _rate_limit_refusal(settings, scope, actor)
        if refusal is None and settings.access.sign_in:
            refusal = await _visitor_refusal(datasette, settings, scope, actor)
            await _note_proxy(settings, once, scope, actor)
        if refusal is None and _downloaded(scope):
            refusal = await asyncio.to_thread(_download_refusal, settings, actor, _path(scope))
        if refusal is not None:
            await _refuse(send, refusal, api=_API in _path(scope))
            return
        status = await _serve(app, scope, receive, send)
        if status == HTTPStatus.OK:
            await _note_download(settings, once, scope, actor)

    return guard


class NotForVisitor(Exception):
    """A visitor asks for a project of the site that they are not a member of."""


async def _visitor_refusal(
    datasette: Any, settings: ServerSettings, scope: Mapping[str, Any], actor: Actor | None
) -> Refusal | None:
    """Return why a visitor may not ask for this; raises NotForVisitor."""
    if actor is None:
        is_open = _is_open(settings, _path(scope))
        return None if is_open else _sign_in_refusal(datasette, scope)
    if actor.role is None:
        raise NotForVisitor
    if not _is_for_owners(scope, actor):
        return None
    await asyncio.to_thread(_audit_refusal, settings, actor, _path(scope))
    return Refusal(403, "Datasette's pages about itself need the role owner.")


def _is_open(settings: ServerSettings, path: str) -> bool:
    """Whether a path needs no sign-in; one in a project of a site would reveal the project."""
    return settings.is_home and _OPEN.fullmatch(path) is not None


def _counted(
    send: Any, settings: ServerSettings, scope: Mapping[str, Any], trace_id: str
) -> Callable[[dict[str, Any]], Awaitable[None]]:
    """Count a request when its response begins; streams last for minutes. Log an error."""
    begun = time.perf_counter()

    async def sent(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            seconds = time.perf_counter() - begun
            name = page_name(_path(scope))
            settings.traffic.count(name, scope["method"], message["status"], seconds)
            if message["status"] >= _ERROR:
                about = {"page": name, "status": message["status"], "trace_id": trace_id}
                logger.info("a request was answered with an error", extra=about)
        await send(message)

    return sent


def limit_value_length(connection: Any, datasette: Any) -> None:
    """Limit the length of SQLite values, if `edison serve` started the server."""
    if settings_of(datasette) is not None:
        connection.setlimit(_LENGTH, LONGEST_VALUE)


def _request_refusal(scope: Mapping[str, Any], settings: ServerSettings) -> Refusal | None:
    """Return the refusal of an invalid request; None if it is valid."""
    host = header(scope, b"host").casefold()
    name, _, port = host.rpartition(":")
    named = (name if port.isdecimal() else host).strip("[]")
    if settings.hosts is not None and named not in settings.hosts:
        return Refusal(421, "This server only accepts the host names of `edison serve`.")
    if problem := query_problem(scope.get("query_string", b"").decode("latin-1")):
        return Refusal(400, problem)
    if scope["method"] in _SAFE:
        return None
    if _is_cross_site(scope, host, secure=settings.access.tls):
        return Refusal(403, "This form was sent from another site.")
    length = header(scope, b"content-length")
    if not length.isdecimal():
        return Refusal(411, "A Content-Length header is required.")
    most = MOST_PART if _UPLOAD.fullmatch(_path(scope)) else MOST_SENT
    if int(length) > most:
        return Refusal(413, f"The request has more than {most:,} bytes.")
    return None


def _has_requests(settings: ServerSettings, scope: Mapping[str, Any]) -> bool:
    """Whether a stranger at this address has requests left; else they cannot fill the audit."""
    if _FILES.fullmatch(_path(scope)):
        return False
    limit = settings.limit
    return limit is None or not limit.is_spent(caller_key(settings, scope, None))


def _rate_limit_refusal(
    settings: ServerSettings, scope: Mapping[str, Any], actor: Actor | None
) -> Refusal | None:
    if settings.limit is None or _FILES.fullmatch(_path(scope)):
        return None
    wait_s = settings.limit.wait_s(caller_key(settings, scope, actor))
    if not wait_s:
        return None
    most = settings.access.per_minute
    text = f"More than {most:,} requests per minute. Retry in {wait_s} s."
    return Refusal(429, text, {"retry-after": str(wait_s)})


def _is_for_owners(scope: Mapping[str, Any], actor: Actor) -> bool:
    """Whether a visitor other than an owner requests a Datasette page about itself."""
    path = _path(scope)
    return (
        path.startswith("/-/")
        and not _FOR_MEMBERS.fullmatch(path)
        and (actor.role is not Role.OWNER)
    )


def _audit_refusal(settings: ServerSettings, actor: Actor, path: str) -> None:
    site = current_site(settings.root)
    site.note(site.entry(actor, "refused: look at Datasette itself", path[:200]))


async def _note_proxy(
    settings: ServerSettings, once: Once, scope: Mapping[str, Any], actor: Actor | None
) -> None:
    """Audit the first request in a while of a visitor that the proxy names."""
    if actor is None or actor.identity.known_by != "proxy":
        return
    if once.is_first(actor.name, "sign in"):
        site = await asyncio.to_thread(current_site, settings.home)
        after = {"from": address_of(settings, scope), "by": "proxy"}
        await asyncio.to_thread(site.note, site.entry(actor, "sign in", after=after))


def _download_refusal(settings: ServerSettings, actor: Actor | None, path: str) -> Refusal | None:
    """Return the refusal of a table as data, in a project whose texts stay in its results."""
    site = current_site(settings.root)
    if not site.file.settings.private:
        return None
    if who := _visitor(settings, actor):
        site.note(site.entry(who, "refused: export", path[:200], after="the project is private"))
    return Refusal(
        403,
        "This project is private, so tables are not sent as data. Download a run: without texts.",
    )


def _visitor(settings: ServerSettings, actor: Actor | None) -> Actor | None:
    """Return the visitor: who signed in, or else who started the server."""
    return actor or (Actor(settings.person, None) if settings.person is not None else None)


async def _note_download(
    settings: ServerSettings, once: Once, scope: Mapping[str, Any], actor: Actor | None
) -> None:
    """Audit the first download in a while of a table by a visitor, or by who started the server."""
    actor = _visitor(settings, actor)
    table = _downloaded(scope)
    if actor is not None and table and once.is_first(actor.name, table):
        site = await asyncio.to_thread(current_site, settings.root)
        await asyncio.to_thread(site.note_export, table[:200], "a browser", actor)


def _downloaded(scope: Mapping[str, Any]) -> str:
    """Return the table or query that Datasette itself sends as data; '' for a page."""
    path = _path(scope)
    query = scope.get("query_string", b"").decode("latin-1")
    if path.startswith("/-/") or scope["method"] != "GET":
        return ""
    return path if _DATA.search(path) or _FORMAT.search(query) else ""


_DATA = re.compile(r"\.(?:csv|db|json|jsono)\Z")
_FORMAT = re.compile(r"(?:\A|&)_format=(?!html(?:&|\Z))")


async def _serve(app: App, scope: Mapping[str, Any], receive: Any, send: Any) -> int:
    """Let the application answer; return the status of its response."""
    status = [0]

    async def watched(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            status[0] = message["status"]
        await send(message)

    await app(scope, receive, watched)
    return status[0]


def _sign_in_refusal(datasette: Any, scope: Mapping[str, Any]) -> Refusal:
    """Return the refusal without sign-in: browsers are redirected to the sign-in page."""
    browser = scope["method"] in ("GET", "HEAD") and "text/html" in header(scope, b"accept")
    if not browser or header(scope, b"authorization"):
        text = "Sign in, or send a token as Authorization: Bearer TOKEN."
        return Refusal(401, text, {"www-authenticate": "Bearer"})
    wanted = datasette.urls.path(_path(scope))
    if query := scope.get("query_string", b"").decode("latin-1"):
        wanted += f"?{query}"
    address = datasette.urls.path(SIGN_IN)
    if len(wanted) <= LONGEST_NEXT:
        address += f"?{urlencode({'next': wanted})}"
    return Refusal(303, "Sign in first.", {"location": address})


def _path(scope: Mapping[str, Any]) -> str:
    """Return the undecoded path, as Datasette reads it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").partition("?")[0]


def _is_cross_site(scope: Mapping[str, Any], host: str, *, secure: bool) -> bool:
    """Whether the browser reports that another site sends the request.

    Cross-origin protection as in Go 1.25 (Valsorda, 2025); a CSRF token would not protect sign-in,
    and Datasette 1.0 has none.
    """
    if site := header(scope, b"sec-fetch-site"):
        return site not in ("same-origin", "none")
    origin = header(scope, b"origin").casefold()
    scheme, _, place = origin.partition("://")
    return bool(origin) and (place != host or (secure and scheme != "https"))


async def _refuse(send: Any, refusal: Refusal, *, api: bool) -> None:
    mark = error_mark()
    text = f"{refusal.text}\n{mark.time}, trace {mark.trace_id}"
    kind = "text/plain; charset=utf-8"
    if api:
        error = {"code": "refused", "message": refusal.text, "hint": "", **mark._asdict()}
        text, kind = json.dumps({"error": error}), "application/json; charset=utf-8"
    body = f"{text}\n".encode()
    found = {"content-type": kind, **PAGE_HEADERS, **refusal.headers}
    found["cache-control"] = "private, no-store"
    headers = [(key.encode(), value.encode("latin-1")) for key, value in found.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _with_cache_control(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Restore the cache-control of static files, which Datasette 0.65 overrides with cookies."""
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
            headers = _with_cache_control(list(message.get("headers", [])))
            there = {bytes(key).lower() for key, _ in headers}
            headers += [
                (key.encode(), value.encode())
                for key, value in {**_CORE_HEADERS, **more}.items()
                if key.encode() not in there
            ]
            message = {**message, "headers": headers}
        await send(message)

    return sent
