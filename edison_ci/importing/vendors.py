"""Vendors behind the providers of promptfoo, and our providers for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from edison_ci.documents.marks import Json

GITHUB_HOST = "https://models.github.ai"
GITHUB_MODELS = f"{GITHUB_HOST}/inference"


class _Vendor(NamedTuple):
    provider: str
    key: str | None = None
    address: str | None = None
    prefix: str = ""
    """Before the model's name; for litellm the name of the vendor."""


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
    "github": _Vendor("openai_compatible", "GITHUB_TOKEN", GITHUB_MODELS),
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


def entry_of(id: str) -> tuple[dict[str, Json] | None, str]:
    """Return the entry of a provider and a remark, or None and why there is none."""
    if id == "echo":
        return {"provider": "sim", "model": "echo"}, ""
    if id.startswith(_CODE) or id.endswith((".js", ".py", ".ts", ".mjs")):
        return None, "a provider that is a program is not run; serve it behind an OpenAI address"
    if id.startswith(_NETWORK):
        return (
            None,
            "a plain HTTP service is no model here; openai_compatible speaks OpenAI's protocol",
        )
    vendor_name, _, rest = id.partition(":")
    vendor = _VENDORS.get(vendor_name)
    if vendor is None:
        return (
            None,
            f"there is no provider like {vendor_name!r}; openai_compatible or litellm may do",
        )
    mode, _, model = rest.partition(":")
    if mode in _OTHER_KIND:
        return None, f"it is a service for {mode}, not for texts"
    if mode not in _MODES or not model:
        mode, model = "", rest
    if not model and vendor.provider != "azure":
        return None, f"{id!r} does not say which model"
    return _filled(vendor, model), _remark(vendor, mode)


def _filled(vendor: _Vendor, model: str) -> dict[str, Json]:
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
        return "asked through chat completions"
    return ""


def short_name(id: str) -> str:
    """Return the part of an id that people call a model by."""
    vendor, _, rest = id.partition(":")
    mode, _, model = rest.partition(":")
    model = model if mode in _MODES and model else rest
    return model.rpartition("/")[2].replace(":", "-") or vendor
