"""Short-lived credentials in place of stored keys: GitHub's token exchanged at AWS, Google, Azure.

A job of GitHub Actions with `id-token: write` can get a signed token that says which repository,
branch and environment it is. The cloud that trusts it gives credentials for it that expire within
the hour. Which role, pool or application is asked for is in `trust.yaml`, in a pull request that of
the base. Hosts are fixed, tokens are never logged, and credentials are kept in memory until five
minutes before they expire, by a clock that no change of the time moves.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from edison_ci._dataclass import dataclass
from edison_ci.config.trust import origin
from edison_ci.config.trust_entries import AwsIdentity, AzureIdentity, GoogleIdentity
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.decoding import decode_base64url
from edison_ci.documents.secrets import remember
from edison_ci.providers.model_access import BEARER
from edison_ci.providers.transport import Reach, Service, Transport, proxy_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edison_ci.contracts import Provider
    from edison_ci.records import Completion, Request

TOKEN_URL, TOKEN = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
"""Variables that a job with `id-token: write` has."""
_EARLY_S = 300.0
_LIFETIME_S = 3_600
_TIMEOUT_S = 30.0
_AWS_AUDIENCE = "sts.amazonaws.com"
_AZURE_AUDIENCE = "api://AzureADTokenExchange"
_AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_FORM = "application/x-www-form-urlencoded"
_AWS_PARTS = {
    "access_key_id": r"<AccessKeyId>([A-Za-z0-9_]{16,128})</AccessKeyId>",
    "secret_access_key": r"<SecretAccessKey>([A-Za-z0-9/+=]{16,256})</SecretAccessKey>",
    "session_token": r"<SessionToken>\s*([A-Za-z0-9/+=]{16,20000})\s*</SessionToken>",
}
Identity = AwsIdentity | GoogleIdentity | AzureIdentity


class Endpoints(NamedTuple):
    """The hosts that tokens are sent to, and no others."""

    aws: str = "https://sts.{region}.amazonaws.com"
    google: str = "https://sts.googleapis.com"
    google_accounts: str = "https://iamcredentials.googleapis.com"
    azure: str = "https://login.microsoftonline.com"
    github: str = r"https://[a-z0-9.-]+\.actions\.githubusercontent\.com:443"
    """Pattern of the host that gives GitHub's token."""
    reach: Reach = Reach.PUBLIC


class _Credentials(NamedTuple):
    keys: dict[str, str]
    lifetime_s: float


