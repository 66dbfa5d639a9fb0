"""Known answers of the checks that look for words."""

from __future__ import annotations

import pytest

from tests.checks.answers import graded, score

TEXT_SCORES = [
    ("equals: yes", "yes", 1),
    ("equals: yes", "  yes\n", 1),
    ("equals: ' yes '", "yes", 1),
    ("equals: yes", "Yes", 0),
    ("equals: {value: yes, ignore_case: true}", "YES", 1),
    ("equals: {value: straße, ignore_case: true}", "STRASSE", 1),
    ("equals: ''", "  ", 1),
    ("equals: ''", "x", 0),
    ("contains: fox", "the fox", 1),
    ("contains: fox", "the Fox", 0),
    ("contains: fox", "", 0),
    ("icontains: FOX", "the fox", 1),
    ("icontains: straße", "STRASSE", 1),
    ("icontains: fox", "the dog", 0),
    ("contains_any: [cat, dog]", "a dog", 1),
    ("contains_any: [cat, dog]", "a Dog", 0),
    ("contains_any: {value: [cat, dog], ignore_case: true}", "a Dog", 1),
    ("contains_any: [cat, dog]", "", 0),
    ("contains_all: [cat, dog]", "dog and cat", 1),
    ("contains_all: [cat, dog]", "a dog", 0),
    ("contains_all: {value: [Cat, dog], ignore_case: true}", "cats, DOGS", 1),
    ("starts_with: Dear", "Dear Ms. X", 1),
    ("starts_with: Dear", "\n Dear Ms. X", 1),
    ("starts_with: ' Dear'", " Dear", 1),
    ("starts_with: Dear", "My Dear", 0),
    ("starts_with: Dear", "", 0),
    ("ends_with: Bye.", "Good. Bye.", 1),
    ("ends_with: Bye.", "Good. Bye. \n", 1),
    ("ends_with: Bye.", "Bye. Now", 0),
    ("regex: '^a.c$'", "abc", 1),
    ("regex: '^a.c$'", "xabc", 0),
    ("regex: 'b+'", "abbbc", 1),
    ("regex: '(?i)ORDER \\d+'", "your order 17", 1),
    ("regex: '\\w'", "é", 1),
    ("one_of: [yes, no]", " no ", 1),
    ("one_of: [yes, no]", "No", 0),
    ("one_of: {value: [yes, no], ignore_case: true}", "No", 1),
    ("one_of: [yes, no]", "maybe", 0),
]


def test_known_answers(subtests: pytest.Subtests) -> None:
    for line, text, expected in TEXT_SCORES:
        with subtests.test(line=line, text=text):
            assert score(line, text) == expected


def test_the_argument_may_come_from_the_case() -> None:
    assert score("contains:", "It is Oslo.", expected="Oslo") == 1
    assert score("equals: '{{ a }}-{{ b }}'", "1-x", a=1, b="x") == 1
    assert score("one_of: '{{ allowed }}'", "b", allowed=["a", "b"]) == 1
    assert score("regex: '^{{ expected }}$'", "a1", expected="[a-z]\\d") == 1


REASONS = [
    ("equals: yes", "no\x1b", "the answer is 'no ', not 'yes'"),
    ("contains: fox", "dog", "'fox' is not in the answer"),
    ("contains_any: [a1, b1]", "dog", "none of 'a1', 'b1' is in the answer"),
    ("contains_all: [a1, b1, d]", "dog", "the answer lacks 'a1', 'b1'"),
    ("contains_all: [q, r, s, t, u]", "x", "the answer lacks 'q', 'r', 's' and 2 more"),
    ("starts_with: Dear", "Hi there", "the answer starts with 'Hi there', not with 'Dear'"),
    ("ends_with: Bye", "Hi there", "the answer ends with 'Hi there', not with 'Bye'"),
    ("regex: 'a+'", "b", "nothing in the answer matches 'a+'"),
    ("regex: 'a+'", "baa", "'aa' matches 'a+'"),
    ("one_of: [yes, no]", "maybe", "the answer is 'maybe', not one of 'yes', 'no'"),
    ("not: {regex: '(?i)as an ai'}", "As an AI", "'As an AI' matches '(?i)as an ai'"),
]


def test_the_reason_says_what_to_look_at(subtests: pytest.Subtests) -> None:
    for line, text, reason in REASONS:
        with subtests.test(line=line, text=text):
            assert graded(line, text).reason == reason


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("count: {value: ab, min: 2, max: 2}", "ab cab", 1),
        ("count: {value: aa, max: 1}", "aaa", 1),
        ("count: {value: AB, min: 1}", "ab", 0),
        ("count: {value: AB, min: 1, ignore_case: true}", "ab", 1),
        ("count: {value: x, min: 1}", "", 0),
        ("count: {value: '{{ name }}', max: 1}", "Ada and Ada", 0),
    ],
)
def test_count(line: str, text: str, expected: float) -> None:
    assert score(line, text, name="Ada") == expected


def test_count_says_how_often() -> None:
    found = graded("count: {value: a, max: 1}", "banana")
    assert found.reason == "'a' is in the answer 3 times; at most 1 allowed"


SOURCE = "The parcel left Oslo on\nFriday. It\u2019s late, and nobody knows why."

QUOTES = [
    ("It says \u201cThe parcel left Oslo on Friday.\u201d", 1),
    ('It says "It\'s late, and nobody knows," at least.', 1),
    ("It says \u00abThe parcel left ... nobody knows why\u00bb", 1),
    ("It says \u201enobody knows ... The parcel left Oslo\u201c", 0),
    ("It says \u201cthe parcel left Rome on Friday\u201d", 0),
    ('One "parcel left Oslo" and one "parcel left Rome"', 0.5),
    ('The "so called" parcel', 1),
    ("No quotation at all.", 1),
]


def test_quotes(subtests: pytest.Subtests) -> None:
    for text, expected in QUOTES:
        with subtests.test(text=text):
            assert score("quotes: '{{ source }}'", text, source=SOURCE) == expected


def test_quotes_may_be_required_and_may_be_short() -> None:
    assert score("quotes: {value: '{{ source }}', min: 1}", "None.", source=SOURCE) == 0
    assert score("quotes: {value: '{{ source }}', words: 1}", 'It is "early".', source=SOURCE) == 0
    wrong = graded("quotes: '{{ source }}'", 'It "came back from Rome".', source=SOURCE)
    assert wrong.reason == "not in the source: 'came back from Rome'"
