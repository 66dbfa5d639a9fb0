"""The models of models.yaml: entries, parameters, limits and options of providers."""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from edison_ci import ranges
from edison_ci._dataclass import dataclass
from edison_ci.config import extra_params, problems, provider_options
from edison_ci.contracts import ProviderPlugin
from edison_ci.errors import Problem, UsageError
from edison_ci.plugins import Registry
from edison_ci.records import canonical_json
from edison_ci.shape import (
    ENV_PATTERN,
    NAME_PATTERN,
    UNIQUE,
    EnvName,
    FilePath,
    Name,
    Or,
    Shape,
    TextPattern,
    items,
    section,
    short,
    within,
    wrong,
)
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from edison_ci.config.params import Params
    from edison_ci.config.prices import Price
    from edison_ci.documents.marks import Document
else:
    Params = section("edison_ci.config.params", "Params")
    Price = section("edison_ci.config.prices", "Price")


def _expand_price(value: Any) -> Any:
    """Return a price as it may be written as a map."""
    if value == "free":
        return {"in": 0.0, "out": 0.0}
    if isinstance(value, str):
        message = f"{short(value)} is not a price"
        raise wrong("price", message, "write free or {in: 0.15, out: 0.6}, per million tokens")
    if isinstance(value, dict) and "call" in value:
        return {"in": 0.0, "out": 0.0, **value}
    return value


PriceText = Annotated[
    Price,
    BeforeValidator(_expand_price),
    Or({"const": "free"}),
]
_WRITE_CACHE = frozenset({"cache_control", "prompt_cache_key", "prompt_cache_retention"})
_LENGTHS = ("tokens", "budget")


def tokens_booked(params: Mapping[str, Any]) -> tuple[int, int]:
    """Return the maximum tokens that `extra` can add to a call, input and output.

    A token is at least one byte of the request. A value named as a number of tokens or a budget may
    come on top of `max_tokens`.
    """
    extra = params.get("extra")
    if not extra:
        return 0, 0
    return len(canonical_json(extra).encode()), _lengths(extra)


def writes_cache(params: Mapping[str, Any]) -> bool:
    """Whether a call may be charged for writing to the cache of the provider."""
    return bool(_WRITE_CACHE & (params.get("extra") or {}).keys())


def _lengths(value: Any, name: str = "") -> int:
    if isinstance(value, dict):
        return sum(_lengths(inner, str(key)) for key, inner in value.items())
    if isinstance(value, list):
        return sum(_lengths(inner, name) for inner in value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and any(word in name.lower() for word in _LENGTHS):
        return max(0, int(value))
    return 0


_ADAPTERS = "edison_ci.providers.adapters"
PROVIDERS = Registry(
    "edison_ci.providers",
    {
        "openai": f"{_ADAPTERS}:chat",
        "anthropic": f"{_ADAPTERS}:anthropic",
        "azure": f"{_ADAPTERS}:azure",
        "ollama": f"{_ADAPTERS}:chat",
        "vertex": f"{_ADAPTERS}:vertex",
        "bedrock": f"{_ADAPTERS}:bedrock",
        "openai_compatible": f"{_ADAPTERS}:chat",
        "litellm": f"{_ADAPTERS}:bridge",
        "sim": f"{_ADAPTERS}:simulated",
        "local": f"{_ADAPTERS}:local",
        "replay": f"{_ADAPTERS}:replay",
        "command": f"{_ADAPTERS}:unavailable",
        "http": f"{_ADAPTERS}:http",
    },
)
"""Providers by name; plugins are subclasses of `ProviderPlugin`."""


def plugin_of(provider: str) -> type[ProviderPlugin] | None:
    """Return the plugin of this name; None if the provider is built in or unknown."""
    if provider in PROVIDERS.built_in:
        return None
    plugin = PROVIDERS.load_class(provider, ProviderPlugin)
    options: Any = None if plugin is None else plugin.options
    if options is not None and not (isinstance(options, type) and issubclass(options, BaseModel)):
        raise UsageError(
            f"the options of provider {provider!r} are {short(options)}, not a pydantic model",
            hint="reinstall or uninstall its package",
        )
    return plugin


def _provider(value: str) -> str:
    if value not in PROVIDERS.built_in and plugin_of(value) is None:
        hint = partial(did_you_mean, value, PROVIDERS.names())
        raise wrong("value", f"provider is {short(value)}", hint)
    return value


ProviderName = Annotated[
    str,
    Field(json_schema_extra={"pattern": NAME_PATTERN}),
    AfterValidator(_provider),
    Or({"enum": list(PROVIDERS.built_in)}),
]

LOCAL_MODEL = "smollm2-135m-instruct"
"""The local model whose weights are a package."""
SIM_MODELS = ("small", "large", "judge", "refiner", "assistant", "echo", "script")


class Limits(Shape):
    """Rate limits, timeout and retries of a model."""

    concurrency: Annotated[int, within(ranges.CALLS_AT_ONCE)] = Field(
        10, description="Concurrent calls."
    )
    rpm: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Requests per minute."
    )
    tpm: Annotated[int, Field(ge=1, le=10_000_000_000)] | None = Field(
        None, description="Tokens per minute."
    )
    timeout_s: float = Field(60, ge=1, le=3_600, description="Timeout of a call in seconds.")
    attempts: int = Field(3, ge=1, le=10, description="Attempts per call, including the first.")
    give_up_s: float = Field(
        90,
        ge=1,
        le=86_400,
        description="Seconds without an answer after which the model is given up for the run; at "
        "least 600 once it has answered.",
    )


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not re.match(r"https?://", value) or not host or re.search(r"\s", value) or port == 0:
        raise wrong("address", f"{short(value)} is not an address", "write https://host:port/path")
    if not host.isascii() or ("%" in host and ":" not in host):
        message = "the host of base_url has letters that could be mistaken for another host"
        raise wrong("address", message, "write it as DNS does: xn--...")
    if parts.username or parts.password:
        raise wrong("secret", "base_url contains a user or password", "use key_env")
    if parts.query or parts.fragment:
        raise wrong("address", "base_url has a query or fragment", "leave it out")
    return value


