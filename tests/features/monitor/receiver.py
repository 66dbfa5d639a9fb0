"""A webhook server on loopback that behaves as badly as it is told to."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class Receiver:
    """What arrived, and how the server behaves."""

    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    behave: Callable[[BaseHTTPRequestHandler], bool] | None = None
    """Handles a request in its own way; returns whether it has done so."""
    on_get: Callable[[BaseHTTPRequestHandler], bool] | None = None
    """Answers a GET."""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    """Set at the end, so that requests that hang come to an end."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.requests]

    @property
    def titles(self) -> list[str]:
        return [message["title"] for message in self.messages]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Yield a running server."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = self.rfile.read(length)
            found.requests.append(({k.lower(): v for k, v in self.headers.items()}, body))
            if found.behave is not None and found.behave(self):
                return
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)

        def do_GET(self) -> None:
            assert found.on_get is not None
            found.on_get(self)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/hook/very-secret-path"
    try:
        yield found
    finally:
        found.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
