"""Checks of the text of an answer by other texts, patterns, counts and quotations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field

from edison_ci.checks import patterns
from edison_ci.checks.evaluation import Grade, quote
from edison_ci.checks.options import (
    Check,
    Range,
    SomeText,
    TemplateText,
    TemplateTexts,
    TrimmedCheck,
    expected_output,
)
from edison_ci.checks.options import Count as Times
from edison_ci.shape import wrong

if TYPE_CHECKING:
    from edison_ci.checks.evaluation import ParsedAnswer
    from edison_ci.templating.templates import Template

SHOWN = 40
"""Characters of a text in a reason."""


def fold(texts: list[str], *, ignore_case: bool) -> list[str]:
    """Return texts for a comparison."""
    return [text.casefold() for text in texts] if ignore_case else texts


class Equals(TrimmedCheck):
    """The answer is this text, ignoring surrounding white space."""

    check: ClassVar[str] = "equals"
    example: ClassVar[str] = 'equals: "{{ expected }}"'
    value: TemplateText = expected_output("The text; the expected output by default.")
    ignore_case: bool = Field(False, description="Whether to ignore case.")

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if both texts are the same without surrounding white space."""
        expected, text = answered.render(self.value), answered.text
        if not self.exact:
            expected, text = expected.strip(), text.strip()
        same = expected == text or (self.ignore_case and expected.casefold() == text.casefold())
        if same:
            return Grade(1.0, f"the answer is {quote(expected)}")
        return Grade(0.0, f"the answer is {quote(text)}, not {quote(expected)}")


class _Containment(Check):
    folded: ClassVar[bool] = False
    value: SomeText = expected_output("The text; the expected output by default.")

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the text is in the answer."""
        expected = answered.render_required(self.value)
        part, text = fold([expected, answered.text], ignore_case=self.folded)
        there = part in text
        return Grade(float(there), f"{quote(expected)} is {'' if there else 'not '}in the answer")


class Contains(_Containment):
    """The answer contains this text."""

    check: ClassVar[str] = "contains"
    example: ClassVar[str] = 'contains: "{{ expected }}"'


class Icontains(_Containment):
    """The answer contains this text, ignoring case."""

    check: ClassVar[str] = "icontains"
    example: ClassVar[str] = "icontains: thank you"
    folded: ClassVar[bool] = True


class _Edge(TrimmedCheck):
    value: SomeText = Field(description="The text.")
    ignore_case: bool = Field(False, description="Whether to ignore case.")

    def _grade(self, answered: ParsedAnswer, verb: str, trimmed: str, edge_slice: slice) -> Grade:
        """Return 1 if an end of the answer is the text; `trimmed` has no white space there."""
        expected = answered.render_required(self.value)
        texts = [answered.text] if self.exact else [answered.text, trimmed]
        part, *whole = fold([expected, *texts], ignore_case=self.ignore_case)
        fits = str.startswith if verb == "starts" else str.endswith
        if any(fits(text, part) for text in whole):
            return Grade(1.0, f"the answer {verb} with {quote(expected)}")
        edge = quote(texts[-1][edge_slice], SHOWN)
        return Grade(0.0, f"the answer {verb} with {edge}, not with {quote(expected)}")


class StartsWith(_Edge):
    """The answer starts with this text."""

    check: ClassVar[str] = "starts_with"
    example: ClassVar[str] = "starts_with: Dear"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the answer starts with the text, ignoring white space before it."""
        return self._grade(answered, "starts", answered.text.lstrip(), slice(SHOWN))


class EndsWith(_Edge):
    """The answer ends with this text."""

    check: ClassVar[str] = "ends_with"
    example: ClassVar[str] = "ends_with: Kind regards"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the answer ends with the text, ignoring white space after it."""
        return self._grade(answered, "ends", answered.text.rstrip(), slice(-SHOWN, None))


_MOST_LISTED = 3


def _listed(texts: list[str]) -> str:
    quoted = ", ".join(quote(text, SHOWN) for text in texts[:_MOST_LISTED])
    more = len(texts) - _MOST_LISTED
    return f"{quoted} and {more} more" if more > 0 else quoted


class _TextList(Check):
    value: TemplateTexts = Field(description="The texts.")
    ignore_case: bool = Field(False, description="Whether to ignore case.")

    def _missing(self, answered: ParsedAnswer) -> tuple[list[str], list[str]]:
        """Return the texts, and those that the answer lacks."""
        texts = answered.texts(self.value)
        text, *folded = fold([answered.text, *texts], ignore_case=self.ignore_case)
        return texts, [w for w, f in zip(texts, folded, strict=True) if f not in text]


class ContainsAny(_TextList):
    """The answer contains at least one of these texts."""

    check: ClassVar[str] = "contains_any"
    example: ClassVar[str] = "contains_any: [refund, exchange]"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if one of the texts is in the answer."""
        texts, missing = self._missing(answered)
        if len(missing) < len(texts):
            return Grade(1.0, f"{quote(next(t for t in texts if t not in missing))} is there")
        return Grade(0.0, f"none of {_listed(texts)} is in the answer")


class ContainsAll(_TextList):
    """The answer contains all of these texts."""

    check: ClassVar[str] = "contains_all"
    example: ClassVar[str] = 'contains_all: "{{ must_include }}"'

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if all of the texts are in the answer."""
        _, missing = self._missing(answered)
        if missing:
            return Grade(0.0, f"the answer lacks {_listed(missing)}")
        return Grade(1.0, "all texts are in the answer")


class OneOf(_TextList):
    """The answer is one of these texts, ignoring surrounding white space."""

    check: ClassVar[str] = "one_of"
    example: ClassVar[str] = "one_of: [yes, no, unsure]"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the answer is one of the texts, without surrounding white space."""
        texts = [text.strip() for text in answered.texts(self.value)]
        text = answered.text.strip()
        folded = fold([text, *texts], ignore_case=self.ignore_case)
        if folded[0] in folded[1:]:
            return Grade(1.0, f"the answer is {quote(text)}")
        return Grade(0.0, f"the answer is {quote(text)}, not one of {_listed(texts)}")


