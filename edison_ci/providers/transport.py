"""HTTP to services: connections, time-outs, sizes, and what went wrong.

The one home of aiohttp, which is imported with the first call, so that a run that calls nobody does
not pay for it. One session and one TLS context serve all calls of a model. Redirects are not
followed: a key goes to the host it was meant for and to no other. The environment's proxies are
honoured, its netrc is not (that is why aiohttp's `trust_env` stays off).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
import time
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.addresses import Reach, refuse
from edison_ci.providers.failures import Scrubber, refusal
from edison_ci.providers.retry_after import retry_after_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import aiohttp


# Before the first encrypted connection, and not before: it takes 50 ms, which a model on this
# machine does not need. aiohttp loads them twice when it is imported, unless it is imported in
# here.
@cache
def tls_context(ca_file: str) -> ssl.SSLContext:
    """Return the TLS context that trusts the certificates of a file."""
    return ssl.create_default_context(cafile=ca_file)


@contextlib.contextmanager
def certificates_when_needed() -> Iterator[None]:
    """Let contexts that are made within load the system's certificates with their first use."""
    kind: Any = ssl.SSLContext
    load = kind.set_default_verify_paths
    kind.set_default_verify_paths = lambda context: _with_first_use(context, load)
    try:
        yield
    finally:
        kind.set_default_verify_paths = load


def _with_first_use(context: Any, load: Any) -> None:
    """Have a context load its certificates when it is to encrypt a connection."""

    def wrap_bio(*args: Any, **kwargs: Any) -> Any:
        if "wrap_bio" in vars(context):
            load(context)
            del context.wrap_bio
        return context.wrap_bio(*args, **kwargs)

    context.wrap_bio = wrap_bio


CONNECT_S = 10.0
MAX_REPLY_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class Service:
    """Where calls go, and with which headers."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    """The key is among them."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Never to be seen in a message."""
    timeout_s: float = 60.0
    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    reach: Reach = Reach.NEARBY
    """Where its name may lead."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The body of a successful reply."""

    body: bytes
    latency_ms: int


