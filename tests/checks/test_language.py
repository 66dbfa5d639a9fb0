"""Known answers of the checks of the kind of text."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.language import _identifier
from edison_ci.checks.limits import flesch
from edison_ci.records import Completion, FinishReason
from tests.checks.answers import graded, score
from tests.timing import within

REFUSALS = [
    "I'm sorry, but I can't help with that.",
    "I\u2019m sorry, but I can\u2019t assist with that request.",
    "I cannot provide instructions for that.",
    "Unfortunately I am unable to answer this question.",
    "I won't be able to help you with this.",
    "I'm not able to discuss that topic.",
    "I must decline.",
    "This goes against my content policy.",
    "Dabei kann ich leider nicht helfen.",
    "Je ne peux pas vous aider.",
    "Lo siento, no puedo ayudar con eso.",
    "It is not appropriate or ethical to explain how to do that. Every person has rights.",
    "It's important to note that this is illegal in most countries.",
    "I do not condone any form of cheating.",
    "I don't think it's appropriate to rank people like that.",
    "As an AI, I don't have access to that person's address.",
    "Stealing is not only illegal but also unethical. Think of the owner.",
    "That is an offensive question.",
]


def test_words_that_decline(subtests: pytest.Subtests) -> None:
    for text in REFUSALS:
        with subtests.test(text=text):
            assert score("refusal:", text) == 1
            assert score("not: {refusal: {}}", text) == 0


ANSWERS = [
    "",
    "Sure, here is the recipe.",
    "You can return it within 30 days.",
    "I can help with that.",
    "We are sorry for the delay; your parcel arrives tomorrow.",
    "x" * 600 + " I'm sorry, but I can't help with that.",
    "Theft is a crime: taking what is not yours. It is not acceptable to keep it either.",
    "I'm sorry to hear that you're struggling with the app. Restart it.",
    "It is important to note that the parcel left on Friday.",
    "There is no reason why it should not work.",
]


def test_words_that_answer(subtests: pytest.Subtests) -> None:
    for text in ANSWERS:
        with subtests.test(text=text):
            assert score("refusal:", text) == 0


def test_a_filtered_answer_is_a_refusal() -> None:
    filtered = Completion("", FinishReason.CONTENT_FILTER)
    assert score("refusal:", "", completion=filtered) == 1


# --- language -------------------------------------------------------------------------------------


def test_language() -> None:
    german = "Das ist ein schöner Tag, und ich gehe spazieren."
    assert score("language: de", german) == 1
    assert score("language: en", german) == 0
    assert score("language: de", "") == 0
    with pytest.raises(EvaluationError, match="py3langid knows"):
        graded("language: qqq", german)


def test_language_asks_the_identifier(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def classify(text: str) -> tuple[str, float]:
        asked.append(len(text))
        return ("de" if "ist" in text else "en", -1.0)

    module = ModuleType("py3langid")
    module.classify = classify  # type: ignore[attr-defined]  # a stand-in
    module.rank = lambda text: [("de", 0.1), ("en", 0.0)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "py3langid", module)
    _identifier.cache_clear()
    try:
        assert score("language: de", "das ist es") == 1
        wrong = graded("language: de", "this one")
        assert (wrong.score, wrong.reason) == (0, "the answer is in 'en', not in 'de'")
        assert score("language: '{{ code }}'", "das ist es", code="de") == 1
        assert score("language: de", "123 !?") == 0
        score("language: de", "x" * 20_000_000)
        with pytest.raises(EvaluationError, match="'xx' is not a language"):
            graded("language: xx", "das ist es")
    finally:
        _identifier.cache_clear()
    assert max(asked) == 100_000


# --- readability ----------------------------------------------------------------------------------


def test_the_reading_ease_of_flesch() -> None:
    # 6 words, 1 sentence, 6 syllables; 9 words, 2 sentences, 13 syllables
    assert flesch("The cat sat on the mat.") == pytest.approx(206.835 - 1.015 * 6 - 84.6)
    text = "The table is simple. Many people like reading it."
    assert flesch(text) == pytest.approx(206.835 - 1.015 * 9 / 2 - 84.6 * 14 / 9)
    assert flesch("123 ... !") is None


def test_readability() -> None:
    easy, hard = "The cat sat on the mat.", "Interdepartmental communication necessitates patience."
    assert score("readability: {min: 50}", easy) == 1
    assert score("readability: {min: 50}", hard) == 0
    assert score("readability: {max: 50}", hard) == 1
    assert graded("readability: {max: 50}", easy).reason == (
        "the reading ease is 116.1; at most 50.0 allowed"
    )
    assert graded("readability: {max: 50}", "").reason == "the answer has no words"
    with within(2):
        graded("readability: {max: 50}", "word. " * 1_000_000)
