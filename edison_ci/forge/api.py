"""How is GitHub's REST interface asked: patiently, page by page, one write at a time?

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
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode, urlsplit

from edison_ci import __version__, times
from edison_ci.documents.known_secrets import hidden_in
from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.forge.refusals import is_limited, limit_wait_s, outage_wait_s, refusal
from edison_ci.forge.transport import LostError, Reply, Sent, Wire
from edison_ci.frozen import dataclass
from edison_ci.providers.failures import Scrubber
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Awaitable, Callable, Mapping

    from edison_ci.forge.address import Address

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

    clock: Callable[[], dt.datetime] = times.now
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
