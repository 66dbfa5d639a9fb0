"""What kind of text is the answer?"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from edison_ci.checks.options import Check
from edison_ci.shape import wrong


class Refusal(Check):
    """The answer declines to answer."""

    check: ClassVar[str] = "refusal"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "not: {refusal: {}}"


class Language(Check):
    """The answer is written in this language."""

    check: ClassVar[str] = "language"
    example: ClassVar[str] = "language: de"
    value: str = Field(pattern="^[a-z]{2,3}$", description="ISO 639 code, such as en or de.")


Grade = Annotated[float, Field(ge=-100, le=200)]


class Readability(Check):
    """The Flesch reading ease of the answer is in this range (higher is easier)."""

    check: ClassVar[str] = "readability"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "readability: {min: 50}"
    min: Grade | None = Field(None, description="Lowest score allowed.")
    max: Grade | None = Field(None, description="Highest score allowed.")

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.min is None and self.max is None:
            raise wrong("range", "readability needs min or max", f"write {self.example}")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise wrong("range", f"min {self.min} is above max {self.max}", at=("min",))
        return self
