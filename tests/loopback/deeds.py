"""How does each deed of a script look on the wire?"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
import zlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.loopback.protocols import Reply
    from tests.loopback.script import Rule

_PAGE = b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"
_ERROR = {"error": {"message": "the server had an error", "type": "server_error", "code": None}}
_REASONS = {200: "OK", 307: "Temporary Redirect", 429: "Too Many Requests"}


@dataclass(frozen=True, slots=True)
class Wire:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


async def send(
    wire: Wire, status: int, headers: dict[str, str], body: bytes, *, length: int | None = None
) -> None:
    """Write one response; `length` may lie."""
    lower = {name.lower() for name in headers}
    told = dict(headers)
    if "content-type" not in lower:
        told["Content-Type"] = "application/json"
    if "content-length" not in lower:
        told["Content-Length"] = str(len(body) if length is None else length)
    head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Said So')}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in told.items()) + "\r\n"
    await wire.write(head.encode("latin-1") + body)


def encoded(body: Any) -> bytes:
    """Return a scripted body as bytes: text as it is, anything else as JSON."""
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


async def perform(wire: Wire, rule: Rule, reply: Reply) -> bool:
    """Do what the rule says; False ends the connection."""
    return await _DEEDS[rule.do](wire, rule, json.dumps(reply.body).encode())


async def _answer(wire: Wire, rule: Rule, good: bytes) -> bool:
    body = good if rule.body is None else encoded(rule.body)
    await send(wire, rule.status, rule.headers, body)
    return True


async def _status(wire: Wire, rule: Rule, good: bytes) -> bool:
    body = {"error": {"message": f"status {rule.status}"}} if rule.body is None else rule.body
    await send(wire, rule.status, rule.headers, encoded(body))
    return True


async def _hang(wire: Wire, rule: Rule, good: bytes) -> bool:
    await wire.reader.read(1)  # ends when the client gives up
    return False


async def _close(wire: Wire, rule: Rule, good: bytes) -> bool:
    return False


async def _reset(wire: Wire, rule: Rule, good: bytes) -> bool:
    raw = wire.writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.writer.transport.abort()
    return False


async def _truncate(wire: Wire, rule: Rule, good: bytes) -> bool:
    await send(wire, 200, rule.headers, good[: len(good) // 2])
    return True


async def _short(wire: Wire, rule: Rule, good: bytes) -> bool:
    await send(wire, 200, rule.headers, good[: len(good) // 2], length=len(good))
    return False


_CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)


async def _bad_chunk(wire: Wire, rule: Rule, good: bytes) -> bool:
    await wire.write(_CHUNKED + b"10\r\n" + good[:16] + b"\r\nZZ\r\nno chunk at all\r\n")
    return False


async def _dribble(wire: Wire, rule: Rule, good: bytes) -> bool:
    await send(wire, 200, rule.headers, b"", length=len(good))
    for byte in good:
        await wire.write(bytes([byte]))
        await asyncio.sleep(rule.interval_s)
    return True


async def _endless(wire: Wire, rule: Rule, good: bytes) -> bool:
    filler = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    await wire.write(_CHUNKED)
    while True:
        await wire.write(filler)


async def _gzip(wire: Wire, rule: Rule, good: bytes) -> bool:
    await send(wire, 200, {**rule.headers, "Content-Encoding": "gzip"}, gzip.compress(good))
    return True


@cache
def _bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    filler = b" " * (1 << 20)
    return b"".join([*(packer.compress(filler) for _ in range(256)), packer.flush()])


async def _gzip_bomb(wire: Wire, rule: Rule, good: bytes) -> bool:
    await send(wire, 200, {"Content-Encoding": "gzip"}, await asyncio.to_thread(_bomb))
    return True


async def _redirect(wire: Wire, rule: Rule, good: bytes) -> bool:
    await send(wire, 307, {**rule.headers, "Location": rule.location}, b"")
    return True


def _fixed(body: bytes, **headers: str) -> Callable[[Wire, Rule, bytes], Awaitable[bool]]:
    async def deed(wire: Wire, rule: Rule, good: bytes) -> bool:
        await send(wire, 200, {**headers, **rule.headers}, body)
        return True

    return deed


async def _garbage(wire: Wire, rule: Rule, good: bytes) -> bool:
    await wire.write(b"\x00\xff\x13 this is not HTTP \r\n\r\n")
    return False


_DEEDS: dict[str, Callable[[Wire, Rule, bytes], Awaitable[bool]]] = {
    "answer": _answer,
    "status": _status,
    "hang": _hang,
    "close": _close,
    "reset": _reset,
    "truncate": _truncate,
    "short": _short,
    "bad_chunk": _bad_chunk,
    "dribble": _dribble,
    "endless": _endless,
    "gzip": _gzip,
    "gzip_bomb": _gzip_bomb,
    "redirect": _redirect,
    "html": _fixed(_PAGE, **{"Content-Type": "text/html"}),
    "empty": _fixed(b""),
    "error_in_200": _fixed(json.dumps(_ERROR).encode()),
    "invalid_json": _fixed(b"{'text': not json"),
    "wrong_schema": _fixed(b'{"object": "list", "data": []}'),
    "garbage": _garbage,
}
