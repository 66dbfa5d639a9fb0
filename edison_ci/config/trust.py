"""What may stand in .edison/trust.yaml, and which key may go to which host?"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from edison_ci.config.project import Version
from edison_ci.shape import UNIQUE, EnvName, FilePath, Shape, Written, items, short, wrong

_PORTS = {"http": 80, "https": 443}

BUILT_IN: dict[str, tuple[str, ...]] = {
    "OPENAI_API_KEY": ("https://api.openai.com",),
    "ANTHROPIC_API_KEY": ("https://api.anthropic.com",),
    "GEMINI_API_KEY": ("https://generativelanguage.googleapis.com",),
    "MISTRAL_API_KEY": ("https://api.mistral.ai",),
    "GROQ_API_KEY": ("https://api.groq.com",),
    "DEEPSEEK_API_KEY": ("https://api.deepseek.com",),
    "TOGETHER_API_KEY": ("https://api.together.xyz",),
    "FIREWORKS_API_KEY": ("https://api.fireworks.ai",),
    "XAI_API_KEY": ("https://api.x.ai",),
    "COHERE_API_KEY": ("https://api.cohere.com",),
    "OPENROUTER_API_KEY": ("https://openrouter.ai",),
}
"""Keys of known vendors and the only hosts each may be sent to."""
BUILT_IN_DOMAINS: dict[str, str] = {
    "AWS_ACCESS_KEY_ID": ".amazonaws.com",
    "AWS_SECRET_ACCESS_KEY": ".amazonaws.com",
    "AWS_SESSION_TOKEN": ".amazonaws.com",
    "GOOGLE_APPLICATION_CREDENTIALS": "aiplatform.googleapis.com",
}
"""Keys of vendors with a host for each region, and what those hosts end in."""


def origin(address: str) -> str:
    """Return scheme, host and port of an address in one exact form."""
    parts = urlsplit(address)
    host = (parts.hostname or "").lower()
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


class TrustFile(Shape):
    """.edison/trust.yaml: which key may go to which host."""

    version: Version = 1
    keys: Annotated[tuple[TrustedKey, ...], items(0, 200)] = Field(
        (), description="Keys and hosts."
    )
    builtin: bool = Field(True, description="Whether the known vendors' own pairs apply.")
    code: TrustedCode = Field(
        default_factory=TrustedCode.model_construct, description="Code checks."
    )
    budget_usd_max: Annotated[float, Field(ge=0, le=1_000_000)] | None = Field(
        None, description="Most a pull request may set as its budget, in dollars."
    )

    def allows(self, env: str, address: str) -> bool:
        """Whether the key in a variable may be sent to this address."""
        try:
            target = origin(address)
        except ValueError:  # no address at all, perhaps from a variable
            return False
        listed = [host for key in self.keys if key.env == env for host in key.hosts]
        if self.builtin:
            listed += BUILT_IN.get(env, ())
            domain = BUILT_IN_DOMAINS.get(env)
            if domain and target.startswith("https://") and target.endswith(f"{domain}:443"):
                return True
        return any(origin(host) == target for host in listed)
