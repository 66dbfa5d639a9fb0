"""The models of .edison/trust.yaml, and which key may be sent to which host."""

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from edison_ci import ranges
from edison_ci.config.project import Version
from edison_ci.config.vendors import VENDORS
from edison_ci.documents.decoding import KEY_PATTERN
from edison_ci.git import host as git_host
from edison_ci.shape import (
    UNIQUE,
    FilePath,
    Shape,
    TextPattern,
    items,
    section,
    short,
    within,
    wrong,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edison_ci.config.models import Model
    from edison_ci.config.trust_entries import (
        AwsIdentity,
        AzureIdentity,
        GoogleIdentity,
        TrustedIdentities,
        TrustedKey,
        TrustedProgram,
        TrustedService,
    )
else:
    TrustedIdentities = section("edison_ci.config.trust_entries", "TrustedIdentities")
    TrustedKey = section("edison_ci.config.trust_entries", "TrustedKey")
    TrustedProgram = section("edison_ci.config.trust_entries", "TrustedProgram")
    TrustedService = section("edison_ci.config.trust_entries", "TrustedService")

_PORTS = {"http": 80, "https": 443}
_BEARER = frozenset({"openai", "openai_compatible", "litellm"})


class Pair(NamedTuple):
    """The hosts that a vendor's key may be sent to, and by which providers."""

    host: str
    """Pattern of the whole host name; the scheme is https on its default port."""
    providers: frozenset[str] = _BEARER


_BEDROCK = Pair(
    r"bedrock-runtime\.[a-z]{2}(?:-[a-z]+){1,3}-[0-9]\.amazonaws\.com", frozenset({"bedrock"})
)
BUILT_IN: dict[str, Pair] = {
    **{
        vendor.key_env: Pair((urlsplit(vendor.base_url).hostname or "").replace(".", r"\."))
        for vendor in VENDORS.values()
        if vendor.base_url is not None
    },
    "OPENAI_API_KEY": Pair(r"api\.openai\.com"),
    "ANTHROPIC_API_KEY": Pair(r"api\.anthropic\.com", _BEARER | {"anthropic"}),
    "TOGETHER_API_KEY": Pair(r"api\.together\.(?:ai|xyz)"),
    "AWS_ACCESS_KEY_ID": _BEDROCK,
    "AWS_SECRET_ACCESS_KEY": _BEDROCK,
    "AWS_SESSION_TOKEN": _BEDROCK,
    "GOOGLE_APPLICATION_CREDENTIALS": Pair(
        r"(?:[a-z]+(?:-[a-z]+)*[0-9]{1,2}-)?aiplatform\.googleapis\.com", frozenset({"vertex"})
    ),
}
"""Keys of known vendors and the only hosts each may be sent to.

Domains in which anyone can get a host (`*.amazonaws.com`, `*.azure.com`, `*.googleapis.com`) are
not trusted as a whole: the exact service name of each region is listed. Azure has no entry, because
each customer has an own host, which only `trust.yaml` can name.
"""


def origin(address: str) -> str:
    """Return scheme, host and port of an address in normal form."""
    parts = urlsplit(address)
    host = (parts.hostname or "").lower().rstrip(".")
    if not host.isascii():
        raise ValueError("a host with non-ASCII letters could be mistaken for another")
    written = f"[{host}]" if ":" in host else host
    return f"{parts.scheme.lower()}://{written}:{parts.port or _PORTS.get(parts.scheme.lower(), 0)}"


def trust_hint(key: str, address: str) -> str:
    """Return the hint with the command that allows a key at an address; empty without a host."""
    try:
        host = origin(address) if address else ""
    except ValueError:
        return ""
    if not host:
        return ""
    command = f"edison trust add {key} {host}"
    if host.startswith("https://") or git_host.is_loopback(urlsplit(host).hostname or ""):
        return command
    return f"use https://, or in a network of your own: {command} --unencrypted"


def path_of(address: str) -> str:
    """Return the path of an address, without a slash at its end."""
    try:
        return urlsplit(address).path.rstrip("/")
    except ValueError:
        return ""


_STEPS = r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~:@!$&'()*+,;=-]+)+"
"""Steps of a path that every server reads in the same way: no dots, escapes or empty steps."""
ServicePath = Annotated[
    str,
    Field(max_length=500),
    TextPattern(f"/|{_STEPS}", "a path", "write /v1/ask, without escapes or a final slash", "path"),
]


def _is_at_or_below(path: str, allowed: str) -> bool:
    below = path.removeprefix(allowed)
    return path == allowed or (
        path.startswith(f"{allowed}/") and re.fullmatch(_STEPS, below) is not None
    )


def _address(value: str) -> str:
    try:
        origin(value)
    except ValueError:
        message = f"{short(value)} has no such host or port"
        raise wrong("host", message, "write https://host:port, with a port up to 65535") from None
    return value


Host = Annotated[
    str,
    Field(max_length=300),
    TextPattern(
        r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?",
        "scheme, host and port",
        "write https://host:port, without a path",
        "host",
    ),
    AfterValidator(_address),
]


# A request carries a key, and some headers decide where it ends or who it seems to come from. So a
# file may set the headers of a closed list, and those that `services` adds for a host, but never
# those that belong to the connection or to proxies.
USUAL = frozenset(
    {
        "accept", "accept-language", "anthropic-version", "api-key", "apikey", "authorization",
        "http-referer", "ocp-apim-subscription-key", "openai-organization", "openai-project",
        "private-token", "user-agent", "x-access-token", "x-api-key", "x-auth-token",
        "x-correlation-id", "x-goog-api-key", "x-key", "x-request-id", "x-title",
    }
)  # fmt: skip
"""Headers that every entry may set, in lower case: keys, and what services ask of their callers."""
_OF_THE_CONNECTION = re.compile(
    r"host|content-length|transfer-encoding|connection|keep-alive|upgrade|te|trailer|via|expect|"
    r"forwarded|x-forwarded(?:-.*)?|proxy(?:-.*)?|cookie2?",
    re.IGNORECASE,
)


def belongs_to_connection(name: str) -> bool:
    """Whether no file may set a header, regardless of `.edison/trust.yaml`."""
    return _OF_THE_CONNECTION.fullmatch(name) is not None


def _header_name(value: str) -> str:
    if belongs_to_connection(value):
        message = f"the header {value} belongs to the connection or to proxies: no file may set it"
        raise wrong("request-header", message, "remove it")
    return value


HeaderName = Annotated[
    str,
    Field(max_length=100),
    TextPattern(
        # A server may read an underscore as a hyphen.
        "[A-Za-z0-9-]+",
        "the name of a header",
        "use letters, digits and '-'",
        "request-header",
    ),
    AfterValidator(_header_name),
]
HeaderValue = Annotated[
    str,
    TextPattern(
        r"[\x20-\x7e]*", "the value of a header", "use printable ASCII only", "request-header"
    ),
]


def distinct(headers: dict[str, str]) -> dict[str, str]:
    """Return headers; raises if one is set twice, in other letters."""
    names: dict[str, str] = {}
    for name in headers:
        if (first := names.setdefault(name.lower(), name)) != name:
            message = f"{short(first)} and {short(name)} are the same header"
            raise wrong("duplicate", message, "remove one", at=(name,))
    return headers


class TrustedCode(Shape):
    """Code of the repository that pull requests may run."""

    allow: bool = Field(False, description="Whether code checks may run in pull requests.")
    paths: Annotated[tuple[FilePath, ...], items(0, 1_000), UNIQUE] = Field(
        (), description="Files or folders with allowed code."
    )


PublicKey = Annotated[
    str,
    TextPattern(
        KEY_PATTERN,
        "a public key for results",
        "write what this prints: edison admin db keygen",
        "key",
    ),
]


class TrustedResults(Shape):
    """Results that pull requests may start from."""

    public_keys: Annotated[tuple[PublicKey, ...], items(0, 20), UNIQUE] = Field(
        (), description="Public keys of signed results; create a pair with edison admin db keygen."
    )


class HeaderRefusal(NamedTuple):
    """A header that the entry of a model sets and may not send to its address."""

    name: str
    message: str
    hint: str


class TrustFile(Shape):
    """.edison/trust.yaml: which key may go to which host."""

    version: Version = 1
    keys: Annotated[tuple[TrustedKey, ...], items(0, 200)] = Field(
        (), description="Keys and hosts."
    )
    hosts: Annotated[tuple[Host, ...], items(0, 200), UNIQUE] = Field(
        (), description="Hosts on this machine or in a private network that CI may call."
    )
    services: Annotated[tuple[TrustedService, ...], items(0, 200)] = Field(
        (), description="What http models may send to which host."
    )
    builtin: bool = Field(True, description="Whether the built-in pairs of known vendors apply.")
    code: TrustedCode = Field(
        default_factory=TrustedCode.model_construct, description="Code checks."
    )
    programs: Annotated[tuple[TrustedProgram, ...], items(0, 100)] = Field(
        (), description="Programs of the repository that are called as models."
    )
    budget_usd_max: Annotated[float, within(ranges.BUDGET_USD)] | None = Field(
        None, description="Budget of a job for a pull request in dollars."
    )
    environment: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        None,
        description="Environment of GitHub: once a person has approved a job for a pull request "
        "in it, models and settings count as the pull request has them.",
    )

    results: TrustedResults = Field(
        default_factory=TrustedResults.model_construct,
        description="Results of other jobs that are accepted.",
    )
    identities: TrustedIdentities | None = Field(
        None,
        description="Identities of GitHub's jobs at AWS, Google and Azure, in place of keys.",
    )

    def identity(
        self, provider: str, address: str
    ) -> "AwsIdentity | GoogleIdentity | AzureIdentity | None":
        """Return the identity that models of a provider at this address are called with."""
        identity: AwsIdentity | GoogleIdentity | AzureIdentity | None
        identity = getattr(self.identities, provider, None)
        target = target_of(address)
        if identity is None or target is None:
            return None
        if provider == "azure":
            hosts = cast("AzureIdentity", identity).hosts
            return identity if target in {origin(host) for host in hosts} else None
        pairs = {pair.host for pair in BUILT_IN.values() if pair.providers == {provider}}
        near = any(re.fullmatch(rf"https://{host}:443", target) for host in pairs)
        return identity if near else None

    def allows(self, env: str, address: str, provider: str) -> bool:
        """Whether a provider may send the key of a variable to this address."""
        target = target_of(address)
        if target is None:
            return False
        if any(origin(host) == target for key in self.keys if key.env == env for host in key.hosts):
            return True
        pair = BUILT_IN.get(env) if self.builtin else None
        if pair is None or provider not in pair.providers:
            return False
        return re.fullmatch(rf"https://{pair.host}:443", target) is not None

    def header_refusals(self, model: "Model", address: str) -> "Iterator[HeaderRefusal]":
        """Yield the headers of an http model that its address may not get."""
        if model.provider != "http":
            return
        for name in self.refused_headers(model.options.get("headers", ()), address):
            host = target_of(address)
            message = f"model {model.name!r} may not send the header {name} to {host}"
            hint = f'add to .edison/trust.yaml: services: [{{host: "{host}", headers: [{name}]}}]'
            yield HeaderRefusal(name, message, hint)

    def refused_headers(self, names: "Iterable[str]", address: str) -> list[str]:
        """Return the headers that an entry at this address may not set, in any letter case."""
        services = self._services(address)
        added = {name.lower() for service in services for name in service.headers}
        return [name for name in names if name.lower() not in USUAL | added]

    def reaches(self, address: str) -> bool:
        """Whether an http model may send its key to the path of this address."""
        path = path_of(address)
        listed = [path for entry in self._services(address) for path in entry.paths]
        return any(_is_at_or_below(path, allowed.rstrip("/")) for allowed in listed)

    def _services(self, address: str) -> "list[TrustedService]":
        target = target_of(address)
        return [entry for entry in self.services if origin(entry.host) == target]

    def program(self, model: str) -> TrustedProgram | None:
        """Return the entry of the program of a model; None if there is none."""
        return next((program for program in self.programs if program.model == model), None)

    def names(self, address: str) -> bool:
        """Whether this file names the host of an address, for a key or for models without one."""
        target = target_of(address)
        listed = [*self.hosts, *(host for key in self.keys for host in key.hosts)]
        return target is not None and any(origin(host) == target for host in listed)


def target_of(address: str) -> str | None:
    """Return the origin of an address; None for another text, perhaps from a variable."""
    try:
        return origin(address)
    except ValueError:
        return None
