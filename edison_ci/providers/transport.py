"""HTTP to services: allowed addresses, connections, time limits, sizes and errors.

aiohttp is imported with the first call, as it is slow to load. One session and one TLS context
serve all calls of a model. Redirects are not followed, so a key is sent to its configured host
  only.
Proxies of the environment are used, netrc is not (so `trust_env` of aiohttp stays off).

Addresses with secrets of machines are refused for every model: link-local addresses and metadata
services of clouds. This machine and private networks are allowed for local models, but in CI, where
the owner of the runner may have services that a pull request must not reach, `.edison/trust.yaml`
has to name them. The address that is connected to counts, after the lookup of its name; behind a
proxy, which does the lookup, it is the name.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import os
import socket
import ssl
import time
from dataclasses import field
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.failures import Scrubber, retry_after_s, status_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    import aiohttp

    from edison_ci.config.trust import TrustFile

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))
)
"""Metadata services without a link-local address."""
_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_OFF = ("", "0", "false")
_CI = ("CI", "GITHUB_ACTIONS", "GITHUB_EVENT_NAME")


class Reach(Enum):
    """The addresses at which a model may be."""

    PUBLIC = "public"
    """Public addresses only."""
    NEARBY = "nearby"
    """Also this machine and private networks."""


def allowed_reach(address: str, trust: TrustFile, environ: Mapping[str, str]) -> Reach:
    """Return the reach of a model at an address: in CI the trust file has to name it."""
    in_ci = any(environ.get(name, "").lower() not in _OFF for name in _CI)
    return Reach.PUBLIC if in_ci and not trust.names(address) else Reach.NEARBY


def refusal_reason(host: str, reach: Reach) -> str:
    """Return why a host, by name or as an address in any notation, is refused; empty if not."""
    name = host.strip("[]").rstrip(".").lower()
    # A proxy, which does the lookup, may read %2e as a dot; only a zone of IPv6 has a %.
    if not name.isascii() or ("%" in name and ":" not in name):
        return "has characters that could be read as another host"
    if name in _NAMES:
        return "is the metadata service of a cloud"
    address = _address(name)
    if address is None:
        local = name == "localhost" or name.endswith(".localhost")
        return _NEAR if local and reach is Reach.PUBLIC else ""
    return _address_refusal(address, reach)


def host_of(url: str) -> str:
    """Return the host of an address; '' if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


async def refuse_unreachable(address: str, reach: Reach) -> None:
    """Raise CallError if the host of an address resolves to one that is refused."""
    host = host_of(address)
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host, None, type=socket.SOCK_STREAM
        )
    except OSError:
        return  # the call itself will fail with a better message
    for *_, place in addresses:
        refuse_address(host, str(place[0]), reach)


def refuse_address(host: str, address: str, reach: Reach) -> None:
    """Raise CallError if the address of a host is refused."""
    if reason := refusal_reason(address, reach):
        raise CallError(ErrorKind.BAD_REQUEST, f"{host} {reason}", charged=False)


_NEAR = (
    "is this machine or in a private network; in CI such hosts must be listed in "
    ".edison/trust.yaml of the base: hosts: [http://HOST:PORT]"
)


def _address(name: str) -> _Address | None:
    """Return an IP address in any notation that the system accepts; None for a name."""
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(name))
    except (OSError, ValueError):
        return None


def _address_refusal(address: _Address, reach: Reach) -> str:
    inner = _embedded_ipv4(address) if isinstance(address, ipaddress.IPv6Address) else None
    if inner is not None:
        return _address_refusal(inner, reach)
    if address.is_link_local or address in _METADATA:
        return "is a link-local address or the metadata service of a cloud"
    return _NEAR if reach is Reach.PUBLIC and not address.is_global else ""


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address embedded in an IPv6 address, if any."""
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


@cache
def tls_context(ca_file: str) -> ssl.SSLContext:
    """Return the TLS context for the certificates of a file; loading them takes 50 ms."""
    return ssl.create_default_context(cafile=ca_file)


CONNECT_S = 10.0
MAX_REPLY_BYTES = 20_000_000
MAX_FILE_BYTES = 2_000_000_000
FILE_S = 1_800.0
"""How long a file with the requests or results of a batch may take."""


@dataclass(frozen=True, slots=True)
class Service:
    """The address of a service, with headers and limits."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    """They contain the key, so they are not shown."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Masked in all messages."""
    timeout_s: float = 60.0
    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    reach: Reach = Reach.NEARBY
    """The addresses that its name may resolve to."""
    most_bytes: int = MAX_REPLY_BYTES
    """The largest reply that is read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The body of a successful reply."""

    body: bytes
    latency_ms: int


