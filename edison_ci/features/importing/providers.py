"""Providers of promptfoo as models of a project, with their addresses and keys."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import ValidationError

from edison_ci._dataclass import dataclass
from edison_ci.config.extra_params import extra_taken
from edison_ci.config.model_entry import params_refused, takes
from edison_ci.config.params import Params
from edison_ci.config.prices import load_prices
from edison_ci.config.prompt import MAX_SYSTEM
from edison_ci.config.request_headers import belongs_to_connection
from edison_ci.config.trust import TrustFile
from edison_ci.config.user_schemas import schema_faults, tool_faults
from edison_ci.config.vendors import VENDORS
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.features.importing.drafts import ModelDraft, Names, model_name
from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.source import CODE_NOTE
from edison_ci.features.importing.templates import convert, env_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.config.vendors import Vendor
    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.fidelity import Fidelity, Node
    from edison_ci.features.importing.source import Source


RETIRED = "GitHub Models was retired on 2026-07-30"
_GITHUB_VENDORS = {
    "openai": "openai",
    "mistral-ai": "mistral",
    "deepseek": "deepseek",
    "xai": "xai",
    "cohere": "cohere",
}
"""Vendors of GitHub Models with a service of their own, and their names here."""


_NAMES = {
    "azureopenai": "azure",
    "google": "gemini",
    "palm": "gemini",
    "togetherai": "together",
    "alicloud": "alibaba",
    "aliyun": "alibaba",
    "dashscope": "alibaba",
    "hf": "huggingface",
}
"""Vendors with another name here."""
_LOCAL = {
    "localai": "http://localhost:8080/v1",
    "vllm": "http://localhost:8000/v1",
    "llama": "http://localhost:8080/v1",
    "docker": "http://localhost:12434/engines/v1",
    "litellm": "http://localhost:4000",
    "helicone": "http://localhost:8080/ai",
}
"""Services with the protocol of OpenAI on this machine, at their usual address."""
_OWN_ADDRESS = {
    "cloudera": ("CLOUDERA_BASE_URL", "CDP_TOKEN"),
    "cloudflare-ai": ("CLOUDFLARE_BASE_URL", "CLOUDFLARE_API_KEY"),
    "cloudflare-gateway": ("CLOUDFLARE_BASE_URL", "CLOUDFLARE_API_KEY"),
    "databricks": ("DATABRICKS_BASE_URL", "DATABRICKS_TOKEN"),
    "envoy": ("ENVOY_API_BASE_URL", ""),
    "f5": ("F5_BASE_URL", "F5_API_KEY"),
    "jfrog": ("QWAK_BASE_URL", "QWAK_TOKEN"),
    "mlflow-gateway": ("MLFLOW_GATEWAY_URL", "MLFLOW_GATEWAY_API_KEY"),
    "qwak": ("QWAK_BASE_URL", "QWAK_TOKEN"),
    "snowflake": ("SNOWFLAKE_BASE_URL", "SNOWFLAKE_API_KEY"),
}
"""Services with the protocol of OpenAI at an address of each customer: the variables of address
and key."""
_CODE = ("exec:", "python:", "file://", "javascript:", "ruby:", "golang:", "package:")
_LISTS = (".yaml", ".yml", ".json")
"""Files with providers."""
_NETWORK = ("ws:", "wss:", "webhook:", "websocket", "browser", "a2a", "mcp", "n8n", "slack")
_MODES = frozenset(
    {"chat", "responses", "messages", "completion", "text", "text-generation", "converse"}
)
_OTHER_KIND = frozenset(
    {"embedding", "embeddings", "moderation", "image", "images", "realtime", "video", "speech",
     "audio", "tts", "stt", "transcription", "voice", "live", "isolation", "alignment",
     "feature-extraction", "sentence-similarity", "text-classification", "token-classification",
     "vectorize"}
)  # fmt: skip
_NOT_FOR_TEXT = frozenset({"elevenlabs", "fal", "modelslab", "quiverai", "voyage"})
_AGENTS = frozenset(
    {"agents", "agent", "assistant", "chatkit", "claude-agent-sdk", "claude-code", "codex",
     "codex-app-server", "codex-desktop", "codex-sdk", "foundry-agent", "kb"}
)  # fmt: skip
_OWN_DEFAULTS = frozenset(
    {"azure", "azureopenai", "anthropic", "openai", "abliteration", "aimlapi", "alibaba",
     "alicloud", "aliyun", "atlascloud", "cerebras", "cloudera", "cloudflare-ai", "cometapi",
     "dashscope", "databricks", "deepseek", "docker", "envoy", "f5", "fireworks", "github", "groq",
     "helicone", "hf", "huggingface", "hyperbolic", "jfrog", "litellm", "llamaapi", "minimax",
     "mlflow-gateway", "moonshot", "novita", "nscale", "nvidia", "openrouter", "orcarouter",
     "perplexity", "portkey", "qwak", "snowflake", "togetherai", "truefoundry", "vllm", "xai"}
)  # fmt: skip
"""Providers that promptfoo calls with temperature 0 and max_tokens 1024 unless told otherwise."""
_REASONING = re.compile(r"(?:\A|/)(?:ft:)?(?:o1|o3|o4|gpt-5|codex-mini)")
"""Models of OpenAI that promptfoo calls without these defaults."""


class UnusableProvider(Exception):
    """A provider without a counterpart; the message says why."""

    def __init__(self, why: str, *, is_text: bool = True) -> None:
        super().__init__(why)
        self.is_text = is_text
        """Whether it answers in text, so that a model can take its place."""


def provider_entry(id: str) -> tuple[dict[str, Json], str]:
    """Return the entry of a provider and a note; raises UnusableProvider."""
    if id == "echo":
        return {"provider": "sim", "model": "echo"}, ""
    if id.startswith(_CODE) or id.endswith((".js", ".py", ".ts", ".mjs", ".cjs", ".rb", ".go")):
        raise UnusableProvider(
            "programs are not run as providers; one that reads and writes lines of JSON can be a "
            "model (provider: command)"
        )
    if id.startswith(_NETWORK):
        raise UnusableProvider("only the protocol of OpenAI and plain JSON over HTTP are supported")
    vendor_name, _, rest = id.partition(":")
    mode, _, model = rest.partition(":")
    _refuse_other_kinds(vendor_name, mode)
    if vendor_name == "github" and rest:
        return github_entry(rest)
    if mode not in _MODES or not model:
        mode, model = "", rest
    entry, note = _fields_of(vendor_name, model)
    if not model and entry["provider"] != "azure" and vendor_name not in _LOCAL:
        raise UnusableProvider(f"{id!r} names no model")
    if not note and mode in ("completion", "text", "text-generation", "responses"):
        note = "called through chat completions"
    return entry, note


def _refuse_other_kinds(vendor: str, mode: str) -> None:
    if mode in _OTHER_KIND or vendor in _NOT_FOR_TEXT:
        what = mode if mode in _OTHER_KIND else "images, sound or vectors"
        raise UnusableProvider(f"it is a service for {what}, not for text", is_text=False)
    if mode in _AGENTS or vendor in ("bedrock-agent", "opencode", "openclaw", "openinterpreter"):
        raise UnusableProvider("agents are not models; serve it over HTTP (provider: http)")


def _fields_of(name: str, model: str) -> tuple[dict[str, Json], str]:
    """Return the entry of a model of a vendor, and a note; raises UnusableProvider."""
    if name in _LOCAL:
        entry: dict[str, Json] = {"provider": "openai_compatible", "model": model or "default"}
        return {**entry, "base_url": _LOCAL[name]}, ""
    if name in _OWN_ADDRESS:
        address, key = _OWN_ADDRESS[name]
        entry = {"provider": "openai_compatible", "model": model, "base_url_env": address}
        entry |= {"key_env": key} if key else {}
        return entry, f"the address is read from {address}"
    if name == "meta":  # the name of its key is not its own, so no host is trusted with it
        entry = {"provider": "openai_compatible", "model": model}
        note = "key_env was left out: MODEL_API_KEY is sent only if .edison/trust.yaml allows it"
        return {**entry, "base_url": "https://api.meta.ai/v1"}, note
    vendor = VENDORS.get(_NAMES.get(name, name))
    if vendor is None:
        raise UnusableProvider(f"unknown provider {name!r}; try openai_compatible or litellm")
    return _provider_fields(vendor, model), _remark(vendor)


def github_entry(id: str) -> tuple[dict[str, Json], str]:
    """Return the entry of a model of GitHub Models at its own vendor, and a note."""
    vendor_name, slash, model = id.rpartition("/")
    known = _GITHUB_VENDORS.get(vendor_name if slash else "openai")
    if known is None:
        # Open models, which anyone may serve.
        entry = _provider_fields(VENDORS["ollama"], model)
        return entry, f"{RETIRED}; called from Ollama on this machine"
    entry = _provider_fields(VENDORS[known], model)
    return entry, f"{RETIRED}; called at its vendor with {VENDORS[known].key_env}"


def _provider_fields(vendor: Vendor, model: str) -> dict[str, Json]:
    entry: dict[str, Json] = {"provider": vendor.provider, "model": model}
    if vendor.base_url is not None:
        entry["base_url"] = vendor.base_url
    if vendor.provider == "azure":
        entry["base_url_env"] = "AZURE_OPENAI_ENDPOINT"
        entry["options"] = {"deployment": model or "DEPLOYMENT", "api_version": "2024-10-21"}
    elif vendor.provider == "vertex":
        entry["options"] = {"project": "your-project", "location": "us-central1"}
    elif vendor.provider == "bedrock":
        entry["options"] = {"region": "us-east-1"}
    if vendor.key_env:
        entry["key_env"] = vendor.key_env
    return entry


def _remark(vendor: Vendor) -> str:
    if vendor.provider == "azure":
        return "the address is read from AZURE_OPENAI_ENDPOINT; check deployment and api_version"
    if vendor.provider == "vertex":
        return "set options.project and options.location"
    if vendor.provider == "bedrock":
        return "set options.region and key_env: {access_key_id: ..., secret_access_key: ...}"
    return ""


def default_params(id: str, entry: Mapping[str, Json]) -> dict[str, Json]:
    """Return the parameters that promptfoo sends where the configuration sets none."""
    vendor, model = id.partition(":")[0], str(entry.get("model", ""))
    if vendor not in _OWN_DEFAULTS or (vendor != "anthropic" and _REASONING.search(model)):
        return {}
    row = load_prices().models.get(f"{entry['provider']}/{model}", {})
    given: dict[str, Json] = {} if row.get("sampling") is False else {"temperature": 0}
    return {**given, "max_tokens": 1_024}


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


# --- services over HTTP ---------------------------------------------------------------------------

_PLACE = re.compile(
    r"\s*(?:\(?\s*(?:json|data)\s*(?:,\s*\w+\s*)*\)?\s*=>\s*)?(?:json|data|response)"
    r"(?P<place>(?:\??\.\w+|(?:\?\.)?\[(?:\d+|'[^'.\]]+'|\"[^\".\]]+\")\])+)"
    r"(?P<otherwise>\s*\|\|[\w\s.?|'\"]+)?\s*;?\s*\Z"
)
"""A place in a reply: json.choices[0].message.content."""
_STEP = re.compile(r"\w[^.\[\]'\"?]*")
_PROMPT = re.compile(r"\{\{-?\s*prompt\s*(?:\|\s*(?:safe|dump|escape)\s*)*-?\}\}")
_KEY_HEADER = re.compile(r"(?P<start>[^{}]*)\{\{-?\s*env\.(?P<name>\w+)\s*-?\}\}\s*\Z")


def is_http(id: str) -> bool:
    """Whether a provider is a service over HTTP."""
    return id in ("http", "https") or id.startswith(("http://", "https://"))


def json_place(code: str) -> str | None:
    """Return the place in a reply that an expression reads, as `a.0.b`; None if it is another."""
    found = _PLACE.match(code)
    return ".".join(_STEP.findall(found["place"])) if found else None


def http_entry(
    id: str, config: Node | None, trust: TrustFile, fidelity: Fidelity
) -> tuple[dict[str, Json], str]:
    """Return the entry of a service over HTTP and a note; raises UnusableProvider."""
    options = {child.name: child for child in config.children()} if config is not None else {}
    url, body = options.pop("url", None), options.pop("body", None)
    address = str(url.value) if url is not None else id
    entry: dict[str, Json] = {"provider": "http", "model": "service"}
    if (name := env_name(address)) is not None:
        entry["base_url_env"] = name
    elif _is_address(address):
        entry["base_url"] = address.rstrip("/")
    else:
        raise UnusableProvider("its address is not plain: no query, name or template is supported")
    method = options.pop("method", None)
    if method is not None and str(method.value).upper() != "POST":
        raise UnusableProvider(f"only POST is supported, not {str(method.value)[:20]}")
    sent = body.value if body is not None else None
    if isinstance(sent, str):
        sent = _as_json(_PROMPT.sub("{{ prompt }}", sent))
    if not isinstance(sent, dict) or not sent:
        raise UnusableProvider("its body is not a JSON object")
    settings: dict[str, Json] = {"body": _body(sent)}
    entry["options"] = settings
    assert config is not None
    fidelity.mark_visited(config)
    for node in (url, body, method):
        if node is not None:
            fidelity.add_mapped(node, "options")
    note = _read_reply(options.pop("transformResponse", None), settings, fidelity)
    _headers(options.pop("headers", None), entry, trust, fidelity)
    for node in options.values():
        fidelity.add_unsupported(node, "a service has no such option here")
    return entry, note


def _as_json(text: str) -> Json:
    try:
        return parse_json(text)
    except Fault:
        return None


def _body(value: Json) -> Json:
    """Return a body with the prompt as its only variable; raises UnusableProvider."""
    if isinstance(value, dict):
        return {key: _body(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_body(item) for item in value]
    if not isinstance(value, str):
        return value
    text = _PROMPT.sub("{{ prompt }}", value)
    if "{{" in text.replace("{{ prompt }}", "") or "{%" in text:
        raise UnusableProvider(f"its body uses more than the prompt: {value[:60]!r}")
    return text


def _read_reply(node: Node | None, settings: dict[str, Json], fidelity: Fidelity) -> str:
    """Set where the reply has the answer; return a note if that is not known."""
    place = json_place(str(node.value)) if node is not None else None
    if place is None:
        if node is not None:
            fidelity.add_unsupported(node, f"the answer is read from options.text: {CODE_NOTE}")
        return "set options.text: the place of the answer in the reply"
    assert node is not None
    settings["text"] = place
    if "||" in str(node.value):
        fidelity.add_approximated(node, "options.text", "only the first place is read")
    else:
        fidelity.add_mapped(node, "options.text")
    return ""


def _headers(
    node: Node | None, entry: dict[str, Json], trust: TrustFile, fidelity: Fidelity
) -> None:
    if node is None:
        return
    fidelity.mark_visited(node)
    headers: dict[str, Json] = {}
    for child in node.children():
        text, found = str(child.value), _KEY_HEADER.match(str(child.value))
        if child.name.lower() == "content-type":
            fidelity.add_mapped(child, "", "bodies are always JSON")
        elif belongs_to_connection(child.name):
            fidelity.add_unsupported(child, "no file may set it")
        elif trust.refused_headers([child.name], str(entry.get("base_url", ""))):
            fidelity.add_unsupported(child, "allow it under services in .edison/trust.yaml")
        elif found is not None:
            address = entry.get("base_url")
            if isinstance(address, str) and not trust.allows(found["name"], address, "http"):
                host = _host(address)
                note = f"{found['name']} is sent to {host} only if .edison/trust.yaml allows it"
                fidelity.add_approximated(child, "", note)
                continue
            entry["key_env"] = found["name"]
            headers[child.name] = f"{found['start']}{{{{ key }}}}"
            fidelity.add_mapped(child, "options.headers and key_env")
        elif "{{" in text or _SECRET.search(child.name):
            fidelity.add_unsupported(child, "keys are not copied; name a variable under key_env")
        else:
            headers[child.name] = text
            fidelity.add_mapped(child, "options.headers")
    options = entry["options"]
    assert isinstance(options, dict)
    if headers:
        options["headers"] = headers


_PARAMS = {
    "temperature": "temperature",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "maxTokens": "max_tokens",
    "max_tokens_to_sample": "max_tokens",
    "max_gen_len": "max_tokens",
    "max_new_tokens": "max_tokens",
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
_SYSTEM = frozenset({"instructions", "systemInstruction", "systemPrompt", "system"})
_NESTED = frozenset({"generationConfig", "inferenceConfig", "passthrough", "options"})
"""Options that contain others."""
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
    has_text: bool = False
    """Whether a provider was left out that answers in text."""
    _names: Names = field(init=False)
    _drafts: list[ModelDraft] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._names = Names(self.existing)

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def read(self, node: Node) -> list[ModelDraft]:
        """Return the models of a list of providers, a single one, or a map of them."""
        is_program = isinstance(node.value, str) and not node.value.endswith(_LISTS)
        found = node if is_program else self.source.follow(node)
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
        try:
            entry, why = self._entry(node, id)
        except UnusableProvider as refused:
            self._fidelity.add_unsupported(id_node, str(refused))
            self._fidelity.cover(node)
            self.has_text |= refused.is_text
            return None
        label = node.get("label")
        wanted = str(label.value) if label is not None else ""
        draft = ModelDraft("", entry, (id, wanted) if wanted else (id,), node=id_node)
        draft.mark = f"@model{len(self._drafts)}"
        self._drafts.append(draft)
        if entry["provider"] != "http":
            self._options(node, draft)
            self._defaults(id, id_node, draft)
        self._call(draft, model_name(wanted or short_name(id)))
        if label is not None:
            self._fidelity.add_mapped(label, draft.mark)
        if why:
            self._fidelity.add_approximated(id_node, draft.mark, why)
        else:
            self._fidelity.add_mapped(id_node, draft.mark)
        return self.models[draft.name]

    def _entry(self, node: Node, id: str) -> tuple[dict[str, Json], str]:
        if not is_http(id):
            return provider_entry(id)
        config = node.get("config")
        if config is not None:
            config = self.source.follow(config)
        return http_entry(id, config, self.trust, self._fidelity)

    def _defaults(self, id: str, node: Node, draft: ModelDraft) -> None:
        """Write the parameters that promptfoo sends where the configuration sets none."""
        if draft.omit_defaults:
            return
        params = draft.entry.get("params")
        given = default_params(id, draft.entry)
        provider = str(draft.entry["provider"])
        if isinstance(params, dict):
            given = {name: value for name, value in given.items() if name not in params}
            if provider == "anthropic" and "top_p" in params:
                given.pop("temperature", None)
        if not given:
            return
        _map(draft.entry, "params").update(given)
        listed = " and ".join(f"{name} {value}" for name, value in given.items())
        note = f"{listed}: what promptfoo sends by default"
        self._fidelity.add_at(Status.MAPPED, node.where, f"{node.key} (defaults)", note)

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

    def stand_in(self) -> ModelDraft:
        """Return a simulated model for a configuration without a supported provider."""
        draft = ModelDraft("", {"provider": "sim", "model": "echo"}, ("echo",))
        self._call(draft, "stand-in")
        return self.models[draft.name]

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
        elif name in _NESTED and isinstance(value, dict):
            self._fidelity.mark_visited(child)
            for inner in child.children():
                self._option(inner, draft, target)
        elif name in ("tools", "functions"):
            self._shared(child, draft, "tools")
        elif name in ("response_format", "output_format", "responseSchema"):
            self._shared(child, draft, "output")
        elif name in _SYSTEM and (text := _system_of(value)):
            draft.shared["system"] = text
            note = "it belongs to the prompts, so it applies to all models"
            self._fidelity.add_approximated(child, "prompts, system", note)
        elif name in ("apiVersion", "region", "location", "projectId", "deployment"):
            self._place(child, draft, target)
        elif not self._setting(child, draft, target):
            self._extra(child, draft, target)

    def _setting(self, child: Node, draft: ModelDraft, target: str) -> bool:
        """Read an option that is a key of the model here; return whether it is one."""
        name, value = child.name, child.value
        if name == "organization" and draft.entry["provider"] == "openai":
            _map(draft.entry, "options")["organization"] = value
            self._fidelity.add_mapped(child, f"{target} options")
        elif name in ("timeoutMs", "timeout") and type(value) is int and value >= 1:
            _map(draft.entry, "limits")["timeout_s"] = min(max(value / 1000, 1.0), 3_600.0)
            self._fidelity.add_mapped(child, f"{target} limits")
        elif name in ("omitDefaults", "isReasoningModel"):
            draft.omit_defaults = value is True
            self._fidelity.add_mapped(child, f"{target} params")
        elif name == "effort" and draft.entry["provider"] == "anthropic":
            _map(_map(draft.entry, "params"), "extra")["output_config"] = {"effort": value}
            self._fidelity.add_mapped(child, f"{target} params.extra.output_config")
        elif name == "apiKeyRequired":
            self._fidelity.add_mapped(child, "", "a key is sent only if key_env names one")
        elif name == "inferenceModelType" and draft.entry["provider"] == "bedrock":
            self._fidelity.add_mapped(child, "", "the name of the model says it")
        elif name in ("showThinking", "stream", "include_reasoning"):
            if value is False:
                self._fidelity.add_mapped(child, "", "always so here")
            else:
                note = "answers are whole, and without the thinking"
                self._fidelity.add_approximated(child, "", note)
        else:
            return False
        return True

    def _extra(self, child: Node, draft: ModelDraft, target: str) -> None:
        name, provider = child.name, str(draft.entry["provider"])
        if name in extra_taken(provider) and "extra" in takes(provider):
            _map(_map(draft.entry, "params"), "extra")[name] = child.value
            self._fidelity.add_mapped(child, f"{target} params.extra")
        elif _SECRET.search(name):
            note = "keys and secrets are not copied; name a variable under key_env"
            self._fidelity.add_unsupported(child, note)
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
        self._fidelity.cover(found)
        if name == "output" and _type_of(found.value) == "json_object":
            self._json_mode(child, draft)
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

    def _json_mode(self, child: Node, draft: ModelDraft) -> None:
        """Ask for JSON without a schema, where the provider has such a mode."""
        provider = str(draft.entry["provider"])
        if "response_format" not in extra_taken(provider) or "extra" not in takes(provider):
            self._fidelity.add_unsupported(child, f"{provider} has no mode for JSON")
            return
        mode: dict[str, Json] = {"type": "json_object"}
        _map(_map(draft.entry, "params"), "extra")["response_format"] = mode
        self._fidelity.add_mapped(child, f"{draft.mark} params.extra")

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


def _system_of(value: Json) -> str:
    """Return a system message that is a plain text, or Google's parts; empty if it is not."""
    if isinstance(value, dict):
        parts = value.get("parts")
        listed = parts if isinstance(parts, list) else [parts]
        texts = [part.get("text") for part in listed if isinstance(part, dict)]
        value = "\n".join(map(str, texts)) if texts and all(texts) else None
    if not isinstance(value, str) or value.startswith("file://") or len(value) > MAX_SYSTEM:
        return ""
    return "" if convert(value).text_is_template else value.strip()


