"""Adapters: the provider of a model, at its address and with its keys.

The only module that knows all providers.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.config import provider_options, requirements
from edison_ci.config.model_entry import OFFLINE, PROVIDERS, plugin_of
from edison_ci.contracts import CallError, ErrorKind, ModelSettings
from edison_ci.documents.files import WorkingTree
from edison_ci.documents.secrets import remember
from edison_ci.errors import UsageError
from edison_ci.providers import anthropic as provider_anthropic
from edison_ci.providers import (
    application,
    litellm_bridge,
    openai_endpoints,
    openai_responses,
    workload_identity,
)
from edison_ci.providers import batches as provider_batches
from edison_ci.providers import local as provider_local
from edison_ci.providers import replay as provider_replay
from edison_ci.providers.model_access import BEARER, ModelAccess, open_access
from edison_ci.providers.openai_compatible import (
    OpenAICompatible,
    find_dialect,
    read_completion,
    request_body,
)
from edison_ci.providers.resilience import Adapting
from edison_ci.records import Completion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edison_ci.config.models import Model
    from edison_ci.config.trust import TrustFile
    from edison_ci.contracts import Provider, ProviderPlugin
    from edison_ci.documents.files import Tree
    from edison_ci.providers.openai_endpoints import OpenAIEmbeddings
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
    adapter: Callable[[ModelAccess], Provider] = (
        partial(plugin_provider, plugin) if plugin is not None else PROVIDERS.load(model.provider)
    )
    if model.provider in OFFLINE:
        return adapter(ModelAccess(model, environ, tree or WorkingTree(Path())))
    local = plugin is not None and plugin.offline
    access = open_access(model, environ, trust, offline=offline and not local)
    access = replace(access, tree=tree or access.tree)
    if access.identity is None:
        return Adapting(adapter(access), model.name)
    source = workload_identity.CredentialSource(
        access.identity, environ, str(model.options.get("region", ""))
    )
    identified = workload_identity.Identified(
        source, lambda keys: adapter(replace(access, keys=keys))
    )
    return Adapting(identified, model.name)


@dataclass(slots=True)
class WithEmbeddings:
    """A model that answers, and one that embeds, behind one address; the latter is opened late."""

    chat: OpenAICompatible
    open_embeddings: Callable[[], OpenAIEmbeddings]
    embeddings: OpenAIEmbeddings | None = None

    async def complete(self, request: Request) -> Completion:
        """Return the answer or the embedding, or raise CallError."""
        if not request.embedding:
            return await self.chat.complete(request)
        self.embeddings = self.embeddings or self.open_embeddings()
        return await self.embeddings.complete(request)

    @property
    def batches(self) -> provider_batches.OpenAIBatches | None:
        """The batches of the model that answers, if it has some."""
        return self.chat.batches

    async def aclose(self) -> None:
        """Close the connections of both."""
        if self.embeddings is not None:
            await self.embeddings.aclose()
        await self.chat.aclose()


def chat(access: ModelAccess) -> Provider:
    """Return OpenAI, or a service with its protocol at another address."""
    headers = {"Authorization": f"Bearer {access.key}"} if access.key else {}
    organization = access.model.options.get("organization")
    if access.model.provider == "openai" and organization:
        headers["OpenAI-Organization"] = str(organization)
    if access.model.moderates:
        return openai_endpoints.OpenAIModerations(access.transport("/moderations", headers))

    def batches(*about: Any) -> Callable[[], provider_batches.OpenAIBatches]:
        return lambda: provider_batches.OpenAIBatches(access.transport("", headers), *about)

    can = access.model.capabilities
    if can.responses:
        model = openai_responses.OpenAIResponses(access.transport("/responses", headers), can)
        body = partial(openai_responses.request_body, can=can)
        model.open_batches = batches("/v1/responses", body, openai_responses.read_completion)
        return model
    dialect = find_dialect(access.model)
    chatting = OpenAICompatible(access.transport("/chat/completions", headers), dialect)
    body = partial(request_body, dialect=dialect)
    chatting.open_batches = batches("/v1/chat/completions", body, read_completion)
    return WithEmbeddings(
        chatting,
        lambda: openai_endpoints.OpenAIEmbeddings(access.transport("/embeddings", headers)),
    )


def azure(access: ModelAccess) -> Provider:
    """Return a deployment at Azure."""
    options = access.model.options
    deployment = quote(str(options["deployment"]), safe="")
    root = "" if access.address.rstrip("/").endswith("/openai") else "/openai"
    headers = {"api-key": access.key} if access.key else access.bearer
    version = f"api-version={options['api_version']}"
    if access.model.capabilities.responses:
        transport = access.transport(f"{root}/responses?{version}", headers)
        return openai_responses.OpenAIResponses(transport, access.model.capabilities)
    path = f"{root}/deployments/{deployment}"
    transport = access.transport(f"{path}/chat/completions?{version}", headers)
    return WithEmbeddings(
        OpenAICompatible(transport, find_dialect(access.model)),
        lambda: openai_endpoints.OpenAIEmbeddings(
            access.transport(f"{path}/embeddings?{version}", headers), names_model=False
        ),
    )


def anthropic(access: ModelAccess) -> Provider:
    """Return Anthropic."""
    path = "/messages" if access.address.rstrip("/").endswith("/v1") else "/v1/messages"
    can = access.model.capabilities
    headers = {"anthropic-version": provider_anthropic.VERSION}
    if access.key:
        headers["x-api-key"] = access.key
    model = provider_anthropic.Anthropic(access.transport(path, headers), can)
    model.batches = provider_batches.AnthropicBatches(
        access.transport(path, headers),
        partial(provider_anthropic.request_body, can=can),
        provider_anthropic.read_completion,
        provider_anthropic.is_formed,
    )
    return model


def http(access: ModelAccess) -> Provider:
    """Return an endpoint of the user."""
    options = provider_options.HttpOptions.model_validate(access.model.options)
    headers = {
        # In one letter case, so that none duplicates a header that is added here.
        name.title(): text.replace("{{ key }}", access.key or "")
        for name, text in options.headers.items()
    }
    if access.key and not any("{{ key }}" in text for text in options.headers.values()):
        headers["Authorization"] = f"Bearer {access.key}"
    return application.HttpService(access.transport("", headers), options)


def bridge(access: ModelAccess, prefix: str = "") -> Provider:
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


def vertex(access: ModelAccess) -> Provider:
    """Return Vertex: through litellm with a key, and with a token by its protocol of OpenAI."""
    if BEARER not in access.keys:
        return bridge(access, prefix="vertex_ai/")
    options = access.model.options
    path = f"/v1/projects/{options['project']}/locations/{options['location']}/endpoints/openapi"
    dialect = find_dialect(access.model)
    return OpenAICompatible(access.transport(f"{path}/chat/completions", access.bearer), dialect)


bedrock = partial(bridge, prefix="bedrock/")


def simulated(access: ModelAccess) -> Provider:
    """Return a model of the simulator."""
    opened = feature.provider("sim")
    if opened is None:
        raise UsageError(
            f"model {access.model.name!r} is simulated", hint=feature.off_hint("simulator")
        )
    model: Provider | None = opened(access.model.model, access.model.options, access.tree)
    return model if model is not None else unavailable(access)


def local(access: ModelAccess) -> Provider:
    """Return a model that runs in this process, loaded."""
    model = access.model
    options = provider_options.LocalOptions.model_validate(model.options)
    weights = requirements.weights_of(model, access.environ)
    loaded = provider_local.load(weights, threads=options.threads, context=options.context)
    return provider_local.LocalModel(loaded, model.limits.timeout_s)


def replay(access: ModelAccess) -> Provider:
    """Return the answers of a recording."""
    return provider_replay.open_replay(str(access.model.store), access.tree)


def unavailable(access: ModelAccess) -> Provider:
    """Raise UsageError for a model that this version cannot run."""
    model = access.model
    raise UsageError(
        f"model {model.name!r}: {model.provider}/{model.model} is not supported by this version",
        hint="use a simulated model: `small: {provider: sim, model: small}` in models.yaml",
    )


def plugin_provider(plugin: type[ProviderPlugin], access: ModelAccess) -> Provider:
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
                completion = await self.plugin.complete(request)
        except CallError:
            raise
        except TimeoutError:
            message = f"no answer within {self.settings.timeout_s:g} s"
            raise CallError(ErrorKind.TIMEOUT, message) from None
        except Exception as error:  # code of another package, which may raise anything
            # Not a kind that is retried, as a bug would fail again.
            message = f"{type(error).__name__}: {error}"
            raise CallError(ErrorKind.BAD_RESPONSE, message) from error
        if not isinstance(completion, Completion):
            message = f"the provider returned {type(completion).__name__}, not a Completion"
            raise CallError(ErrorKind.BAD_RESPONSE, message)
        if completion.latency_ms:
            return completion
        return replace(completion, latency_ms=round(1000 * (clock() - started)))

    async def aclose(self) -> None:
        """Close the connections of the plugin."""
        await self.plugin.aclose()