Address = Annotated[
    str,
    Field(max_length=2_000),
    AfterValidator(_address),
    Field(json_schema_extra={"pattern": "^https?://"}),
]


def _key_names(value: Any) -> Any:
    return {"api_key": value} if isinstance(value, str) else value


_KeyField = Annotated[
    str,
    TextPattern(
        "[a-z][a-z0-9_]*", "a field of a key", "write access_key_id: NAME_OF_VARIABLE", "key-field"
    ),
]
KeyNames = Annotated[
    dict[_KeyField, EnvName],
    Field(min_length=1, max_length=10),
    BeforeValidator(_key_names),
    Or({"type": "string", "maxLength": 100, "pattern": ENV_PATTERN}),
]
"""Name of the variable with the key, or a map of fields to names."""


class ModelEntry(Shape):
    """One model of the registry, as written; missing keys come from the model in `use`."""

    tombstones: ClassVar[dict[str, str]] = {
        "api_key": "never write a key; set key_env: NAME_OF_VARIABLE",
        "key": "never write a key; set key_env: NAME_OF_VARIABLE",
        "temperature": "put it under params",
        "max_tokens": "put it under params",
        "url": "write base_url",
    }

    use: Name | None = Field(None, description="Model to inherit from; mappings merge deeply.")
    provider: ProviderName | None = Field(
        None, description="Provider of the model, built in or a plugin."
    )
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="The name of the model at the provider."
    )
    base_url: Address | None = Field(None, description="Address of the service.")
    base_url_env: EnvName | None = Field(None, description="Variable with the address.")
    key_env: KeyNames | None = Field(None, description="Variable with the key; never the key.")
    options: dict[str, Any] | None = Field(
        None,
        description="openai: organization; azure: deployment, api_version; vertex: project, "
        "location; bedrock: region; command: run, files, setup; http: body, text, ...; "
        "local: file_env, threads, context; "
        "sim: latency_ms, error_rate, ...",
    )
    params: Params | None = Field(None, description="Sampling parameters.")
    price: PriceText | None = Field(None, description="Dollars per million tokens, or free.")
    limits: Limits | None = Field(None, description="Concurrency, rate limits, timeout, attempts.")
    fallback: Annotated[tuple[Name, ...], items(0, 5), UNIQUE] = Field(
        (), description="Asked by assistants and scheduled runs if the model cannot be reached."
    )
    store: FilePath | None = Field(
        None, description="Recording with the answers of a replay model."
    )


OFFLINE = frozenset({"sim", "local", "replay"})
"""Providers that call no service, need no key and cost nothing."""

