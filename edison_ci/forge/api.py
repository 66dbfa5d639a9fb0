"""GitHub's REST interface, asked patiently, page by page, one write at a time.

Reads are repeated after failures. So are writes that can be: a limited request was not carried out,
and asking twice for the same text of a comment or the same blob changes nothing. What would make a
second thing (a comment, a pull request) is not repeated after a failure that leaves open whether it
happened: the caller looks first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from dataclasses import field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode, urlsplit

from edison_ci import __version__, formatting
from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import hidden_in
from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.providers.failures import Scrubber
from edison_ci.providers.retry_after import retry_after_s
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    import httpx

    from edison_ci.forge.address import Address


# The one home of httpx, which is imported with the first request. Redirects are not followed, so
# the token goes to the host it is meant for and to no other. The environment's proxies are
# honoured.
CONNECT_S = 10.0
READ_S = 30.0
MAX_REPLY_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it leaves."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    """The token is among them."""
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class LostError(ForgeError):
    """There was no reply; whether the request arrived is not known."""

    def __init__(self, message: str, *, arrived: bool) -> None:
        super().__init__(
            message,
            fault=ForgeFault.UNAVAILABLE,
            hint="check the network and GITHUB_API_URL, then run the command again",
        )
        self.arrived = arrived
        """False only when it is known that nothing was sent."""


class Wire:
    """Sends requests, over connections that are kept open."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def send(self, request: Sent) -> Reply:
        """Return the reply, whatever its status; raises LostError."""
        import httpx

        client = self._client or self._open()
        lost: LostError
        try:
            async with client.stream(
                request.method, request.url, headers=request.headers, content=request.content
            ) as reply:
                return Reply(reply.status_code, _lower(reply.headers), await _read(reply))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            lost = LostError(f"GitHub cannot be reached: {_said(error)}", arrived=False)
        except httpx.TimeoutException:
            lost = LostError(f"GitHub did not reply within {fixed(READ_S)} seconds", arrived=True)
        except httpx.HTTPError as error:
            lost = LostError(f"the connection to GitHub broke: {_said(error)}", arrived=True)
        # Raised here and not above: an exception of httpx in the chain would carry the headers.
        raise lost

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _open(self) -> httpx.AsyncClient:
        import httpx

        self._client = httpx.AsyncClient(
            follow_redirects=False,
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=4),
        )
        return self._client


