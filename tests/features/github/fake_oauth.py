"""A strict GitHub on loopback for sign-in: the web flow as GitHub's documentation describes it.

Stricter than GitHub where our code must not rely on leniency: the callback address must be exactly
the registered one, PKCE is required, a code is valid once. What the API is asked, and what it
answers, is held against GitHub's OpenAPI description. Nothing of a request is ever logged.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from edison_ci.access.github_oauth import OAuthApp
from tests.features.github.openapi import ContractError, description
from tests.timing import PATIENCE_S

CLIENT = "Iv1.0123456789abcdef"
SECRET = "canarySecretOfTheApp0123456789"
CALLBACK_PATH = "/-/edison/sign-in/github/callback"
_API = "/api/v3"


def _drawn(what: str, number: int) -> str:
    """Return what GitHub would draw by chance."""
    return hashlib.sha256(f"{what} {number}".encode()).hexdigest()


class FakeOAuth:
    """The server; a context manager."""

    def __init__(self, callback: str) -> None:
        self.callback = callback
        self.login, self.id, self.type = "ed", 7, "User"
        """The account of the person at the browser."""
        self.answer: dict[str, Any] | None = None
        """What the exchange of a code answers instead."""
        self.revocation = 204
        self.violations: list[str] = []
        self.codes: dict[str, str] = {}
        """The challenge of each code that was not used yet."""
        self.tokens: set[str] = set()
        self.given = self.consents = 0
        fake = self

        class Connection(_Connection):
            github = fake

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Connection)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def app(self) -> OAuthApp:
        """The app as GitHub Enterprise has it: its API is below the same host."""
        return OAuthApp(CLIENT, SECRET, self.url, self.url + _API)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(PATIENCE_S)
        if kind is None:
            assert self.violations == []

    def consent(self, address: str) -> str:
        """Let the person agree on GitHub's page; return where the browser is sent."""
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True))
        known = {"client_id", "redirect_uri", "scope", "state", "code_challenge",
                 "code_challenge_method", "allow_signup"}  # fmt: skip
        assert (f"{parts.scheme}://{parts.netloc}", parts.path) == (
            self.url, "/login/oauth/authorize")  # fmt: skip
        assert query.keys() == known
        assert (query["client_id"], query["redirect_uri"]) == (CLIENT, self.callback)
        assert (query["scope"], query["code_challenge_method"]) == ("", "S256")
        assert len(query["state"]) >= 32
        self.consents += 1
        code = _drawn("code", self.consents)[:20]
        self.codes[code] = query["code_challenge"]
        return f"{self.callback}?{urlencode({'code': code, 'state': query['state']})}"

    # --- answering --------------------------------------------------------------------------------

    def exchange(self, headers: dict[str, str], raw: bytes) -> tuple[int, Any]:
        if headers.get("content-type") != "application/x-www-form-urlencoded":
            raise ContractError("the code is sent as a form")
        if headers.get("accept") != "application/json":
            raise ContractError("without Accept the answer is a form")
        sent = {name: values[0] for name, values in parse_qs(raw.decode()).items()}
        if sent.keys() != {"client_id", "client_secret", "code", "redirect_uri", "code_verifier"}:
            raise ContractError(f"the exchange takes other fields than {sorted(sent)}")
        if self.answer is not None:
            return 200, self.answer
        if (sent["client_id"], sent["client_secret"]) != (CLIENT, SECRET):
            return 200, {"error": "incorrect_client_credentials"}
        if sent["redirect_uri"] != self.callback:
            return 200, {"error": "redirect_uri_mismatch"}
        challenge = self.codes.pop(sent["code"], None)
        digest = hashlib.sha256(sent["code_verifier"].encode()).digest()
        if challenge != base64.urlsafe_b64encode(digest).decode().rstrip("="):
            return 200, {"error": "bad_verification_code"}
        token = f"gho_{_drawn('token', self.given)[:36]}"
        self.tokens.add(token)
        self.given += 1
        return 200, {"access_token": token, "scope": "", "token_type": "bearer"}

    def api(self, method: str, path: str, headers: dict[str, str], body: Any) -> tuple[int, Any]:
        github = description("ghes-3.17")
        operation = github.check_request(method, path, body, app=False)
        if headers.get("x-github-api-version") != "2022-11-28":
            raise ContractError("the version of the API is missing")
        status, answer = self._api(path, headers.get("authorization", ""), body)
        github.check_reply(operation, status, answer)
        return status, answer

    def _api(self, path: str, authorization: str, body: Any) -> tuple[int, Any]:
        if path == "/user":
            if authorization.removeprefix("Bearer ") not in self.tokens:
                return 401, {"message": "Bad credentials"}
            made = description("ghes-3.17").example("GET", "/user", 200)
            return 200, {**made, "login": self.login, "id": self.id, "type": self.type}
        both = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != f"Basic {both}" or path != f"/applications/{CLIENT}/token":
            return 404, {"message": "Not Found"}
        if self.revocation == 204:
            self.tokens.discard(body["access_token"])
        return self.revocation, None if self.revocation == 204 else {"message": "no"}


class _Connection(BaseHTTPRequestHandler):
    github: FakeOAuth
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path.startswith("/login/oauth/authorize?"):
            self._show_consent()
            return
        try:
            if (self.command, self.path) == ("POST", "/login/oauth/access_token"):
                status, body = self.github.exchange(headers, raw)
            elif self.path.startswith(f"{_API}/"):
                sent = json.loads(raw) if raw else None
                path = self.path.removeprefix(_API)
                status, body = self.github.api(self.command, path, headers, sent)
            else:
                raise ContractError(f"GitHub has no {self.command} {self.path}")
        except ContractError as error:
            self.github.violations.append(str(error))
            status, body = 400, {"message": str(error)}
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _show_consent(self) -> None:
        """Ask the person at the browser."""
        back = self.github.consent(self.github.url + self.path)
        page = f"<title>Authorize</title><a href='{html.escape(back)}'>Authorize</a>"
        data = f"<link rel=icon href='data:,'>{page}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
