"""At which addresses may a model be that needs no key?

A key goes only to hosts that the trust file lists. A model without one could be pointed anywhere,
so it may not be where machines keep their own secrets: link-local addresses and the metadata
services of clouds, however they are written. This machine and private networks are where local
models live, and are fine.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))
)
"""Metadata services that have no link-local address."""
_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")


def is_off_limits(host: str) -> bool:
    """Whether a host, by name or as an address in any notation, belongs to the machine's owner."""
    name = host.strip("[]").rstrip(".").lower()
    if name in _NAMES:
        return True
    found = _address(name)
    return found is not None and _is_off_limits(found)


def host_of(url: str) -> str:
    """Return the host of an address; '' if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


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


def _is_off_limits(address: _Address) -> bool:
    inner = _inside(address) if isinstance(address, ipaddress.IPv6Address) else None
    if inner is not None and _is_off_limits(inner):
        return True
    return address.is_link_local or address in _METADATA


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for."""
    if address in _NAT64 or (address in _COMPATIBLE and address.ipv4_mapped is None):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)
