"""The client of GitHub's REST API: retries, rate limits, pagination, and errors in plain words.

Reads are retried after failures. So are writes that are idempotent: a rate-limited request was not
carried out, and sending the same text of a comment or the same blob twice changes nothing. A
request that would create a second comment or pull request is not retried when it is unknown
whether the first was carried out: the caller checks first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode, urlsplit

from edison_ci import __version__
from edison_ci._dataclass import dataclass
from edison_ci.access import github_api
from edison_ci.documents.secrets import hidden_in
from edison_ci.errors import EdisonError, ForgeError, ForgeFault
from edison_ci.git import host
from edison_ci.git.forge import Timing
from edison_ci.numeric import fixed
from edison_ci.providers.failures import Scrubber, retry_after_s
from edison_ci.providers.transport import verification

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Mapping

    import httpx

    from edison_ci.git.host import RepositoryAddress

# httpx is imported with the first request, as it is slow to load. Redirects are not followed, so
# the token is sent to the configured host only. Proxies of the environment are used.
CONNECT_S = 10.0
READ_S = 30.0
MAX_REPLY_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    """They contain the token, so they are not shown."""
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An HTTP reply; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class NoReplyError(ForgeError):
    """There was no reply to a request, which may have been carried out all the same."""

    def __init__(self, message: str, *, arrived: bool) -> None:
        super().__init__(
            message,
            fault=ForgeFault.UNAVAILABLE,
            hint="check the network, the proxy and GITHUB_API_URL, then run the command again",
        )
        self.arrived = arrived
        """Whether the request may have reached GitHub; False when nothing was sent."""


class HttpClient:
    """Sends requests over connections that stay open."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def send(self, request: HttpRequest) -> HttpReply:
        """Return the reply, with any status; raises NoReplyError."""
        import httpx

        client = self._client or self._open()
        lost: NoReplyError
        try:
            async with client.stream(
                request.method, request.url, headers=request.headers, content=request.content
            ) as reply:
                return HttpReply(reply.status_code, _lower(reply.headers), await _read(reply))
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            lost = NoReplyError(f"cannot connect to GitHub: {_reason(error)}", arrived=False)
        except httpx.TimeoutException:
            lost = NoReplyError(
                f"GitHub did not reply within {fixed(READ_S)} seconds", arrived=True
            )
        except httpx.HTTPError as error:
            lost = NoReplyError(
                f"the connection to GitHub was interrupted: {_reason(error)}", arrived=True
            )
        # Raised outside of `except`: a chained httpx exception would carry the token in its
        # headers.
        raise lost

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _open(self) -> httpx.AsyncClient:
        import httpx

        self._client = httpx.AsyncClient(
            verify=verification(),
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
                f"GitHub sent a reply of more than {MAX_REPLY_BYTES:,} bytes",
                fault=ForgeFault.UNREADABLE,
            )
    return bytes(body)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


# A rate limit is a 403 or a 429 with `retry-after`, with `x-ratelimit-remaining: 0` (and the time
# of its reset), or with a message about a secondary limit, for which GitHub asks to wait a minute
# and to double the wait each time. Behind a proxy, or when GitHub is down, the body may be HTML.
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
    ForgeFault.UNAUTHORIZED: "the token is wrong or has expired: set a new GITHUB_TOKEN",
    ForgeFault.NOT_FOUND: "it does not exist, or the token has no access to it",
    ForgeFault.UNAVAILABLE: "GitHub may be down; run the command again later",
    ForgeFault.LIMITED: "wait until the rate limit is reset, then run the command again",
}


def is_limited(reply: HttpReply) -> bool:
    """Whether the request was refused by a rate limit."""
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    if reply.status != HTTPStatus.FORBIDDEN:
        return False
    spent = reply.headers.get("x-ratelimit-remaining", "").strip() == "0"
    return spent or "retry-after" in reply.headers or bool(_SECONDARY.search(error_text(reply)))


def limit_wait_s(reply: HttpReply, *, times: int, now: dt.datetime) -> float:
    """Return the seconds to wait for a rate limit; `times` counts the refusals before this one."""
    headers = {
        name: value
        for name, value in reply.headers.items()
        if name == "retry-after" or name.startswith("x-ratelimit-re")
    }
    wait_s = retry_after_s(headers, now)
    if wait_s is not None:
        # The time of the reset is rounded to a second: wait one more, so as not to be early.
        return wait_s if "retry-after" in headers else wait_s + 1
    return SECONDARY_WAIT_S * 2.0**times


