"""Regular expressions match as Python's do, and end within their time."""

from __future__ import annotations

import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.patterns import analyse_pattern, search
from tests.checks.answers import graded, score

CATASTROPHIC = [
    (r"(a|aa)+$", "a" * 60 + "b"),
    (r"(a+)+$", "a" * 60 + "b"),
    (r"(.*)*x", "a" * 60),
    (r"^(\w+\s?)*$", "word " * 30 + "!"),
    (r"(x+x+)+y", "x" * 60),
    (r"(a|a)" * 30 + "b", "a" * 40),
    (r"(?:a?){40}a{40}b", "a" * 60),
    (r"(\w+)\1+:", "ab" * 20_000),
    (r"\s+$", " " * 1_000_000 + "x"),
    (r"(?i)" + "a" * 4_000 + "b", "a" * 3_000_000),
    (r"a{60000}b", "a" * 3_000_000),
]


@pytest.mark.parametrize(("pattern", "text"), CATASTROPHIC, ids=lambda value: value[:20])
def test_a_catastrophic_pattern_is_an_error_within_its_time(
    pattern: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edison_ci.checks.patterns.LIMIT_S", 0.3)
    assert len(text) > analyse_pattern(pattern).reach
    with pytest.raises(EvaluationError, match=r"takes longer than 0\.3 s"):
        search(pattern, text)


def test_the_worker_is_there_again_after_it_was_ended() -> None:
    said = r"the pattern '\(a\|aa\)\+\$' takes longer than 1 s"
    with pytest.raises(EvaluationError, match=said):
        graded("regex: '(a|aa)+$'", "a" * 60 + "b")
    assert score("regex: '(a|aa)+$'", "b" + "a" * 60) == 1


@pytest.mark.parametrize(
    ("pattern", "linear"),
    [
        (r"(?i)as an ai", True),
        (r"(?i)\[(your|agent|company|insert) ", True),
        (r"\d{4}-\d{2}-\d{2}", True),
        (r"colou?r\b", True),
        (r"(?=a)b(?!c)(?<=d)", True),
        (r"^\s*import", False),
        (r"(?s)```python.*```", False),
        (r"(a|aa)+$", False),
        (r"(\w)\1", False),
        (r"(a)?(?(1)b|c)", False),
        (r"(a|a)" * 30, False),
        (r"a{60000}", False),
    ],
)
def test_which_patterns_take_time_in_proportion_to_the_text(pattern: str, linear: bool) -> None:
    assert analyse_pattern(pattern).is_linear is linear


@pytest.mark.parametrize(
    "pattern",
    [r"(?i)as an ai", r"(?m)^\s*import (os|socket)", r"(?s)```python.*```", r"https?://\S+"],
)
def test_a_usual_pattern_searches_a_usual_answer_here(pattern: str) -> None:
    assert analyse_pattern(pattern).reach >= 1_000


PIECES = st.sampled_from(
    ["a", "b", ".", r"\w", "[ab]", "a*", "b+", "a?", "(a|b)", "(?:ab)*", "a{2,3}", "^", "$", r"\b"]
)


@given(st.lists(PIECES, min_size=1, max_size=6).map("".join), st.text("ab \n", max_size=30))
@settings(max_examples=200)
def test_here_and_in_the_worker_a_pattern_finds_what_python_finds(pattern: str, text: str) -> None:
    wanted = re.search(pattern, text)
    assert search(pattern, text) == (wanted.group() if wanted else None)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"(?:ab|a)*c", "ababc" * 10, "ababc"),
        (r"(\w)\1", "xaé\ud800éé", "éé"),
        (r"(?:xy|\ud800)+", "\ud800", "\ud800"),
        (r"(?:ab|a)*\x00", "\x00", "\x00"),
        (r"(?:ab|a)*c", "d", None),
    ],
)
def test_the_worker_finds_what_python_finds(pattern: str, text: str, found: str | None) -> None:
    assert analyse_pattern(pattern).reach < len(text)
    assert search(pattern, text) == found


def test_many_threads_ask_at_once() -> None:
    pattern = r"(?:ab|a)*c"
    with ThreadPoolExecutor(8) as threads:
        texts = [f"{'ab' * n}c" for n in range(1, 100)]
        assert list(threads.map(lambda text: search(pattern, text), texts)) == texts
    assert threading.active_count() < 20


def test_a_pattern_from_the_case_that_is_not_valid_is_an_error() -> None:
    with pytest.raises(EvaluationError, match=r"the pattern '\(' is not valid: missing \)"):
        graded("regex: '{{ expected }}'", "x", expected="(")
    with pytest.raises(EvaluationError, match="longer than 5,000 characters"):
        graded("regex: '{{ expected }}'", "x", expected="a" * 5_001)


def test_without_pythons_own_parser_every_pattern_goes_to_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re._parser", None)
    analyse_pattern.cache_clear()
    try:
        assert (analyse_pattern("abc").is_linear, analyse_pattern("abc").reach) == (False, 0)
        assert search("b.", "abc") == "bc"
    finally:
        analyse_pattern.cache_clear()