def _lower(headers: httpx.Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


async def _read(reply: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in reply.aiter_bytes():
        body += chunk
        if len(body) > MAX_REPLY_BYTES:
            raise ForgeError(
                f"a reply of GitHub has more than {MAX_REPLY_BYTES:,} bytes",
                fault=ForgeFault.UNREADABLE,
            )
    return bytes(body)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


# A limit is a 403 or a 429: `retry-after` says how long, or `x-ratelimit-remaining: 0` until when,
# or the message speaks of a secondary limit, after which GitHub wants a minute, doubling. A
# limited request was not carried out. Behind a proxy, or when GitHub is down, the body may be an
# HTML page.
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


logger = logging.getLogger(__name__)

API_VERSION = "2022-11-28"
PER_PAGE = 100
MAX_PAGES = 100
WRITE_GAP_S = 1.0
"""GitHub asks for a second between requests that create or change something."""
PATIENCE_S = 300.0
"""How long we wait in all before giving up; a job that waits costs money too."""
FAILURES = 4
_KEPT_REPLIES = 100
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,<]*\brel="?next"?')


@dataclass(frozen=True, slots=True)
class Timing:
    """Where time comes from."""

    clock: Callable[[], dt.datetime] = formatting.now
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    patience_s: float = PATIENCE_S


class Ask(NamedTuple):
    """One request: what for, in words, and how."""

    what: str
    method: str
    url: str
    body: Mapping[str, Any] | None = None
    repeatable: bool = True


class Api:
    """The REST interface of one repository; a context manager."""

    def __init__(self, address: Address, timing: Timing | None = None) -> None:
        self._address, self._timing = address, timing or Timing()
        self._wire = Wire()
        self._scrub = Scrubber((address.token,))
        self._kept: dict[str, Reply] = {}
        self._waited_s = 0.0
        self._last_write: dt.datetime | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._wire.aclose()

    # --- asking -----------------------------------------------------------------------------------

    async def get(self, what: str, *path: str | int, **params: str | int) -> Any:
        """Return the value at a path below the repository."""
        return self._value(what, await self._ask(Ask(what, "GET", self._url(path, params))))

    async def pages(self, what: str, *path: str | int, **params: str | int) -> list[Any]:
        """Return the items of every page."""
        url: str | None = self._url(path, {**params, "per_page": PER_PAGE})
        items: list[Any] = []
        for _ in range(MAX_PAGES):
            assert url is not None
            reply = await self._ask(Ask(what, "GET", url))
            page = self._value(what, reply)
            if not isinstance(page, list):
                raise unreadable(what, "a list")
            items += page
            url = self._next(reply)
            if url is None:
                return items
        raise ForgeError(
            f"there are more than {MAX_PAGES * PER_PAGE:,} items when asked to {what}",
            fault=ForgeFault.UNREADABLE,
        )

    async def write(
        self,
        what: str,
        method: str,
        *path: str | int,
        body: Mapping[str, Any] | None = None,
        repeatable: bool = True,
    ) -> Any:
        """Create, change or delete something and return what GitHub says of it."""
        return self._value(
            what, await self._ask(Ask(what, method, self._url(path, {}), body, repeatable))
        )

    # --- waiting ----------------------------------------------------------------------------------

    async def _ask(self, ask: Ask) -> Reply:
        limits = failures = 0
        while True:
            reply, failure = await self._once(ask)
            if failure is None:
                assert reply is not None
                return reply
            if reply is not None and is_limited(reply):
                wait_s = limit_wait_s(reply, times=limits, now=self._timing.clock())
                limits += 1
            elif failure.fault is ForgeFault.UNAVAILABLE and _may_repeat(ask, failure):
                if failures + 1 >= FAILURES:
                    raise failure
                wait_s = outage_wait_s(reply, times=failures, now=self._timing.clock())
                failures += 1
            else:
                raise failure
            await self._wait(wait_s, failure)

    async def _once(self, ask: Ask) -> tuple[Reply | None, ForgeError | None]:
        kept = self._kept.get(ask.url) if ask.method == "GET" else None
        if ask.method != "GET":
            await self._space()
        try:
            reply = await self._wire.send(self._request(ask, kept))
        except LostError as lost:
            return None, lost
        logger.debug("github", extra={"method": ask.method, "status": reply.status})
        if reply.status == 304 and kept is not None:
            return kept, None
        if not 200 <= reply.status < 300:
            return reply, refusal(ask.what, reply, self._scrub)
        if ask.method == "GET" and "etag" in reply.headers and len(self._kept) < _KEPT_REPLIES:
            self._kept[ask.url] = reply
        return reply, None

    async def _wait(self, wait_s: float, failure: ForgeError) -> None:
        if self._waited_s + wait_s > self._timing.patience_s:
            failure.hint = f"GitHub asks to wait {fixed(wait_s)} seconds more, which is too long"
            raise failure
        self._waited_s += wait_s
        logger.warning("waiting for github", extra={"wait_s": wait_s, "status": failure.status})
        await self._timing.sleep(wait_s)

    async def _space(self) -> None:
        now = self._timing.clock()
        if self._last_write is not None:
            left_s = WRITE_GAP_S - (now - self._last_write).total_seconds()
            if left_s > 0:
                await self._timing.sleep(left_s)
        self._last_write = self._timing.clock()

    # --- requests and replies ---------------------------------------------------------------------

    def _request(self, ask: Ask, kept: Reply | None) -> Sent:
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self._address.token}",
            "User-Agent": f"edison-ci/{__version__}",
            "X-GitHub-Api-Version": API_VERSION,
        }
        if kept is not None:
            headers["If-None-Match"] = kept.headers["etag"]
        if ask.body is None:
            return Sent(ask.method, ask.url, headers)
        headers["Content-Type"] = "application/json"
        return Sent(ask.method, ask.url, headers, json.dumps(hidden_in(ask.body)).encode())

    def _url(self, path: tuple[str | int, ...], params: Mapping[str, str | int]) -> str:
        parts = [part for piece in path for part in str(piece).split("/")]
        if any(part in {"", ".", ".."} for part in parts):
            raise ForgeError(
                f"{'/'.join(map(str, path))!r} is not a path on GitHub", fault=ForgeFault.INVALID
            )
        url = "/".join((self._address.repository_url, *(quote(part, safe="") for part in parts)))
        return f"{url}?{urlencode(params)}" if params else url

    def _next(self, reply: Reply) -> str | None:
        found = _NEXT.search(reply.headers.get("link", ""))
        if found is None:
            return None
        if not _same_host(found[1], self._address.api_url):
            raise ForgeError(
                f"the next page is said to be at {self._scrub(found[1])}, which is another host",
                fault=ForgeFault.MOVED,
                hint="check GITHUB_API_URL",
            )
        return found[1]

    def _value(self, what: str, reply: Reply) -> Any:
        if not reply.body:
            return None
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError):
            raise unreadable(what, "JSON") from None


def unreadable(what: str, expected: str) -> ForgeError:
    """Return the error for a reply that is not what it should be."""
    return ForgeError(
        f"GitHub's reply when asked to {what} is not {expected}",
        fault=ForgeFault.UNREADABLE,
        hint="a proxy may be in the way: check GITHUB_API_URL",
    )


def _may_repeat(ask: Ask, failure: ForgeError) -> bool:
    return ask.repeatable or (isinstance(failure, LostError) and not failure.arrived)


def _same_host(url: str, other: str) -> bool:
    one, two = urlsplit(url), urlsplit(other)
    return (one.scheme, one.netloc) == (two.scheme, two.netloc)