def load_client() -> None:
    """Import aiohttp, which loads the certificates of the system, before the first call."""
    import aiohttp  # noqa: F401


class Transport:
    """Posts to one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.scrub = Scrubber(service.secrets)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, body: bytes) -> Reply:
        """Return the reply to a JSON body; raises CallError, whose message has no key."""
        return await self.send("POST", body=body)

    async def send(
        self,
        method: str,
        path: str = "",
        body: bytes | None = None,
        *,
        kind: str = "application/json",
        into: BinaryIO | None = None,
    ) -> Reply:
        """Return the reply to a request at a path below the address; raises CallError.

        A reply of any length is written to `into`, if that is given.
        """
        session = self._session or self._open()
        start = time.perf_counter()
        more: dict[str, Any] = {"headers": {"Content-Type": kind}} if path else {}
        if path:  # files take longer than calls
            more["timeout"] = _file_timeout(self._service.timeout_s)
        try:
            async with session.request(
                method, self._service.url + path, data=body, allow_redirects=False, **more
            ) as reply:
                status = reply.status
                headers = reply.headers
                saved = into is not None and status == 200
                received = b"" if saved else await _read(reply, self._service.most_bytes)
                if into is not None and saved:
                    await _save(reply, into)
        except CallError:
            raise
        except Exception as error:
            failure = self._translate(error)
        else:
            if 200 <= status < 300:
                return Reply(received, round((time.perf_counter() - start) * 1000))
            failure = self._status_error(status, headers, received)
        # Raised outside of `except`: a chained aiohttp exception would carry the key in its
        # headers.
        raise failure

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp  # loads the system's certificates, which takes 50 ms

        service = self._service
        total = service.timeout_s
        try:
            own = service.ca_file if service.url.startswith("https:") else None
            context = tls_context(own) if own is not None else True
        except OSError:
            message = (
                "the certificates in SSL_CERT_FILE cannot be read: check the path and the file"
            )
            raise CallError(ErrorKind.BAD_REQUEST, message, charged=False) from None
        self._session = aiohttp.ClientSession(
            headers={"Content-Type": "application/json", **service.headers},
            connector=aiohttp.TCPConnector(limit=0, ssl=context, socket_factory=self._socket),
            timeout=aiohttp.ClientTimeout(
                total=total,
                # Less than the total, so that a connection timeout shows that nothing was sent.
                connect=min(CONNECT_S, 0.9 * total),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=service.proxy,
        )
        return self._session

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for a resolved address; raises CallError if it is refused.

        Called for every connection, so that a name cannot resolve to another address in between.
        The address of a proxy is chosen by the environment.
        """
        family, kind, protocol, _, place = address
        if self._service.proxy is None:
            refuse_address(_display_url(self._service.url), str(place[0]), self._service.reach)
        return socket.socket(family, kind, protocol)

    def _status_error(self, status: int, headers: Mapping[str, str], body: bytes) -> CallError:
        if 300 <= status < 400:
            where = _display_url(headers.get("Location", ""))
            message = (
                f"the service redirects to {where}; redirects are not followed (HTTP {status})"
            )
            return CallError(ErrorKind.BAD_RESPONSE, message, status=status, charged=False)
        lowered = {name.lower(): value for name, value in headers.items()}
        wait_s = retry_after_s(lowered, dt.datetime.now(dt.UTC))
        return status_error(status, body, self.scrub, retry_after_s=wait_s)

    def _translate(self, error: Exception) -> CallError:
        """Return the error for one of aiohttp, whose text may contain headers and is not used."""
        import aiohttp

        host = _display_url(self._service.url)
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            message = f"no connection to {host} within {CONNECT_S:g} s"
            return CallError(ErrorKind.TIMEOUT, message, charged=False)
        if isinstance(error, TimeoutError):
            message = f"no complete reply from {host} within {self._service.timeout_s:g} s"
            return CallError(ErrorKind.TIMEOUT, message)
        if isinstance(error, aiohttp.ClientConnectorError):
            return CallError(ErrorKind.NETWORK, self._connect_error(error, host), charged=False)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            message = f"the proxy refuses the connection to {host} (HTTP {error.status})"
            return CallError(ErrorKind.NETWORK, message, charged=False)
        if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError):
            # Truncated, or not valid HTTP.
            cut = CallError(
                ErrorKind.BAD_RESPONSE, f"the reply of {host} was truncated or corrupted"
            )
            cut.garbled = True
            return cut
        if isinstance(error, aiohttp.InvalidURL):
            return CallError(ErrorKind.BAD_REQUEST, f"{host} is not a valid address", charged=False)
        if isinstance(error, aiohttp.ClientConnectionError | OSError):
            return CallError(ErrorKind.NETWORK, f"the connection to {host} was interrupted")
        message = f"{type(error).__name__} while calling {host}"
        return CallError(ErrorKind.BAD_RESPONSE, message)

    def _connect_error(self, error: aiohttp.ClientConnectorError, host: str) -> str:
        import aiohttp

        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return f"cannot resolve the host name of {host}"
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            reason = getattr(error.certificate_error, "verify_message", "") or "it is not valid"
            return f"the certificate of {host} is not accepted: {self.scrub(str(reason))}"
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return f"cannot connect to the proxy for {host}"
        number = error.os_error.errno  # its text names the address once more
        reason = os.strerror(number) if number else error.os_error.strerror or "refused"
        return f"cannot connect to {host}: {self.scrub(reason).lower()}"


