"""Does the answer stay within these limits?"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from edison_ci.checks.options import Check
from edison_ci.shape import some_of_keys, wrong

Count = Annotated[int, Field(ge=0, le=10_000_000)]


class Range(Check):
    """A check with a lowest and a highest value, at least one of them given."""

    model_config = ConfigDict(json_schema_extra=some_of_keys("min", "max"))
    main: ClassVar[str | None] = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        low: Any = getattr(self, "min", None)
        high: Any = getattr(self, "max", None)
        if low is None and high is None:
            raise wrong("range", f"{self.check} needs min or max", f"write {self.example}")
        if low is not None and high is not None and low > high:
            said = f"min {low:g} is above max {high:g}"
            raise wrong("range", said, "swap them, or leave one out", at=("min",))
        return self


class _Counted(Range):
    min: Count | None = Field(None, description="Fewest allowed.")
    max: Count | None = Field(None, description="Most allowed.")


class Words(_Counted):
    """The answer has a number of words in this range."""

    check: ClassVar[str] = "words"
    example: ClassVar[str] = "words: {max: 120}"


class Chars(_Counted):
    """The answer has a number of characters in this range."""

    check: ClassVar[str] = "chars"
    example: ClassVar[str] = "chars: {min: 20, max: 280}"


class Sentences(_Counted):
    """The answer has a number of sentences in this range."""

    check: ClassVar[str] = "sentences"
    example: ClassVar[str] = "sentences: {max: 3}"


class Tokens(_Counted):
    """The answer has a number of output tokens in this range."""

    check: ClassVar[str] = "tokens"
    example: ClassVar[str] = "tokens: {max: 500}"


class Latency(Check):
    """The answer took at most this long."""

    check: ClassVar[str] = "latency"
    main: ClassVar[str | None] = "max_ms"
    example: ClassVar[str] = "latency: {max_ms: 2000}"
    max_ms: int = Field(ge=1, le=3_600_000, description="Most milliseconds allowed.")


class Cost(Check):
    """The answer cost at most this much."""

    check: ClassVar[str] = "cost"
    main: ClassVar[str | None] = "max_usd"
    example: ClassVar[str] = "cost: {max_usd: 0.01}"
    max_usd: float = Field(ge=0, le=1_000, description="Most dollars allowed.")


class FinishReason(Check):
    """The model stopped for this reason."""

    check: ClassVar[str] = "finish_reason"
    example: ClassVar[str] = "finish_reason: stop"
    value: Literal["stop", "length", "content_filter", "tool_calls", "other"] = Field(
        "stop", description="The reason."
    )