@dataclass(slots=True)
class CredentialSource:
    """Gets credentials for an identity, and keeps them until shortly before they expire."""

    identity: Identity
    environ: Mapping[str, str] = field(repr=False)
    region: str = ""
    endpoints: Endpoints = Endpoints()
    clock: Callable[[], float] = time.monotonic
    _keys: dict[str, str] = field(default_factory=dict, repr=False)
    _until: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def keys(self) -> dict[str, str]:
        """Return the credentials as keys of a model; raises CallError."""
        async with self._lock:
            if not self._keys or self.clock() >= self._until:
                credentials = await self._exchange()
                remember(credentials.keys.values())
                self._keys = credentials.keys
                self._until = self.clock() + credentials.lifetime_s - _EARLY_S
            return self._keys

    async def _exchange(self) -> _Credentials:
        if isinstance(self.identity, AwsIdentity):
            return await self._from_aws(self.identity)
        if isinstance(self.identity, GoogleIdentity):
            return await self._from_google(self.identity)
        return await self._from_azure(self.identity)

    async def _github_token(self, audience: str) -> str:
        """Return GitHub's token for an audience."""
        url, secret = self.environ.get(TOKEN_URL, ""), self.environ.get(TOKEN, "")
        if not url or not secret:
            raise _failed("the job has no token of GitHub: add permissions: {id-token: write}")
        try:
            place = origin(url)
        except ValueError:
            place = ""
        if not re.fullmatch(self.endpoints.github, place) or urlsplit(url).username:
            raise _failed(f"{TOKEN_URL} is not an address of GitHub Actions")
        value = await self._ask(
            "GET",
            f"{url}&audience={quote(audience, safe='')}",
            headers={"Authorization": f"Bearer {secret}", "Accept": "application/json"},
            secrets=(secret,),
        )
        token = _text(value, "value", "GitHub")
        remember([token])
        if _claims(token).get("aud") != audience:
            raise _failed(f"GitHub's token is not for {audience}")
        return token

    async def _from_aws(self, identity: AwsIdentity) -> _Credentials:
        """AssumeRoleWithWebIdentity of AWS STS."""
        token = await self._github_token(_AWS_AUDIENCE)
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": identity.role,
            "RoleSessionName": "edison-ci",
            "WebIdentityToken": token,
            "DurationSeconds": str(_LIFETIME_S),
        }
        url = self.endpoints.aws.format(region=self.region)
        body = await self._post(f"{url}/", form, token)
        text = body.decode("utf-8", "replace")
        matches = {part: re.search(pattern, text) for part, pattern in _AWS_PARTS.items()}
        keys = {part: match[1] for part, match in matches.items() if match is not None}
        if len(keys) != len(_AWS_PARTS):
            raise _failed("AWS STS gave no credentials")
        return _Credentials(keys, _LIFETIME_S)

    async def _from_google(self, identity: GoogleIdentity) -> _Credentials:
        """Token exchange of Google STS (RFC 8693), then the token of a service account."""
        pool = f"//iam.googleapis.com/{identity.pool}"
        token = await self._github_token(f"https:{pool}")
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "audience": pool,
            "scope": _GOOGLE_SCOPE,
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "subject_token": token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        }
        value = _json(await self._post(f"{self.endpoints.google}/v1/token", form, token), "Google")
        federated = _text(value, "access_token", "Google")
        remember([federated])
        if identity.service_account is None:
            return _Credentials({BEARER: federated}, _lifetime(value))
        account = quote(identity.service_account, safe="@")
        value = await self._ask(
            "POST",
            f"{self.endpoints.google_accounts}/v1/projects/-/serviceAccounts/{account}"
            ":generateAccessToken",
            body=json.dumps({"scope": [_GOOGLE_SCOPE], "lifetime": f"{_LIFETIME_S}s"}).encode(),
            headers={"Authorization": f"Bearer {federated}"},
            secrets=(federated,),
        )
        return _Credentials({BEARER: _text(value, "accessToken", "Google")}, _LIFETIME_S)

    async def _from_azure(self, identity: AzureIdentity) -> _Credentials:
        """Client credentials of Microsoft Entra with GitHub's token as the assertion."""
        token = await self._github_token(_AZURE_AUDIENCE)
        form = {
            "client_id": identity.client,
            "scope": _AZURE_SCOPE,
            "grant_type": "client_credentials",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": token,
        }
        url = f"{self.endpoints.azure}/{identity.tenant}/oauth2/v2.0/token"
        value = _json(await self._post(url, form, token), "Azure")
        return _Credentials({BEARER: _text(value, "access_token", "Azure")}, _lifetime(value))

    async def _post(self, url: str, form: Mapping[str, str], secret: str) -> bytes:
        body = urlencode(form).encode()
        return await self._send("POST", url, {"Content-Type": _FORM}, (secret,), body)

    async def _ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        secrets: tuple[str, ...],
        body: bytes | None = None,
    ) -> dict[str, Any]:
        return _json(await self._send(method, url, headers, secrets, body), _host(url))

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        secrets: tuple[str, ...],
        body: bytes | None,
    ) -> bytes:
        transport = Transport(
            Service(
                url=url,
                headers={"User-Agent": "edison-ci", **headers},
                secrets=secrets,
                timeout_s=_TIMEOUT_S,
                proxy=proxy_for(url, self.environ),
                ca_file=self.environ.get("SSL_CERT_FILE") or None,
                reach=self.endpoints.reach,
            )
        )
        try:
            return (await transport.send(method, body=body)).body
        except CallError as error:
            if error.kind not in (ErrorKind.BAD_REQUEST, ErrorKind.INVALID_KEY):
                raise
            failure = _failed(f"{_host(url)} refuses the token of this job: {error.message}")
        finally:
            await transport.aclose()
        raise failure


class Identified:
    """A provider that is called with the credentials of an identity, renewed in time."""

    def __init__(
        self, source: CredentialSource, made: Callable[[Mapping[str, str]], Provider]
    ) -> None:
        self._source, self._made = source, made
        self._keys: Mapping[str, str] = {}
        self._inner: Provider | None = None
        self._former: list[Provider] = []

    async def complete(self, request: Request) -> Completion:
        """Return the answer; raises CallError."""
        keys = await self._source.keys()
        if self._inner is None or keys != self._keys:
            # Other calls may still use the former one.
            self._former += [] if self._inner is None else [self._inner]
            self._inner, self._keys = self._made(keys), keys
        return await self._inner.complete(request)

    async def aclose(self) -> None:
        """Close the connections."""
        for provider in (*self._former, *([] if self._inner is None else [self._inner])):
            close = getattr(provider, "aclose", None)
            if close is not None:
                await close()
        self._inner, self._former = None, []


def _failed(message: str) -> CallError:
    return CallError(ErrorKind.INVALID_KEY, message, charged=False)


def _host(url: str) -> str:
    return urlsplit(url).hostname or "the service"


def _json(body: bytes, who: str) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _failed(f"{who} gave no token")
    return value


def _text(value: Mapping[str, Any], key: str, who: str) -> str:
    text = value.get(key)
    if not isinstance(text, str) or not text or not (text.isascii() and text.isprintable()):
        raise _failed(f"{who} gave no token")
    return text


def _lifetime(value: Mapping[str, Any]) -> float:
    seconds = value.get("expires_in")
    return float(min(seconds, _LIFETIME_S)) if isinstance(seconds, int) and seconds > 0 else 0.0


def _claims(token: str) -> dict[str, Any]:
    """Return what a token says; its signature is for the cloud that gets it to verify."""
    parts = token.split(".")
    try:
        value = json.loads(decode_base64url(parts[1]))
    except (IndexError, ValueError):
        value = None
    return value if isinstance(value, dict) else {}
