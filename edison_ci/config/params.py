"""Sampling parameters in models.yaml, prompts and experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from edison_ci.shape import ONE_OR_MANY, UNIQUE, Shape, items, section

if TYPE_CHECKING:
    from edison_ci.config.extra_params import Extra
else:
    Extra = section("edison_ci.config.extra_params", "Extra")

Temperature = Annotated[float, Field(ge=0, le=2)]
MaxTokens = Annotated[int, Field(ge=1, le=100_000)]
TopP = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Reasoning = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model thinks before it answers; each model takes some of these levels."""
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
StopTexts = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=500)], ...], items(1, 4), UNIQUE
]


class _Written(Shape):
    def written(self) -> dict[str, Any]:
        """Return the parameters that are set."""
        return self.model_dump(exclude_unset=True)


class Params(_Written):
    """Sampling parameters as written; the caller adds defaults."""

    tombstones: ClassVar[dict[str, str]] = {
        "max_completion_tokens": "write max_tokens",
        "n": "write repeats in the experiment",
    }

    temperature: Temperature | None = Field(None, description="0-2; default 1.0.")
    max_tokens: MaxTokens | None = Field(
        None, description="Maximum length of an answer; default 4096."
    )
    top_p: TopP | None = Field(None, description="Nucleus sampling, 0-1.")
    frequency_penalty: Penalty | None = Field(None, description="-2 to 2.")
    presence_penalty: Penalty | None = Field(None, description="-2 to 2.")
    seed: Seed | None = Field(None, description="Seed, if the provider accepts one.")
    stop: StopTexts | None = Field(None, description="Up to 4 texts at which the answer ends.")
    reasoning: Reasoning | None = Field(
        None, description="How much it thinks before it answers, if the model has such levels."
    )
    extra: Extra | None = Field(None, description="Parameters that only some services take.")


TemperatureGrid = Annotated[tuple[Temperature, ...], items(1, 10), UNIQUE, ONE_OR_MANY]
MaxTokensGrid = Annotated[tuple[MaxTokens, ...], items(1, 10), UNIQUE, ONE_OR_MANY]
TopPGrid = Annotated[tuple[TopP, ...], items(1, 10), UNIQUE, ONE_OR_MANY]
PenaltyGrid = Annotated[tuple[Penalty, ...], items(1, 10), UNIQUE, ONE_OR_MANY]
ReasoningGrid = Annotated[tuple[Reasoning, ...], items(1, 7), UNIQUE, ONE_OR_MANY]
SeedGrid = Annotated[tuple[Seed, ...], items(1, 10), UNIQUE, ONE_OR_MANY]


class GridParams(_Written):
    """Parameters in an experiment; a list makes one configuration for each of its values."""

    tombstones: ClassVar[dict[str, str]] = Params.tombstones

    temperature: TemperatureGrid | None = Field(None, description="0-2.")
    max_tokens: MaxTokensGrid | None = Field(None, description="Maximum length of an answer.")
    top_p: TopPGrid | None = Field(None, description="0-1.")
    frequency_penalty: PenaltyGrid | None = Field(None, description="-2 to 2.")
    presence_penalty: PenaltyGrid | None = Field(None, description="-2 to 2.")
    seed: SeedGrid | None = Field(None, description="Seed.")
    stop: StopTexts | None = Field(None, description="Up to 4 texts at which the answer ends.")
    reasoning: ReasoningGrid | None = Field(None, description="Levels of reasoning.")
    extra: Extra | None = Field(None, description="Parameters that only some services take.")
