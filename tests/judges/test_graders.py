"""A grader prompt is rendered over the case and the output, and its reply is a number or a word."""

from __future__ import annotations

import pytest

from edison_ci.config.prompt import Prompt, read_prompt
from edison_ci.config.rubric import Scale
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.judges.graders import PromptGrader, read_grade
from edison_ci.judges.replies import MAX_REPLY
from edison_ci.records import Case, CaseId, Completion
from tests.judges.bench import CASE, Scripted, model


def prompt(
    body: str = "How warm is {{ output }} to {{ name }}?", front: str = "scale: 0-5"
) -> Prompt:
    text = f"---\ntype: grader\n{front}\n---\n{body}\n"
    found, problems = read_prompt(text.encode(), "prompts/tone.md")
    assert found is not None, problems
    return found


def grader(of: Prompt | None = None) -> PromptGrader:
    return PromptGrader.of("tone", of or prompt(), model())


FIVE = Scale(min=0, max=5)
GOOD = {
    "4": 0.8,
    " 4.0 \n": 0.8,
    "**4**": 0.8,
    "4.": 0.8,
    "0": 0.0,
    "5": 1.0,
    "yes": 1.0,
    "No.": 0.0,
    "PASS": 1.0,
    "fail": 0.0,
    "True": 1.0,
    "false": 0.0,
    '"yes"': 1.0,
    '{"score": 2.5, "reason": "so so"}': 0.5,
    '```json\n{"score": 2.5, "reason": "so so"}\n```': 0.5,
    'I think {"score": 2.5} is fair.': 0.5,
    '{"score": 2.5, "confidence": 0.9}': 0.5,
    "```\n4\n```": 0.8,
    "<think>it says 1</think>4": 0.8,
}


@pytest.mark.parametrize("text", GOOD)
def test_a_grade_is_a_number_a_word_or_json(text: str) -> None:
    outcome = read_grade(Completion(text), FIVE)
    assert outcome.failure is None
    assert outcome.value is not None
    assert outcome.value.share == pytest.approx(GOOD[text])


BAD = [
    "",
    "maybe",
    "4 out of 5",
    "4/5",
    "Score: 4",
    "4 5",
    "6",
    "-1",
    "nan",
    "inf",
    "1e0",
    "four",
    "yes and no",
    "yes, because it is warm",
    "0x4",
    "\uff14",
    '{"score": 6}',
    '{"score": "4"}',
    '{"score": true}',
    '{"score": null}',
    '{"score": NaN}',
    '{"score": 4} {"score": 5}',
    '{"grade": 4}',
    "[4]",
    "9" * 5_000,
    "4" + " " * MAX_REPLY,
]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_anything_else_is_a_judge_error(text: str) -> None:
    outcome = read_grade(Completion(text), FIVE)
    assert outcome.value is None
    assert outcome.failure is not None


def test_a_scale_from_1_has_its_worst_score_at_0() -> None:
    scale = Scale(min=1, max=5)
    assert [read_grade(Completion(t), scale).value.share for t in ("1", "3", "no", "yes")] == [  # type: ignore[union-attr]  # each is a grade
        0.0,
        0.5,
        0.0,
        1.0,
    ]
    assert read_grade(Completion("0"), scale).value is None


async def test_a_grader_sees_the_case_the_output_and_what_was_expected() -> None:
    body = "{{ name }} got {{ output }} and should get {{ expected }}."
    ask = Scripted("5")
    found = await grader(prompt(body)).grade(CASE, "{{ name }} <b>", ask)
    name, request = ask.asked[0]
    assert name == "judge"
    assert request.messages[-1].content == "Ada got {{ name }} <b> and should get Hello Ada."
    assert (found.score, found.status) == (1.0, "ok")


async def test_the_default_scale_is_0_to_1() -> None:
    found = await grader(prompt(front="description: x")).grade(CASE, "Hi", Scripted("0.25"))
    assert found.score == 0.25


async def test_a_case_without_what_the_prompt_needs_is_skipped_and_nobody_is_asked() -> None:
    ask = Scripted("5")
    case = Case(CaseId("x"), {"name": "Ada"}, line=1)
    found = await grader(prompt("Is {{ output }} {{ expected }}?")).grade(case, "Hi", ask)
    assert found.status == "skipped"
    assert found.score is None
    assert "expected" in found.reason
    assert ask.asked == []


async def test_a_bad_reply_is_asked_for_once_more() -> None:
    ask = Scripted("I would say four", "4")
    found = await grader().grade(CASE, "Hi", ask)
    assert found.score == pytest.approx(0.8)
    assert "not a number from 0 to 5" in ask.asked[1][1].messages[-1].content


async def test_two_bad_replies_are_an_error_and_no_score() -> None:
    found = await grader().grade(CASE, "Hi", Scripted("no idea", "still none"))
    assert (found.score, found.status) == (None, "error")


async def test_a_call_without_an_answer_is_an_error_and_no_score() -> None:
    ask = Scripted(CallError(ErrorKind.NETWORK, "gone"))
    found = await grader().grade(CASE, "Hi", ask)
    assert (found.score, found.status) == (None, "error")
    assert "NETWORK" in found.reason


def test_front_matter_counts_over_the_registry_over_the_defaults_of_judges() -> None:
    of = prompt(front="scale: 0-5\nparams: {temperature: 0.9}")
    request = PromptGrader.of("tone", of, model(seed=1, temperature=0.5)).request(CASE, "Hi")
    assert request.params == {"temperature": 0.9, "seed": 1, "max_tokens": 4096}
    assert request.response_format is None


def test_the_hash_names_prompt_scale_and_judge() -> None:
    other_scale = grader(prompt(front="scale: 0-10")).hash
    other_text = grader(prompt("How kind is {{ output }}?")).hash
    other_judge = PromptGrader.of("tone", prompt(), model("anthropic")).hash
    assert len({grader().hash, other_scale, other_text, other_judge}) == 4
