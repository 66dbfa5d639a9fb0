"""A cache server on loopback: GET and PUT of objects below /answers, and misbehaviour as told."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    Behaviour = Callable[["Handler"], bool]

PREFIX = "/answers/"


class Server(ThreadingHTTPServer):
    """A server that takes more than five connections at once."""

    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Say nothing: the other side may break off."""


class CacheServer:
    """The server in a thread; a context manager."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.seen: list[tuple[str, str]] = []
        """Method and name of each request."""
        self.headers: list[dict[str, str]] = []
        self.stopping = threading.Event()
        self.behaviour: Behaviour | None = None
        """Called with a request first; whether it has answered it."""
        server = self

        class Bound(Handler):
            cache = server

        self._http = Server(("127.0.0.1", 0), Bound)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}{PREFIX}"

    def count(self, method: str) -> int:
        return sum(one == method for one, _ in self.seen)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    cache: CacheServer

    @property
    def name(self) -> str:
        return self.path.partition("?")[0].removeprefix(PREFIX)

    def do_GET(self) -> None:
        if self._misbehaves():
            return
        found = self.cache.objects.get(self.name)
        self.reply(404 if found is None else 200, found or b"")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self._misbehaves():
            return
        self.cache.objects[self.name] = body
        self.reply(201)

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        with contextlib.suppress(ConnectionError):  # the other side may have lost patience
            self.end_headers()
            self.wfile.write(body)
            return
        self.close_connection = True

    def _misbehaves(self) -> bool:
        self.cache.seen.append((self.command, self.name))
        self.cache.headers.append({name.lower(): value for name, value in self.headers.items()})
        behaviour = self.cache.behaviour
        return behaviour is not None and behaviour(self)

    def log_message(self, *_: object) -> None:
        pass