def outage_wait_s(reply: HttpReply | None, *, times: int, now: dt.datetime) -> float:
    """Return the seconds to wait before a retry after an outage."""
    retry_after = reply.headers.get("retry-after") if reply is not None else None
    asked_s = retry_after_s({"retry-after": retry_after}, now) if retry_after else None
    return max(2.0**times, asked_s or 0.0)


def error_for(what: str, reply: HttpReply, scrub: Callable[[str], str]) -> ForgeError:
    """Return the error for a reply with a status of failure; `what` names the action."""
    words = scrub(error_text(reply)) or _phrase(reply.status)
    if 300 <= reply.status < 400:
        where = scrub(reply.headers.get("location", "nowhere"))
        return ForgeError(
            f"GitHub redirected the request to {what} to {where}; redirects are not followed",
            fault=ForgeFault.MOVED,
            status=reply.status,
            hint="if the repository was renamed, set GITHUB_REPOSITORY to its new name",
        )
    fault = _fault(reply)
    hint = _HINTS.get(fault, "")
    accepted = reply.headers.get(PERMISSIONS_HEADER)
    if fault is ForgeFault.FORBIDDEN and accepted:
        hint = f"the token needs these permissions: {scrub(accepted)}"
    message = f"GitHub refused to {what}: {words} (HTTP {reply.status})"
    if fault is ForgeFault.UNAVAILABLE:
        message = f"GitHub failed to {what}: {words} (HTTP {reply.status})"
    return ForgeError(message, fault=fault, status=reply.status, hint=hint)


def error_text(reply: HttpReply) -> str:
    """Return the message in the body of an error reply, JSON or HTML."""
    body = reply.body[:_READ_BYTES]
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        match = _TITLE.search(body)
        return match[1].decode("utf-8", "replace") if match else ""
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


def _fault(reply: HttpReply) -> ForgeFault:
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
FAILURES = 4
_MAX_CACHED = 100
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,<]*\brel="?next"?')


class ApiRequest(NamedTuple):
    """One request; `what` names the action in error messages."""

    what: str
    method: str
    url: str
    body: Mapping[str, Any] | None = None
    repeatable: bool = True


