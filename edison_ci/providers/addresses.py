"""Which addresses a model may be at.

Wherever machines keep their own secrets is out of reach for every model: link-local addresses and
the metadata services of clouds. This machine and private networks are where local models live, and
are fine on a laptop; in CI they are where the runner's owner has things that a pull request should
not reach, so there `.edison/trust.yaml` has to name them. It is the address that is connected to
which counts, after its name was looked up; behind a proxy, which does that, it is the name.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edison_ci.contracts import CallError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.trust import TrustFile

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))
)
"""Metadata services that have no link-local address."""
_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_OFF = ("", "0", "false")
_CI = ("CI", "GITHUB_ACTIONS", "GITHUB_EVENT_NAME")


class Reach(Enum):
    """How near a model may be."""

    PUBLIC = "public"
    """At public addresses only."""
    NEARBY = "nearby"
    """Also on this machine and in private networks."""


def reach_of(address: str, trust: TrustFile, environ: Mapping[str, str]) -> Reach:
    """Return how near a model at an address may be: in CI as far as the trust file names it."""
    in_ci = any(environ.get(name, "").lower() not in _OFF for name in _CI)
    return Reach.PUBLIC if in_ci and not trust.names(address) else Reach.NEARBY


def why_not(host: str, reach: Reach) -> str:
    """Return why a host, by name or as an address in any notation, is out of reach, or ''."""
    name = host.strip("[]").rstrip(".").lower()
    # A proxy may read %2e as a dot, and it alone looks the name up; only a zone of IPv6 has a %.
    if not name.isascii() or ("%" in name and ":" not in name):
        return "is written in letters that could be read as another host"
    if name in _NAMES:
        return "is a cloud's metadata service"
    found = _address(name)
    if found is None:
        local = name == "localhost" or name.endswith(".localhost")
        return _NEAR if local and reach is Reach.PUBLIC else ""
    return _why_not(found, reach)


def host_of(url: str) -> str:
    """Return the host of an address; '' if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


async def refuse_unreachable(address: str, reach: Reach) -> None:
    """Raise CallError if the host of an address leads to one that is out of reach."""
    host = host_of(address)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return  # whoever calls it will say so
    for *_, place in found:
        refuse(host, str(place[0]), reach)


def refuse(host: str, address: str, reach: Reach) -> None:
    """Raise CallError if the address of a host is out of reach."""
    if reason := why_not(address, reach):
        raise CallError(ErrorKind.BAD_REQUEST, f"{host} {reason}", charged=False)


_NEAR = (
    "is this machine or in a private network, and in CI only .edison/trust.yaml of the base may "
    "name such hosts: hosts: [http://HOST:PORT]"
)


def _address(name: str) -> _Address | None:
    """Return an address; decimal, octal, hexadecimal and short ones as the system takes them."""
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(name))
    except (OSError, ValueError):
        return None


def _why_not(address: _Address, reach: Reach) -> str:
    inner = _inside(address) if isinstance(address, ipaddress.IPv6Address) else None
    if inner is not None:
        return _why_not(inner, reach)
    if address.is_link_local or address in _METADATA:
        return "is at a link-local address or a cloud's metadata service"
    return _NEAR if reach is Reach.PUBLIC and not address.is_global else ""


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for."""
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)
