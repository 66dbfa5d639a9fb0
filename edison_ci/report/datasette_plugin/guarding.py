"""What does every response carry, and which requests are refused?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.report.datasette_plugin.attached import served_by

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    App = Callable[[Mapping[str, Any], Any, Any], Awaitable[None]]

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
        if _host(scope) not in served.hosts:
            await _refuse(send)
            return
        await app(scope, receive, _with_headers(send))

    return guard


def _host(scope: Mapping[str, Any]) -> str:
    """Return the name by which a browser calls us, without its port."""
    named = next((value for key, value in scope["headers"] if key == b"host"), b"")
    host = named.decode("latin-1").casefold()
    name, _, port = host.rpartition(":")
    return (name if port.isdigit() else host).strip("[]")


async def _refuse(send: Any) -> None:
    body = b"This server is only there for the address that `edison serve` named.\n"
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    headers += [(key.encode(), value.encode()) for key, value in PAGE_HEADERS.items()]
    await send({"type": "http.response.start", "status": 421, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Any) -> Callable[[dict[str, Any]], Awaitable[None]]:
    async def sent(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", []))
            there = {bytes(key).lower() for key, _ in headers}
            headers += [
                (key.encode(), value.encode())
                for key, value in _CORE_HEADERS.items()
                if key.encode() not in there
            ]
            message = {**message, "headers": headers}
        await send(message)

    return sent
