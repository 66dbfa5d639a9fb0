"""Nunjucks becomes our template language where it means the same, and a fault where not."""

from __future__ import annotations

import pytest

from edison_ci.features.importing.templates import convert, env_name, safe_name

REWRITTEN = [
    ("plain { text }", "plain { text }"),
    ("{{name}}", "{{name}}"),
    ("{{ x | dump }}", "{{ x | tojson }}"),
    ("{{ x | dump(2) | safe }}", "{{ x | tojson }}"),
    ("{% if a === 'b' %}x{% endif %}", "{% if a == 'b' %}x{% endif %}"),
    ("{% if a !== 1 %}x{% endif %}", "{% if a != 1 %}x{% endif %}"),
    ("{% if a %}x{% elseif b %}y{% endif %}", "{% if a %}x{% elif b %}y{% endif %}"),
    ("{{ a if b else c }}", "{% if b %}{{ a }}{% else %}{{ c }}{% endif %}"),
    ("{{ a if b }}", "{% if b %}{{ a }}{% endif %}"),
    ("{{ expected }}", "{{ expected_value }}"),
    ("{{ output.expected }}", "{{ output_value.expected }}"),
    ("{{ _id }}", "{{ id_ }}"),
    ("{{ 'expected' }}", "{{ 'expected' }}"),
    ("{% raw %}{{ expected }}{% endraw %}", "{% raw %}{{ expected }}{% endraw %}"),
    ("{% for a in b %}{{ loop.index }}{% endfor %}",) * 2,
]  # fmt: skip


def test_what_means_the_same_is_rewritten(subtests: pytest.Subtests) -> None:
    for theirs, ours in REWRITTEN:
        with subtests.test(template=theirs):
            converted = convert(theirs)
            assert (converted.text, converted.faults) == (ours, ())


FAULTS = [
    ("a\n{{ b + 1 }}", (1, 3), "arithmetic"),
    ("{{ b | title }}", (0, 7), "'title'"),
    ("{{ greet(b) }}", (0, 3), "calls"),
    ("{% set a = 1 %}", (0, 3), "set"),
    ("x {{ env.HOME }}", (0, 2), "env.HOME"),
    ("{{ process.env.HOME }}", (0, 0), "environment"),
    ("{% include 'x' %}", (0, 3), "includes"),
    ("{{ (a | load).b }}", (0, 8), "'load'"),
]


def test_what_cannot_be_said_is_a_fault_with_its_place(subtests: pytest.Subtests) -> None:
    for theirs, place, said in FAULTS:
        with subtests.test(template=theirs):
            fault = convert(theirs).faults[0]
            assert (fault.at, said in fault.message) == (place, True)


def test_missing_values_are_empty_unless_there_is_a_default() -> None:
    assert convert("<{{ a }}{{ b | default('x') }}>").render({}) == "<x>"


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("a", "a"),
        ("my-var", "my_var"),
        ("_x", "x_"),
        ("1st", "var_1st"),
        ("expected", "expected_value"),
        ("größe", "gr__e"),
    ],
)
def test_names_are_made_usable(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_a_variable_of_the_environment_is_recognised() -> None:
    assert env_name(" {{ env.MY_KEY }} ") == "MY_KEY"
    assert env_name("{{env.A}}{{env.B}}") is None
    assert env_name("sk-secret") is None
