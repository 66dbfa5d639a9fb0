"""Adapters: the provider of a model, with its address and keys.

The only module that knows all providers. Keys are read here, from the variables that the model
names, and passed only to the adapter of that model.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.config import provider_options, requirements
from edison_ci.config.model_entry import (
    OFFLINE,
    PROVIDERS,
    plugin_of,
)
from edison_ci.config.service_paths import path_refusal
from edison_ci.config.trust import TrustFile, origin
from edison_ci.contracts import CallError, ErrorKind, ModelSettings
from edison_ci.documents.files import WorkingTree
from edison_ci.documents.secrets import HIDDEN, remember
from edison_ci.errors import TrustError, UsageError
from edison_ci.providers import anthropic as anthropic_messages
from edison_ci.providers import anthropic as provider_anthropic
from edison_ci.providers import batches as provider_batches
from edison_ci.providers import (
    http_service,
    litellm_bridge,
    model_lists,
    openai_compatible,
    openai_moderations,
    openai_responses,
    workload_identity,
)
from edison_ci.providers import local as provider_local
from edison_ci.providers import openai_responses as provider_openai_responses
from edison_ci.providers import replay as provider_replay
from edison_ci.providers.openai_compatible import OpenAICompatible, find_dialect
from edison_ci.providers.openai_endpoints import OpenAIEmbeddings, WithEmbeddings
from edison_ci.providers.resilience import Adapting
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
from edison_ci.records import Completion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider, ProviderPlugin
    from edison_ci.documents.files import Tree
    from edison_ci.providers.workload_identity import Identity
    from edison_ci.records import Request

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
    """Return the adapter of a model; raises UsageError if it could not answer any call.

    With `offline` a model that is not on this machine is refused. Files of the project are read
    from `tree`, by default the working directory. With `trust` every key is checked against it;
    without, a key for an address from the environment, which was not validated, must be that of a
    known vendor.
    """
    requirements.refuse(requirements.missing_for_models([model]))
    plugin = plugin_of(model.provider)
    adapter: Callable[[_ModelAccess], Provider] = (
        partial(plugin_provider, plugin) if plugin is not None else PROVIDERS.load(model.provider)
    )
    if model.provider in OFFLINE:
        return adapter(_ModelAccess(model, environ, tree or WorkingTree(Path())))
    local = plugin is not None and plugin.offline
    access = _open_access(model, environ, trust, offline=offline and not local)
    access = replace(access, tree=tree or access.tree)
    if access.identity is None:
        return Adapting(adapter(access), model.name)
    source = workload_identity.CredentialSource(
        access.identity, environ, str(model.options.get("region", ""))
    )
    found = workload_identity.Identified(source, lambda keys: adapter(replace(access, keys=keys)))
    return Adapting(found, model.name)


def lister_for(
    model: Model, *, environ: Mapping[str, str], offline: bool, trust: TrustFile | None
) -> model_lists.ModelLister:
    """Return what lists the models at the address of a model, with its key; raises UsageError."""
    if model.provider not in HAVE_LISTS:
        raise UsageError(
            f"{model.provider} has no list of models that a key alone can read",
            hint="see the vendor's console; edison admin prices show lists known models",
        )
    access = _open_access(model, environ, trust, offline=offline)
    root = access.address.rstrip("/")
    if model.provider == "anthropic":
        path = "/models" if root.endswith("/v1") else "/v1/models"
        headers = {"anthropic-version": provider_anthropic.VERSION} | (
            {"x-api-key": access.key} if access.key else {}
        )
        return model_lists.ModelLister(
            lambda query: access.transport(f"{path}{query}", headers), model_lists.PAGE
        )
    bearer = {"Authorization": f"Bearer {access.key}"} if access.key else {}
    return model_lists.ModelLister(lambda query: access.transport(f"/models{query}", bearer), "")


HAVE_LISTS = frozenset({"openai", "anthropic", "openai_compatible", "ollama"})
"""Providers whose lists of models a key alone can read."""


def _open_access(
    model: Model, environ: Mapping[str, str], trust: TrustFile | None, *, offline: bool
) -> _ModelAccess:
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
    return _ModelAccess(model, environ, WorkingTree(Path()), address, keys, reach, identity)


# --- addresses and keys ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ModelAccess:
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
        found = None if self.trust is None else self.trust.identity(self.model.provider, address)
        return None if found is None or any(map(self._given, self.model.keys.values())) else found

    def keys(self, address: str) -> dict[str, str]:
        """Return the keys by field; raises UsageError if one may not be sent to this address."""
        trust = self.trust
        if trust is None and self.model.base_url_env is not None:
            trust = TrustFile()
        found = {}
        for part, name in self.model.keys.items():
            if trust is not None and not trust.allows(name, address, self.model.provider):
                raise TrustError(
                    f"model {self.model.name!r} would send the key {name} to "
                    f"{_display_host(address)}, "
                    "which is not trusted",
                    hint=f"allow it in .edison/trust.yaml: {{env: {name}, "
                    f'hosts: ["{_display_host(address)}"]}}',
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
            found[part] = value
        return found

    def _given(self, name: str) -> str:
        """Return a variable; empty if it is not set."""
        value = self.environ.get(name, "")
        if not value.strip() and self.environ is os.environ:
            value = HIDDEN.get(name, "")
        return value if value.strip() else ""

    def _value(self, name: str, what: str) -> str:
        value = self._given(name)
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


# --- the services ---------------------------------------------------------------------------------


def chat(access: _ModelAccess) -> Provider:
    """Return OpenAI, or a service with its protocol at another address."""
    headers = {"Authorization": f"Bearer {access.key}"} if access.key else {}
    organization = access.model.options.get("organization")
    if access.model.provider == "openai" and organization:
        headers["OpenAI-Organization"] = str(organization)
    if access.model.moderates:
        return openai_moderations.OpenAIModerations(access.transport("/moderations", headers))
    can = access.model.capabilities

    def batches(*about: Any) -> Callable[[], provider_batches.OpenAIBatches]:
        return lambda: provider_batches.OpenAIBatches(access.transport("", headers), *about)

    if can.responses:
        found = provider_openai_responses.OpenAIResponses(
            access.transport("/responses", headers), can
        )
        body = partial(openai_responses.request_body, can=can)
        found.open_batches = batches("/v1/responses", body, openai_responses.read_completion)
        return found
    dialect = find_dialect(access.model)
    chatting = OpenAICompatible(access.transport("/chat/completions", headers), dialect)
    body = partial(openai_compatible.request_body, dialect=dialect)
    chatting.open_batches = batches("/v1/chat/completions", body, openai_compatible.read_completion)
    return WithEmbeddings(chatting, OpenAIEmbeddings(access.transport("/embeddings", headers)))


def azure(access: _ModelAccess) -> Provider:
    """Return a deployment at Azure."""
    options = access.model.options
    deployment = quote(str(options["deployment"]), safe="")
    root = "" if access.address.rstrip("/").endswith("/openai") else "/openai"
    headers = {"api-key": access.key} if access.key else _bearer(access)
    version = f"api-version={options['api_version']}"
    if access.model.capabilities.responses:
        transport = access.transport(f"{root}/responses?{version}", headers)
        return provider_openai_responses.OpenAIResponses(transport, access.model.capabilities)
    path = f"{root}/deployments/{deployment}"
    transport = access.transport(f"{path}/chat/completions?{version}", headers)
    return WithEmbeddings(
        OpenAICompatible(transport, find_dialect(access.model)),
        OpenAIEmbeddings(
            access.transport(f"{path}/embeddings?{version}", headers), names_model=False
        ),
    )


def _bearer(access: _ModelAccess) -> dict[str, str]:
    """Return the header with the token of an identity; empty without one."""
    token = access.keys.get(workload_identity.BEARER)
    return {"Authorization": f"Bearer {token}"} if token else {}


def anthropic(access: _ModelAccess) -> Provider:
    """Return Anthropic."""
    path = "/messages" if access.address.rstrip("/").endswith("/v1") else "/v1/messages"
    key = {"x-api-key": access.key} if access.key else {}
    headers, can = (
        {"anthropic-version": provider_anthropic.VERSION, **key},
        access.model.capabilities,
    )
    found = provider_anthropic.Anthropic(access.transport(path, headers), can)
    found.batches = provider_batches.AnthropicBatches(
        access.transport(path, headers),
        partial(anthropic_messages.request_body, can=can),
        anthropic_messages.read_completion,
        anthropic_messages.is_formed,
    )
    return found


def http(access: _ModelAccess) -> Provider:
    """Return an endpoint of the user."""
    options = provider_options.HttpOptions.model_validate(access.model.options)
    headers = {
        # In one letter case, so that none is sent beside one of ours.
        name.title(): text.replace("{{ key }}", access.key or "")
        for name, text in options.headers.items()
    }
    if access.key and not any("{{ key }}" in text for text in options.headers.values()):
        headers["Authorization"] = f"Bearer {access.key}"
    return http_service.HttpService(access.transport("", headers), options)


def bridge(access: _ModelAccess, prefix: str = "") -> Provider:
    """Return a service that is called through litellm."""
    model, options = access.model, access.model.options
    arguments: dict[str, Any]
    if model.provider == "bedrock":
        keys = {_AWS[field]: value for field, value in access.keys.items()}
        arguments = {**keys, "aws_region_name": options["region"]}
    elif model.provider == "vertex":
        arguments = {
            "vertex_project": options["project"],
            "vertex_location": options["location"],
            "vertex_credentials": next(iter(access.keys.values())),
        }
    else:
        arguments = {**options, "api_key": access.key or litellm_bridge.NO_KEY}
        if model.address:
            arguments["api_base"] = access.address
    name = f"{prefix}{model.model.removeprefix(prefix)}"
    return litellm_bridge.LitellmBridge(
        litellm_bridge.Target(
            name,
            access.address,
            arguments,
            tuple(access.keys.values()),
            model.limits.timeout_s,
            access.reach,
        )
    )


def vertex(access: _ModelAccess) -> Provider:
    """Return Vertex: through litellm with a key, and with a token by its protocol of OpenAI."""
    if workload_identity.BEARER not in access.keys:
        return bridge(access, prefix="vertex_ai/")
    options = access.model.options
    path = f"/v1/projects/{options['project']}/locations/{options['location']}/endpoints/openapi"
    dialect = find_dialect(access.model)
    return OpenAICompatible(access.transport(f"{path}/chat/completions", _bearer(access)), dialect)


bedrock = partial(bridge, prefix="bedrock/")


def simulated(access: _ModelAccess) -> Provider:
    """Return a model of the simulator."""
    opened = feature.provider("sim")
    if opened is None:
        raise UsageError(
            f"model {access.model.name!r} is simulated", hint=feature.off_hint("simulator")
        )
    model: Provider | None = opened(access.model.model, access.model.options, access.tree)
    return model if model is not None else unavailable(access)


def local(access: _ModelAccess) -> Provider:
    """Return a model that runs in this process, loaded."""
    model = access.model
    options = provider_options.LocalOptions.model_validate(model.options)
    weights = requirements.weights_of(model, access.environ)
    loaded = provider_local.load(weights, threads=options.threads, context=options.context)
    return provider_local.LocalModel(loaded, model.limits.timeout_s)


def replay(access: _ModelAccess) -> Provider:
    """Return the answers of a recording."""
    return provider_replay.open_replay(str(access.model.store), access.tree)


def unavailable(access: _ModelAccess) -> Provider:
    """Raise UsageError for a model that this version cannot run."""
    model = access.model
    raise UsageError(
        f"model {model.name!r}: {model.provider}/{model.model} is not supported by this version",
        hint="use a simulated model: {provider: sim, model: small}",
    )


def plugin_provider(plugin: type[ProviderPlugin], access: _ModelAccess) -> Provider:
    """Return the provider of another package."""
    model = access.model
    remember(access.keys.values())  # so that they are masked in all output
    settings = ModelSettings(
        model.name,
        model.model,
        access.address or None,
        access.keys,
        plugin.options.model_validate(model.options) if plugin.options else model.options,
        model.limits.timeout_s,
    )
    try:
        return InstalledProvider(plugin(settings), settings)
    except Exception as error:  # code of another package, which may raise anything
        raise UsageError(
            f"model {model.name!r}: the provider {model.provider} cannot be set up: "
            f"{type(error).__name__}: {error}",
            hint="check the options of the model, or reinstall the package of the provider",
        ) from error


@dataclass(frozen=True, slots=True)
class InstalledProvider:
    """A provider of another package, with a time limit; its exceptions become CallError."""

    plugin: ProviderPlugin
    settings: ModelSettings

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or raise CallError."""
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                found = await self.plugin.complete(request)
        except CallError:
            raise
        except TimeoutError:
            message = f"no answer within {self.settings.timeout_s:g} s"
            raise CallError(ErrorKind.TIMEOUT, message) from None
        except Exception as error:  # code of another package, which may raise anything
            # Not a kind that is retried, as a bug would fail again.
            message = f"{type(error).__name__}: {error}"
            raise CallError(ErrorKind.BAD_RESPONSE, message) from error
        if not isinstance(found, Completion):
            message = f"the provider returned {type(found).__name__}, not a Completion"
            raise CallError(ErrorKind.BAD_RESPONSE, message)
        if found.latency_ms:
            return found
        return replace(found, latency_ms=round(1000 * (clock() - started)))

    async def aclose(self) -> None:
        """Close the connections of the plugin."""
        await self.plugin.aclose()