_ALL_PARAMS = frozenset(
    {"temperature", "max_tokens", "top_p", "frequency_penalty", "presence_penalty", "seed", "stop",
     "reasoning", "extra"}
)  # fmt: skip
_PARAMS_TAKEN: dict[str, frozenset[str]] = {
    "anthropic": frozenset({"temperature", "max_tokens", "top_p", "stop", "reasoning", "extra"}),
    "bedrock": frozenset({"temperature", "max_tokens", "top_p", "stop", "reasoning", "extra"}),
    "vertex": _ALL_PARAMS - {"extra"},
    "local": _ALL_PARAMS - {"extra", "reasoning"},
}
KEYLESS = OFFLINE | {"command"}
"""Providers whose entries name no key."""
APPLICATIONS = frozenset({"command", "http"})
"""Providers that call an application of the user, which chooses its own parameters."""
_HOTTEST = {"anthropic": 1.0, "bedrock": 1.0}
_HOT = 2.0
"""Maximum of other providers."""
_RETIRED_HOSTS = frozenset({"models.github.ai", "models.inference.ai.azure.com"})
NEEDS_ADDRESS = frozenset({"azure", "openai_compatible", "http"})
TAKES_ADDRESS = frozenset(
    {"http", "openai", "anthropic", "azure", "ollama", "openai_compatible", "litellm"}
)
LITELLM_VENDORS = {
    "anthropic": "https://api.anthropic.com",
    "cohere_chat": "https://api.cohere.com",
    "deepseek": "https://api.deepseek.com",
    "fireworks_ai": "https://api.fireworks.ai",
    "gemini": "https://generativelanguage.googleapis.com",
    "groq": "https://api.groq.com",
    "mistral": "https://api.mistral.ai",
    "openai": "https://api.openai.com",
    "openrouter": "https://openrouter.ai",
    "together_ai": "https://api.together.ai",
    "xai": "https://api.x.ai",
}
"""Vendors that may be called through litellm, by the prefix of the model name, with their address:
only vendors that honour `base_url`."""
_PLAIN_STEPS = re.compile(r"(?!.*(?:^|/)\.{0,2}(?:/|$))[A-Za-z0-9._:@+/-]+")
"""Names that stay where they are put in a path: no empty or dotted steps, queries or escapes."""
_AWS = frozenset({"access_key_id", "secret_access_key"})
_COMPARED = 100
NAMELESS = frozenset({"azure", "replay", *APPLICATIONS})
"""Providers whose entries need no model name."""


def near(name: str, names: Iterable[str]) -> str:
    """Return a hint with the nearest model; in a huge registry only the first are compared."""
    return did_you_mean(name, itertools.islice(names, _COMPARED))


def takes(provider: str) -> frozenset[str]:
    """Return the parameters that a provider accepts."""
    return _PARAMS_TAKEN.get(provider, _ALL_PARAMS)


def params_refused(written: Mapping[str, Any], provider: str) -> Iterator[tuple[str, str]]:
    """Yield each parameter that the provider does not accept, with the reason."""
    for key, value in written.items():
        if key not in takes(provider):
            yield key, f"{provider} takes no {key}"
        elif key == "temperature" and value > (most := _HOTTEST.get(provider, _HOT)):
            yield key, f"temperature is {value:g}; {provider} takes at most {most:g}"
        elif key == "extra" and (
            odd := sorted({*(value or {})} - extra_params.extra_taken(provider))
        ):
            yield key, f"{provider} takes no {odd[0]} under extra"


