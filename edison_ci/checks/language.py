"""What kind of text is the answer?"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from edison_ci.checks.limits import Range
from edison_ci.checks.options import Check, written
from edison_ci.shape import Written


class Refusal(Check):
    """The answer declines to answer."""

    check: ClassVar[str] = "refusal"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "not: {refusal: {}}"


_CODE: Any = written(
    Written("[a-z]{2,3}", "the code of a language", "write an ISO 639 code such as en or de")
)


class Language(Check):
    """The answer is written in this language."""

    check: ClassVar[str] = "language"
    example: ClassVar[str] = "language: de"
    value: _CODE = Field(description="ISO 639 code, such as en or de.")


Ease = Annotated[float, Field(ge=-100, le=200)]


class Readability(Range):
    """The Flesch reading ease of the answer is in this range (higher is easier)."""

    check: ClassVar[str] = "readability"
    example: ClassVar[str] = "readability: {min: 50}"
    min: Ease | None = Field(None, description="Lowest score allowed.")
    max: Ease | None = Field(None, description="Highest score allowed.")
