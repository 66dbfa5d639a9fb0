"""Adapters: who answers the requests of a model.

The one place that knows all providers. Keys are read here, by the names that the model gives, and
go nowhere but into the adapter of that model.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from edison_ci._dataclass import dataclass
from edison_ci.config import needs
from edison_ci.config.model_entry import OFFLINE
from edison_ci.config.rules import service_of
from edison_ci.config.trust import TrustFile, origin
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import UsageError
from edison_ci.plugins import Registry
from edison_ci.providers.addresses import Reach, host_of, reach_of, why_not
from edison_ci.providers.anthropic import VERSION, Anthropic
from edison_ci.providers.litellm_bridge import (
    ENVIRONMENT,
    NO_KEY,
    LitellmBridge,
    Target,
)
from edison_ci.providers.openai_compatible import OpenAICompatible, dialect_of
from edison_ci.providers.replay import open_replay
from edison_ci.providers.transport import Service, Transport, is_loopback, proxy_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider
    from edison_ci.documents.files import Tree

_LATER = Registry("edison_ci.providers", {"sim": "edison_ci.simulator.provider:simulated"})
_AWS = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
}


def provider_for(
    model: Model,
    *,
    environ: Mapping[str, str] = os.environ,
    offline: bool = False,
    tree: Tree | None = None,
    trust: TrustFile | None = None,
) -> Provider:
    """Return the adapter of a model; raises UsageError when it could not answer a single call.

    With `offline` a model that is not on this machine is refused. Files of the project are read
    from `tree`, the working directory unless given. With `trust` every key is checked against it;
    without, those that go to an address from the environment, which no validation has seen, have
    to be a known vendor's.
    """
    needs.refuse(needs.missing_for_models([model]))
    if model.provider in OFFLINE:
        return _offline(model, tree)
    reading = _Reading(model, environ, trust)
    address = reading.address()
    if offline and not is_loopback(address):
        raise UsageError(
            f"model {model.name!r} is at {_shown(address)}, and --offline forbids to go there",
            hint="use a simulated model, or a recording: --replay FILE",
        )
    keys, reach = reading.keys(address), reach_of(address, trust or TrustFile(), environ)
    if reason := why_not(host_of(address), reach):
        raise UsageError(
            f"model {model.name!r} is at {_shown(address)}, which {reason}",
            hint="name the address of the model itself",
        )
    return _ONLINE[model.provider](_Asked(model, address, keys, environ, reach))


def _offline(model: Model, tree: Tree | None) -> Provider:
    tree = tree or WorkingTree(Path())
    if model.provider == "replay" and model.store is not None:
        return open_replay(model.store, tree)
    simulated: Provider | None = None
    if model.provider == "sim":
        # Most runs need no simulator, and it takes longer to load than all the rest.
        simulated = _LATER.load("sim")(model.model, model.options, tree)
    if simulated is not None:
        return simulated
    raise UsageError(
        f"model {model.name!r}: answers of {model.provider}/{model.model} cannot be had yet",
        hint="use a simulated model: {provider: sim, model: small}",
    )


# --- addresses and keys ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """A model with its address and keys."""

    model: Model
    address: str
    keys: Mapping[str, str]
    environ: Mapping[str, str]
    reach: Reach

    @property
    def key(self) -> str | None:
        """The key of a service that takes one."""
        return self.keys.get("api_key")

    def transport(self, path: str, headers: Mapping[str, str]) -> Transport:
        """Return the way to a path below the address."""
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
class _Reading:
    """Reads what a model names from the environment."""

    model: Model
    environ: Mapping[str, str]
    trust: TrustFile | None

    def address(self) -> str:
        """Return the address that the model's calls go to."""
        name = self.model.base_url_env
        if name is None:
            return service_of(self.model) or ""
        address = self._value(name, "its address")
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise UsageError(
                f"model {self.model.name!r}: the variable {name} does not hold an address",
                hint=f"set {name} to https://host:port/path",
            )
        return address

    def keys(self, address: str) -> dict[str, str]:
        """Return the keys by field; one that may not go to this address is refused."""
        trust = self.trust
        if trust is None and self.model.base_url_env is not None:
            trust = TrustFile()
        found = {}
        for field, name in self.model.keys.items():
            if trust is not None and not trust.allows(name, address, self.model.provider):
                raise UsageError(
                    f"model {self.model.name!r} would send {name} to {_shown(address)}",
                    hint=f"allow it in .edison/trust.yaml: {{env: {name}, "
                    f'hosts: ["{_shown(address)}"]}}',
                )
            value = self._value(name, "a key").strip()
            if self.model.provider != "vertex" and not (value.isascii() and value.isprintable()):
                raise UsageError(
                    f"model {self.model.name!r}: the variable {name} holds no key",
                    hint="it has characters that no key has; set it again",
                )
            found[field] = value
        return found

    def _value(self, name: str, what: str) -> str:
        value = self.environ.get(name, "")
        if not value.strip() and self.environ is os.environ:
            value = ENVIRONMENT.hidden.get(name, "")
        if not value.strip():
            raise UsageError(
                f"model {self.model.name!r} needs {what} in the variable {name}, which is not set",
                hint=f"set {name}, or use a model that needs none",
            )
        return value