@dataclass(slots=True)
class ModelRules:
    """Checks one model with its inherited values."""

    _document: "Document"
    _name: str
    _known: Collection[str]
    """Names of all models."""
    _problems: list[Problem] = field(default_factory=list)

    def check(self, entry: ModelEntry) -> list[Problem]:
        """Return the problems of the model."""
        provider = entry.provider
        if provider is None:
            message = f"model {self._name!r} has no provider"
            self._add((), "missing", message, "add provider: openai")
            return self._problems
        if entry.model is None and provider not in NAMELESS:
            message = f"model {self._name!r} has no model name"
            self._add((), "missing", message, "add model: ...")
        self._check_address(entry, provider)
        self._check_keys(entry, provider)
        self._check_options(entry, provider)
        for key, message in params_refused(
            entry.params.written() if entry.params else {}, provider
        ):
            self._add(("params", key), "params", message, f"remove {key}")
        for index, other in enumerate(entry.fallback):
            if other not in self._known or other == self._name:
                hint = near(other, (name for name in self._known if name != self._name))
                self._add(("fallback", index), "unknown-model", f"no other model {other!r}", hint)
        self._check_kind(entry, provider)
        return self._problems

    def _check_kind(self, entry: ModelEntry, provider: str) -> None:
        """Check the keys of offline providers and litellm."""
        if provider == "replay" and entry.store is None:
            self._add((), "missing", "a replay model needs a recording", "add store: PATH")
        if provider != "replay" and entry.store is not None:
            self._add(("store",), "store", "store is for provider: replay", "remove store")
        vendor, slash, _ = (entry.model or "").partition("/")
        is_known_vendor = vendor in LITELLM_VENDORS and slash
        if provider == "litellm" and entry.model is not None and not is_known_vendor:
            message = f"litellm may not call {vendor!r}: the host that gets its key is unknown"
            hint = did_you_mean(vendor, LITELLM_VENDORS, label="use one of these prefixes")
            self._add(("model",), "vendor", message, hint or "use provider: openai_compatible")
        in_path = provider in ("bedrock", "vertex") or (provider, vendor) == ("litellm", "gemini")
        if in_path and entry.model is not None and not _PLAIN_STEPS.fullmatch(entry.model):
            message = f"{short(entry.model)} is no model name: it becomes part of the address"
            self._add(("model",), "name", message, "write the name that the vendor documents")
        if provider == "sim" and entry.model is not None and entry.model not in SIM_MODELS:
            hint = did_you_mean(entry.model, SIM_MODELS)
            self._add(("model",), "unknown-model", f"sim has no model {entry.model!r}", hint)

    def _check_keys(self, entry: ModelEntry, provider: str) -> None:
        keys = entry.key_env or {}
        if provider not in PROVIDERS.built_in:
            return  # a plugin defines the fields of its key
        if provider in KEYLESS:
            hint = "remove key_env"
            if provider == "command":
                hint = "name its variables under programs in .edison/trust.yaml"
            if keys:
                self._add(("key_env",), "keys", f"{provider} takes no key", hint)
            return
        fields = _AWS if provider == "bedrock" else {"api_key"}
        taken = {*fields, "session_token"} if provider == "bedrock" else fields
        if keys and not fields <= {*keys} <= taken:
            message = "two keys" if provider == "bedrock" else "one key"
            hint = "write NAME_OF_VARIABLE"
            if provider == "bedrock":
                hint = "write {access_key_id: NAME, secret_access_key: NAME}"
            self._add(("key_env",), "keys", f"{provider} needs {message}", hint)

    def _check_address(self, entry: ModelEntry, provider: str) -> None:
        if entry.base_url is not None and entry.base_url_env is not None:
            message = "base_url and base_url_env are both given"
            self._add(("base_url_env",), "exactly-one", message, "remove one of them")
        address = entry.base_url or entry.base_url_env
        key = "base_url" if entry.base_url else "base_url_env"
        if entry.base_url and urlsplit(entry.base_url).hostname in _RETIRED_HOSTS:
            vendor, _, name = (entry.model or "").partition("/")
            way = f"provider: {vendor}, model: {name}" if vendor == "openai" and name else "..."
            message = "GitHub Models was retired on 2026-07-30"
            hint = f"call the model at its own vendor: {{{way}}}, without base_url and key_env"
            self._add(("base_url",), "retired", message, hint)
        if address is None and provider in NEEDS_ADDRESS:
            message = f"{provider} needs an address"
            self._add((), "missing", message, "add base_url: https://...")
        if address is not None and provider in PROVIDERS.built_in.keys() - TAKES_ADDRESS:
            self._add((key,), "address", f"{provider} takes no address", f"remove {key}")

    def _check_options(self, entry: ModelEntry, provider: str) -> None:
        if not entry.options and _needs_no_options(entry, provider):
            return
        plugin = plugin_of(provider)
        shape = provider_options.OPTIONS.get(provider) if plugin is None else plugin.options
        if shape is None:
            if entry.options and plugin is None:
                message = f"{provider} takes no options"
                self._add(("options",), "options", message, "remove options")
            return
        try:
            options = shape.model_validate(entry.options or {})
        except ValidationError as error:
            self._problems += problems.problems_of(error, self._document, (self._name, "options"))
            return
        if provider == "sim" and entry.model == "script" and getattr(options, "file", None) is None:
            self._add((), "missing", "sim's script needs a file", "add options: {file: PATH}")
        named = entry.model in (None, LOCAL_MODEL)
        if provider == "local" and not named and getattr(options, "file_env", None) is None:
            hint = f"write model: {LOCAL_MODEL}, or add options: {{file_env: NAME_OF_VARIABLE}}"
            self._add(("model",), "unknown-model", f"local has no model {entry.model!r}", hint)

    def _add(self, place: tuple[str | int, ...], code: str, message: str, hint: str) -> None:
        where = self._document.locate((self._name, *place), key=not place)
        self._problems.append(Problem(where, code, message, hint))


def _needs_no_options(entry: ModelEntry, provider: str) -> bool:
    """Whether a model of a built-in provider is complete without options, as most are."""
    if provider == "sim":
        return entry.model != "script"
    return provider in _WITHOUT_OPTIONS


_WITHOUT_OPTIONS = frozenset(
    {"openai", "anthropic", "ollama", "openai_compatible", "litellm", "replay"}
)
