"""Providers of promptfoo as models of ours, their addresses and keys."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import ValidationError

from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import Params, params_refused, takes
from edison_ci.config.schemas_of_users import schema_faults, tool_faults
from edison_ci.config.trust import TrustFile
from edison_ci.importing.drafts import ModelDraft, Names, model_name
from edison_ci.importing.source import CODE_NOTE
from edison_ci.importing.templates import env_name
from edison_ci.importing.vendors import entry_of, short_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.documents.marks import Json
    from edison_ci.importing.fidelity import Fidelity, Node
    from edison_ci.importing.source import Source


# A configuration may name any host. No key is written for a host that the project does not trust,
# so that importing a file never sends a key anywhere.
KEY_OPTIONS = frozenset({"apiKey", "apiKeyEnvar", "apiKeyEnvVar"})
ADDRESS_OPTIONS = frozenset({"apiBaseUrl", "apiHost", "baseUrl", "baseURL", "endpoint"})
_ADDRESS_ENV = {"azure": "AZURE_OPENAI_ENDPOINT", "anthropic": "ANTHROPIC_BASE_URL"}
"""Where the address of a provider that has a key by default is read from."""


def settle_access(
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
        fidelity.mapped(node, f"{draft.mark} base_url_env")
        return
    if not _is_address(address) or entry["provider"] in ("sim", "vertex", "bedrock"):
        fidelity.unsupported(node, "it is not an address that this provider takes here")
        return
    key = entry.get("key_env")
    entry.pop("base_url_env", None)
    entry["base_url"] = address
    if not isinstance(key, str) or trust.allows(key, address, str(entry["provider"])):
        fidelity.mapped(node, f"{draft.mark} base_url")
        return
    host, env = _host(address), _ADDRESS_ENV.get(str(entry["provider"]))
    if env is not None:
        del entry["base_url"]
        entry["base_url_env"] = env
        note = f"the address is read from {env}; {host} needs a place in .edison/trust.yaml"
    else:
        entry["provider"] = "openai_compatible"
        del entry["key_env"]
        note = f"key_env was left out: {key} may not go to {host} unless .edison/trust.yaml says so"
    fidelity.approximated(node, f"{draft.mark} base_url", note)


def _set_key(node: Node, draft: ModelDraft, trust: TrustFile, fidelity: Fidelity) -> None:
    text, entry = (node.value if isinstance(node.value, str) else ""), draft.entry
    name = env_name(text) if node.name == "apiKey" else text
    usual = entry.get("key_env")
    if name is None or not re.fullmatch(r"[A-Za-z_]\w*", name):
        kept = f"{usual} is read instead" if usual else "name a variable under key_env"
        fidelity.unsupported(node, f"a literal key is never copied; {kept}")
    elif draft.offline:
        fidelity.mapped(node, "", "a simulated model needs no key")
    elif name == usual or "base_url_env" in entry or _may_go(name, draft, trust):
        entry["key_env"] = name
        fidelity.mapped(node, f"{draft.mark} key_env")
    else:
        kept = f"{usual} is read instead" if usual else "no key is sent"
        note = f"{name} may not go to this host unless .edison/trust.yaml says so; {kept}"
        fidelity.approximated(node, f"{draft.mark} key_env", note)


def _may_go(name: str, draft: ModelDraft, trust: TrustFile) -> bool:
    """Whether a key may go to where the model lives; a vendor's own host, if nothing is said."""
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
    """Turns providers into models, each once."""

    source: Source
    registry: str
    """Name of the models file, for the report."""
    models: dict[str, ModelDraft] = field(default_factory=dict)
    """By name."""
    trust: TrustFile = field(default_factory=TrustFile.model_construct)
    existing: dict[str, Json] = field(default_factory=dict)
    """Entries of the registry that is there already."""
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
            self._fidelity.seen(found)
            return [model for child in found.children() for model in self.read(child)]
        model = self.one(found)
        return [model] if model is not None else []

    def one(self, node: Node) -> ModelDraft | None:
        """Return the model that one provider is; None with a report if we have none like it."""
        if isinstance(node.value, str):
            return self._made(node, node, node.value)
        if not isinstance(node.value, dict):
            self._fidelity.unsupported(node, "a provider is a text or a map")
            return None
        self._fidelity.seen(node)
        entries = [child for child in node.children() if isinstance(child.value, dict)]
        if "id" not in node.value and len(entries) == len(node.value) == 1:
            inner = entries[0]  # {"openai:gpt-4o": {config: ...}}
            self._fidelity.seen(inner)
            return self._made(inner, None, inner.name)
        named = node.get("id")
        if named is None or not isinstance(named.value, str):
            self._fidelity.unsupported(node, "a provider needs an id")
            return None
        return self._made(node, named, named.value)

    def _made(self, node: Node, named: Node | None, id: str) -> ModelDraft | None:
        said = named or node
        entry, why = entry_of(id)
        if entry is None:
            self._fidelity.unsupported(said, why)
            return None
        label = node.get("label")
        wanted = str(label.value) if label is not None else ""
        draft = ModelDraft("", entry, (id, wanted) if wanted else (id,), node=said)
        draft.mark = f"@model{len(self._drafts)}"
        self._drafts.append(draft)
        self._options(node, draft)
        self._call(draft, model_name(wanted or short_name(id)))
        if label is not None:
            self._fidelity.mapped(label, draft.mark)
        if why:
            self._fidelity.approximated(said, draft.mark, why)
        else:
            self._fidelity.mapped(said, draft.mark)
        return self.models[draft.name]

    def _call(self, draft: ModelDraft, wanted: str) -> None:
        """Give a model a name: that of an equal one, here or in the registry, or its own."""
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
        """Return the names of the models by the marks that stand for them in the report."""
        return {draft.mark: f"{self.registry} {draft.name}" for draft in self._drafts}

    # --- options ----------------------------------------------------------------------------------

    def _options(self, node: Node, draft: ModelDraft) -> None:
        config, target = node.get("config"), draft.mark
        if config is not None and (config := self.source.follow(config)) is not None:
            self._fidelity.seen(config)
            options = list(config.children())
            settle_access(draft, options, self.trust, self._fidelity)
            for child in options:
                if child.name not in KEY_OPTIONS | ADDRESS_OPTIONS:
                    self._option(child, draft, target)
        chosen = node.get("prompts")
        if chosen is not None:
            labels = chosen.value if isinstance(chosen.value, list) else [chosen.value]
            draft.prompts = tuple(map(str, labels))
            self._fidelity.mapped(chosen, "@experiments", "an experiment for each choice")
        env = node.get("env")
        if env is not None:
            note = "values of variables are not copied; set them in the environment"
            self._fidelity.unsupported(env, note)
        for name in ("transform", "inputs", "delay"):
            extra = node.get(name)
            if extra is not None:
                note = "set limits: {rpm: ...} instead" if name == "delay" else CODE_NOTE
                self._fidelity.unsupported(extra, note)

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
            self._fidelity.mapped(child, f"{target} options")
        elif name in ("apiVersion", "region", "location", "projectId", "deployment"):
            self._place(child, draft, target)
        elif _SECRET.search(name):
            note = "keys and secrets are not copied; name a variable under key_env"
            self._fidelity.unsupported(child, note)
        elif name in _EXTRA and "extra" in takes(str(draft.entry["provider"])):
            _map(_map(draft.entry, "params"), "extra")[name] = value
            self._fidelity.mapped(child, f"{target} params.extra")
        else:
            self._fidelity.unsupported(child, "no option of ours; params.extra passes things on")

    def _param(self, child: Node, draft: ModelDraft, target: str) -> None:
        name, value = _PARAMS[child.name], child.value
        provider = str(draft.entry["provider"])
        if name == "stop" and isinstance(value, str):
            value = [value]
        if not is_param(name, value) or next(params_refused({name: value}, provider), None):
            self._fidelity.unsupported(child, f"{provider} takes no {name} like this here")
            return
        _map(draft.entry, "params")[name] = value
        self._fidelity.mapped(child, f"{target} params.{name}")

    def _shared(self, child: Node, draft: ModelDraft, name: str) -> None:
        """Keep a schema or tools, which are part of the prompt here."""
        found = self.source.follow(child)
        if found is None:
            return
        value = _schema_of(found.value) if name == "output" else _tools_of(found.value)
        faults = schema_faults(value, name) if name == "output" else tool_faults(value)
        if isinstance(value, dict | list) and value and next(iter(faults), None) is None:
            draft.shared[name] = value
            note = f"{name} belongs to the prompts here, and so to every model"
            self._fidelity.approximated(child, f"prompts, front matter {name}", note)
        else:
            self._fidelity.unsupported(
                child, f"no {name} of ours; say in the prompt what is wanted"
            )

    def _place(self, child: Node, draft: ModelDraft, target: str) -> None:
        name = {"apiVersion": "api_version", "projectId": "project"}.get(child.name, child.name)
        allowed = {
            "azure": {"api_version", "deployment"},
            "vertex": {"project", "location", "region"},
            "bedrock": {"region"},
        }.get(str(draft.entry["provider"]), set())
        if name not in allowed or not isinstance(child.value, str) or not child.value:
            self._fidelity.unsupported(child, f"{draft.entry['provider']} takes no {name} here")
            return
        if draft.entry["provider"] == "vertex" and name == "region":
            name = "location"
        _map(draft.entry, "options")[name] = child.value
        self._fidelity.mapped(child, f"{target} options.{name}")


def is_param(name: str, value: Json) -> bool:
    """Whether a value is one that our parameter takes."""
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
    """Return the JSON Schema inside a response_format, if it has one."""
    if not isinstance(value, dict):
        return None
    inner = value.get("json_schema", value)
    return inner.get("schema") if isinstance(inner, dict) else None


def _tools_of(value: Json) -> Json:
    """Return tools in OpenAI's, Anthropic's or the plain form as ours."""
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
