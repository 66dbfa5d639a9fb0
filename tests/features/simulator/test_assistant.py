"""The simulated assistant: drafts of the form that is asked for."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import jsonschema
import pytest

from edison_ci.config.prompt import read_prompt
from edison_ci.features.simulator.assistant import assist
from edison_ci.records import Message, Request
from tests.features.simulator.conftest import example

pytestmark = pytest.mark.daily


def drafted(said: str, schema: Any = None, told: str = "") -> Any:
    first = (Message("system", told),) if told else ()
    asked = Request(
        "sim", "", "assistant", (*first, Message("user", said)), {}, response_format=schema
    )
    answer = assist(asked)
    assert answer.served_model == "sim/assistant"
    assert assist(asked).text == answer.text
    return json.loads(answer.text)


def listed(name: str, item: dict[str, Any], **sizes: int) -> dict[str, Any]:
    entries = {"type": "array", "items": item, **sizes}
    return {"type": "object", "properties": {name: entries}, "required": [name]}


def test_objectives_have_a_focus_each_and_say_what_they_are_about() -> None:
    found = drafted("Draft objectives for: answering shop customers kindly")["objectives"]
    assert [each["focus"] for each in found] == ["clarity", "creativity", "efficiency"]
    assert all(
        "shop customers" in each["text"] and 20 <= len(each["text"]) <= 2000 for each in found
    )
    assert len(drafted("1 objectives for: answering customers")["objectives"]) == 1


def test_a_rubric_weighs_to_one_and_no_criterion_too_much() -> None:
    found = drafted("Write a rubric for: replies to customers")["criteria"]
    assert 4 <= len(found) <= 6
    assert sum(each["weight"] for each in found) == pytest.approx(1)
    assert all(each["weight"] <= 0.4 and each["scale"] == "0-5" for each in found)
    assert len({each["name"] for each in found}) == len(found)


def test_prompts_are_valid_and_use_the_variables_they_are_told() -> None:
    said = "Write prompts with {{ message }} and {{ policy }}.\nReply to the customer"
    found = drafted(said)["prompts"]
    assert [each["style"] for each in found] == ["structured", "conversational", "minimal"]
    for each in found:
        prompt, problems = read_prompt(each["text"].encode(), "prompts/x.md", lambda _: None)
        assert prompt is not None, problems
        assert set(prompt.inputs) == {"message", "policy"}
        assert each["rationale"]


def test_cases_are_as_many_as_asked_for_with_edge_cases_among_them() -> None:
    found = drafted("Write 40 test cases for: customer questions about returns")["cases"]
    assert len(found) == 40
    assert len({json.dumps(case["input"]) for case in found}) >= 36
    assert sum("edge" in case["tags"] for case in found) >= 4
    assert all({"message", "policy"} <= case["input"].keys() for case in found)
    assert all(1 <= case["difficulty"] <= 5 for case in found)
    other = drafted("Write 3 cases about: translating proverbs, for {{ proverb }}")["cases"]
    assert [list(case["input"]) for case in other] == [["proverb"]] * 3


def test_the_schema_decides_what_is_drafted_and_its_form() -> None:
    item = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 6},
            "description": {"type": "string", "minLength": 200},
            "weight": {"type": "integer", "minimum": 1, "maximum": 10},
            "kind": {"enum": ["a", "b"]},
            "on": {"type": "boolean"},
        },
        "required": ["name", "description", "weight", "kind", "on"],
        "additionalProperties": False,
    }
    schemas: tuple[dict[str, Any], ...] = (
        listed("criteria", item, minItems=7, maxItems=9),
        {"type": "json_schema", "json_schema": {"name": "x", "schema": listed("cases", item)}},
        listed("objectives", {"type": "string"}, maxItems=2),
    )
    for schema in schemas:
        found = drafted("Help me with prompts and a dataset", schema)
        inner = schema.get("json_schema", {}).get("schema", schema)
        jsonschema.validate(found, inner)


def test_a_change_of_a_prompt_comes_as_a_diff() -> None:
    text = example("customer-support").prompt
    schema = {"type": "object", "properties": {"note": {}, "diff": {}}, "required": ["diff"]}
    found = drafted(f"Improve prompts/support-reply.md:\n```\n{text}```", schema)
    assert found["diff"].startswith("--- a/prompts/support-reply.md\n")


def test_odd_requests_do_not_break_it(subtests: pytest.Subtests) -> None:
    schemas: list[Any] = [None, {"type": "object"}, {"properties": 3}, "text", {"type": []}]
    messages = ["", "\x00", "Key of this message: 0123456789abcdef\n", "{{" * 900]
    for schema, message in product(schemas, messages):
        with subtests.test(message=message, schema=schema):
            assert isinstance(drafted(message, schema), dict)
