"""Providers of promptfoo as models of a project, with their addresses and keys."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from edison_ci._dataclass import dataclass
from edison_ci.config.extra_params import extra_taken
from edison_ci.config.model_entry import params_refused, takes
from edison_ci.config.params import Params
from edison_ci.config.prices import load_prices
from edison_ci.config.prompt import MAX_SYSTEM
from edison_ci.config.trust import TrustFile
from edison_ci.config.user_schemas import schema_faults, tool_faults
from edison_ci.config.vendors import VENDORS
from edison_ci.documents.yaml_text import read_beside
from edison_ci.features.importing.drafts import ModelDraft, Names, model_name
from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.services import (
    ADDRESS_OPTIONS,
    KEY_OPTIONS,
    SECRET,
    UnusableProvider,
    http_entry,
    is_http,
    set_access,
)
from edison_ci.features.importing.source import CODE_NOTE
from edison_ci.features.importing.templates import convert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.vendors import Vendor
    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.fidelity import Fidelity, Node
    from edison_ci.features.importing.source import Source


RETIRED = "GitHub Models was retired on 2026-07-30"
_TABLES = read_beside(__file__, "promptfoo.yaml")["providers"]
_LISTS = (".yaml", ".yml", ".json")
"""Files with providers."""
_PROGRAMS = (".js", ".py", ".ts", ".mjs", ".cjs", ".rb", ".go")
_OTHER_KIND, _AGENTS, _OWN_DEFAULTS = (
    frozenset(_TABLES[name].split()) for name in ("other_kind", "agents", "own_defaults")
)
_REASONING = re.compile(r"(?:\A|/)(?:ft:)?(?:o1|o3|o4|gpt-5|codex-mini)")
"""Models of OpenAI that promptfoo calls without its default parameters."""
_SYSTEM = frozenset({"instructions", "systemInstruction", "systemPrompt", "system"})
_NESTED = frozenset({"generationConfig", "inferenceConfig", "passthrough", "options"})
"""Options that contain others."""


def provider_entry(id: str) -> tuple[dict[str, Json], str]:
    """Return the entry of a provider and a note; raises UnusableProvider."""
    if id == "echo":
        return {"provider": "sim", "model": "echo"}, ""
    if id.startswith(tuple(_TABLES["code"])) or id.endswith(_PROGRAMS):
        raise UnusableProvider(
            "programs are not run as providers; one that reads and writes lines of JSON can be a "
            "model (provider: command)"
        )
    if id.startswith(tuple(_TABLES["network"])):
        raise UnusableProvider("only the protocol of OpenAI and plain JSON over HTTP are supported")
    vendor_name, _, rest = id.partition(":")
    mode, _, model = rest.partition(":")
    _refuse_other_kinds(vendor_name, mode)
    if vendor_name == "github" and rest:
        return github_entry(rest)
    if mode not in _TABLES["modes"] or not model:
        mode, model = "", rest
    entry, note = _fields_of(vendor_name, model)
    if not model and entry["provider"] != "azure" and vendor_name not in _TABLES["local"]:
        raise UnusableProvider(f"{id!r} names no model")
    if not note and mode in ("completion", "text", "text-generation", "responses"):
        note = "called through chat completions"
    return entry, note


def _refuse_other_kinds(vendor: str, mode: str) -> None:
    if mode in _OTHER_KIND or vendor in _TABLES["not_for_text"]:
        what = mode if mode in _OTHER_KIND else "images, sound or vectors"
        raise UnusableProvider(f"it is a service for {what}, not for text", is_text=False)
    if mode in _AGENTS or vendor in ("bedrock-agent", "opencode", "openclaw", "openinterpreter"):
        raise UnusableProvider("agents are not models; serve it over HTTP (provider: http)")


def _fields_of(name: str, model: str) -> tuple[dict[str, Json], str]:
    """Return the entry of a model of a vendor, and a note; raises UnusableProvider."""
    if name in _TABLES["local"]:
        entry: dict[str, Json] = {"provider": "openai_compatible", "model": model or "default"}
        return {**entry, "base_url": _TABLES["local"][name]}, ""
    if name in _TABLES["own_address"]:
        address, key = _TABLES["own_address"][name]
        entry = {"provider": "openai_compatible", "model": model, "base_url_env": address}
        entry |= {"key_env": key} if key else {}
        return entry, f"the address is read from {address}"
    if name == "meta":  # the name of its key is not its own, so no host is trusted with it
        entry = {"provider": "openai_compatible", "model": model}
        note = "key_env was left out: MODEL_API_KEY is sent only if .edison/trust.yaml allows it"
        return {**entry, "base_url": "https://api.meta.ai/v1"}, note
    vendor = VENDORS.get(_TABLES["names"].get(name, name))
    if vendor is None:
        raise UnusableProvider(f"unknown provider {name!r}; try openai_compatible or litellm")
    return _provider_fields(vendor, model), _remark(vendor)


def github_entry(id: str) -> tuple[dict[str, Json], str]:
    """Return the entry of a model of GitHub Models at its own vendor, and a note."""
    vendor_name, slash, model = id.rpartition("/")
    own_service = _TABLES["github_vendors"].get(vendor_name if slash else "openai")
    if own_service is None:
        # Open models, which anyone may serve.
        entry = _provider_fields(VENDORS["ollama"], model)
        return entry, f"{RETIRED}; called from Ollama on this machine"
    vendor = VENDORS[own_service]
    return _provider_fields(vendor, model), f"{RETIRED}; called at its vendor with {vendor.key_env}"


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
    sampling: dict[str, Json] = {} if row.get("sampling") is False else {"temperature": 0}
    return {**sampling, "max_tokens": 1_024}


def short_name(id: str) -> str:
    """Return the short name of a model: its id without vendor and mode."""
    vendor, _, rest = id.partition(":")
    mode, _, model = rest.partition(":")
    model = model if mode in _TABLES["modes"] and model else rest
    return model.rpartition("/")[2].replace(":", "-") or vendor


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
        target = node if is_program else self.source.follow(node)
        if target is None:
            return []
        if isinstance(target.value, list):
            self._fidelity.mark_visited(target)
            return [model for child in target.children() for model in self.read(child)]
        model = self.read_one(target)
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
        label_text = str(label.value) if label is not None else ""
        draft = ModelDraft("", entry, (id, label_text) if label_text else (id,), node=id_node)
        draft.mark = f"@model{len(self._drafts)}"
        self._drafts.append(draft)
        if entry["provider"] != "http":
            self._options(node, draft)
            self._defaults(id, id_node, draft)
        self._call(draft, model_name(label_text or short_name(id)))
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
        defaults = default_params(id, draft.entry)
        provider = str(draft.entry["provider"])
        if isinstance(params, dict):
            defaults = {name: value for name, value in defaults.items() if name not in params}
            if provider == "anthropic" and "top_p" in params:
                defaults.pop("temperature", None)
        if not defaults:
            return
        _map(draft.entry, "params").update(defaults)
        listed = " and ".join(f"{name} {value}" for name, value in defaults.items())
        note = f"{listed}: what promptfoo sends by default"
        self._fidelity.add_at(Status.MAPPED, node.where, f"{node.key} (defaults)", note)

    def _call(self, draft: ModelDraft, name: str) -> None:
        """Name a model: like an equal one, imported or in the registry, else a new name."""
        imported = {name: model.entry for name, model in self.models.items()}
        same = [
            name
            for name, entry in {**imported, **self.existing}.items()
            if entry == draft.entry
            and (name not in self.models or self.models[name].ids == draft.ids)
        ]
        draft.name = same[0] if same else self._names.free(name)
        self.models.setdefault(draft.name, draft)

    def stand_in(self) -> ModelDraft:
        """Return a simulated model for a configuration without a supported provider."""
        draft = ModelDraft("", {"provider": "sim", "model": "echo"}, ("echo",))
        self._call(draft, "stand-in")
        return self.models[draft.name]

    def places(self) -> dict[str, str]:
        """Return the names of the models by their placeholders in the report."""
        return {draft.mark: f"{self.registry} {draft.name}" for draft in self._drafts}

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
        if name in _TABLES["params"]:
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
        elif SECRET.search(name):
            note = "keys and secrets are not copied; name a variable under key_env"
            self._fidelity.add_unsupported(child, note)
        else:
            self._fidelity.add_unsupported(
                child, "not supported; params.extra passes options to the provider"
            )

    def _param(self, child: Node, draft: ModelDraft, target: str) -> None:
        name, value = _TABLES["params"][child.name], child.value
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
        target = self.source.follow(child)
        if target is None:
            return
        self._fidelity.cover(target)
        if name == "output" and _type_of(target.value) == "json_object":
            self._json_mode(child, draft)
            return
        value = _schema_of(target.value) if name == "output" else _tools_of(target.value)
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
        allowed = _TABLES["places"].get(draft.entry["provider"], ())
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
    tools: list[Json] = []
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict) and isinstance(item.get("functionDeclarations"), list):
            inner = _tools_of(item["functionDeclarations"])
            if not isinstance(inner, list) or len(item) > 1:
                return None
            tools += inner
            continue
        tool = _tool_of(item)
        if tool is None:
            return None
        tools.append(tool)
    return tools


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