def _file_timeout(quiet_s: float) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=FILE_S, connect=CONNECT_S, sock_read=max(quiet_s, CONNECT_S))


async def _save(reply: aiohttp.ClientResponse, into: BinaryIO) -> None:
    """Write the body to a file; raises CallError if it is too large."""
    size = 0
    async for chunk in reply.content.iter_any():
        size += len(chunk)
        if size > MAX_FILE_BYTES:
            raise _too_large(reply, MAX_FILE_BYTES)
        into.write(chunk)


async def _read(reply: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the decompressed body; raises CallError if it is too large."""
    content = reply.content
    first = await content.readany()
    if content.at_eof():
        if len(first) > most:
            raise _too_large(reply, most)
        return first
    parts, size = [first], len(first)
    while chunk := await content.readany():
        parts.append(chunk)
        size += len(chunk)
        if size > most:
            raise _too_large(reply, most)
    return b"".join(parts)


def _too_large(reply: aiohttp.ClientResponse, most: int) -> CallError:
    reply.close()  # the rest is not read, so the connection cannot be reused
    message = f"the reply is larger than {most // 1_000_000} MB"
    return CallError(ErrorKind.BAD_RESPONSE, message, status=reply.status)


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy of the environment for an address; None for this machine."""
    if is_loopback(url):
        return None
    parts = urlsplit(url)

    def named(name: str) -> str:
        return environ.get(f"{name}_proxy") or environ.get(f"{name}_PROXY".upper()) or ""

    chosen = named(parts.scheme) or named("all")
    if not chosen or _bypasses_proxy(parts.hostname or "", parts.netloc, named("no")):
        return None
    return chosen if "://" in chosen else f"http://{chosen}"


def _bypasses_proxy(host: str, netloc: str, no_proxy: str) -> bool:
    """Whether `no_proxy` contains a host, its domain, or `*`."""
    for entry in no_proxy.split(","):
        name = entry.strip().lstrip(".").lower()
        if name == "*" or (name and (name in (host, netloc) or host.endswith(f".{name}"))):
            return True
    return False


def _display_url(url: str) -> str:
    """Return scheme, host and port of an address, for messages."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else "nowhere"
    except ValueError:
        return "nowhere"


def verification() -> ssl.SSLContext:
    """Return what httpx verifies servers by; reading the certificates takes 30 ms each time."""
    return _verification(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _verification(*_: str | None) -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()
