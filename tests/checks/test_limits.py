"""Known answers of the checks that count and measure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.limits import _BLOCK, count_sentences, count_words
from edison_ci.records import Completion, FinishReason
from tests.checks.answers import graded, score
from tests.timing import within

COUNTS = [
    ("words: {max: 2}", "one two", 1),
    ("words: {max: 2}", "one two three", 0),
    ("words: {min: 1}", "  ", 0),
    ("words: {min: 2, max: 3}", "a b c", 1),
    ("chars: {max: 3}", " abc\n", 1),
    ("chars: {max: 3}", "abcd", 0),
    ("chars: {max: 2}", "äö", 1),
    ("sentences: {max: 1}", "One. Two.", 0),
    ("sentences: {min: 2, max: 2}", "One. Two.", 1),
]


def test_counts(subtests: pytest.Subtests) -> None:
    for line, text, expected in COUNTS:
        with subtests.test(line=line, text=text):
            assert score(line, text) == expected


SENTENCES = [
    ("", 0),
    ("...", 0),
    ("no full stop", 1),
    ("One. Two! Three?", 3),
    ("Really?! Yes.", 2),
    ("Wait... what? Fine.", 2),
    ("Dr. Smith met Prof. Jones at 3.15 p.m. today.", 1),
    ("J. Smith and e.g. Bob came.", 1),
    ("That was I. Then he left.", 2),
    ("It costs $3.50. Cheap!", 2),
    ('He said "Go." Then he went.', 2),
    ("A title\n\nA sentence. Another", 3),
    ("これは文です。もう一つ。", 2),
    ("The end etc. And so on.", 1),
    ("The end etc.", 1),
    ("it works. then we go home. fine", 3),
    ("It works. then we go home.", 2),
    ("we met at 3 p.m. today, e.g. in the bar. ok", 2),
    ("well... maybe. yes!", 2),
    ("- one\n- two\n- three", 3),
    ("* One. Two.\n* Three", 3),
    ("Do this:\n1. Open it.\n2. Close it.\nThat is all.", 4),
    ("a) first\nb) second", 2),
    ("- an item\n  that goes on\n- another", 2),
    ("## A heading\nA sentence. Another.", 3),
    ("one line\nand the next", 1),
    ("A dash - like this - is no list.", 1),
]


def test_sentences(subtests: pytest.Subtests) -> None:
    for text, count in SENTENCES:
        with subtests.test(text=text):
            assert count_sentences(text) == count


def test_words_are_counted_across_blocks() -> None:
    for text in ("a" * (_BLOCK + 5), "ab " * _BLOCK, " " * (_BLOCK - 1) + "ab c", " " * _BLOCK):
        assert count_words(text) == len(text.split())


@given(st.text(alphabet="ab \n.", max_size=300))
def test_sentences_are_at_most_as_many_as_words(text: str) -> None:
    assert count_sentences(text) <= count_words(text)


def test_sentences_of_a_row_of_dots_are_counted_at_once() -> None:
    with within(5):
        assert count_sentences("." * 200_000 + "x") == 1
        assert count_sentences(". " * 100_000) == 0
        assert count_sentences("\n" * 200_000) == 0
        assert count_sentences("." + '"' * 200_000 + "x") == 1
    with pytest.raises(EvaluationError, match="at most 200,000"):
        graded("sentences: {max: 1}", "x" * 200_001)


def test_tokens_are_the_providers_or_an_estimate_that_says_so() -> None:
    told = Completion("x" * 400, tokens_out=7)
    assert score("tokens: {max: 7}", "", completion=told) == 1
    assert score("tokens: {max: 6}", "", completion=told) == 0
    silent = graded("tokens: {max: 99}", "", completion=Completion("x" * 400))
    assert silent.score == 0
    assert "about 100 tokens (estimated" in silent.reason
    assert score("tokens: {max: 2}", "", completion=Completion("é" * 4)) == 1
    assert score("tokens: {max: 1}", "", completion=Completion("é" * 4)) == 0
    assert score("tokens: {max: 0}", "", completion=Completion("")) == 1


def test_the_reason_of_a_count_names_count_and_limit() -> None:
    assert graded("words: {max: 1}", "a b").reason == "the answer has 2 words; at most 1 allowed"
    assert graded("words: {min: 2}", "a").reason == "the answer has 1 word; at least 2 wanted"


def test_latency() -> None:
    slow = Completion("x", latency_ms=2_001)
    assert score("latency: 2000", "x", completion=slow) == 0
    assert score("latency: 2001", "x", completion=slow) == 1
    reason = graded("latency: 2000", "x", completion=slow).reason
    assert reason == "the answer took 2,001 ms; at most 2,000 ms allowed"


def test_cost() -> None:
    assert score("cost: 0.01", "x", cost_microusd=10_000) == 1
    assert score("cost: 0.01", "x", cost_microusd=10_001) == 0
    assert score("cost: 0", "x") == 1
    reason = graded("cost: 0.01", "x", cost_microusd=20_000).reason
    assert reason == "the answer cost $0.020000; at most $0.01 allowed"


def test_finish_reason() -> None:
    cut = Completion("x", FinishReason.LENGTH)
    assert score("finish_reason:", "x") == 1
    assert score("finish_reason:", "x", completion=cut) == 0
    assert score("finish_reason: length", "x", completion=cut) == 1
    reason = graded("finish_reason:", "x", completion=cut).reason
    assert reason == "the model stopped for 'length', not for stop"
