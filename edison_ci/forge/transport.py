"""How does a request get to GitHub and its reply back?

The one home of httpx, which is imported with the first request. Redirects are not followed, so the
token goes to the host it is meant for and to no other. The environment's proxies are honoured.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.frozen import dataclass
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

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
