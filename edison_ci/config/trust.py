"""What may stand in .edison/trust.yaml, and which key may go to which host."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from edison_ci.config.project import Version
from edison_ci.shape import UNIQUE, EnvName, FilePath, Shape, Written, items, short, wrong

_PORTS = {"http": 80, "https": 443}
_BEARER = frozenset({"openai", "openai_compatible", "litellm"})


class Pair(NamedTuple):
    """Where a vendor's key may go, and which providers may take it there."""

    host: str
    """A pattern for the whole of the host's name; the way there is https on its usual port."""
    providers: frozenset[str] = _BEARER


_BEDROCK = Pair(
    r"bedrock-runtime\.[a-z]{2}(?:-[a-z]+){1,3}-[0-9]\.amazonaws\.com", frozenset({"bedrock"})
)
BUILT_IN: dict[str, Pair] = {
    "OPENAI_API_KEY": Pair(r"api\.openai\.com"),
    "ANTHROPIC_API_KEY": Pair(r"api\.anthropic\.com", _BEARER | {"anthropic"}),
    "GEMINI_API_KEY": Pair(r"generativelanguage\.googleapis\.com"),
    "MISTRAL_API_KEY": Pair(r"api\.mistral\.ai"),
    "GROQ_API_KEY": Pair(r"api\.groq\.com"),
    "DEEPSEEK_API_KEY": Pair(r"api\.deepseek\.com"),
    "TOGETHER_API_KEY": Pair(r"api\.together\.(?:ai|xyz)"),
    "FIREWORKS_API_KEY": Pair(r"api\.fireworks\.ai"),
    "XAI_API_KEY": Pair(r"api\.x\.ai"),
    "COHERE_API_KEY": Pair(r"api\.cohere\.com"),
    "OPENROUTER_API_KEY": Pair(r"openrouter\.ai"),
    "AWS_ACCESS_KEY_ID": _BEDROCK,
    "AWS_SECRET_ACCESS_KEY": _BEDROCK,
    "AWS_SESSION_TOKEN": _BEDROCK,
    "GOOGLE_APPLICATION_CREDENTIALS": Pair(
        r"(?:[a-z]+(?:-[a-z]+)*[0-9]{1,2}-)?aiplatform\.googleapis\.com", frozenset({"vertex"})
    ),
}
"""Keys of known vendors and the only hosts each may be sent to.

A domain in which anybody may have a host (`*.amazonaws.com`, `*.azure.com`, `*.googleapis.com`) is
no vendor's: there are exact names here, for each region the one of the service itself. Azure has
none, as each customer has a host there that only `trust.yaml` can tell from others.
"""


def origin(address: str) -> str:
    """Return scheme, host and port of an address in one exact form."""
    parts = urlsplit(address)
    host = (parts.hostname or "").lower().rstrip(".")
    if not host.isascii():
        raise ValueError("a host in other letters could be read as another")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme.lower()}://{shown}:{parts.port or _PORTS.get(parts.scheme.lower(), 0)}"


def _address(value: str) -> str:
    try:
        origin(value)
    except ValueError:
        said = f"{short(value)} has no such host or port"
        raise wrong("host", said, "write https://host:port, with a port up to 65535") from None
    return value


Host = Annotated[
    str,
    Field(max_length=300),
    Written(
        r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?",
        "scheme, host and port",
        "write https://host:port, without a path",
        "host",
    ),
    AfterValidator(_address),
]


class TrustedKey(Shape):
    """A key and the hosts it may be sent to."""

    env: EnvName = Field(description="Name of the variable that holds the key.")
    hosts: Annotated[tuple[Host, ...], items(1, 50), UNIQUE] = Field(
        description="Exact scheme, host and port."
    )


class TrustedCode(Shape):
    """Which code of the repository a pull request may run."""

    allow: bool = Field(False, description="Whether code checks may run in pull requests.")
    paths: Annotated[tuple[FilePath, ...], items(0, 1_000), UNIQUE] = Field(
        (), description="Files or folders the code may come from."
    )


PublicKey = Annotated[
    str,
    Written(
        r"[A-Za-z0-9+/]{43}=",
        "a public key for results",
        "write what edison db keygen prints",
        "key",
    ),
]


class TrustedResults(Shape):
    """Whose results a pull request may start from."""

    public_keys: Annotated[tuple[PublicKey, ...], items(0, 20), UNIQUE] = Field(
        (), description="Public keys of signed results; edison db keygen makes a pair."
    )


class TrustFile(Shape):
    """.edison/trust.yaml: which key may go to which host."""

    version: Version = 1
    keys: Annotated[tuple[TrustedKey, ...], items(0, 200)] = Field(
        (), description="Keys and hosts."
    )
    hosts: Annotated[tuple[Host, ...], items(0, 200), UNIQUE] = Field(
        (), description="Hosts on this machine or in a private network that CI may call."
    )
    builtin: bool = Field(True, description="Whether the known vendors' own pairs apply.")
    code: TrustedCode = Field(
        default_factory=TrustedCode.model_construct, description="Code checks."
    )
    budget_usd_max: Annotated[float, Field(ge=0, le=1_000_000)] | None = Field(
        None, description="Most that a job for a pull request may spend, in dollars."
    )

    results: TrustedResults = Field(
        default_factory=TrustedResults.model_construct,
        description="Results of other jobs that count.",
    )

    def allows(self, env: str, address: str, provider: str) -> bool:
        """Whether a provider may send the key in a variable to this address."""
        target = _target(address)
        if target is None:
            return False
        if any(origin(host) == target for key in self.keys if key.env == env for host in key.hosts):
            return True
        pair = BUILT_IN.get(env) if self.builtin else None
        if pair is None or provider not in pair.providers:
            return False
        return re.fullmatch(rf"https://{pair.host}:443", target) is not None

    def names(self, address: str) -> bool:
        """Whether this file names the host of an address, for a key or for models without one."""
        target = _target(address)
        listed = [*self.hosts, *(host for key in self.keys for host in key.hosts)]
        return target is not None and any(origin(host) == target for host in listed)


def _target(address: str) -> str | None:
    try:
        return origin(address)
    except ValueError:  # no address at all, perhaps from a variable
        return None
