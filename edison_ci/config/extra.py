"""Parameters of single services, beyond those that every model has.

The list is closed. What stands under `extra` goes into the body of a call, or to litellm, as it is
written, and anybody may write it who may write a prompt: so a name is here only if no service takes
it for an address, a key, another model or a made-up answer, and if what it can cost is bounded by
`max_tokens` or is booked (`tokens_booked`). Names that are left out have a word on why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from edison_ci.records import canonical_json
from edison_ci.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

_Word = Annotated[str, Field(min_length=1, max_length=100)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Tokens = Annotated[int, Field(ge=0, le=1_000_000)]
_COSTS = "its price is not known beforehand, so no budget could hold it"


class Extra(Shape):
    """Parameters that only some services take."""

    tombstones: ClassVar[dict[str, str]] = {
        "max_completion_tokens": "write max_tokens beside extra",
        "max_output_tokens": "write max_tokens beside extra",
        "max_tokens": "write max_tokens beside extra",
        "num_predict": "write max_tokens beside extra",
        "temperature": "write it beside extra",
        "top_p": "write it beside extra",
        "seed": "write it beside extra",
        "stop": "write it beside extra",
        "n": "write draws in the experiment",
        "best_of": "write draws in the experiment",
        "stream": "answers are read whole; leave it out",
        "model": "write another entry in models.yaml",
        "models": "write another entry in models.yaml",
        "messages": "write them in the prompt",
        "system": "write it in the prompt",
        "tools": "write tools in the prompt",
        "functions": "write tools in the prompt",
        "mcp_servers": "tools are described in the prompt, and never run",
        "api_base": "write base_url in models.yaml",
        "base_url": "write base_url in models.yaml",
        "api_key": "keys are never written down; give key_env in models.yaml",
        "web_search_options": _COSTS,
        "plugins": _COSTS,
        "modalities": _COSTS,
        "audio": _COSTS,
        "speed": _COSTS,
        "inference_geo": _COSTS,
        "prediction": _COSTS,
    }

    reasoning_effort: _Word | None = Field(None, description="How much a model thinks.")
    reasoning: dict[str, Any] | None = Field(None, description="The same, as OpenRouter has it.")
    thinking: dict[str, Any] | bool | None = Field(None, description="The same, at Anthropic.")
    think: bool | _Word | None = Field(None, description="The same, at Ollama.")
    enable_thinking: bool | None = Field(None, description="The same, at Qwen's services.")
    thinking_budget: _Tokens | None = Field(None, description="Most tokens to think with.")
    output_config: dict[str, Any] | None = Field(None, description="Effort, at Anthropic.")
    verbosity: _Word | None = Field(None, description="How long answers are: low, medium, high.")
    top_k: Annotated[int, Field(ge=-1, le=100_000)] | None = Field(
        None, description="Sample from the likeliest tokens only."
    )
    min_p: _Share | None = Field(None, description="Least share of the likeliest token's chance.")
    top_a: _Share | None = Field(None, description="A threshold that rises with the likeliest.")
    typical_p: _Share | None = Field(None, description="Locally typical sampling.")
    repetition_penalty: Annotated[float, Field(ge=0, le=10)] | None = Field(
        None, description="Above 1, what was said before becomes less likely."
    )
    min_tokens: _Tokens | None = Field(None, description="Least length of an answer.")
    random_seed: int | None = Field(None, description="Seed, as Mistral calls it.")
    logit_bias: dict[str, float] | None = Field(None, description="Weights of tokens.")
    logprobs: bool | None = Field(None, description="Whether the service tells probabilities.")
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="For how many tokens at each place."
    )
    tool_choice: dict[str, Any] | _Word | None = Field(None, description="Which tool to call.")
    parallel_tool_calls: bool | None = Field(None, description="Whether several at once.")
    response_format: dict[str, Any] | None = Field(None, description="Form of the answer.")
    guided_json: dict[str, Any] | None = Field(None, description="JSON Schema, at vLLM.")
    guided_choice: list[str] | None = Field(None, description="Possible answers, at vLLM.")
    guided_regex: str | None = Field(None, description="Pattern of the answer, at vLLM.")
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="Settings of the chat template, at vLLM."
    )
    safe_prompt: bool | None = Field(None, description="Mistral's own system prompt.")
    transforms: list[str] | None = Field(None, description="How OpenRouter shortens prompts.")
    keep_alive: str | int | None = Field(None, description="How long Ollama keeps the model.")
    user: Annotated[str, Field(max_length=500)] | None = Field(
        None, description="Whose call it is."
    )
    safety_identifier: Annotated[str, Field(max_length=500)] | None = Field(
        None, description="Whose call it is, at OpenAI."
    )
    metadata: dict[str, str] | None = Field(None, description="Notes that the service keeps.")
    store: bool | None = Field(None, description="Whether the service keeps the answer.")
    prompt_cache_key: _Word | None = Field(None, description="Which calls share a prompt.")
    prompt_cache_retention: _Word | None = Field(None, description="How long it is kept.")
    cache_control: dict[str, Any] | None = Field(None, description="What Anthropic caches.")
    service_tier: Literal["auto", "default", "flex", "standard_only"] | None = Field(
        None, description="Class of service that costs no more than the list price."
    )

    def written(self) -> dict[str, Any]:
        """Return what the user wrote."""
        names = (name for name in type(self).model_fields if name in self.model_fields_set)
        return {name: getattr(self, name) for name in names}


_ALL = frozenset(Extra.model_fields)
_THROUGH_LITELLM = frozenset(
    {"reasoning_effort", "thinking", "verbosity", "top_k", "min_p", "repetition_penalty",
     "logit_bias", "logprobs", "top_logprobs", "tool_choice", "parallel_tool_calls",
     "response_format", "safe_prompt", "user", "service_tier"}
)  # fmt: skip
_TAKES: dict[str, frozenset[str]] = {
    "anthropic": frozenset(
        {"thinking", "output_config", "top_k", "tool_choice", "metadata", "cache_control",
         "service_tier"}
    ),
    "bedrock": frozenset({"thinking", "reasoning_effort", "top_k", "tool_choice"}),
    "litellm": _THROUGH_LITELLM,
    "vertex": frozenset(),
    "local": frozenset(),
}  # fmt: skip
_WRITE_CACHE = frozenset({"cache_control", "prompt_cache_key", "prompt_cache_retention"})
_LENGTHS = ("tokens", "budget")


def extra_taken(provider: str) -> frozenset[str]:
    """Return the names that a provider takes under `extra`."""
    return _TAKES.get(provider, _ALL)


def tokens_booked(params: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many tokens `extra` can add to a call at most, in and out.

    A token is at least a byte of what is sent; whatever is called a number of tokens or a budget
    could be meant beside `max_tokens`.
    """
    extra = params.get("extra")
    if not extra:
        return 0, 0
    return len(canonical_json(extra).encode()), _lengths(extra)


def writes_cache(params: Mapping[str, Any]) -> bool:
    """Whether a call may be charged for what it writes to the provider's cache."""
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
