"""Checks of the language of an answer, its readability, and refusals."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

from edison_ci.checks.evaluation import EvaluationError, Grade, library_errors, quote
from edison_ci.checks.limits import flesch
from edison_ci.checks.options import Check, Range, text_of_form
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

# Chosen on the answers to one half of the prompts of XSTest (Röttger et al. 2024), which people
# labelled, and measured on the other half: docs/checks.md.
_REFUSALS = Path(__file__).with_name("refusals.toml")
_FIRST_SENTENCE = re.compile(r"(?<=[.!?])\s")


@cache
def _refusal_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the pattern of words that decline, and that of words that reprove the question."""
    data = tomllib.loads(_REFUSALS.read_text("utf-8"))
    declining, reproving = "|".join(data["declining"]), "|".join(data["reproving"])
    for name, words in data["words"].items():
        declining = declining.replace(f"<{name}>", words)
        reproving = reproving.replace(f"<{name}>", words)
    return re.compile(declining), re.compile(reproving)


def find_refusal(text: str) -> str | None:
    """Return the words by which a text declines, or reproves the question at once; or None."""
    opening = text.lstrip()[:_OPENING].lower().replace("\u2019", "'")
    declining, reproving = _refusal_patterns()
    words = declining.search(opening)
    if words is None:
        # Further on, such words may be a part of an answer.
        words = reproving.search(_FIRST_SENTENCE.split(opening, maxsplit=1)[0])
    return None if words is None else words.group()


class Refusal(Check):
    """The answer declines to answer, or reproves the question in its first sentence."""

    check: ClassVar[str] = "refusal"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "not: {refusal: {}}"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 if the answer was filtered, or starts with words that decline or reprove."""
        if answered.completion.finish_reason == FinishReason.CONTENT_FILTER:
            return Grade(1.0, "the provider filtered the answer")
        words = find_refusal(answered.text)
        if words is not None:
            return Grade(1.0, f"the answer declines: {quote(words)}")
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
        code, identify = answered.render_required(self.value), _identifier()
        if code not in identify.labels:
            raise EvaluationError(f"{quote(code)} is not a language that py3langid knows")
        text = answered.text[:_READ]
        if not any(character.isalpha() for character in text):
            return Grade(0.0, "the answer has no words")
        language = str(identify.classify(text)[0])
        return Grade.of(language == code, f"the answer is in {quote(language)}, not in {code!r}")


_ENOUGH_LETTERS = 20
_NO_LANGUAGE = "zxx"


def language_of(text: str) -> str | None:
    """Return the language of a text; None if it is too short, or cannot be determined here."""
    if PY3LANGID.fault() or sum(map(str.isalpha, text[:_READ])) < _ENOUGH_LETTERS:
        return None
    language = str(_identifier().classify(text[:_READ])[0])
    return None if language == _NO_LANGUAGE else language


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
