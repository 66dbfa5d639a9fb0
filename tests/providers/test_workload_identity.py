"""Tokens of GitHub exchanged for credentials of clouds, against a fake that takes nothing else."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from edison_ci.config.load import load_project
from edison_ci.config.trust import TrustFile
from edison_ci.config.trust_entries import AwsIdentity, AzureIdentity, GoogleIdentity
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.secrets import hidden, learn
from edison_ci.errors import UsageError
from edison_ci.providers import adapters, litellm_bridge, workload_identity
from edison_ci.providers.adapters import provider_for
from edison_ci.providers.transport import Reach
from edison_ci.providers.workload_identity import (
    TOKEN,
    TOKEN_URL,
    CredentialSource,
    Endpoints,
    Identified,
)
from edison_ci.records import Completion, Message, Request
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.config.load import Project
    from tests.conftest import Folder

ROLE = "arn:aws:iam::123456789012:role/edison"
POOL = "projects/1/locations/global/workloadIdentityPools/pool/providers/github"
ACCOUNT = "edison@acme-prompts.iam.gserviceaccount.com"
TENANT, CLIENT = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
REQUEST_TOKEN = "the-token-of-the-runner-1"
AWS, GOOGLE = AwsIdentity(role=ROLE), GoogleIdentity(pool=POOL, service_account=ACCOUNT)
AZURE = AzureIdentity(tenant=TENANT, client=CLIENT, hosts=("https://acme.openai.azure.com",))
CLOUD = "https://www.googleapis.com/auth/cloud-platform"
AUDIENCES = {
    "aws": "sts.amazonaws.com",
    "google": f"https://iam.googleapis.com/{POOL}",
    "azure": "api://AzureADTokenExchange",
}
# As published: AWS STS API reference (AssumeRoleWithWebIdentity), RFC 8693 and Google's Security
# Token Service v1.token, Microsoft identity platform (client credentials with an assertion).
FORMS: dict[str, dict[str, str]] = {
    "/": {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": ROLE,
        "RoleSessionName": "edison-ci",
        "DurationSeconds": "3600",
        "WebIdentityToken": "aws",
    },
    "/v1/token": {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "audience": f"//iam.googleapis.com/{POOL}",
        "scope": CLOUD,
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token": "google",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    },
    f"/{TENANT}/oauth2/v2.0/token": {
        "client_id": CLIENT,
        "scope": "https://cognitiveservices.azure.com/.default",
        "grant_type": "client_credentials",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": "azure",
    },
}
"""The forms that each service takes; the token stands for the one of its audience."""


def jwt(audience: str, number: int = 0) -> str:
    claims = {"aud": audience, "sub": "repo:acme/prompts:environment:edison", "n": number}
    parts = [{"alg": "RS256"}, claims]
    coded = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return ".".join([*coded, "c2lnbmF0dXJl"])


@dataclass
class Clouds:
    """GitHub, AWS, Google and Azure on loopback; refuses whatever is not exactly as published."""

    url: str = ""
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    audience: str | None = None
    """What GitHub's token says instead of what was asked for."""
    ignored: str = ""
    """What is added to the claims of GitHub's token."""
    refuse: int = 0

    @property
    def environ(self) -> dict[str, str]:
        return {TOKEN_URL: f"{self.url}/idtoken?api-version=2.0", TOKEN: REQUEST_TOKEN}

    @property
    def endpoints(self) -> Endpoints:
        own = self.url
        return Endpoints(own, own, own, own, github=own.replace(".", r"\."), reach=Reach.NEARBY)

    def reply(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Any:
        """Return status and value of a reply."""
        path = urlsplit(target).path
        self.asked.append(path)
        if path == "/idtoken":
            query = {k: v[0] for k, v in parse_qs(urlsplit(target).query).items()}
            self._same("query", {**query, "audience": ""}, {"api-version": "2.0", "audience": ""})
            self._same("runner", headers["Authorization"], f"Bearer {REQUEST_TOKEN}")
            head, claims, mac = jwt(self.audience or query["audience"], len(self.asked)).split(".")
            return 200, {"value": f"{head}.{claims}{self.ignored}.{mac}"}
        if self.refuse:
            return self.refuse, {"error": "invalid_grant", "error_description": "no such subject"}
        if path.startswith("/v1/projects/"):
            wanted = f"/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken"
            self._same("path", path, wanted)
            self._same("bearer", headers["Authorization"], "Bearer federated-token-1")
            self._same("body", json.loads(body), {"scope": [CLOUD], "lifetime": "3600s"})
            return 200, {"accessToken": "google-token-000001", "expireTime": "2026-11-17T23:00:00Z"}
        self._form(method, path, headers, body)
        if path == "/":
            found = (
                "<AssumeRoleWithWebIdentityResponse><Credentials>"
                f"<AccessKeyId>ASIA{len(self.asked):016d}</AccessKeyId>"
                "<SecretAccessKey>c2VjcmV0/0000000000000001</SecretAccessKey>"
                "<SessionToken>c2Vzc2lvbg0000000000000001==</SessionToken>"
                "</Credentials></AssumeRoleWithWebIdentityResponse>"
            )
            return 200, found
        kind = "urn:ietf:params:oauth:token-type:access_token"
        token = "federated-token-1" if path == "/v1/token" else f"azure-token-{len(self.asked):06d}"
        told = {"access_token": token, "token_type": "Bearer", "expires_in": 3599}
        return 200, {**told, **({"issued_token_type": kind} if path == "/v1/token" else {})}

    def _form(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self._same("method", method, "POST")
        self._same("type", headers["Content-Type"], "application/x-www-form-urlencoded")
        self._same("credentials", headers.get("Authorization"), None)
        pairs = parse_qsl(body.decode(), strict_parsing=True)
        form = dict(pairs)
        self._same("repeats", len(pairs), len(form))
        wanted = FORMS[path]
        place = next(name for name, value in wanted.items() if value in AUDIENCES)
        claims = json.loads(base64.urlsafe_b64decode(form[place].split(".")[1] + "=="))
        self._same("audience", claims["aud"], AUDIENCES[wanted[place]])
        self._same("form", {**form, place: wanted[place]}, wanted)

    def _same(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.wrong.append(f"{what}: {found!r} in place of {wanted!r}")


@pytest.fixture
def clouds() -> Iterator[Clouds]:
    made = Clouds()

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, value = made.reply(self.command, self.path, dict(self.headers), body)
            data = (value if isinstance(value, str) else json.dumps(value)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        made.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield made
        running.shutdown()
        thread.join()
    assert made.wrong == []
    learn({})


def source(clouds: Clouds, identity: Any, **more: Any) -> CredentialSource:
    given = {"environ": clouds.environ, "region": "eu-west-1", "endpoints": clouds.endpoints}
    return CredentialSource(identity, **{**given, **more})


@pytest.mark.parametrize(
    ("identity", "keys", "asked"),
    [
        (
            AWS,
            {
                "access_key_id": "ASIA0000000000000002",
                "secret_access_key": "c2VjcmV0/0000000000000001",
                "session_token": "c2Vzc2lvbg0000000000000001==",
            },
            ["/idtoken", "/"],
        ),
        (
            GOOGLE,
            {"bearer": "google-token-000001"},
            [
                "/idtoken",
                "/v1/token",
                f"/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken",
            ],
        ),
        (GoogleIdentity(pool=POOL), {"bearer": "federated-token-1"}, ["/idtoken", "/v1/token"]),
        (
            AZURE,
            {"bearer": "azure-token-000002"},
            ["/idtoken", f"/{TENANT}/oauth2/v2.0/token"],
        ),
    ],
    ids=["aws", "google", "google without an account", "azure"],
)
async def test_a_token_is_exchanged_as_published(
    clouds: Clouds, identity: Any, keys: dict[str, str], asked: list[str]
) -> None:
    assert await source(clouds, identity).keys() == keys
    assert clouds.asked == asked
    for value in keys.values():
        assert hidden(f"x {value} x") == "x [key] x"


async def test_credentials_are_kept_until_five_minutes_before_they_expire(clouds: Clouds) -> None:
    now = [1_000.0]
    found = source(clouds, AZURE, clock=lambda: now[0])
    first = await found.keys()
    now[0] += 3_599 - 300 - 1
    assert await found.keys() == first and len(clouds.asked) == 2
    now[0] += 2
    assert await found.keys() != first and len(clouds.asked) == 4


async def test_a_token_for_another_audience_is_not_passed_on(clouds: Clouds) -> None:
    clouds.audience = "https://evil.example"
    with pytest.raises(CallError, match="GitHub's token is not for sts") as failed:
        await source(clouds, AWS).keys()
    assert failed.value.kind is ErrorKind.INVALID_KEY
    assert clouds.asked == ["/idtoken"]


@pytest.mark.parametrize("ignored", ["=", "==", "!!!!", "    "])
async def test_a_token_that_two_readers_may_read_differently_is_not_passed_on(
    clouds: Clouds, ignored: str
) -> None:
    clouds.ignored = ignored
    with pytest.raises(CallError, match="GitHub's token is not for sts"):
        await source(clouds, AWS).keys()
    assert clouds.asked == ["/idtoken"]


@pytest.mark.parametrize("status", [400, 403])
async def test_a_refusal_says_who_refused_and_shows_no_token(clouds: Clouds, status: int) -> None:
    clouds.refuse = status
    with pytest.raises(CallError, match="refuses the token of this job") as failed:
        await source(clouds, GOOGLE).keys()
    assert failed.value.kind is ErrorKind.INVALID_KEY
    assert "eyJ" not in str(failed.value)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "add permissions: {id-token: write}"),
        ({TOKEN_URL: "https://evil.example/idtoken?x=1", TOKEN: "t" * 12}, "not an address of"),
        ({TOKEN_URL: "http://x.actions.githubusercontent.com/?x=1", TOKEN: "t" * 12}, "not an"),
        ({TOKEN_URL: "https://actions.githubusercontent.com.evil/?x", TOKEN: "t" * 12}, "not an"),
    ],
)
async def test_the_runner_is_asked_at_github_only(environ: dict[str, str], said: str) -> None:
    with pytest.raises(CallError, match=said):
        await CredentialSource(AWS, environ, "eu-west-1").keys()


def test_the_hosts_of_the_clouds_are_fixed() -> None:
    assert Endpoints() == (
        "https://sts.{region}.amazonaws.com",
        "https://sts.googleapis.com",
        "https://iamcredentials.googleapis.com",
        "https://login.microsoftonline.com",
        r"https://[a-z0-9.-]+\.actions\.githubusercontent\.com:443",
        Reach.PUBLIC,
    )


async def test_a_model_is_called_with_renewed_credentials(clouds: Clouds) -> None:
    now, made, closed = [0.0], [], []

    class Model:
        def __init__(self, keys: Mapping[str, str]) -> None:
            self.keys = keys
            made.append(keys)

        async def complete(self, request: Request) -> Completion:
            return Completion(text=self.keys["bearer"], latency_ms=1)

        async def aclose(self) -> None:
            closed.append(self.keys)

    provider = Identified(source(clouds, AZURE, clock=lambda: now[0]), Model)
    request: Any = None
    first = await provider.complete(request)
    assert (await provider.complete(request)).text == first.text
    now[0] = 3_600.0
    assert (await provider.complete(request)).text != first.text
    await provider.aclose()
    assert len(made) == 2 and closed == made


# --- models ---------------------------------------------------------------------------------------

REGISTRY = """\
aws: {provider: bedrock, model: amazon.nova-lite-v1:0, options: {region: eu-west-1}, price: free}
google:
  provider: vertex
  model: google/gemini-2.5-flash
  options: {project: acme-prompts, location: europe-west1}
  price: free
ours:
  provider: azure
  base_url: SERVER
  options: {deployment: small, api_version: 2024-10-21}
  price: free
small: {provider: sim, model: small}
judge: {provider: sim, model: judge}
"""
TRUST = f"""\
identities:
  bedrock: {{role: "{ROLE}"}}
  vertex: {{pool: {POOL}, service_account: {ACCOUNT}}}
  azure: {{tenant: {TENANT}, client: {CLIENT}, hosts: [SERVER]}}
"""
ASKED: Any = Request(
    provider="azure",
    endpoint="",
    model="small",
    messages=(Message("user", "Say hello."),),
    params={"max_tokens": 5},
)


@pytest.fixture
def project(
    mini: Folder, server: LoopbackServer, clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> Project:
    mini.write("models.yaml", REGISTRY.replace("SERVER", server.url))
    mini.write(".edison/trust.yaml", TRUST.replace("SERVER", server.url))
    exchanging = partial(CredentialSource, endpoints=clouds.endpoints)
    monkeypatch.setattr(workload_identity, "CredentialSource", exchanging)
    return load_project(mini.path)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


async def test_azure_is_called_with_the_token_of_its_identity(
    project: Project, clouds: Clouds, server: LoopbackServer
) -> None:
    model = project.models["ours"]
    provider: Any = provider_for(model, environ=clouds.environ, trust=project.trust)
    await provider.complete(ASKED)
    await provider.aclose()
    (seen,) = server.requests
    assert seen.headers["authorization"] == "Bearer azure-token-000002"
    assert "api-key" not in seen.headers


async def test_a_key_that_is_set_counts_more_and_needs_a_pair_of_its_own(
    project: Project, clouds: Clouds, server: LoopbackServer
) -> None:
    model, environ = project.models["ours"], {**clouds.environ, "AZURE_OPENAI_API_KEY": "k" * 20}
    with pytest.raises(UsageError, match="which is not trusted"):
        provider_for(model, environ=environ, trust=project.trust)
    pair = {"env": "AZURE_OPENAI_API_KEY", "hosts": [server.url]}
    trust = TrustFile.model_validate(
        {**project.trust.model_dump(exclude_none=True), "keys": [pair]}
    )
    provider: Any = provider_for(model, environ=environ, trust=trust)
    await provider.complete(ASKED)
    await provider.aclose()
    assert server.requests[0].headers["api-key"] == "k" * 20
    assert clouds.asked == []


async def test_a_token_goes_to_no_other_host(project: Project, clouds: Clouds) -> None:
    model = replace(project.models["ours"], base_url="http://127.0.0.1:9/")
    with pytest.raises(UsageError):
        provider_for(model, environ=clouds.environ, trust=project.trust)
    for provider, address in (
        ("bedrock", "https://bedrock-runtime.eu-west-1.amazonaws.com.evil"),
        ("bedrock", "https://evil.amazonaws.com"),
        ("vertex", "https://evil.googleapis.com"),
        ("openai", "https://api.openai.com"),
    ):
        assert project.trust.identity(provider, address) is None
    assert clouds.asked == []


async def test_bedrock_and_vertex_get_what_was_exchanged(
    project: Project, clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Spy:
        def __init__(self, target: Any, *_: Any) -> None:
            made.append(target)

        async def complete(self, _: Request) -> Completion:
            return Completion("hello")

    monkeypatch.setattr(litellm_bridge, "LitellmBridge", Spy)
    monkeypatch.setattr(adapters, "OpenAICompatible", Spy)
    for name in ("aws", "google"):
        model = project.models[name]
        provider = provider_for(model, environ=clouds.environ, trust=project.trust)
        await provider.complete(ASKED)
    target, transport = made
    assert target.arguments == {
        "aws_access_key_id": "ASIA0000000000000002",
        "aws_secret_access_key": "c2VjcmV0/0000000000000001",
        "aws_session_token": "c2Vzc2lvbg0000000000000001==",
        "aws_region_name": "eu-west-1",
    }
    assert transport._service.url == (
        "https://europe-west1-aiplatform.googleapis.com/v1/projects/acme-prompts/locations/"
        "europe-west1/endpoints/openapi/chat/completions"
    )
    assert transport._service.headers["Authorization"] == "Bearer google-token-000001"


def test_a_plan_needs_no_key_in_a_job_that_has_an_identity(
    project: Project, clouds: Clouds
) -> None:
    ours = project.models["ours"]
    assert project.has_identity(ours, clouds.environ)
    assert not project.has_identity(ours, {})
    assert not project.has_identity(project.models["small"], clouds.environ)
