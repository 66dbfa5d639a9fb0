"""Answers to grade, and what a check says about them."""

from __future__ import annotations

from typing import Any

from edison_ci.checks.evaluation import Grade, ParsedAnswer
from edison_ci.records import Case, CaseId, Completion
from tests.checks.entries import check


def answered(text: str, **given: Any) -> ParsedAnswer:
    """Return an answer; `expected` and other names describe the case, `completion` the rest."""
    about = {
        name: given.pop(name) for name in ("root", "schemas", "cost_microusd") if name in given
    }
    completion = given.pop("completion", None) or Completion(text)
    expected = given.pop("expected", None)
    case = Case(CaseId("one"), inputs=given, expected=expected)
    return ParsedAnswer(case, text, completion, **about)


def graded(line: str, text: str, **given: Any) -> Grade:
    """Return what the check of a line of YAML says about an answer."""
    return check(line).evaluate(answered(text, **given))


def score(line: str, text: str, **given: Any) -> float:
    return graded(line, text, **given).score


HOSTILE = {
    "empty": "",
    "blank": " \n\t ",
    "control": "\x00\x1b[31mred\x07\x9b",
    "bidi": "\u202eabc\u2066\u200b\ufeff",
    "surrogate": "\ud800 half",
    "emoji": "😀" * 200,
    "deep": "[" * 100_000,
    "deep-object": '{"a":' * 10_000,
    "bomb": '<!DOCTYPE a [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><a>&b;</a>',
    "yaml-bomb": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
    "number": "9" * 5_000 + "e9999999",
    "nan": '{"total": NaN}',
    "big-int": '{"total": ' + "9" * 5_000 + "}",
    "fence": "```json\n" * 50,
    "template": "{{ expected }} {% for x in y %}",
    "dots": "." * 50_000 + "x",
    "long": "word " * 100_000,
    "quotes": "\"'" * 50_000,
    "tags": "<b>" * 50_000,
}
"""Texts a model could write to break a check."""