class Api:
    """The REST interface of one repository; a context manager."""

    def __init__(self, address: RepositoryAddress, timing: Timing | None = None) -> None:
        self._address, self._timing = address, timing or Timing()
        self._http = HttpClient()
        self._scrub = Scrubber((address.token,))
        self._cached: dict[str, HttpReply] = {}
        self._waited_s = 0.0
        self._last_write: dt.datetime | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get(self, what: str, *path: str | int, **params: str | int) -> Any:
        """Return the value at a path below the repository."""
        return self._value(what, await self._send(ApiRequest(what, "GET", self._url(path, params))))

    async def pages(self, what: str, *path: str | int, **params: str | int) -> list[Any]:
        """Return the items of every page."""
        url: str | None = self._url(path, {**params, "per_page": PER_PAGE})
        items: list[Any] = []
        for _ in range(MAX_PAGES):
            assert url is not None
            reply = await self._send(ApiRequest(what, "GET", url))
            page = self._value(what, reply)
            if not isinstance(page, list):
                raise unreadable(what, "a list")
            items += page
            url = self._next(reply)
            if url is None:
                return items
        raise ForgeError(
            f"GitHub returned more than {MAX_PAGES * PER_PAGE:,} items when asked to {what}",
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
        """Send a request that changes something and return the value of the reply."""
        return self._value(
            what, await self._send(ApiRequest(what, method, self._url(path, {}), body, repeatable))
        )

    async def _send(self, request: ApiRequest) -> HttpReply:
        limits = failures = 0
        while True:
            reply, failure = await self._send_once(request)
            if failure is None:
                assert reply is not None
                return reply
            if reply is not None and is_limited(reply):
                wait_s = limit_wait_s(reply, times=limits, now=self._timing.clock())
                limits += 1
            elif failure.fault is ForgeFault.UNAVAILABLE and _may_repeat(request, failure):
                if failures + 1 >= FAILURES:
                    raise failure
                wait_s = outage_wait_s(reply, times=failures, now=self._timing.clock())
                failures += 1
            else:
                raise failure
            await self._wait(wait_s, failure)

    async def _send_once(self, request: ApiRequest) -> tuple[HttpReply | None, ForgeError | None]:
        cached = self._cached.get(request.url) if request.method == "GET" else None
        if request.method != "GET":
            await self._space_writes()
        try:
            reply = await self._http.send(self._request(request, cached))
        except NoReplyError as lost:
            return None, lost
        logger.debug("github", extra={"method": request.method, "status": reply.status})
        if reply.status == 304 and cached is not None:
            return cached, None
        if not 200 <= reply.status < 300:
            return reply, error_for(request.what, reply, self._scrub)
        if request.method == "GET" and "etag" in reply.headers and len(self._cached) < _MAX_CACHED:
            self._cached[request.url] = reply
        return reply, None

    async def _wait(self, wait_s: float, failure: ForgeError) -> None:
        if self._waited_s + wait_s > self._timing.max_wait_s:
            failure.hint = (
                f"GitHub asks to wait {fixed(wait_s)} seconds more, which exceeds the limit of "
                f"{fixed(self._timing.max_wait_s)} seconds: run the command again later"
            )
            raise failure
        self._waited_s += wait_s
        logger.warning("waiting for github", extra={"wait_s": wait_s, "status": failure.status})
        await self._timing.sleep(wait_s)

    async def _space_writes(self) -> None:
        now = self._timing.clock()
        if self._last_write is not None:
            left_s = WRITE_GAP_S - (now - self._last_write).total_seconds()
            if left_s > 0:
                await self._timing.sleep(left_s)
        self._last_write = self._timing.clock()

    def _request(self, request: ApiRequest, cached: HttpReply | None) -> HttpRequest:
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self._address.token}",
            "User-Agent": f"edison-ci/{__version__}",
            "X-GitHub-Api-Version": API_VERSION,
        }
        if cached is not None:
            headers["If-None-Match"] = cached.headers["etag"]
        if request.body is None:
            return HttpRequest(request.method, request.url, headers)
        headers["Content-Type"] = "application/json"
        return HttpRequest(
            request.method, request.url, headers, json.dumps(hidden_in(request.body)).encode()
        )

    def _url(self, path: tuple[str | int, ...], params: Mapping[str, str | int]) -> str:
        parts = [part for piece in path for part in str(piece).split("/")]
        if any(part in {"", ".", ".."} for part in parts):
            raise ForgeError(
                f"{'/'.join(map(str, path))!r} is not a path on GitHub", fault=ForgeFault.INVALID
            )
        url = "/".join((self._address.repository_url, *(quote(part, safe="") for part in parts)))
        return f"{url}?{urlencode(params)}" if params else url

    def _next(self, reply: HttpReply) -> str | None:
        match = _NEXT.search(reply.headers.get("link", ""))
        if match is None:
            return None
        if not _same_host(match[1], self._address.api_url):
            raise ForgeError(
                f"GitHub's link to the next page points to another host: {self._scrub(match[1])}",
                fault=ForgeFault.MOVED,
                hint="check GITHUB_API_URL",
            )
        return match[1]

    def _value(self, what: str, reply: HttpReply) -> Any:
        if not reply.body:
            return None
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError):
            raise unreadable(what, "JSON") from None


def unreadable(what: str, expected: str) -> ForgeError:
    """Return the error for a reply that has another form than expected."""
    return ForgeError(
        f"GitHub's reply to the request to {what} is not {expected}",
        fault=ForgeFault.UNREADABLE,
        hint="a proxy may have answered instead of GitHub: check GITHUB_API_URL and the proxy",
    )


def _may_repeat(request: ApiRequest, failure: ForgeError) -> bool:
    return request.repeatable or (isinstance(failure, NoReplyError) and not failure.arrived)


def _same_host(url: str, other: str) -> bool:
    first, second = urlsplit(url), urlsplit(other)
    return (first.scheme, first.netloc) == (second.scheme, second.netloc)


def is_approved(environment: str, environ: Mapping[str, str]) -> bool:
    """Whether a person approved an environment for this workflow run, according to GitHub."""
    run = environ.get("GITHUB_RUN_ID", "")
    try:
        return run.isdecimal() and _approved(environment, host.repository_address(environ), run)
    except EdisonError:
        return False


@cache
def _approved(environment: str, address: RepositoryAddress, run: str) -> bool:
    asking = approved_by_person(environment, address, run)
    with ThreadPoolExecutor(1) as thread:  # a loop may be running in this one
        return thread.submit(asyncio.run, asking).result()


async def approved_by_person(environment: str, address: RepositoryAddress, run: str) -> bool:
    """Whether GitHub lists an approval of an environment for a workflow run."""
    async with github_api.Api(address) as api:
        reviews = await api.get("read the approvals", "actions", "runs", run, "approvals")
    return any(
        isinstance(review, dict)
        and review.get("state") == "approved"
        and any(entry.get("name") == environment for entry in review.get("environments") or ())
        for review in reviews
    )
