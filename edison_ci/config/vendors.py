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
    """Return a vendor that has the protocol of OpenAI at its own address."""
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
    "abliteration": _compatible("ABLIT_KEY", "https://api.abliteration.ai/v1"),
    "ai21": _compatible("AI21_API_KEY", "https://api.ai21.com/studio/v1"),
    "aimlapi": _compatible("AIML_API_KEY", "https://api.aimlapi.com/v1"),
    "alibaba": _compatible(
        "DASHSCOPE_API_KEY", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"
    ),
    "atlascloud": _compatible("ATLASCLOUD_API_KEY", "https://api.atlascloud.ai/v1"),
    "cerebras": _compatible("CEREBRAS_API_KEY", "https://api.cerebras.ai/v1"),
    "cometapi": _compatible("COMETAPI_KEY", "https://api.cometapi.com/v1"),
    "huggingface": _compatible("HF_TOKEN", "https://router.huggingface.co/v1"),
    "hyperbolic": _compatible("HYPERBOLIC_API_KEY", "https://api.hyperbolic.xyz/v1"),
    "llamaapi": _compatible("LLAMA_API_KEY", "https://api.llama.com/compat/v1"),
    "minimax": _compatible("MINIMAX_API_KEY", "https://api.minimax.io/v1"),
    "moonshot": _compatible("MOONSHOT_API_KEY", "https://api.moonshot.ai/v1"),
    "novita": _compatible("NOVITA_API_KEY", "https://api.novita.ai/openai/v1"),
    "nscale": _compatible("NSCALE_SERVICE_TOKEN", "https://inference.api.nscale.com/v1"),
    "nvidia": _compatible("NVIDIA_API_KEY", "https://integrate.api.nvidia.com/v1"),
    "orcarouter": _compatible("ORCAROUTER_API_KEY", "https://api.orcarouter.ai/v1"),
    "perplexity": _compatible("PERPLEXITY_API_KEY", "https://api.perplexity.ai"),
    "portkey": _compatible("PORTKEY_API_KEY", "https://api.portkey.ai/v1"),
    "truefoundry": _compatible("TRUEFOUNDRY_API_KEY", "https://llm-gateway.truefoundry.com"),
    "vercel": _compatible("VERCEL_AI_GATEWAY_API_KEY", "https://ai-gateway.vercel.sh/v1"),
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
    address = (base_url or "").rstrip("/")
    return next((v for v in VENDORS.values() if address and v.base_url == address), None)
