"""The parameters under `extra`, which only some services take."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from edison_ci.shape import Shape

# A closed list. Values under `extra` go unchanged into the body of a call, or to litellm, and
# everyone who may edit a prompt may write them. A name is listed only if no service takes it as an
# address, a key, another model or a fake answer, and if its cost is bounded by `max_tokens` or
# reserved (`model_entry.tokens_booked`). Refused names have a hint.
_Word = Annotated[str, Field(min_length=1, max_length=100)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Tokens = Annotated[int, Field(ge=0, le=1_000_000)]


class Extra(Shape):
    """Parameters that only some services take."""

    tombstones: ClassVar[dict[str, str]] = {
        key: hint
        for hint, keys in {
            "write max_tokens next to extra": (
                "max_completion_tokens max_output_tokens max_tokens num_predict"
            ),
            "write it next to extra": "temperature top_p seed stop",
            "write repeats in the experiment": "n best_of",
            "answers are not streamed; remove it": "stream",
            "write another entry in models.yaml": "model models",
            "write them in the prompt": "messages",
            "write it in the prompt": "system",
            "write tools in the prompt": "tools functions",
            "tools are declared in the prompt and never run": "mcp_servers",
            "write base_url in models.yaml": "api_base base_url",
            "never write a key; set key_env in models.yaml": "api_key",
            "its price is unknown in advance, so no budget could limit it": (
                "web_search_options plugins modalities audio speed inference_geo prediction"
            ),
        }.items()
        for key in keys.split()
    }

    reasoning_effort: _Word | None = Field(None, description="Reasoning effort.")
    reasoning: dict[str, Any] | None = Field(None, description="The same, as OpenRouter has it.")
    thinking: dict[str, Any] | bool | None = Field(None, description="The same, at Anthropic.")
    think: bool | _Word | None = Field(None, description="The same, at Ollama.")
    enable_thinking: bool | None = Field(None, description="The same, at Qwen's services.")
    thinking_budget: _Tokens | None = Field(None, description="Maximum reasoning tokens.")
    output_config: dict[str, Any] | None = Field(None, description="Effort, at Anthropic.")
    verbosity: _Word | None = Field(None, description="How long answers are: low, medium, high.")
    top_k: Annotated[int, Field(ge=-1, le=100_000)] | None = Field(
        None, description="Sample from the k most likely tokens."
    )
    min_p: _Share | None = Field(
        None, description="Minimum probability relative to the most likely token."
    )
    top_a: _Share | None = Field(
        None, description="Threshold that rises with the most likely token."
    )
    typical_p: _Share | None = Field(None, description="Locally typical sampling.")
    repetition_penalty: Annotated[float, Field(ge=0, le=10)] | None = Field(
        None, description="Above 1, repetitions become less likely."
    )
    min_tokens: _Tokens | None = Field(None, description="Minimum length of an answer.")
    random_seed: int | None = Field(None, description="Seed, as Mistral calls it.")
    logit_bias: dict[str, float] | None = Field(None, description="Weights of tokens.")
    logprobs: bool | None = Field(None, description="Whether the service returns probabilities.")
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="Number of tokens at each position."
    )
    tool_choice: dict[str, Any] | _Word | None = Field(None, description="Which tool to call.")
    parallel_tool_calls: bool | None = Field(
        None, description="Whether several tools may be called at once."
    )
    response_format: dict[str, Any] | None = Field(None, description="Format of the answer.")
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
    metadata: dict[str, str] | None = Field(None, description="Metadata stored by the service.")
    store: bool | None = Field(None, description="Whether the service stores the answer.")
    prompt_cache_key: _Word | None = Field(
        None, description="Key of calls that share a prompt cache."
    )
    prompt_cache_retention: _Word | None = Field(None, description="Lifetime of the prompt cache.")
    cache_control: dict[str, Any] | None = Field(None, description="Prompt caching at Anthropic.")
    service_tier: Literal["auto", "default", "flex", "standard_only"] | None = Field(
        None, description="Class of service that costs no more than the list price."
    )


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


def extra_taken(provider: str) -> frozenset[str]:
    """Return the names that a provider accepts under `extra`."""
    return _TAKES.get(provider, _ALL)
