"""A strict GitHub on loopback: real HTTP, real state, and every message held against OpenAPI.

    with FakeGitHub() as github:
        address = github.address()
        ...
        github.state.comments, github.requests     # what is there, and what arrived

It enforces what other stand-ins let pass: the limit of 65,536 characters, permissions, one pull
request per head, fast-forward only, pages of 30 and at most 100, ETags, tokens. `faults` are
answered instead, in order. A request that GitHub would not understand, or a reply of ours that
GitHub would not give, fails the test when the server stops.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from edison_ci.git.host import RepositoryAddress
from tests.features.github import fake_routes
from tests.features.github.fake_state import REPOSITORY, Grant, RefusedError, State
from tests.features.github.openapi import ContractError, description
from tests.timing import PATIENCE_S

_BY_NUMBER = "/repositories/1"
TOKEN = "ghs_canaryTokenOfTheTests0123456789"


@dataclass(frozen=True)
class Arrived:
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class Fault:
    """A reply instead of the right one, to requests that it matches."""

    status: int
    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"message": "scripted"}'
    after: bool = False
    """Do what was asked first, then answer so: the reply was lost, not the request."""
    times: int = 1
    until: threading.Event | None = None
    """Answer when this is set."""

    def matches(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method in ("", method) and self.path in path


class FakeGitHub:
    """The server; a context manager."""

    def __init__(self, *, name: str = "api.github.com", prefix: str = "") -> None:
        self._description, self._prefix = description(name), prefix
        self.requests: list[Arrived] = []
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self.grants = {TOKEN: Grant()}
        self.remaining = 1000
        self._lock = threading.Lock()
        server = self

        class Connection(_Connection):
            github = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Connection)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self.state = State(self._description, self.url)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(PATIENCE_S)
        if kind is None:
            assert self.violations == []

    def address(self, token: str = TOKEN, repository: str = REPOSITORY) -> RepositoryAddress:
        return RepositoryAddress(repository, token, self.url + self._prefix, self.url)

    def sent(self, method: str = "", path: str = "") -> list[Arrived]:
        """Return the requests of a method whose path contains this."""
        return [r for r in self.requests if method in ("", r.method) and path in r.path]

    def template(self, arrived: Arrived) -> str:
        """Return the path of the description that a request is for."""
        path = unquote(arrived.path.removeprefix(self._prefix).partition("?")[0])
        return self._description.operation(arrived.method, path).path

    # --- answering --------------------------------------------------------------------------------

    def answer(self, arrived: Arrived) -> tuple[int, dict[str, str], bytes]:
        with self._lock:
            self.requests.append(arrived)
            fault = next((f for f in self.faults if f.matches(arrived.method, arrived.path)), None)
            if fault is not None:
                fault.times -= 1
            reply = self._answer(arrived, fault)
        if fault is not None and fault.until is not None:
            fault.until.wait(PATIENCE_S)
        return reply

    def _answer(self, arrived: Arrived, fault: Fault | None) -> tuple[int, dict[str, str], bytes]:
        if fault is not None and not fault.after:
            return fault.status, self._told(fault.headers), fault.body
        try:
            status, headers, body = self._checked(arrived)
        except ContractError as error:
            self.violations.append(str(error))
            status, headers, body = 400, {}, {"message": f"not GitHub: {error}"}
        if fault is not None:
            return fault.status, self._told(fault.headers), fault.body
        data = b"" if body is None else json.dumps(body).encode()
        etag = f'W/"{hashlib.sha256(data).hexdigest()}"'
        if arrived.method == "GET" and status == 200:
            headers["ETag"] = etag
            if arrived.headers.get("if-none-match") == etag:
                return 304, self._told(headers), b""
        self.remaining -= 1
        return status, self._told(headers), data

    def _checked(self, arrived: Arrived) -> tuple[int, dict[str, str], Any]:
        if not arrived.path.startswith(self._prefix + "/"):
            raise ContractError(f"{arrived.path} is not below {self._prefix}")
        path = arrived.path.removeprefix(self._prefix)
        path = path.replace(_BY_NUMBER, f"/repos/{REPOSITORY}", 1)
        operation = self._description.check_request(arrived.method, path, arrived.body)
        headers: dict[str, str] = {}
        try:
            status, body = self._routed(arrived, operation.path, path, headers)
        except RefusedError as refused:
            status = refused.status
            body = {"message": refused.message, "documentation_url": "https://docs.github.com/rest"}
            if refused.errors:
                body["errors"] = refused.errors
            headers |= refused.headers
        self._description.check_reply(operation, status, body)
        return status, headers, body

    def _routed(
        self, arrived: Arrived, template: str, url: str, headers: dict[str, str]
    ) -> tuple[int, Any]:
        parts = urlsplit(url)
        self._refuse_incomplete(arrived)
        who = self._who(arrived)
        found = fake_routes.arguments(template, unquote(parts.path))
        if f"{found.pop('owner')}/{found.pop('repo')}" != REPOSITORY:
            raise RefusedError(404, "Not Found")
        fake_routes.refuse_below(who, arrived.method, template)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        call = fake_routes.Call(self.state, who, found, query, arrived.body)
        status, body = fake_routes.ROUTES[arrived.method, template](call)
        if arrived.method == "GET" and isinstance(body, list):
            body = self._page(body, arrived.path, query, headers)
        return status, body

    def _refuse_incomplete(self, arrived: Arrived) -> None:
        wanted = {
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
        }
        for name, value in wanted.items():
            if arrived.headers.get(name) != value:
                raise ContractError(f"{name}: {arrived.headers.get(name)!r}")
        if not arrived.headers.get("user-agent", "").startswith("edison-ci/"):
            raise ContractError("GitHub refuses requests without a User-Agent of their own")

    def _who(self, arrived: Arrived) -> Grant:
        scheme, _, token = arrived.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.grants:
            raise RefusedError(401, "Bad credentials")
        return self.grants[token]

    def _page(
        self, items: list[Any], path: str, query: dict[str, str], headers: dict[str, str]
    ) -> list[Any]:
        size = min(int(query.get("per_page", 30)), 100)
        page = int(query.get("page", 1))
        if page * size < len(items):
            more = "&".join(f"{k}={v}" for k, v in {**query, "page": str(page + 1)}.items())
            # GitHub's own links name the repository by its number.
            place = path.partition("?")[0].replace(f"/repos/{REPOSITORY}", _BY_NUMBER)
            where = f"{self.url}{place}?{more}"
            headers["Link"] = f'<{where}>; rel="next", <{where}>; rel="last"'
        return items[(page - 1) * size : page * size]

    def _told(self, headers: dict[str, str]) -> dict[str, str]:
        limits = {
            "X-RateLimit-Limit": "1000",
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(int(time.time()) + 3600),
        }
        given = {name.lower() for name in headers}
        return {k: v for k, v in limits.items() if k.lower() not in given} | headers


class _Connection(BaseHTTPRequestHandler):
    github: FakeGitHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(raw) if raw else None
        status, more, data = self.github.answer(Arrived(self.command, self.path, headers, body))
        with contextlib.suppress(ConnectionError):  # a client may have stopped waiting
            self._send(status, more, data)

    def _send(self, status: int, more: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **more}.items():
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if status not in (204, 304):
            self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