_QUOTED = "a backslash needs single quotes: '\\d+'"
_PATTERN_HINTS = {
    "unterminated subpattern": "close the group with ), or write \\( for the character itself",
    "unbalanced parenthesis": "open the group with (, or write \\) for the character itself",
    "unterminated character set": "close the set with ], or write \\[ for the character itself",
    "nothing to repeat": "put something before it, or write a backslash for the character itself",
    "multiple repeat": "write it once, or a backslash for the character itself",
    "min repeat greater": "write the smaller number first",
    "look-behind requires": "leave *, +, ? and {} out of the look-behind",
    "redefinition of group": "give each group another name",
    "bad character range": "write the smaller character first, or \\- for the hyphen itself",
}
"""What to do about a pattern, by a part of the message of the library."""


def _pattern(value: Template) -> Template:
    if len(value.source) > patterns.MAX_PATTERN:
        message = (
            f"the pattern has {len(value.source):,} characters; at most {patterns.MAX_PATTERN:,}"
        )
        raise wrong("regex", message, "use several checks")
    if value.is_constant:
        try:
            patterns.analyse_pattern(value.source)
        except (re.error, RecursionError, OverflowError) as error:
            hint = next((hint for part, hint in _PATTERN_HINTS.items() if part in str(error)), "")
            raise wrong("regex", f"not a valid pattern: {error}", hint or _QUOTED) from None
    return value


class Regex(Check):
    """A regular expression matches somewhere in the answer."""

    check: ClassVar[str] = "regex"
    example: ClassVar[str] = "regex: '(?i)order number'"
    value: Annotated[SomeText, AfterValidator(_pattern)] = Field(description="The pattern.")

    @property
    def blocking(self) -> bool:
        """False only for a constant pattern that takes linear time."""
        return not (
            self.value.is_constant and patterns.analyse_pattern(self.value.source).is_linear
        )

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the pattern matches somewhere."""
        pattern = answered.render_required(self.value)
        match = patterns.search(pattern, answered.text)
        if match is None:
            return Grade(0.0, f"nothing in the answer matches {quote(pattern)}")
        return Grade(1.0, f"{quote(match)} matches {quote(pattern)}")


class Count(Range):
    """The answer contains this text a number of times in this range."""

    check: ClassVar[str] = "count"
    example: ClassVar[str] = 'count: {value: "?", max: 1}'
    value: SomeText = Field(description="The text.")
    ignore_case: bool = Field(False, description="Whether to ignore case.")
    min: Times | None = Field(None, description="Fewest allowed.")
    max: Times | None = Field(None, description="Most allowed.")

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the number of times, without overlap, is in the range."""
        phrase = answered.render_required(self.value)
        text, part = fold([answered.text, phrase], ignore_case=self.ignore_case)
        number = text.count(part)
        times = "once" if number == 1 else f"{number:,} times"
        return self._within(number, f"{quote(phrase)} is in the answer {times}")


_QUOTATION = re.compile(
    "\u201c([^\u201c\u201d]{1,2000})\u201d|\u201e([^\u201e\u201c]{1,2000})\u201c"
    '|\u00ab([^\u00ab\u00bb]{1,2000})\u00bb|"([^"\n]{1,2000})"'
)
_OMISSION = re.compile(r"\s*\[?(?:\.\.\.|\u2026)\]?\s*")
_FINAL_MARKS = ".,;:!?"


class Quotes(Check):
    """Every quotation in the answer is in this source, word for word."""

    check: ClassVar[str] = "quotes"
    example: ClassVar[str] = 'quotes: "{{ document }}"'
    value: SomeText = Field(description="The source.")
    words: Annotated[int, Field(ge=1, le=100)] = Field(
        3, description="Fewest words of a quotation; shorter ones may be names or irony."
    )
    min: Annotated[int, Field(ge=0, le=1_000)] = Field(
        0, description="Fewest quotations that the answer must have."
    )

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return the share of quotations that are in the source; 1 if there is none to check."""
        source = _plain(answered.render_required(self.value))
        quoted = ["".join(match.groups("")) for match in _QUOTATION.finditer(answered.text)]
        checked = [text for text in quoted if len(text.split()) >= self.words]
        if len(checked) < self.min:
            return Grade(
                0.0, f"{len(checked)} quotations in the answer; at least {self.min} wanted"
            )
        if not checked:
            return Grade(1.0, "the answer quotes nothing")
        wrong = [text for text in checked if not _is_quoted(text, source)]
        if wrong:
            message = f"not in the source: {_listed(wrong)}"
            return Grade(1 - len(wrong) / len(checked), message)
        return Grade(1.0, f"{len(checked)} quotations are in the source")


def _plain(text: str) -> str:
    """Return a text with one kind of quotes and single spaces."""
    for curly, straight in (("\u2018", "'"), ("\u2019", "'"), ("\u201c", '"'), ("\u201d", '"')):
        text = text.replace(curly, straight)
    return " ".join(text.split())


def _is_quoted(text: str, source: str) -> bool:
    """Whether all parts between omissions are in the source, in this order."""
    at = 0
    for part in _OMISSION.split(_plain(text)):
        # A mark at the end may belong to the sentence that quotes.
        phrase = part.strip().rstrip(_FINAL_MARKS)
        place = source.find(phrase, at)
        if place < 0:
            return False
        at = place + len(phrase)
    return True
