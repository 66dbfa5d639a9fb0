"""Requests to the HTTP interface of a site, with the token of a member.

Address and token come from environment variables. The site is not trusted more than needed: it has
ten seconds, redirects are not followed, and only the start of a reply is read. Only tokens that
edison made are sent, so that no other secret of the environment can leave by a changed file.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from edison_ci import __version__
from edison_ci._dataclass import dataclass
from edison_ci.access.accounts import TOKEN_PREFIX
from edison_ci.documents.secrets import remember
from edison_ci.errors import UsageError
from edison_ci.git.host import is_loopback
from edison_ci.providers.transport import verification
from edison_ci.sanitize import line

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 10.0
MAX_REPLY_BYTES = 1_000_000
_PAGES = "/-/edison"
_SHOWN = 300
_ABSENT = frozenset({502, 503, 504})
"""What a proxy answers in front of a site that is not there."""
_BUSY = _ABSENT | {408, 425, 429, 500}


class SiteUnreachable(Exception):
    """No reply of the site came; the same request may work later."""


class SiteRefusal(Exception):
    """The site refused a request."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        self.status = status
        self.code = line(str(error.get("code", "")))[:_SHOWN]
        self.message = line(str(error.get("message", "")))[:_SHOWN] or f"status {status}"
        self.limit = line(str(error.get("limit", "")))[:_SHOWN]
        super().__init__(self.message)


class SiteBusy(SiteRefusal):
    """The site refused a request for now; the same one may work later."""


def unknown_reply(status: int = 200) -> SiteRefusal:
    """Return the error for a reply with other content than that of a site."""
    return SiteRefusal(status, {"code": "reply", "message": "its reply is not that of a site"})


def site_address(url: str, name: str) -> str:
    """Return the address of a site, which `name` holds; raises UsageError if it cannot be used."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if not host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        raise UsageError(f"{name} is not the address of a site", hint="write https://HOST")
    if parts.username or parts.password:
        raise UsageError(f"{name} has a name or password", hint="remove it; a token is enough")
    if parts.scheme == "http" and not is_loopback(host):
        raise UsageError(
            f"{name} is not encrypted",
            hint="write https://: the token could be read on the way (http only on this machine)",
        )
    path = parts.path.partition("/-/")[0].rstrip("/")  # as copied from a browser
    return f"{parts.scheme}://{parts.netloc}{path}"


def site_headers(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of requests with the token in a variable; raises UsageError."""
    token = environ.get(name, "").strip()
    hint = "an owner of the site makes one: edison roles token NAME; then export it"
    if not token:
        raise UsageError(f"{name} is not set", hint=hint)
    remember([token])
    if not token.startswith(TOKEN_PREFIX):
        raise UsageError(f"{name} does not hold a token of a site", hint=hint)
    return {
        "Authorization": f"Bearer {token}",
        "User-Agent": f"edison-ci/{__version__}",
        "Accept-Encoding": "identity",
    }


@dataclass(frozen=True, slots=True)
class SiteClient:
    """A site, and the headers with the token for it."""

    url: str
    """Address of the site, without the path of its pages."""
    headers: Mapping[str, str]

    @classmethod
    def of(cls, url_env: str, token_env: str, environ: Mapping[str, str]) -> Self:
        """Return the client of the site in two variables; raises UsageError."""
        url = environ.get(url_env, "").strip()
        if not url:
            raise UsageError(
                f"{url_env} is not set", hint=f"export {url_env}, or add it as a secret"
            )
        return cls(site_address(url, url_env), site_headers(token_env, environ))

    @property
    def host(self) -> str:
        """The host, with its port if that is not the usual one."""
        return urlsplit(self.url).netloc

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the reply of an operation; raises SiteUnreachable or SiteRefusal.

        A reply that came is never SiteUnreachable, even if it is an error.
        """
        import httpx

        content = None if body is None else json.dumps(body).encode()
        address = f"{self.url}{_PAGES}/api/v1{path}"
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                httpx.AsyncClient(verify=verification(), timeout=TIMEOUT_S) as client,
                client.stream(method, address, headers=self.headers, content=content) as reply,
            ):
                status, text = reply.status_code, bytearray()
                async for chunk in reply.aiter_raw():  # unpacked, it could have any size
                    text += chunk
                    if len(text) > MAX_REPLY_BYTES:
                        raise unknown_reply(status)
        except (TimeoutError, httpx.TimeoutException):
            raise SiteUnreachable(f"no answer within {TIMEOUT_S:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise SiteUnreachable(line(str(error))[:_SHOWN] or type(error).__name__) from None
        return _value(status, bytes(text))


def _value(status: int, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    error = value.get("error") if isinstance(value, dict) else None
    if status in _ABSENT and not isinstance(error, dict):
        raise SiteUnreachable(f"it answered with status {status}")
    if not 200 <= status < 300:
        refusal = SiteBusy if status in _BUSY else SiteRefusal
        raise refusal(status, error if isinstance(error, dict) else {})
    if not isinstance(value, dict):
        raise unknown_reply(status)
    return value
