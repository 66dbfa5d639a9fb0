"""The one-key syntax of checks: what it takes, and how it says what is wrong."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest

from edison_ci.checks import options
from edison_ci.checks.evaluation import Grade, ParsedAnswer
from edison_ci.checks.options import MAX_NESTING, REGISTRY, Check, parse_check
from edison_ci.errors import UsageError
from edison_ci.plugins import Registry
from edison_ci.templating.templates import Template
from tests.checks.entries import check, experiment, in_schema, said

WRONG_CHECKS = [
    ("is_json", "1:1: 'is_json' is not a check but a text (write is_json: {})"),
    (
        "contains_any",
        "1:1: 'contains_any' is not a check but a text (write contains_any: [refund, exchange])",
    ),
    ("polite", "1:1: 'polite' is not a check but a text (write NAME: ARGUMENT)"),
    ("5", "1:1: 5 is not a check (write NAME: ARGUMENT)"),
    ("{}", "1:1: {} is not a check (write NAME: ARGUMENT)"),
    ("null", "1:1: None is not a check (write NAME: ARGUMENT)"),
    (
        "{contains: a, regex: b}",
        "1:1: a check is a map with exactly one name; this has 2 keys: contains, regex "
        "(write one entry for each check)",
    ),
    (
        "{words: {max: 3}, weight: 0.5, name: short}",
        "1:1: a check is a map with exactly one name; this has 3 keys: words, weight, name "
        "(put weight and name inside: words: {..., weight: ...})",
    ),
    ("contain: a", "1:1: unknown check 'contain' (did you mean 'contains'?)"),
    ("zzz: a", "1:1: unknown check 'zzz' (list them: edison admin schema experiment)"),
    ("words: 5", "1:1: words takes options, not 5 (write words: {max: 120})"),
    ("words: {maximum: 5}", "1:9: unknown key 'maximum' (did you mean 'max'?)"),
    ("words: {max: -1}", "1:14: max is -1; at least 0"),
    ("words: {max: 3, weight: 101}", "1:25: weight is 101; at most 100"),
    ("words: {max: 3, threshold: 1.5}", "1:28: threshold is 1.5; at most 1"),
    ("contains: 5", "1:11: 5 is not a text (quote it)"),
    (
        "contains: [a, b]",
        "1:11: a list is not a text (for several texts use contains_any, contains_all or one_of)",
    ),
    (
        'contains: ""',
        "1:11: the text is empty, so every answer has it (write the text)",
    ),
    (
        "contains: {text: a}",
        "1:12: unknown key 'text' (allowed: name, threshold, value, weight)",
    ),
    ("starts_with: {}", "1:14: key 'value' is missing (add value: ...)"),
]


def test_a_wrong_check_is_refused_with_place_reason_and_advice(subtests: pytest.Subtests) -> None:
    for line, message in WRONG_CHECKS:
        with subtests.test(line=line):
            assert message in said(line)
            assert not in_schema(line)


def test_all_problems_of_a_check_are_reported_together() -> None:
    assert said("words: {max: -1, wight: 2, threshold: 2}") == [
        "1:14: max is -1; at least 0",
        "1:18: unknown key 'wight' (did you mean 'weight'?)",
        "1:39: threshold is 2; at most 1",
    ]


# --- templates ------------------------------------------------------------------------------------


def templates_of(line: str) -> list[tuple[str, str]]:
    return [(option, template.source) for option, template in check(line).templates()]


TEMPLATES = [
    ('contains: "{{ name }}"', [("value", "{{ name }}")]),
    ("contains: plain", [("value", "plain")]),
    ("contains:", [("value", "{{ expected }}")]),
    ('contains_all: "{{ words }}"', [("value", "{{ words }}")]),
    ('contains_any: [a, "{{ b }}"]', [("value", "a"), ("value", "{{ b }}")]),
    ('json_path: {path: $.a, value: "{{ x }}"}', [("value", "{{ x }}")]),
    ("json_path: {path: $.a, value: 3}", [("value", "3")]),
    ("json_path: {path: $.a, value: true}", [("value", "true")]),
    ('language: "{{ lang }}"', [("value", "{{ lang }}")]),
    (
        'tool_call: {tool: "{{ t }}", arguments: {city: "{{ c }}", days: [1, "{{ d }}"]}}',
        [("tool", "{{ t }}"), ("arguments", "{{ c }}"), ("arguments", "{{ d }}")],
    ),
    ('tool_call_f1: "{{ calls }}"', [("value", "{{ calls }}")]),
    (
        'tool_call_f1: [{tool: search, arguments: {q: "{{ q }}"}}]',
        [("value", "search"), ("value", "{{ q }}")],
    ),
    ("words: {max: 3}", []),
]


def test_arguments_are_templates_over_the_case(subtests: pytest.Subtests) -> None:
    for line, found in TEMPLATES:
        with subtests.test(line=line):
            assert templates_of(line) == found
            assert in_schema(line)


def test_a_variable_that_holds_a_list_stays_a_list() -> None:
    (value,) = [template for _, template in check('contains_all: "{{ words }}"').templates()]
    assert isinstance(value, Template)
    assert value.value({"words": ["a", "b"]}) == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        (
            'contains: "{{ x() }}"',
            ["1:11: calls are not allowed"],
        ),
        (
            "contains_any: [a, '{{ 1 + 2 }}']",
            ["1:15: arithmetic is not allowed"],
        ),
        (
            'contains: "{{ a() }} {{ b() }}"',
            ["1:11: calls are not allowed", "1:11: calls are not allowed"],
        ),
        (
            "tool_call: {tool: t, arguments: {q: '{{ q|upper|nope }}'}}",
            ["1:33: filter 'nope' is not allowed"],
        ),
    ],
)
def test_a_refused_template_has_a_place_and_a_reason(line: str, messages: list[str]) -> None:
    found = said(line)
    assert [message.partition(" (")[0].partition(";")[0] for message in found] == messages


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "contains_all: a",
            "1:15: 'a' is not a list (write [a, b], or one variable that holds a list: {{ name }})",
        ),
        (
            'one_of: "a {{ b }}"',
            "1:9: 'a {{ b }}' is not a list "
            "(write [a, b], or one variable that holds a list: {{ name }})",
        ),
        (
            "contains_any: []",
            "1:15: [] is not a list of texts "
            "(write [a, b], or one variable that holds a list: {{ name }})",
        ),
        ("contains_any: [a, 2]", "1:19: 2 is not a text (quote it)"),
        ('contains_any: [a, ""]', "1:19: the text is empty (write the text, or remove it)"),
        (
            "tool_call_f1: search",
            "1:15: 'search' is not a list "
            "(write [a, b], or one variable that holds a list: {{ name }})",
        ),
    ],
)
def test_a_list_of_texts_is_a_list_or_one_variable(line: str, message: str) -> None:
    assert said(line) == [message]
    assert not in_schema(line)


# --- nesting --------------------------------------------------------------------------------------


def nested(depth: int) -> str:
    return "not: {" * (depth - 1) + "is_json: {}" + "}" * (depth - 1)


def test_checks_nest_to_a_limit() -> None:
    assert check(nested(MAX_NESTING)).check == "not"
    (message,) = said(nested(MAX_NESTING + 1))
    assert "checks are nested deeper than 10 levels" in message


def test_a_check_inside_checks_is_wrong_at_its_own_place() -> None:
    line = "any_of: [{contains: a}, {not: {all_of: [{contain: b}, {words: {mx: 1}}]}}]"
    assert said(line) == [
        "1:41: unknown check 'contain' (did you mean 'contains'?)",
        "1:64: unknown key 'mx' (did you mean 'max'?)",
    ]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("not: {contains: a}", ["contains"]),
        ("not: {value: {contains: a}, weight: 2}", ["contains"]),
        ("any_of: [{contains: a}, {is_json: {}}]", ["contains", "is_json"]),
        ("all_of: {value: [{contains: a}], name: both}", ["contains"]),
        ("contains: a", []),
    ],
)
def test_a_combinator_knows_its_parts(line: str, parts: list[str]) -> None:
    assert [part.check for part in check(line).inner_checks()] == parts
    assert in_schema(line)


@pytest.mark.parametrize("line", ["any_of: []", "all_of: {contains: a}", "not: []", "not: {}"])
def test_a_combinator_needs_checks(line: str) -> None:
    assert said(line)
    assert not in_schema(line)


# --- names ----------------------------------------------------------------------------------------


NAMES = [
    (["contains: a", "regex: '(?i)b'"], ['contains "a"', 'regex "b"']),
    (["contains: a", "contains: {value: b, name: b}"], ['contains "a"', "b"]),
    (
        ["not: {regex: '(?i)as an ai'}", "not: {not: {regex: b}}"],
        ['not regex "as an ai"', 'not not regex "b"'],
    ),
    (['icontains: "{{ expected }}"', "equals:"], ["icontains expected", "equals"]),
    (["contains: 'Dear {{ name }}'"], ['contains "Dear {{ name }}"']),
    (["words: {min: 5, max: 120, weight: 2}"], ["words min 5 max 120"]),
    (["one_of: {value: [a, b], ignore_case: true}"], ['one_of "a", "b" ignore_case']),
    (
        ["any_of: [{contains: 'yes'}, {is_json: {}}]"],
        ['any_of contains "yes", is_json'],
    ),
    (["contains: a", "contains: a"], ['contains "a"', 'contains "a" (2)']),
    (["regex: '(?i)a'", "regex: a"], ['regex "a"', 'regex "a" (2)']),
    (["contains: 'a`b\u202ec'"], ['contains "a\'b c"']),
    (["regex: {value: a, name: contains}", "contains: b"], ["contains", 'contains "b"']),
    ([f"contains: {'x' * 200}"], [f'contains "{"x" * 21}..."']),
]


def test_names_say_what_is_checked(subtests: pytest.Subtests) -> None:
    for lines, names in NAMES:
        with subtests.test(lines=lines):
            file = experiment(*lines)
            named = file.named_checks()
            assert list(named) == names
            assert list(named.values()) == list(file.checks)


# --- plugins --------------------------------------------------------------------------------------


class Palindrome(Check):
    """The answer reads the same backwards."""

    check: ClassVar[str] = "palindrome"
    main: ClassVar[str | None] = None
    example: ClassVar[str] = "palindrome: {}"
    ignore_case: bool = False

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        return Grade.of(answered.text == answered.text[::-1], "it does not")


class NoCheck:
    """Something that a broken plugin offers."""


def registry_with(monkeypatch: pytest.MonkeyPatch, **points: object) -> None:
    """Pretend that packages offer these checks."""

    class Point(EntryPoint):
        def load(self) -> object:
            return points[self.name]

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [Point(name, f"plugin:{name}", group) for name in points]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr(options, "REGISTRY", Registry(REGISTRY.group, REGISTRY.built_in))


def test_a_check_of_an_installed_package_is_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    registry_with(monkeypatch, palindrome=Palindrome)
    assert parse_check({"palindrome": {"ignore_case": True, "weight": 2}}) == Palindrome(
        ignore_case=True, weight=2
    )
    assert said("palindrom: {}") == ["1:1: unknown check 'palindrom' (did you mean 'palindrome'?)"]
    assert said("palindrome: {ignore: 1}") == [
        "1:14: unknown key 'ignore' (did you mean 'ignore_case'?)"
    ]


def test_a_plugin_that_takes_a_built_in_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    registry_with(monkeypatch, contains=Palindrome)
    with pytest.raises(UsageError, match="has the name 'contains', which is built in"):
        parse_check({"palindrome": {}})


def test_a_plugin_that_is_no_check_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    registry_with(monkeypatch, palindrome=NoCheck)
    with pytest.raises(UsageError, match="'palindrome' is not a subclass of"):
        parse_check({"palindrome": {}})
