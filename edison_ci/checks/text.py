"""Checks of the text of an answer by one other text."""

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from edison_ci.checks.evaluation import Grade, quote
from edison_ci.checks.options import (
    Check,
    SomeText,
    TemplateText,
    TrimmedCheck,
    expected_output,
)

if TYPE_CHECKING:
    from edison_ci.checks.evaluation import ParsedAnswer


SHOWN = 40
"""Characters of a text in a reason."""


def fold(texts: list[str], *, ignore_case: bool) -> list[str]:
    """Return texts for a comparison."""
    return [text.casefold() for text in texts] if ignore_case else texts


def _containment(there: bool, wanted: str) -> Grade:
    if there:
        return Grade(1.0, f"{quote(wanted)} is in the answer")
    return Grade(0.0, f"{quote(wanted)} is not in the answer")


class Equals(TrimmedCheck):
    """The answer is this text, ignoring surrounding white space."""

    check: ClassVar[str] = "equals"
    example: ClassVar[str] = 'equals: "{{ expected }}"'
    value: TemplateText = expected_output("The text; the expected output by default.")
    ignore_case: bool = Field(False, description="Whether to ignore case.")

    def evaluate(self, answered: "ParsedAnswer") -> Grade:
        """Return 1 if both texts are the same without surrounding white space."""
        wanted, found = answered.render(self.value), answered.text
        if not self.exact:
            wanted, found = wanted.strip(), found.strip()
        same = wanted == found or (self.ignore_case and wanted.casefold() == found.casefold())
        if same:
            return Grade(1.0, f"the answer is {quote(wanted)}")
        return Grade(0.0, f"the answer is {quote(found)}, not {quote(wanted)}")


class Contains(Check):
    """The answer contains this text."""

    check: ClassVar[str] = "contains"
    example: ClassVar[str] = 'contains: "{{ expected }}"'
    value: SomeText = expected_output("The text; the expected output by default.")

    def evaluate(self, answered: "ParsedAnswer") -> Grade:
        """Return 1 if the text is in the answer."""
        wanted = answered.render_required(self.value)
        return _containment(wanted in answered.text, wanted)


class Icontains(Check):
    """The answer contains this text, ignoring case."""

    check: ClassVar[str] = "icontains"
    example: ClassVar[str] = "icontains: thank you"
    value: SomeText = expected_output("The text; the expected output by default.")

    def evaluate(self, answered: "ParsedAnswer") -> Grade:
        """Return 1 if the text is in the answer, both case-folded."""
        wanted = answered.render_required(self.value)
        return _containment(wanted.casefold() in answered.text.casefold(), wanted)


class StartsWith(TrimmedCheck):
    """The answer starts with this text."""

    check: ClassVar[str] = "starts_with"
    example: ClassVar[str] = "starts_with: Dear"
    value: SomeText = Field(description="The text.")
    ignore_case: bool = Field(False, description="Whether to ignore case.")

    def evaluate(self, answered: "ParsedAnswer") -> Grade:
        """Return 1 if the answer starts with the text, ignoring white space before it."""
        wanted, text = answered.render_required(self.value), answered.text
        start, given = fold([wanted, text], ignore_case=self.ignore_case)
        if given.startswith(start) or (not self.exact and given.lstrip().startswith(start)):
            return Grade(1.0, f"the answer starts with {quote(wanted)}")
        start = quote((text if self.exact else text.lstrip())[:SHOWN], SHOWN)
        return Grade(0.0, f"the answer starts with {start}, not with {quote(wanted)}")


class EndsWith(TrimmedCheck):
    """The answer ends with this text."""

    check: ClassVar[str] = "ends_with"
    example: ClassVar[str] = "ends_with: Kind regards"
    value: SomeText = Field(description="The text.")
    ignore_case: bool = Field(False, description="Whether to ignore case.")

    def evaluate(self, answered: "ParsedAnswer") -> Grade:
        """Return 1 if the answer ends with the text, ignoring white space after it."""
        wanted, text = answered.render_required(self.value), answered.text
        end, given = fold([wanted, text], ignore_case=self.ignore_case)
        if given.endswith(end) or (not self.exact and given.rstrip().endswith(end)):
            return Grade(1.0, f"the answer ends with {quote(wanted)}")
        end = quote((text if self.exact else text.rstrip())[-SHOWN:], SHOWN)
        return Grade(0.0, f"the answer ends with {end}, not with {quote(wanted)}")