def _shown(address: str) -> str:
    try:
        return origin(address) if address else "a host that is not known"
    except ValueError:
        return "a host that is not known"


# --- the services ---------------------------------------------------------------------------------


def _chat(asked: _Asked) -> Provider:
    """OpenAI, and whoever speaks its protocol at an address of their own."""
    headers = {"Authorization": f"Bearer {asked.key}"} if asked.key else {}
    organization = asked.model.options.get("organization")
    if asked.model.provider == "openai" and organization:
        headers["OpenAI-Organization"] = str(organization)
    transport = asked.transport("/chat/completions", headers)
    return OpenAICompatible(transport, dialect_of(asked.model.provider, asked.model.model))


def _azure(asked: _Asked) -> Provider:
    options = asked.model.options
    deployment = quote(str(options["deployment"]), safe="")
    root = "" if asked.address.rstrip("/").endswith("/openai") else "/openai"
    path = f"{root}/deployments/{deployment}/chat/completions?api-version={options['api_version']}"
    transport = asked.transport(path, {"api-key": asked.key} if asked.key else {})
    return OpenAICompatible(transport, dialect_of("azure", asked.model.model))


def _anthropic(asked: _Asked) -> Provider:
    path = "/messages" if asked.address.rstrip("/").endswith("/v1") else "/v1/messages"
    key = {"x-api-key": asked.key} if asked.key else {}
    return Anthropic(asked.transport(path, {"anthropic-version": VERSION, **key}))


def _bridge(asked: _Asked, prefix: str = "") -> Provider:
    model, options = asked.model, asked.model.options
    arguments: dict[str, Any]
    if model.provider == "bedrock":
        keys = {_AWS[field]: value for field, value in asked.keys.items()}
        arguments = {**keys, "aws_region_name": options["region"]}
    elif model.provider == "vertex":
        arguments = {
            "vertex_project": options["project"],
            "vertex_location": options["location"],
            "vertex_credentials": next(iter(asked.keys.values())),
        }
    else:
        arguments = {**options, "api_key": asked.key or NO_KEY}
        if model.endpoint:
            arguments["api_base"] = asked.address
    name = f"{prefix}{model.model.removeprefix(prefix)}"
    return LitellmBridge(
        Target(
            name,
            asked.address,
            arguments,
            tuple(asked.keys.values()),
            model.limits.timeout_s,
            asked.reach,
        )
    )


_ONLINE: dict[str, Callable[[_Asked], Provider]] = {
    "openai": _chat,
    "openai_compatible": _chat,
    "ollama": _chat,
    "azure": _azure,
    "anthropic": _anthropic,
    "vertex": partial(_bridge, prefix="vertex_ai/"),
    "bedrock": partial(_bridge, prefix="bedrock/"),
    "litellm": _bridge,
}