class Transport:
    """Posts to one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.scrub = Scrubber(service.secrets)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, body: bytes) -> Reply:
        """Return the reply to a body of JSON; raises CallError, with no key in it."""
        session = self._session or self._open()
        start = time.perf_counter()
        try:
            async with session.post(self._service.url, data=body, allow_redirects=False) as reply:
                received = await _read(reply)
                status = reply.status
                headers = reply.headers
        except CallError:
            raise
        except Exception as error:
            failure = self._translated(error)
        else:
            if 200 <= status < 300:
                return Reply(received, round((time.perf_counter() - start) * 1000))
            failure = self._refused(status, headers, received)
        # Raised here and not above: an exception of aiohttp in the chain would carry the headers.
        raise failure

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        with certificates_when_needed():
            import aiohttp

        service = self._service
        total = service.timeout_s
        try:
            own = service.ca_file if service.url.startswith("https:") else None
            context = tls_context(own) if own is not None else True
        except OSError:
            message = "the certificates that SSL_CERT_FILE names cannot be read"
            raise CallError(ErrorKind.BAD_REQUEST, message, charged=False) from None
        self._session = aiohttp.ClientSession(
            headers={"Content-Type": "application/json", **service.headers},
            connector=aiohttp.TCPConnector(limit=0, ssl=context, socket_factory=self._socket),
            timeout=aiohttp.ClientTimeout(
                total=total,
                # A little less than all, so that it is known that nothing was sent.
                connect=min(CONNECT_S, 0.9 * total),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=service.proxy,
        )
        return self._session

    def _socket(self, found: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for an address that was found, which may be out of reach.

        Asked for every connection, so a name cannot lead elsewhere in between. A proxy's address is
        the environment's choice.
        """
        family, kind, protocol, _, place = found
        if self._service.proxy is None:
            refuse(_host_of(self._service.url), str(place[0]), self._service.reach)
        return socket.socket(family, kind, protocol)

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes) -> CallError:
        if 300 <= status < 400:
            where = _host_of(headers.get("Location", ""))
            message = f"the service redirects to {where}, which is not followed (status {status})"
            return CallError(ErrorKind.BAD_RESPONSE, message, status=status, charged=False)
        lowered = {name.lower(): value for name, value in headers.items()}
        wait_s = retry_after_s(lowered, dt.datetime.now(dt.UTC))
        return refusal(status, body, self.scrub, retry_after_s=wait_s)

    def _translated(self, error: Exception) -> CallError:
        """Return our error for one of aiohttp's; their texts may hold headers and are not used."""
        import aiohttp

        host = _host_of(self._service.url)
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            message = f"no connection to {host} in {CONNECT_S:g} s"
            return CallError(ErrorKind.TIMEOUT, message, charged=False)
        if isinstance(error, TimeoutError):
            message = f"no whole reply from {host} in {self._service.timeout_s:g} s"
            return CallError(ErrorKind.TIMEOUT, message)
        if isinstance(error, aiohttp.ClientConnectorError):
            return CallError(ErrorKind.NETWORK, self._unconnected(error, host), charged=False)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            message = f"the proxy refuses the way to {host} (status {error.status})"
            return CallError(ErrorKind.NETWORK, message, charged=False)
        if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError):
            # Cut short, or no HTTP from some byte on.
            cut = CallError(ErrorKind.BAD_RESPONSE, f"the reply of {host} was cut off or mangled")
            cut.cut_off = True
            return cut
        if isinstance(error, aiohttp.InvalidURL):
            return CallError(ErrorKind.BAD_REQUEST, f"{host} is no address", charged=False)
        if isinstance(error, aiohttp.ClientConnectionError | OSError):
            return CallError(ErrorKind.NETWORK, f"the connection to {host} broke")
        message = f"{type(error).__name__} while calling {host}"
        return CallError(ErrorKind.BAD_RESPONSE, message)

    def _unconnected(self, error: aiohttp.ClientConnectorError, host: str) -> str:
        import aiohttp

        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return f"the host of {host} is not known"
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            reason = getattr(error.certificate_error, "verify_message", "") or "it does not fit"
            return f"the certificate of {host} is not accepted: {self.scrub(str(reason))}"
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return f"no connection to the proxy on the way to {host}"
        reason = self.scrub(error.os_error.strerror or "refused")
        return f"no connection to {host}: {reason}"


async def _read(reply: aiohttp.ClientResponse) -> bytes:
    """Return the body, decompressed; more than the cap is not read."""
    content = reply.content
    first = await content.readany()
    if content.at_eof():
        if len(first) > MAX_REPLY_BYTES:
            raise _too_large(reply)
        return first
    parts, size = [first], len(first)
    while chunk := await content.readany():
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_REPLY_BYTES:
            raise _too_large(reply)
    return b"".join(parts)


def _too_large(reply: aiohttp.ClientResponse) -> CallError:
    reply.close()  # the rest is not wanted, so the connection is of no more use
    message = f"the reply is larger than {MAX_REPLY_BYTES // 1_000_000} MB"
    return CallError(ErrorKind.BAD_RESPONSE, message, status=reply.status)


def is_loopback(url: str) -> bool:
    """Whether an address stays on this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment names for an address; none for this machine."""
    if is_loopback(url):
        return None
    parts = urlsplit(url)

    def named(name: str) -> str:
        return environ.get(f"{name}_proxy") or environ.get(f"{name}_PROXY".upper()) or ""

    chosen = named(parts.scheme) or named("all")
    if not chosen or _bypassed(parts.hostname or "", parts.netloc, named("no")):
        return None
    return chosen if "://" in chosen else f"http://{chosen}"


def _bypassed(host: str, netloc: str, no_proxy: str) -> bool:
    """Whether `no_proxy` names a host, a domain it is in, or everything."""
    for entry in no_proxy.split(","):
        name = entry.strip().lstrip(".").lower()
        if name == "*" or (name and (name in (host, netloc) or host.endswith(f".{name}"))):
            return True
    return False


def _host_of(url: str) -> str:
    """Return scheme, host and port of an address, for people."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else "nowhere"
    except ValueError:
        return "nowhere"
