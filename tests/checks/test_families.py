"""What each family of checks takes and refuses in its own options."""

from __future__ import annotations

import pytest

from edison_ci.checks.code import Command, Python
from tests.checks.entries import check, in_schema, said

OUT_OF_PLACE = [
    # text
    (
        "regex: '('",
        "1:8: not a valid pattern: missing ), unterminated subpattern at position 0 "
        "(close the group with ), or write \\( for the character itself)",
    ),
    (
        "regex: {value: '[a-'}",
        "1:16: not a valid pattern: unterminated character set at position 0 "
        "(close the set with ], or write \\[ for the character itself)",
    ),
    (
        "regex: '(?P<a>x)(?P<a>y)'",
        "1:8: not a valid pattern: redefinition of group name 'a' as group 2; was group 1 "
        "at position 12 (give each group another name)",
    ),
    # structure
    ("json_path: total", "1:12: 'total' is not a path (write $.order.items[0].id)"),
    ("json_path: $.a..b", "1:12: '$.a..b' is not a path (write $.order.items[0].id)"),
    ("json_path: $.a[*]", "1:12: '$.a[*]' is not a path (write $.order.items[0].id)"),
    ("json_path: $.a[b]", "1:12: '$.a[b]' is not a path (write $.order.items[0].id)"),
    ("json_path: {path: $.a, value: [1]}", None),
    (
        "json_schema: {type: object}",
        "1:15: unknown key 'type' "
        "(a schema goes under value: json_schema: {value: {type: object}})",
    ),
    (
        "json_schema: /etc/schema.json",
        "1:14: '/etc/schema.json' is absolute (write it relative to edison.yaml)",
    ),
    (
        "json_schema: {value: [1]}",
        "1:22: [1] is not a JSON Schema (write {type: object} or a path)",
    ),
    (
        "number: forty",
        "1:9: 'forty' is not a number (write 42, or a variable of the case: \"{{ expected }}\")",
    ),
    (
        "number: true",
        "1:9: 'true' is not a number (write 42, or a variable of the case: \"{{ expected }}\")",
    ),
    ("number: {value: 3, tolerance: -1}", "1:31: tolerance is -1; at least 0"),
    (
        "tool_call: {tool: t, arguments: [1]}",
        None,
    ),
    ("tool_call_f1: [{name: t}]", "1:17: unknown key 'name' (allowed: arguments, tool)"),
    # limits
    ("latency: 0", "1:10: latency is 0; at least 1"),
    ("latency: {max_ms: 1.5}", "1:19: max_ms is 1.5, not a whole number"),
    ("cost: -1", "1:7: cost is -1; at least 0"),
    ("words: {}", "1:8: words needs min or max (write words: {max: 120})"),
    ("readability: {}", "1:14: readability needs min or max (write readability: {min: 50})"),
    ("readability: {min: 201}", "1:20: min is 201; at most 200"),
    (
        "finish_reason: stopped",
        "1:16: finish_reason is 'stopped' (did you mean 'stop'?)",
    ),
    (
        "similar: {model: embedder}",
        "1:11: unknown key 'model' (allowed: by, name, threshold, value, weight)",
    ),
    ("rouge_n: {n: 10}", "1:14: n is 10; at most 9"),
    # language
    (
        "language: German",
        "1:11: 'German' is not the code of a language (write an ISO 639 code such as en or de)",
    ),
    # code
    (
        "python: checks/tone.py",
        "1:9: 'checks/tone.py' is not a function (write checks/tone.py:check)",
    ),
    ("python: tone:check", "1:9: 'tone:check' is not a function (write checks/tone.py:check)"),
    (
        "python: ../tone.py:check",
        "1:9: '../tone.py' leaves the project (only files of the project are read)",
    ),
    (
        "python: /tone.py:check",
        "1:9: '/tone.py' is absolute (write it relative to edison.yaml)",
    ),
    ("command: node grade.js", "1:10: command is 'node grade.js', not a list (write [a, b])"),
    ("command: []", "1:10: command has 0 entries; at least 1"),
    ('command: [""]', None),
]


def test_an_option_out_of_place_is_refused(subtests: pytest.Subtests) -> None:
    for line, message in OUT_OF_PLACE:
        with subtests.test(line=line):
            found = said(line)
            assert found
            if message is not None:
                assert message in found
            outside_of_a_schema = line.startswith(("regex", "python: .."))
            assert in_schema(line) is outside_of_a_schema


@pytest.mark.parametrize("name", ["words", "chars", "sentences", "tokens", "readability"])
def test_the_least_is_not_above_the_most(name: str) -> None:
    assert said(f"{name}: {{min: 5, max: 3}}") == [
        f"1:{len(name) + 9}: min 5 is above max 3 (swap them, or leave one out)"
    ]
    assert said(f"{name}: {{min: 3, max: 3}}") == []


IN_PLACE = [
    "regex: '(?i)as an ai'",
    "regex: 'a{2,3}'",
    "regex: '[[]'",
    'regex: "{{ pattern }}("',
    "json_path: $",
    "json_path: $.a.b-c[0][-1]['odd key']",
    "json_schema: {value: {type: object}}",
    "number: -1.5e3",
    'number: "42"',
    'number: "{{ expected }}"',
    "number: {tolerance: 0.5}",
    "finish_reason: tool_calls",
    "equals: ''",
    "language: deu",
    "similar: {threshold: 0.9}",
]


def test_an_option_in_its_place_is_taken_by_model_and_schema(subtests: pytest.Subtests) -> None:
    for line in IN_PLACE:
        with subtests.test(line=line):
            assert said(line) == []
            assert in_schema(line)


def test_an_endless_pattern_is_refused() -> None:
    (message,) = said(f"regex: {'a' * 5_001}")
    assert message == "1:8: the pattern has 5,001 characters; at most 5,000 (use several checks)"


def test_code_checks_name_their_file_and_need_permission() -> None:
    python, command = check("python: ./checks/tone.py:check"), check("command: [node, grade.js]")
    assert isinstance(python, Python)
    assert (python.path, python.function) == ("checks/tone.py", "check")
    assert isinstance(command, Command)
    assert command.value == ("node", "grade.js")
    assert python.needs_code
    assert command.needs_code


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("contains: a", False),
        ("not: {contains: a}", False),
        ("not: {python: 'a.py:f'}", True),
        ("any_of: [{contains: a}, {all_of: [{command: [x]}]}]", True),
    ],
)
def test_a_check_around_code_needs_permission_too(line: str, needed: bool) -> None:
    assert check(line).needs_code is needed
