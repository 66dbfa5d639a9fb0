"""Does the answer say these words?"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field

from edison_ci.checks.options import (
    Check,
    SomeText,
    TemplateText,
    TemplateTexts,
    expected_output,
)
from edison_ci.shape import wrong

if TYPE_CHECKING:
    from edison_ci.templating import Template

_MAX_PATTERN = 5_000


class Equals(Check):
    """The answer is this text, surrounding blanks aside."""

    check: ClassVar[str] = "equals"
    example: ClassVar[str] = 'equals: "{{ expected }}"'
    value: TemplateText = expected_output("The text; the expected output by default.")
    ignore_case: bool = Field(False, description="Whether case does not matter.")


class Contains(Check):
    """The answer contains this text."""

    check: ClassVar[str] = "contains"
    example: ClassVar[str] = 'contains: "{{ expected }}"'
    value: SomeText = expected_output("The text; the expected output by default.")


class Icontains(Check):
    """The answer contains this text, whatever the case of its letters."""

    check: ClassVar[str] = "icontains"
    example: ClassVar[str] = "icontains: thank you"
    value: SomeText = expected_output("The text; the expected output by default.")


class ContainsAny(Check):
    """The answer contains at least one of these texts."""

    check: ClassVar[str] = "contains_any"
    example: ClassVar[str] = "contains_any: [refund, exchange]"
    value: TemplateTexts = Field(description="The texts.")
    ignore_case: bool = Field(False, description="Whether case does not matter.")


class ContainsAll(Check):
    """The answer contains all of these texts."""

    check: ClassVar[str] = "contains_all"
    example: ClassVar[str] = 'contains_all: "{{ must_include }}"'
    value: TemplateTexts = Field(description="The texts.")
    ignore_case: bool = Field(False, description="Whether case does not matter.")


class StartsWith(Check):
    """The answer starts with this text."""

    check: ClassVar[str] = "starts_with"
    example: ClassVar[str] = "starts_with: Dear"
    value: SomeText = Field(description="The text.")


class EndsWith(Check):
    """The answer ends with this text."""

    check: ClassVar[str] = "ends_with"
    example: ClassVar[str] = "ends_with: Kind regards"
    value: SomeText = Field(description="The text.")


def _pattern(value: Template) -> Template:
    if len(value.source) > _MAX_PATTERN:
        said = f"the pattern has {len(value.source):,} characters; at most {_MAX_PATTERN:,}"
        raise wrong("regex", said, "use several checks")
    if value.is_constant:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what a later Python may read differently
                re.compile(value.source)
        except (re.error, RecursionError, OverflowError) as error:
            hint = "a backslash needs single quotes: '\\d+'"
            raise wrong("regex", f"not a valid pattern: {error}", hint) from None
    return value


class Regex(Check):
    """A regular expression matches somewhere in the answer."""

    check: ClassVar[str] = "regex"
    example: ClassVar[str] = "regex: '(?i)order number'"
    value: Annotated[SomeText, AfterValidator(_pattern)] = Field(description="The pattern.")


class OneOf(Check):
    """The answer is one of these texts, surrounding blanks aside."""

    check: ClassVar[str] = "one_of"
    example: ClassVar[str] = "one_of: [yes, no, unsure]"
    value: TemplateTexts = Field(description="The texts.")
    ignore_case: bool = Field(False, description="Whether case does not matter.")
