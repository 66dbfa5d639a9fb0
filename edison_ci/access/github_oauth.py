"""Sign-in with a GitHub account: the web flow of OAuth, with state and PKCE.

The token that GitHub gives is used once, to read which account it belongs to, and is then revoked;
it is never stored. No scope is requested, so it could read public data only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import secrets
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from edison_ci import __version__
from edison_ci._dataclass import dataclass
from edison_ci.access import github_api
from edison_ci.access.accounts import GitHubAccount
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.git.host import PUBLIC_API, PUBLIC_SERVER, refuse_unsafe_url

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

CLIENT_ID, CLIENT_SECRET = "EDISON_GITHUB_CLIENT_ID", "EDISON_GITHUB_CLIENT_SECRET"
"""Variables with the id and the secret of the OAuth app."""
_ID = re.compile(r"[A-Za-z0-9._-]{8,100}")
_SECRET = re.compile(r"[\x21-\x7e]{8,200}")
_LOGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,38}[A-Za-z0-9])?")
_CODE = re.compile(r"[A-Za-z0-9._~-]{1,200}")


class SignInAttempt(NamedTuple):
    """What the browser keeps between the start of a sign-in and its end."""

    state: str
    verifier: str

    @classmethod
    def new(cls) -> SignInAttempt:
        """Return fresh random values."""
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(48))

    @property
    def challenge(self) -> str:
        """The hash of the verifier (RFC 7636, S256)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class OAuthApp:
    """An OAuth app on GitHub or GitHub Enterprise."""

    client_id: str
    client_secret: str = field(repr=False)
    server_url: str = PUBLIC_SERVER
    api_url: str = PUBLIC_API

    def __post_init__(self) -> None:
        for name, pattern, value in (
            (CLIENT_ID, _ID, self.client_id),
            (CLIENT_SECRET, _SECRET, self.client_secret),
        ):
            if not pattern.fullmatch(value):
                raise UsageError(
                    f"{name} is not set, or not valid" if value else f"{name} is not set",
                    hint="copy it from the OAuth app, in the settings of GitHub",
                )
        for url in (self.server_url, self.api_url):
            refuse_unsafe_url(url)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> OAuthApp:
        """Return the app that the environment names; raises UsageError without one."""
        server = (environment.get("GITHUB_SERVER_URL") or PUBLIC_SERVER).rstrip("/")
        api = PUBLIC_API if server == PUBLIC_SERVER else f"{server}/api/v3"
        return cls(
            environment.get(CLIENT_ID, "").strip(),
            environment.get(CLIENT_SECRET, "").strip(),
            server,
            (environment.get("GITHUB_API_URL") or api).rstrip("/"),
        )

    def authorize_url(self, attempt: SignInAttempt, redirect_uri: str) -> str:
        """Return the page of GitHub that asks the person."""
        query = {
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "scope": "",
            "state": attempt.state,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
            "allow_signup": "false",
        }
        return f"{self.server_url}/login/oauth/authorize?{urlencode(query)}"

    async def account(self, code: str, attempt: SignInAttempt, redirect_uri: str) -> GitHubAccount:
        """Return the account that a code was given to; raises ForgeError."""
        if not _CODE.fullmatch(code):
            raise _refused("the code is not valid")
        client = github_api.HttpClient()
        try:
            token = await self._token(client, code, attempt, redirect_uri)
            try:
                return await self._read_account(client, token)
            finally:
                await self._revoke(client, token)
        finally:
            await client.aclose()

    async def _token(
        self, client: github_api.HttpClient, code: str, attempt: SignInAttempt, redirect_uri: str
    ) -> str:
        fields = {
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
        }
        headers = {
            "accept": "application/json",
            "content-type": "application/x-www-form-urlencoded",
            "user-agent": f"edison-ci/{__version__}",
        }
        url = f"{self.server_url}/login/oauth/access_token"
        content = urlencode(fields).encode()
        value = _json(await client.send(github_api.HttpRequest("POST", url, headers, content)))
        # GitHub answers a wrong code with 200 and an error.
        token, kind = value.get("access_token"), str(value.get("token_type", "")).casefold()
        if not isinstance(token, str) or not _SECRET.fullmatch(token) or kind != "bearer":
            error = value.get("error")
            raise _refused(f"GitHub refused the code: {error}" if error else "GitHub gave no token")
        return token

    async def _read_account(self, client: github_api.HttpClient, token: str) -> GitHubAccount:
        request = github_api.HttpRequest(
            "GET", f"{self.api_url}/user", _api_headers(f"Bearer {token}")
        )
        value = _json(await client.send(request))
        number, login = value.get("id"), value.get("login")
        person = value.get("type") == "User"
        if not isinstance(number, int) or not isinstance(login, str) or not person:
            raise _refused("GitHub did not say whose account it is")
        if not _LOGIN.fullmatch(login):
            raise _refused("the login is not a login of a person")
        return GitHubAccount(number, login)

    async def _revoke(self, client: github_api.HttpClient, token: str) -> None:
        """Revoke the token; one that cannot be revoked has no scope, and is forgotten here."""
        both = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        url = f"{self.api_url}/applications/{quote(self.client_id, safe='')}/token"
        content = json.dumps({"access_token": token}).encode()
        headers = {**_api_headers(f"Basic {both}"), "content-type": "application/json"}
        try:
            reply = await client.send(github_api.HttpRequest("DELETE", url, headers, content))
        except ForgeError as error:
            logger.warning("the token of a sign-in was not revoked: %s", error.message)
            return
        if reply.status != 204:
            logger.warning("the token of a sign-in was not revoked: status %s", reply.status)


def _api_headers(authorization: str) -> dict[str, str]:
    return {
        "accept": "application/vnd.github+json",
        "authorization": authorization,
        "user-agent": f"edison-ci/{__version__}",
        "x-github-api-version": "2022-11-28",
    }


def _json(reply: github_api.HttpReply) -> dict[str, Any]:
    if reply.status != 200:
        raise ForgeError(
            f"GitHub answered the sign-in with status {reply.status}",
            fault=ForgeFault.UNAVAILABLE,
            hint="try again later",
        )
    try:
        value = json.loads(reply.body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _refused("GitHub's answer cannot be read")
    return value


def _refused(message: str) -> ForgeError:
    return ForgeError(message, fault=ForgeFault.UNAUTHORIZED, hint="sign in again")
