"""What a model accepts, and the parameters that it is sent.

The facts come from the table of models (`prices.py`). A model that is not in it is sent everything
that its provider takes; a parameter that it refuses is then left out by `providers/adapting.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.config.models import Model

Reasoning = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model thinks before it answers; each model takes some of these levels."""

_SAMPLING = frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty"})
_OPENAI = ("openai", "azure")
_NOT_IN_RESPONSES = frozenset({"frequency_penalty", "presence_penalty", "seed", "stop"})
_NOT_WITH_REASONING = {
    **dict.fromkeys(_OPENAI, _SAMPLING | {"stop"}),
    "xai": frozenset({"frequency_penalty", "presence_penalty", "stop"}),
    "anthropic": frozenset({"temperature", "top_p"}),
}
"""Parameters that a vendor does not take from a model that reasons."""
_ONE_OF = frozenset({"temperature", "top_p"})
"""Newer models of Anthropic refuse the two together; the temperature is sent."""
FEWEST_TO_THINK = 1_024
"""Tokens of thinking at least, for models of Anthropic that take a number instead of a level."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model accepts. None: unknown."""

    known: bool = False
    """Whether the table lists the model."""
    responses: bool = False
    """Whether it is called with the Responses protocol of OpenAI, not with chat completions."""
    embedding: bool = False
    """Whether it returns embeddings of texts, and no answers."""
    sampling: bool = True
    """Whether it takes temperature and top_p."""
    system: bool = True
    """Whether it takes system messages."""
    schema: bool | None = None
    """Whether it can be held to a JSON Schema."""
    tools: bool | None = None
    reasoning: tuple[str, ...] | None = None
    """The levels of reasoning that it takes; empty if it does not reason."""
    adaptive: bool = False
    """Whether a model of Anthropic takes a level of thinking, not a number of tokens."""
    context: int | None = None
    """Tokens of input at most."""
    max_out: int | None = None
    """Tokens of output at most."""

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Capabilities:
        """Return the capabilities in a row of the table."""
        return cls(
            known=True,
            responses=row.get("mode") == "responses",
            embedding=row.get("mode") == "embedding",
            sampling=row.get("sampling", True),
            system=row.get("system", True),
            schema=row.get("schema", False),
            tools=row.get("tools", False),
            reasoning=tuple(row.get("reasoning", ())),
            adaptive=row.get("thinking") == "adaptive",
            context=row.get("context"),
            max_out=row.get("max_out"),
        )


UNKNOWN = Capabilities()


def vendor_of(model: Model) -> str:
    """Return the vendor whose rules a model follows: the provider, or the one behind litellm."""
    if model.provider == "litellm":
        return model.model.partition("/")[0]
    if model.provider in ("bedrock", "vertex") and "claude" in model.model:
        return "anthropic"
    return model.provider


def not_taken(model: Model, params: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of parameters that the model would refuse, given the others."""
    can, vendor, level = model.capabilities, vendor_of(model), params.get("reasoning")
    refused: frozenset[str] = frozenset()
    if not can.sampling:
        refused |= _SAMPLING
    if can.responses:
        refused |= _NOT_IN_RESPONSES
    if can.known and vendor == "anthropic" and params.keys() >= _ONE_OF:
        refused |= {"top_p"}
    # Models of Anthropic reason when they are told to, others unless they are told not to.
    reasons = level not in (None, "none") if vendor == "anthropic" else level != "none"
    if can.reasoning and reasons:
        refused |= _NOT_WITH_REASONING.get(vendor, frozenset())
    if can.known and not can.reasoning:
        refused |= {"reasoning"}
    return refused


def left_out_message(model: Model, key: str) -> str:
    """Return the warning that a written parameter is not sent."""
    both = key == "top_p" and model.capabilities.sampling and vendor_of(model) == "anthropic"
    beside = " beside temperature or reasoning" if both else ""
    return f"{model.model} takes no {key}{beside}; it is not sent"


def problems_with(model: Model, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each parameter whose value the model does not take, with the reason."""
    can, level = model.capabilities, params.get("reasoning")
    if level is not None and can.reasoning and level not in can.reasoning:
        levels = ", ".join(can.reasoning)
        yield "reasoning", f"{model.model} takes no reasoning {level}, only {levels}"
    most, wanted = can.max_out, params.get("max_tokens")
    counts = vendor_of(model) == "anthropic" and can.reasoning and not can.adaptive
    if counts and level not in (None, "none") and wanted and wanted <= FEWEST_TO_THINK:
        yield "max_tokens", f"{model.model} needs max_tokens above {FEWEST_TO_THINK:,} to reason"
    if most is not None and wanted is not None and wanted > most:
        yield "max_tokens", f"max_tokens is {wanted:,}; {model.model} writes at most {most:,}"
