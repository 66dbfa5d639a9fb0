"""Front matter: variables, schemas, tools and scales."""

from __future__ import annotations

from typing import Any

import pytest

from edison_ci.config.prompt import Input, PromptHeader, fits
from tests.config.said import said


def test_everything_has_a_default() -> None:
    header = PromptHeader()
    assert (header.type, header.expect, header.syntax) == ("generator", "auto", "jinja")
    assert header.id is None
    assert header.inputs is None
    assert header.written_params == {}


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        ("a", {"string"}),
        (1, {"number"}),
        (1.5, {"number"}),
        (True, {"boolean"}),
        ([1], {"list"}),
        ({"a": 1}, {"object"}),
        (None, set()),
    ],
)
def test_a_value_is_of_one_type(value: Any, kinds: set[str]) -> None:
    names = ("string", "number", "boolean", "list", "object")
    assert {kind for kind in names if fits(value, kind)} == kinds


def test_an_input_is_a_type_or_a_map() -> None:
    header = PromptHeader.model_validate(
        {"inputs": {"a": "number", "b": {"type": "list", "default": []}, "c": {}}}
    )
    assert header.inputs == {
        "a": Input(type="number"),
        "b": Input(type="list", default=[]),
        "c": Input(),
    }
    assert [entry.has_default for entry in (header.inputs or {}).values()] == [False, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type: number\ndefault: a\n", "2:10: default is not a number"),
        ("default: 3\n", "1:10: default is not a string"),
        ("type: boolean\ndefault: 1\n", "2:10: default is not a boolean"),
    ],
)
def test_a_default_is_of_the_declared_type(text: str, message: str) -> None:
    assert said(Input, text) == [f"{message} (change the default or the type)"]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("output: schemas/out.json\n", []),
        ("output: {type: object}\n", []),
        ("tools: tools.json\n", []),
        ("tools: [{name: a}, {name: b, parameters: {type: object}}]\n", []),
        ("type: grader\nscale: 0-100\n", []),
        (
            "output: 3\n",
            ["1:9: output is not a JSON Schema (write {type: object, ...} or a path)"],
        ),
        (
            "output: /etc/out.json\n",
            ["1:9: '/etc/out.json' is absolute (write it relative to edison.yaml)"],
        ),
        (
            "output:\n  properties:\n    a: {type: text}\n    b: {minimum: low}\n",
            [
                "3:15: output is not a JSON Schema: 'text' is not a type "
                "(types are array, boolean, integer, null, number, object and string)",
                "4:18: output is not a JSON Schema: 'low' is not of type 'number' "
                "(check properties/b/minimum)",
            ],
        ),
        (
            "output: {allOf: [{$ref: '#/definitions/a'}, {$ref: 'http://x/y'}]}\n",
            [
                "1:52: output refers to 'http://x/y' "
                "(references stay inside the schema: #/definitions/NAME)"
            ],
        ),
        (
            "tools: [{name: a, input: {}}, {}, {name: a}]\n",
            [
                "1:26: tool 'a' has an unknown key 'input' "
                "(allowed: description, name, parameters)",
                "1:31: tool 2 has no name "
                "(write [{name: ..., description: ..., parameters: {...}}])",
                "1:42: two tools are named 'a' (give each a distinct name)",
            ],
        ),
        ("scale: 0-5\n", ["1:8: only a grader has a scale (add type: grader, or remove it)"]),
    ],
)
def test_schemas_tools_and_scales_are_checked_where_they_stand(
    text: str, messages: list[str]
) -> None:
    assert said(PromptHeader, text) == messages


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("model", "models belong in the experiment"),
        ("name", "write id; it is the name of the file"),
        ("variables", "write inputs"),
        ("temperature", "put it under params"),
    ],
)
def test_a_key_from_elsewhere_is_answered_with_the_key_from_here(key: str, advice: str) -> None:
    assert said(PromptHeader, f"{key}: x\n") == [f"1:1: unknown key '{key}' ({advice})"]
