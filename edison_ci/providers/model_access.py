"""Access to a model: its address, its keys, and the transport to its service.

Keys are read here, from the variables that the model names, and passed only to the adapter of that
model.
"""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edison_ci._dataclass import dataclass
from edison_ci.config.service_paths import path_refusal
from edison_ci.config.trust import TrustFile, origin, trust_hint
from edison_ci.documents.files import WorkingTree
from edison_ci.documents.secrets import HIDDEN
from edison_ci.errors import TrustError, UsageError
from edison_ci.providers.transport import (
    Reach,
    Service,
    Transport,
    allowed_reach,
    host_of,
    is_loopback,
    proxy_for,
    refusal_reason,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.models import Model
    from edison_ci.documents.files import Tree
    from edison_ci.providers.workload_identity import Identity

BEARER = "bearer"
"""Name of a token among the keys of a model."""


def open_access(
    model: Model, environ: Mapping[str, str], trust: TrustFile | None, *, offline: bool
) -> ModelAccess:
    """Return a model with its address and keys; raises UsageError if these may not be used."""
    reading = _EnvironmentReader(model, environ, trust)
    address = reading.address()
    if offline and not is_loopback(address):
        raise UsageError(
            f"model {model.name!r} is at {_display_host(address)}, and network access is disabled "
            "by --offline",
            hint="use a simulated model, or a recording: --replay FILE",
        )
    for refusal in (trust or TrustFile()).header_refusals(model, address):
        raise TrustError(refusal.message, hint=refusal.hint)
    identity = reading.identity(address)
    keys = {} if identity is not None else reading.keys(address)
    reach = allowed_reach(address, trust or TrustFile(), environ)
    if reason := refusal_reason(host_of(address), reach):
        raise UsageError(
            f"model {model.name!r} is at {_display_host(address)}, which {reason}",
            hint="set base_url to the address of the model itself",
        )
    return ModelAccess(model, environ, WorkingTree(Path()), address, keys, reach, identity)


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """A model with its address and keys."""

    model: Model
    environ: Mapping[str, str]
    tree: Tree
    """The files of the project."""
    address: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    reach: Reach = Reach.PUBLIC
    identity: Identity | None = None
    """The identity whose credentials are used as keys; None if keys are set."""

    @property
    def key(self) -> str | None:
        """The key of a service with a single one."""
        return self.keys.get("api_key")

    @property
    def bearer(self) -> dict[str, str]:
        """The header with the token of an identity; empty without one."""
        token = self.keys.get(BEARER)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def transport(self, path: str, headers: Mapping[str, str]) -> Transport:
        """Return the transport to a path below the address."""
        url = self.address.rstrip("/") + path
        return Transport(
            Service(
                url=url,
                headers={"User-Agent": "edison-ci", **headers},
                secrets=tuple(self.keys.values()),
                timeout_s=self.model.limits.timeout_s,
                proxy=proxy_for(url, self.environ),
                ca_file=self.environ.get("SSL_CERT_FILE") or None,
                reach=self.reach,
            )
        )


@dataclass(frozen=True, slots=True)
class _EnvironmentReader:
    """Reads the variables that a model names."""

    model: Model
    environ: Mapping[str, str]
    trust: TrustFile | None

    def address(self) -> str:
        """Return the address of the model."""
        name = self.model.base_url_env
        if name is None:
            return self.model.service or ""
        address = self._value(name, "its address")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise UsageError(
                f"model {self.model.name!r}: the value of {name} is not a valid address",
                hint=f"set {name} to https://HOST:PORT/PATH",
            )
        return address

    def identity(self, address: str) -> Identity | None:
        """Return the identity that the model is called with; None if one of its keys is set."""
        if self.trust is None or any(map(self._variable, self.model.keys.values())):
            return None
        return self.trust.identity(self.model.provider, address)

    def keys(self, address: str) -> dict[str, str]:
        """Return the keys by field; raises UsageError if one may not be sent to this address."""
        trust = self.trust
        if trust is None and self.model.base_url_env is not None:
            trust = TrustFile()
        keys = {}
        for part, name in self.model.keys.items():
            if trust is not None and not trust.allows(name, address, self.model.provider):
                raise TrustError(
                    f"model {self.model.name!r} would send the key {name} to "
                    f"{_display_host(address)}, "
                    "which is not trusted",
                    hint=trust_hint(name, address) or "set the address of the model",
                )
            refusal = None if trust is None else path_refusal(self.model, address, trust)
            if refusal is not None:
                raise TrustError(refusal[0], hint=refusal[1])
            value = self._value(name, "a key").strip()
            if self.model.provider != "vertex" and not (value.isascii() and value.isprintable()):
                raise UsageError(
                    f"model {self.model.name!r}: the value of {name} is not a valid key",
                    hint=f"it contains characters that keys do not have: set {name} again",
                )
            keys[part] = value
        return keys

    def _variable(self, name: str) -> str:
        """Return a variable; empty if it is not set."""
        value = self.environ.get(name, "")
        if not value.strip() and self.environ is os.environ:
            value = HIDDEN.get(name, "")
        return value if value.strip() else ""

    def _value(self, name: str, what: str) -> str:
        value = self._variable(name)
        if not value:
            raise UsageError(
                f"model {self.model.name!r} needs {what} in {name}, which is not set",
                hint=f"set the environment variable {name}, or seal it: edison secrets seal {name}",
            )
        return value


def _display_host(address: str) -> str:
    try:
        return origin(address) if address else "an unknown host"
    except ValueError:
        return "an unknown host"
