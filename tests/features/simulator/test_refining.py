"""The simulated refiner, asked as a model."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from benchmarks.sim import NAMES
from edison_ci.features.simulator.options import SimOptions
from edison_ci.features.simulator.refiner import parse_task, refine
from edison_ci.judges.instructions import FencedText, fence_message
from edison_ci.records import Message, Request
from tests.features.simulator.conftest import example

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.records import Json

pytestmark = pytest.mark.daily


def request(said: str, told: str = "", **others: Json) -> Request:
    first = (Message("system", told),) if told else ()
    return Request("sim", "", "refiner", (*first, Message("user", said)), {}, **others)  # type: ignore[arg-type]  # named


def in_blocks(name: str, weak: str, examples: int = 2) -> Request:
    """Return a request as the product makes it: blocks with a key, criteria as JSON."""
    entries = [
        {"name": criterion.name, "description": criterion.description}
        for criterion, _ in example(name).criteria
        if criterion.name == weak
    ]
    told = f"Propose a small change.\n\nCriteria:\n\n{json.dumps(entries)}"
    pieces = [FencedText("prompt", example(name).prompt, "prompts/any.md")]
    pieces += [FencedText("example", f"a failing answer, number {n}") for n in range(examples)]
    return request(fence_message(told, pieces, "Reply with JSON."), told)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_in_blocks_gets_a_note_and_a_diff_that_applies(name: str, tmp_path: Path) -> None:
    weak = example(name).criteria[0][0].name
    asked = in_blocks(name, weak)
    answer = refine(asked)
    assert answer.served_model == "sim/refiner"
    assert answer.tokens_in and answer.tokens_out
    found = json.loads(answer.text)
    assert set(found) == {"note", "diff"}
    assert weak in found["note"]
    path = parse_task(asked).path
    target = tmp_path / path
    target.parent.mkdir()
    target.write_text(example(name).prompt, encoding="utf-8")
    done = subprocess.run(
        ["git", "apply", "-"], cwd=tmp_path, input=found["diff"].encode(), check=False
    )
    assert done.returncode == 0, found["diff"]
    assert target.read_text(encoding="utf-8") != example(name).prompt
    assert refine(asked).text == answer.text, "the same request, the same answer"


def test_a_prompt_in_a_fence_gets_words_and_a_fenced_diff() -> None:
    text = example("customer-support").prompt
    said = f"Empathy is weak in prompts/mine.md:\n\n```md\n{text}```\n\nHelp."
    reply = refine(request(said)).text
    note, _, diff = reply.partition("\n\n```diff\n")
    assert "Empathy" in note
    assert diff.startswith("--- a/prompts/mine.md\n+++ b/prompts/mine.md\n@@ ")
    assert diff.endswith("```")
    assert json.loads(refine(request(said, response_format={"type": "json_object"})).text)["diff"]


def test_the_path_is_that_of_the_prompts_id_where_nobody_names_one() -> None:
    assert (
        parse_task(request("---\nid: greet\n---\nSay hello to {{ name }}.")).path
        == "prompts/greet.md"
    )
    assert parse_task(request("Say hello.")).path == "prompts/prompt.md"


def test_bad_diffs_come_as_often_as_told() -> None:
    asked = in_blocks("customer-support", "Empathy")
    assert json.loads(refine(asked, SimOptions(bad_diff_rate=1.0)).text) != json.loads(
        refine(asked).text
    )


@pytest.mark.parametrize(
    "said", ["", "\x00", "```\n```", "Key of this message: 0123456789abcdef\n", "{" * 5000]
)
def test_odd_messages_do_not_break_it(said: str) -> None:
    assert refine(request(said)).text


def test_criteria_that_are_none_are_passed_over() -> None:
    said = (
        'Criteria:\n\n[1, {"x": 2}, {"name": "Empathy"}]\n\n```\n# user\nReply to a customer.\n```'
    )
    assert [criterion.name for criterion in parse_task(request(said)).weak] == ["Empathy"]


def test_an_answer_is_cut_at_its_limit() -> None:
    asked = in_blocks("customer-support", "Empathy")
    cut = refine(Request("sim", "", "refiner", asked.messages, {"max_tokens": 5}))
    assert (cut.finish_reason, cut.tokens_out) == ("length", 5)
