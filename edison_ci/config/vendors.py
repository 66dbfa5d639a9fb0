"""Known vendors of models: how each is called, the variable of its key, and its prices."""

from __future__ import annotations

from typing import NamedTuple


class Vendor(NamedTuple):
    """A vendor whose models can be added by name."""

    provider: str
    key_env: str = ""
    """The variable of its key; empty if it needs none, or has several."""
    base_url: str | None = None
    """Its own address, where the provider does not know it."""
    prices: str = ""
    """The start of its rows in the price table; default: the provider."""
    options: tuple[str, ...] = ()
    """Options that its models need."""
    needs_address: bool = False
    """Whether each customer has an own address."""
    free: bool = False


def _compatible(key_env: str, base_url: str, prices: str = "") -> Vendor:
    """Return a vendor that has the protocol of OpenAI at an address of its own."""
    return Vendor("openai_compatible", key_env, base_url, f"litellm/{prices}" if prices else "")


VENDORS = {
    "openai": Vendor("openai", "OPENAI_API_KEY"),
    "anthropic": Vendor("anthropic", "ANTHROPIC_API_KEY"),
    "gemini": _compatible(
        "GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/openai", "gemini"
    ),
    "mistral": _compatible("MISTRAL_API_KEY", "https://api.mistral.ai/v1", "mistral"),
    "groq": _compatible("GROQ_API_KEY", "https://api.groq.com/openai/v1", "groq"),
    "deepseek": _compatible("DEEPSEEK_API_KEY", "https://api.deepseek.com", "deepseek"),
    "together": _compatible("TOGETHER_API_KEY", "https://api.together.ai/v1", "together_ai"),
    "fireworks": _compatible(
        "FIREWORKS_API_KEY", "https://api.fireworks.ai/inference/v1", "fireworks_ai"
    ),
    "xai": _compatible("XAI_API_KEY", "https://api.x.ai/v1", "xai"),
    "cohere": _compatible(
        "COHERE_API_KEY", "https://api.cohere.com/compatibility/v1", "cohere_chat"
    ),
    "openrouter": _compatible("OPENROUTER_API_KEY", "https://openrouter.ai/api/v1"),
    "ollama": Vendor("ollama", free=True),
    "azure": Vendor(
        "azure",
        "AZURE_OPENAI_API_KEY",
        options=("deployment", "api_version"),
        needs_address=True,
    ),
    "bedrock": Vendor("bedrock", options=("region",)),
    "vertex": Vendor("vertex", options=("project", "location")),
}
"""Vendors by the name that `models add` takes, each with its own address and no other."""


def vendor_at(base_url: str | None) -> Vendor | None:
    """Return the vendor whose own address this is."""
    wanted = (base_url or "").rstrip("/")
    return next((v for v in VENDORS.values() if wanted and v.base_url == wanted), None)
