"""Checks of the language of an answer, its readability, and refusals."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

from edison_ci.checks.evaluation import EvaluationError, Grade, library_errors, quote
from edison_ci.checks.limits import Range, flesch
from edison_ci.checks.options import Check, text_of_form
from edison_ci.extras import PY3LANGID, Library
from edison_ci.numeric import fixed
from edison_ci.records import FinishReason
from edison_ci.shape import TextPattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.checks.evaluation import ParsedAnswer

_READ = 100_000
"""Characters that are enough to identify a language or to compute readability."""
_OPENING = 500
"""Refusals are at the start of an answer; later the same words may be a quotation."""

_DECLINING = (
    r"\bi (?:can't|cannot|can not|won't|will not|am unable to|am not able to|'m unable to)"
    r" (?:be able to )?(?:help|assist|answer|comply|fulfil|provide|discuss|engage|do that|support"
    r"|create|write|generate|continue|share)",
    r"\bi'm (?:unable|not able|not allowed|not comfortable) (?:to |with )?\w",
    r"\bi(?:'m| am) (?:so |very |really )?sorry,? but (?:i|as an)\b",
    r"\bi (?:must|have to|need to) (?:respectfully |politely )?(?:decline|refuse)\b",
    r"\b(?:against|violates?) (?:my|our|the) (?:\w+ )?(?:guidelines|polic(?:y|ies)|programming)\b",
    r"\b(?:dabei|damit) kann ich (?:dir |ihnen |euch )?(?:leider )?nicht\b",
    r"\bich kann (?:dir |ihnen |euch )?(?:dabei |damit )?(?:leider )?nicht (?:helfen|beantw)",
    r"\bje (?:ne peux pas|ne suis pas en mesure d)",
    r"\bno puedo (?:ayudar|responder|proporcionar|cumplir)",
)
_REFUSAL = re.compile("|".join(_DECLINING))


class Refusal(Check):
    """The answer declines to answer."""

    check: ClassVar[str] = "refusal"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "not: {refusal: {}}"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the answer was filtered, or starts with words that decline."""
        if answered.completion.finish_reason == FinishReason.CONTENT_FILTER:
            return Grade(1.0, "the provider filtered the answer")
        opening = answered.text.lstrip()[:_OPENING]
        found = _REFUSAL.search(opening.lower().replace("\u2019", "'"))
        if found:
            return Grade(1.0, f"the answer declines: {quote(found.group())}")
        return Grade(0.0, "the answer does not decline")


_CODE: Any = text_of_form(
    TextPattern("[a-z]{2,3}", "the code of a language", "write an ISO 639 code such as en or de")
)


class Language(Check):
    """The answer is written in this language."""

    check: ClassVar[str] = "language"
    needs: ClassVar[tuple[Library, ...]] = (PY3LANGID,)
    example: ClassVar[str] = "language: de"
    value: _CODE = Field(description="ISO 639 code, such as en or de.")

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if py3langid identifies the language of the answer as this one."""
        wanted, identify = answered.render_required(self.value), _identifier()
        if wanted not in identify.labels:
            raise EvaluationError(f"{quote(wanted)} is not a language that py3langid knows")
        text = answered.text[:_READ]
        if not any(character.isalpha() for character in text):
            return Grade(0.0, "the answer has no words")
        found = str(identify.classify(text)[0])
        return Grade.of(found == wanted, f"the answer is in {quote(found)}, not in {wanted!r}")


_ENOUGH_LETTERS = 20
_NO_LANGUAGE = "zxx"


def language_of(text: str) -> str | None:
    """Return the language of a text; None if it is too short to tell, or cannot be told here."""
    if PY3LANGID.fault() or sum(map(str.isalpha, text[:_READ])) < _ENOUGH_LETTERS:
        return None
    found = str(_identifier().classify(text[:_READ])[0])
    return None if found == _NO_LANGUAGE else found


class _Identifier(NamedTuple):
    """The classifier of languages, and its labels."""

    classify: Callable[[str], tuple[str, float]]
    labels: frozenset[str]


@cache
def _identifier() -> _Identifier:
    with library_errors(PY3LANGID):
        import py3langid  # an extra, and slow to load (0.2 s)
    labels = frozenset(str(label) for label, _ in py3langid.rank("language"))
    return _Identifier(py3langid.classify, labels)


Ease = Annotated[float, Field(ge=-100, le=200)]


class Readability(Range):
    """The Flesch reading ease of the answer is in this range (higher is easier)."""

    check: ClassVar[str] = "readability"
    example: ClassVar[str] = "readability: {min: 50}"
    min: Ease | None = Field(None, description="Lowest score allowed.")
    max: Ease | None = Field(None, description="Highest score allowed.")

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if 206.835 - 1.015 words/sentences - 84.6 syllables/words is in the range."""
        ease = flesch(answered.text[:_READ])
        if ease is None:
            return Grade(0.0, "the answer has no words")
        return self._within(ease, f"the reading ease is {fixed(ease, 1)}")