def _type_of(value: Json) -> Json:
    return value.get("type") if isinstance(value, dict) else None


def _schema_of(value: Json) -> Json:
    """Return the JSON Schema of a response_format; None if it has none."""
    if not isinstance(value, dict):
        return None
    inner = value.get("json_schema", value)
    if not isinstance(inner, dict):
        return None
    return inner.get("schema", inner if "properties" in inner else None)


def _tools_of(value: Json) -> Json:
    """Return tools in the form of a prompt, from OpenAI's, Anthropic's, Google's or AWS's form."""
    found: list[Json] = []
    for each in value if isinstance(value, list) else []:
        if isinstance(each, dict) and isinstance(each.get("functionDeclarations"), list):
            inner = _tools_of(each["functionDeclarations"])
            if not isinstance(inner, list) or len(each) > 1:
                return None
            found += inner
            continue
        tool = _tool_of(each)
        if tool is None:
            return None
        found.append(tool)
    return found


def _tool_of(value: Json) -> dict[str, Json] | None:
    inner = value.get("function", value.get("toolSpec", value)) if isinstance(value, dict) else None
    if not isinstance(inner, dict):
        return None
    tool: dict[str, Json] = {
        key: inner[key] for key in ("name", "description", "parameters") if key in inner
    }
    schema = inner.get("input_schema", inner.get("inputSchema"))
    if isinstance(schema, dict):
        tool["parameters"] = schema.get("json", schema)
    return tool
