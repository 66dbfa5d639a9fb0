"""What does every response carry, and which requests are refused?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.report.datasette_plugin.attached import served_by

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from edison_ci.report.datasette_plugin.attached import Served

    App = Callable[[Mapping[str, Any], Any, Any], Awaitable[None]]

MOST_SENT = 1_000_000
"""Bytes of a form; nothing that people write is longer."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_ALWAYS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
PAGE_HEADERS = {
    **_ALWAYS,
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "private, no-cache",
}
"""Headers of our pages: whatever a model wrote, it runs nothing and loads nothing."""
KEEP = "x-edison-keep"
"""Header of a file of ours: how long it may be kept, whoever asks."""
_CORE_HEADERS = {
    **_ALWAYS,
    # Datasette's own pages have scripts and styles in their text.
    "content-security-policy": (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
}


def guarded(datasette: Any, app: App) -> App:
    """Return the application with a guard before it, if `edison serve` started it."""

    async def guard(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        served = served_by(datasette)
        if served is None or scope["type"] != "http":
            await app(scope, receive, send)
            return
        refusal = _refusal(scope, served)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        await app(scope, receive, _with_headers(send))

    return guard


def _refusal(scope: Mapping[str, Any], served: Served) -> tuple[int, str] | None:
    """Return the status and the words for a request that no page is to see."""
    host = _header(scope, b"host").casefold()
    name, _, port = host.rpartition(":")
    if (name if port.isdigit() else host).strip("[]") not in served.hosts:
        return 421, "This server is only there for the address that `edison serve` named."
    if scope["method"] in _SAFE:
        return None
    if _from_elsewhere(scope, host):
        return 403, "This form was sent by a page of another site."
    length = _header(scope, b"content-length")
    if not length.isdigit():
        return 411, "The length of what is sent has to be said."
    if int(length) > MOST_SENT:
        return 413, f"That is more than {MOST_SENT:,} bytes."
    return None


def _from_elsewhere(scope: Mapping[str, Any], host: str) -> bool:
    """Whether a browser says that a page of another site sends this; others say nothing.

    Cross-origin protection as in Go 1.25 (Valsorda, 2025); a token in the form is not enough to
    protect signing in, and Datasette 1.0 has no tokens.
    """
    if site := _header(scope, b"sec-fetch-site"):
        return site not in ("same-origin", "none")
    origin = _header(scope, b"origin").casefold()
    return bool(origin) and origin.partition("://")[2] != host


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    found: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return found.decode("latin-1")


async def _refuse(send: Any, status: int, words: str) -> None:
    body = f"{words}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    headers += [(key.encode(), value.encode()) for key, value in PAGE_HEADERS.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _kept(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Let files be kept that say so: Datasette 0.65 forbids it to whoever sends a cookie."""
    kept = next((value for key, value in headers if key.decode() == KEEP), None)
    if kept is None:
        return headers
    others = [(k, v) for k, v in headers if k.decode().lower() not in (KEEP, "cache-control")]
    return [*others, (b"cache-control", kept)]


def _with_headers(send: Any) -> Callable[[dict[str, Any]], Awaitable[None]]:
    async def sent(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = _kept(list(message.get("headers", [])))
            there = {bytes(key).lower() for key, _ in headers}
            headers += [
                (key.encode(), value.encode())
                for key, value in _CORE_HEADERS.items()
                if key.encode() not in there
            ]
            message = {**message, "headers": headers}
        await send(message)

    return sent
