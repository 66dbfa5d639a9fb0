"""Providers of promptfoo as models of a project, with their addresses and keys."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import Params, params_refused, takes
from edison_ci.config.trust import TrustFile
from edison_ci.config.user_schemas import schema_faults, tool_faults
from edison_ci.importing.drafts import ModelDraft, Names, model_name
from edison_ci.importing.source import CODE_NOTE
from edison_ci.importing.templates import env_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.documents.marks import Json
    from edison_ci.importing.fidelity import Fidelity, Node
    from edison_ci.importing.source import Source


RETIRED = "GitHub Models was retired on 2026-07-30"
_GITHUB_VENDORS = {
    "openai": "openai",
    "mistral-ai": "mistral",
    "deepseek": "deepseek",
    "xai": "xai",
    "cohere": "cohere",
}
"""Vendors of GitHub Models with a service of their own, and their names here."""


class _Vendor(NamedTuple):
    provider: str
    key: str | None = None
    address: str | None = None
    prefix: str = ""
    """Prefix of the model; for litellm the vendor."""


_VENDORS = {
    "openai": _Vendor("openai", "OPENAI_API_KEY"),
    "anthropic": _Vendor("anthropic", "ANTHROPIC_API_KEY"),
    "azure": _Vendor("azure", "AZURE_OPENAI_API_KEY"),
    "azureopenai": _Vendor("azure", "AZURE_OPENAI_API_KEY"),
    "ollama": _Vendor("ollama"),
    "vertex": _Vendor("vertex"),
    "bedrock": _Vendor("bedrock"),
    "google": _Vendor("litellm", "GEMINI_API_KEY", prefix="gemini/"),
    "palm": _Vendor("litellm", "GEMINI_API_KEY", prefix="gemini/"),
    "mistral": _Vendor("litellm", "MISTRAL_API_KEY", prefix="mistral/"),
    "groq": _Vendor("litellm", "GROQ_API_KEY", prefix="groq/"),
    "deepseek": _Vendor("litellm", "DEEPSEEK_API_KEY", prefix="deepseek/"),
    "togetherai": _Vendor("litellm", "TOGETHER_API_KEY", prefix="together_ai/"),
    "fireworks": _Vendor("litellm", "FIREWORKS_API_KEY", prefix="fireworks_ai/"),
    "xai": _Vendor("litellm", "XAI_API_KEY", prefix="xai/"),
    "cohere": _Vendor("litellm", "COHERE_API_KEY", prefix="cohere_chat/"),
    "openrouter": _Vendor(
        "openai_compatible", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1"
    ),
    "localai": _Vendor("openai_compatible", None, "http://localhost:8080/v1"),
    "vllm": _Vendor("openai_compatible", None, "http://localhost:8000/v1"),
    "litellm": _Vendor("litellm"),
}
_CODE = ("exec:", "python:", "file://", "javascript:", "ruby:", "golang:", "package:")
_NETWORK = ("http://", "https://", "ws://", "wss://", "webhook:", "websocket:", "browser")
_MODES = frozenset({"chat", "responses", "messages", "completion", "text"})
_OTHER_KIND = frozenset(
    {"embedding", "embeddings", "moderation", "image", "realtime", "assistant", "video", "speech"}
)


def provider_entry(id: str) -> tuple[dict[str, Json] | None, str]:
    """Return the entry of a provider and a note, or None and the reason."""
    if id == "echo":
        return {"provider": "sim", "model": "echo"}, ""
    if id.startswith(_CODE) or id.endswith((".js", ".py", ".ts", ".mjs")):
        return None, "programs are not run as providers; serve it with an OpenAI-compatible API"
    if id.startswith(_NETWORK):
        return (
            None,
            "plain HTTP services are not supported; openai_compatible uses OpenAI's protocol",
        )
    vendor_name, _, rest = id.partition(":")
    if vendor_name == "github" and rest:
        return github_entry(rest)
    vendor = _VENDORS.get(vendor_name)
    if vendor is None:
        return (
            None,
            f"unknown provider {vendor_name!r}; try openai_compatible or litellm",
        )
    mode, _, model = rest.partition(":")
    if mode in _OTHER_KIND:
        return None, f"it is a service for {mode}, not for text"
    if mode not in _MODES or not model:
        mode, model = "", rest
    if not model and vendor.provider != "azure":
        return None, f"{id!r} names no model"
    return _provider_fields(vendor, model), _remark(vendor, mode)


def github_entry(id: str) -> tuple[dict[str, Json], str]:
    """Return the entry of a model of GitHub Models at its own vendor, and a note."""
    vendor_name, slash, model = id.rpartition("/")
    known = _GITHUB_VENDORS.get(vendor_name if slash else "openai")
    if known is None:
        # Open models, which anyone may serve.
        entry = _provider_fields(_VENDORS["ollama"], model)
        return entry, f"{RETIRED}; called from Ollama on this machine"
    entry = _provider_fields(_VENDORS[known], model)
    return entry, f"{RETIRED}; called at its vendor with {_VENDORS[known].key}"


def _provider_fields(vendor: _Vendor, model: str) -> dict[str, Json]:
    entry: dict[str, Json] = {"provider": vendor.provider, "model": vendor.prefix + model}
    if vendor.address is not None:
        entry["base_url"] = vendor.address
    if vendor.provider == "azure":
        entry["base_url_env"] = "AZURE_OPENAI_ENDPOINT"
        entry["options"] = {"deployment": model or "DEPLOYMENT", "api_version": "2024-10-21"}
    elif vendor.provider == "vertex":
        entry["options"] = {"project": "PROJECT", "location": "us-central1"}
    elif vendor.provider == "bedrock":
        entry["options"] = {"region": "us-east-1"}
    if vendor.key is not None:
        entry["key_env"] = vendor.key
    return entry


def _remark(vendor: _Vendor, mode: str) -> str:
    if vendor.provider == "azure":
        return "the address is read from AZURE_OPENAI_ENDPOINT; check deployment and api_version"
    if vendor.provider == "vertex":
        return "set options.project and options.location"
    if vendor.provider == "bedrock":
        return "set options.region and key_env: {access_key_id: ..., secret_access_key: ...}"
    if mode in ("completion", "text", "responses"):
        return "called through chat completions"
    return ""


def short_name(id: str) -> str:
    """Return the short name of a model: its id without vendor and mode."""
    vendor, _, rest = id.partition(":")
    mode, _, model = rest.partition(":")
    model = model if mode in _MODES and model else rest
    return model.rpartition("/")[2].replace(":", "-") or vendor


# A configuration may name any host. No key is written for a host that the project does not trust,
# so that a run of an imported file never sends a key to an unknown host.
KEY_OPTIONS = frozenset({"apiKey", "apiKeyEnvar", "apiKeyEnvVar"})
ADDRESS_OPTIONS = frozenset({"apiBaseUrl", "apiHost", "baseUrl", "baseURL", "endpoint"})
_ADDRESS_ENV = {"azure": "AZURE_OPENAI_ENDPOINT", "anthropic": "ANTHROPIC_BASE_URL"}
"""Variables with the address of providers that have a default key."""


def set_access(
    draft: ModelDraft, options: Sequence[Node], trust: TrustFile, fidelity: Fidelity
) -> None:
    """Set address and key of a model from its options, and report them."""
    for node in (each for each in options if each.name in ADDRESS_OPTIONS):
        _set_address(node, draft, trust, fidelity)
    for node in (each for each in options if each.name in KEY_OPTIONS):
        _set_key(node, draft, trust, fidelity)


def _set_address(node: Node, draft: ModelDraft, trust: TrustFile, fidelity: Fidelity) -> None:
    text, entry = str(node.value), draft.entry
    name = env_name(text)
    address = (text if "://" in text else f"https://{text}").rstrip("/")
    if name is not None and entry["provider"] != "sim":
        entry.pop("base_url", None)
        entry["base_url_env"] = name
        fidelity.add_mapped(node, f"{draft.mark} base_url_env")
        return
    if not _is_address(address) or entry["provider"] in ("sim", "vertex", "bedrock"):
        fidelity.add_unsupported(node, "this is not a valid address for the provider")
        return
    key = entry.get("key_env")
    entry.pop("base_url_env", None)
    entry["base_url"] = address
    if not isinstance(key, str) or trust.allows(key, address, str(entry["provider"])):
        fidelity.add_mapped(node, f"{draft.mark} base_url")
        return
    host, env = _host(address), _ADDRESS_ENV.get(str(entry["provider"]))
    if env is not None:
        del entry["base_url"]
        entry["base_url_env"] = env
        note = f"the address is read from {env}; allow {host} in .edison/trust.yaml"
    else:
        entry["provider"] = "openai_compatible"
        del entry["key_env"]
        note = f"key_env was left out: {key} is sent to {host} only if .edison/trust.yaml allows it"
    fidelity.add_approximated(node, f"{draft.mark} base_url", note)


def _set_key(node: Node, draft: ModelDraft, trust: TrustFile, fidelity: Fidelity) -> None:
    text, entry = (node.value if isinstance(node.value, str) else ""), draft.entry
    name = env_name(text) if node.name == "apiKey" else text
    usual = entry.get("key_env")
    if name is None or not re.fullmatch(r"[A-Za-z_]\w*", name):
        kept = f"{usual} is read instead" if usual else "name a variable under key_env"
        fidelity.add_unsupported(node, f"a literal key is never copied; {kept}")
    elif draft.offline:
        fidelity.add_mapped(node, "", "a simulated model needs no key")
    elif name == usual or "base_url_env" in entry or _may_go(name, draft, trust):
        entry["key_env"] = name
        fidelity.add_mapped(node, f"{draft.mark} key_env")
    else:
        kept = f"{usual} is read instead" if usual else "no key is sent"
        note = f"{name} is sent to this host only if .edison/trust.yaml allows it; {kept}"
        fidelity.add_approximated(node, f"{draft.mark} key_env", note)


def _may_go(name: str, draft: ModelDraft, trust: TrustFile) -> bool:
    """Whether a key may be sent to the host of a model, by default that of its vendor."""
    address, usual = draft.entry.get("base_url"), draft.entry.get("key_env")
    provider = str(draft.entry["provider"])
    if isinstance(address, str):
        return trust.allows(name, address, provider)
    listed = [host for key in trust.keys if key.env == name for host in key.hosts]
    return any(trust.allows(str(usual), host, provider) for host in listed)


def _host(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    return bool(re.match(r"https?://[^\s{}]+\Z", text) and host and plain)


_PARAMS = {
    "temperature": "temperature",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "maxTokens": "max_tokens",
    "num_predict": "max_tokens",
    "top_p": "top_p",
    "topP": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "stop": "stop",
    "stop_sequences": "stop",
    "stopSequences": "stop",
}
_EXTRA = frozenset(
    {"reasoning_effort", "reasoning", "verbosity", "logit_bias", "top_k", "tool_choice", "user",
     "parallel_tool_calls", "service_tier", "thinking", "min_p", "repetition_penalty"}
)  # fmt: skip
_SECRET = re.compile(r"(?i)key|token|secret|password|credential|authorization")


@dataclass(slots=True)
class Providers:
    """Converts providers to models, without duplicates."""

    source: Source
    registry: str
    """Name of the models file, for the report."""
    models: dict[str, ModelDraft] = field(default_factory=dict)
    """By name."""
    trust: TrustFile = field(default_factory=TrustFile.model_construct)
    existing: dict[str, Json] = field(default_factory=dict)
    """Entries of the existing registry."""
    _names: Names = field(init=False)
    _drafts: list[ModelDraft] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._names = Names(self.existing)

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def read(self, node: Node) -> list[ModelDraft]:
        """Return the models of a list of providers, a single one, or a map of them."""
        found = self.source.follow(node)
        if found is None:
            return []
        if isinstance(found.value, list):
            self._fidelity.mark_visited(found)
            return [model for child in found.children() for model in self.read(child)]
        model = self.read_one(found)
        return [model] if model is not None else []

    def read_one(self, node: Node) -> ModelDraft | None:
        """Return the model of one provider; None, and a report, if it is not supported."""
        if isinstance(node.value, str):
            return self._build(node, node, node.value)
        if not isinstance(node.value, dict):
            self._fidelity.add_unsupported(node, "a provider must be a string or a map")
            return None
        self._fidelity.mark_visited(node)
        entries = [child for child in node.children() if isinstance(child.value, dict)]
        if "id" not in node.value and len(entries) == len(node.value) == 1:
            inner = entries[0]  # {"openai:gpt-4o": {config: ...}}
            self._fidelity.mark_visited(inner)
            return self._build(inner, None, inner.name)
        named = node.get("id")
        if named is None or not isinstance(named.value, str):
            self._fidelity.add_unsupported(node, "a provider needs an id")
            return None
        return self._build(node, named, named.value)

    def _build(self, node: Node, named: Node | None, id: str) -> ModelDraft | None:
        id_node = named or node
        entry, why = provider_entry(id)
        if entry is None:
            self._fidelity.add_unsupported(id_node, why)
            return None
        label = node.get("label")
        wanted = str(label.value) if label is not None else ""
        draft = ModelDraft("", entry, (id, wanted) if wanted else (id,), node=id_node)
        draft.mark = f"@model{len(self._drafts)}"
        self._drafts.append(draft)
        self._options(node, draft)
        self._call(draft, model_name(wanted or short_name(id)))
        if label is not None:
            self._fidelity.add_mapped(label, draft.mark)
        if why:
            self._fidelity.add_approximated(id_node, draft.mark, why)
        else:
            self._fidelity.add_mapped(id_node, draft.mark)
        return self.models[draft.name]

    def _call(self, draft: ModelDraft, wanted: str) -> None:
        """Name a model: like an equal one, imported or in the registry, else a new name."""
        known = {name: model.entry for name, model in self.models.items()}
        same = [
            name
            for name, entry in {**known, **self.existing}.items()
            if entry == draft.entry
            and (name not in self.models or self.models[name].ids == draft.ids)
        ]
        draft.name = same[0] if same else self._names.free(wanted)
        self.models.setdefault(draft.name, draft)

    def places(self) -> dict[str, str]:
        """Return the names of the models by their placeholders in the report."""
        return {draft.mark: f"{self.registry} {draft.name}" for draft in self._drafts}

    # --- options ----------------------------------------------------------------------------------

    def _options(self, node: Node, draft: ModelDraft) -> None:
        config, target = node.get("config"), draft.mark
        if config is not None and (config := self.source.follow(config)) is not None:
            self._fidelity.mark_visited(config)
            options = list(config.children())
            set_access(draft, options, self.trust, self._fidelity)
            for child in options:
                if child.name not in KEY_OPTIONS | ADDRESS_OPTIONS:
                    self._option(child, draft, target)
        chosen = node.get("prompts")
        if chosen is not None:
            labels = chosen.value if isinstance(chosen.value, list) else [chosen.value]
            draft.prompts = tuple(map(str, labels))
            self._fidelity.add_mapped(
                chosen, "@experiments", "a separate experiment for each selection"
            )
        env = node.get("env")
        if env is not None:
            note = "values of variables are not copied; set them in the environment"
            self._fidelity.add_unsupported(env, note)
        for name in ("transform", "inputs", "delay"):
            extra = node.get(name)
            if extra is not None:
                note = "set limits: {rpm: ...} instead" if name == "delay" else CODE_NOTE
                self._fidelity.add_unsupported(extra, note)

    def _option(self, child: Node, draft: ModelDraft, target: str) -> None:
        name, value = child.name, child.value
        if name in _PARAMS:
            self._param(child, draft, target)
        elif name in ("tools", "functions"):
            self._shared(child, draft, "tools")
        elif name == "response_format":
            self._shared(child, draft, "output")
        elif name == "organization" and draft.entry["provider"] == "openai":
            _map(draft.entry, "options")["organization"] = value
            self._fidelity.add_mapped(child, f"{target} options")
        elif name in ("apiVersion", "region", "location", "projectId", "deployment"):
            self._place(child, draft, target)
        elif _SECRET.search(name):
            note = "keys and secrets are not copied; name a variable under key_env"
            self._fidelity.add_unsupported(child, note)
        elif name in _EXTRA and "extra" in takes(str(draft.entry["provider"])):
            _map(_map(draft.entry, "params"), "extra")[name] = value
            self._fidelity.add_mapped(child, f"{target} params.extra")
        else:
            self._fidelity.add_unsupported(
                child, "not supported; params.extra passes options to the provider"
            )

    def _param(self, child: Node, draft: ModelDraft, target: str) -> None:
        name, value = _PARAMS[child.name], child.value
        provider = str(draft.entry["provider"])
        if name == "stop" and isinstance(value, str):
            value = [value]
        if not is_param(name, value) or next(params_refused({name: value}, provider), None):
            self._fidelity.add_unsupported(child, f"{provider} does not support this {name}")
            return
        _map(draft.entry, "params")[name] = value
        self._fidelity.add_mapped(child, f"{target} params.{name}")

    def _shared(self, child: Node, draft: ModelDraft, name: str) -> None:
        """Keep a schema or tools, which are part of the prompts in a project."""
        found = self.source.follow(child)
        if found is None:
            return
        value = _schema_of(found.value) if name == "output" else _tools_of(found.value)
        faults = schema_faults(value, name) if name == "output" else tool_faults(value)
        if isinstance(value, dict | list) and value and next(iter(faults), None) is None:
            draft.shared[name] = value
            note = f"{name} belongs to the prompts, so it applies to all models"
            self._fidelity.add_approximated(child, f"prompts, front matter {name}", note)
        else:
            self._fidelity.add_unsupported(
                child, f"this {name} is not supported; describe it in the prompt"
            )

    def _place(self, child: Node, draft: ModelDraft, target: str) -> None:
        name = {"apiVersion": "api_version", "projectId": "project"}.get(child.name, child.name)
        allowed = {
            "azure": {"api_version", "deployment"},
            "vertex": {"project", "location", "region"},
            "bedrock": {"region"},
        }.get(str(draft.entry["provider"]), set())
        if name not in allowed or not isinstance(child.value, str) or not child.value:
            self._fidelity.add_unsupported(child, f"{draft.entry['provider']} has no option {name}")
            return
        if draft.entry["provider"] == "vertex" and name == "region":
            name = "location"
        _map(draft.entry, "options")[name] = child.value
        self._fidelity.add_mapped(child, f"{target} options.{name}")


def is_param(name: str, value: Json) -> bool:
    """Whether a value is valid for a parameter."""
    try:
        Params.model_validate({name: value})
    except ValidationError:
        return False
    return value is not None


def _map(holder: dict[str, Json], key: str) -> dict[str, Json]:
    inner = holder.setdefault(key, {})
    assert isinstance(inner, dict)
    return inner


def _schema_of(value: Json) -> Json:
    """Return the JSON Schema of a response_format; None if it has none."""
    if not isinstance(value, dict):
        return None
    inner = value.get("json_schema", value)
    return inner.get("schema") if isinstance(inner, dict) else None


def _tools_of(value: Json) -> Json:
    """Return tools in the form of a prompt, from OpenAI's, Anthropic's or the plain form."""
    found: list[Json] = []
    for each in value if isinstance(value, list) else []:
        inner = each.get("function", each) if isinstance(each, dict) else None
        if not isinstance(inner, dict):
            return None
        tool: dict[str, Json] = {
            key: inner[key] for key in ("name", "description", "parameters") if key in inner
        }
        if "input_schema" in inner:
            tool["parameters"] = inner["input_schema"]
        found.append(tool)
    return found
