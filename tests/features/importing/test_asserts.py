"""Sets of assertions, lists and patterns become checks that decide alike."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from edison_ci.checks.options import parse_check
from edison_ci.features.importing.conditions import javascript_pattern
from edison_ci.features.importing.drafts import GradeComponent, list_argument, mean_of
from edison_ci.features.importing.experiments import compact_check
from edison_ci.features.importing.javascript import javascript_condition
from edison_ci.features.importing.python_code import python_condition
from edison_ci.features.importing.templates import ConversionError
from tests.checks.answers import answered


def parts(count: int) -> list[GradeComponent]:
    entries: list[Any] = [{"contains": {"value": f"w{number}"}} for number in range(count)]
    return [GradeComponent("check", str(entry), entry) for entry in entries]


def test_a_set_passes_when_the_share_of_its_members_does(subtests: pytest.Subtests) -> None:
    for threshold, count in itertools.product([None, 0.25, 0.34, 0.5, 0.6, 0.75, 1.0], [2, 3, 4]):
        with subtests.test(threshold=threshold, count=count):
            component = mean_of(parts(count), threshold, {})
            check = parse_check(compact_check(component.check))
            for present in itertools.product([False, True], repeat=count):
                text = " ".join(f"w{number}" for number, there in enumerate(present) if there)
                share = sum(present) / count
                passes = share >= (1.0 if threshold is None else threshold)
                grade = check.evaluate(answered(text or "-"))
                passed = grade.score >= check.passes_at if grade.passed is None else grade.passed
                assert passed is passes


@pytest.mark.parametrize(
    ("text", "pieces"),
    [("a, b", ["a", "b"]), ('"1,000", in stock', ["1,000", "in stock"]), ("one", ["one"])],
)
def test_a_text_is_a_list_with_commas(text: str, pieces: list[str]) -> None:
    assert list_argument(text, "contains-any").value == pieces


def test_patterns_of_javascript_are_rewritten_or_refused() -> None:
    assert javascript_pattern(r"(?<year>\d{4})\/\k<year>") == (
        r"(?a)(?P<year>\d{4})/(?P=year)",
        "",
    )
    assert javascript_pattern("a$", "i") == (r"(?i)a\Z", "")
    assert "may mean something else" in javascript_pattern("a.b")[1]
    for pattern, why in [("(", "in Python"), ("(?i)a", "in JavaScript"), ("a++", "in JavaScript")]:
        with pytest.raises(ConversionError, match=why):
            javascript_pattern(pattern)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("output.includes('a')", {"contains": {"value": {"<hole>": 0}}}),
        ("output.length <= 280", {"chars": {"max": 280, "exact": True}}),
        (
            "output[0].function.name === 'calculate'",
            {"tool_call": {"tool": {"<hole>": 0}}},
        ),
    ],
)
def test_a_simple_expression_is_a_check(code: str, said: dict[str, Any]) -> None:
    condition = javascript_condition(code)
    assert not isinstance(condition, bool)
    assert condition.entry == said


OTHER_JAVASCRIPT = [
    "require('fs')",
    "output.replace('a', 'b') === 'c'",
    "eval(output)",
    "output.map(x => x)",
    "process.env.X",
    "output.includes(process.env.X)",
    "output",
    "output.length",
    "1 +",
    "((((",
    "output.toLowerCase().includes('Paris')",
    "context.vars.x.y === output",
    "`${output}`",
    "output.includes('x'\n",
    "while (true) {}",
    "output.match(/a/g).length > 2",
    "output == output",
    "output.includes('a') || output.length",
    "(" * 5_000,
    "!" * 5_000 + "output",
    "a" * 5_000,
    "return {pass: output.includes('a')}",
    "output.includes('{% if x %}')",
]


def test_other_code_is_refused(subtests: pytest.Subtests) -> None:
    for code in OTHER_JAVASCRIPT:
        with subtests.test(code=code), pytest.raises(ConversionError):
            javascript_condition(code)


OTHER_PYTHON = [
    "__import__('os').system('x')",
    "open('x')",
    "output",
    "len(output)",
    "'a' in",
    "lambda: 1",
    "'a' in output if x else 3",
    "import os\nreturn True",
    "x = 1",
    "any(x for x in output)",
    "json.loads(output)['a'][-1] == 1",
    "(" * 500 + ")" * 500,
    "'Paris' in output.lower()",
]


def test_other_python_is_refused(subtests: pytest.Subtests) -> None:
    for code in OTHER_PYTHON:
        with subtests.test(code=code), pytest.raises(ConversionError):
            python_condition(code)


def test_variables_of_a_test_are_taken() -> None:
    condition = javascript_condition("output.includes(context.vars['city'])")
    assert not isinstance(condition, bool)
    assert condition.arguments[0].value == "{{ city }}"
    same = python_condition("context['vars']['city'] in output")
    assert not isinstance(same, bool)
    assert same.arguments == condition.arguments
