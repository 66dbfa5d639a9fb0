"""A judge is asked blindly, in the same way each time, and once more when its reply is no use."""

from __future__ import annotations

from typing import Any

import pytest

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.judges.asking import Judge, judge_params
from edison_ci.judges.briefing import brief
from edison_ci.judges.pointwise import Pointwise, criteria_text
from edison_ci.judges.replies import Missing
from edison_ci.records import Completion
from tests.judges.bench import (
    CASE,
    GOOD,
    TWO,
    Scripted,
    criterion,
    model,
    pointwise,
    scores,
    system_message,
    user_message,
)


@pytest.mark.parametrize(
    ("provider", "written", "sent"),
    [
        ("openai", {}, {"temperature": 0.3, "seed": 42, "max_tokens": 4096}),
        ("openai", {"temperature": 1.0}, {"temperature": 1.0, "seed": 42, "max_tokens": 4096}),
        ("openai", {"seed": 7}, {"temperature": 0.3, "seed": 7, "max_tokens": 4096}),
        ("openai", {"top_p": 0.5}, {"top_p": 0.5, "seed": 42, "max_tokens": 4096}),
        ("anthropic", {}, {"temperature": 0.3, "max_tokens": 4096}),
        ("bedrock", {"max_tokens": 99}, {"temperature": 0.3, "max_tokens": 99}),
        ("sim", {}, {"temperature": 0.3, "seed": 42, "max_tokens": 4096}),
    ],
)
def test_judges_sample_calmly_unless_the_registry_says_otherwise(
    provider: str, written: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert judge_params(model(provider, **written)) == sent


@pytest.mark.parametrize(
    ("provider", "form"),
    [("openai", {"type": "json_object"}), ("ollama", {"type": "json_object"}), ("anthropic", None)],
)
def test_json_mode_is_used_where_the_provider_has_one(provider: str, form: object) -> None:
    assert pointwise(provider=provider).request(CASE, "Hi").response_format == form


def test_the_request_is_blind_and_says_what_is_judged() -> None:
    request = pointwise().request(CASE, "Hello Ada, you kettle.")
    said = system_message(request) + user_message(request)
    assert "some-model" not in said
    assert "judge.example" not in said
    for shown in ("Hello Ada, you kettle.", '"name": "Warmth"', '"max": 10', "Ada", "kettle"):
        assert shown in said
    assert "weight" not in said


def test_what_a_judge_is_told_is_the_same_for_every_case() -> None:
    judge = pointwise()
    one, other = judge.request(CASE, "Hi"), judge.request(CASE, "Ho")
    assert system_message(one) == system_message(other)


def test_the_criteria_show_scale_labels_and_direction() -> None:
    text = criteria_text([criterion("Noise", lower_is_better=True)])
    assert '"min": 0, "max": 5' in text
    assert "Low scores are good" in text


async def test_a_good_reply_is_asked_for_once() -> None:
    ask = Scripted(GOOD)
    opinion = await pointwise().judge_output(CASE, "Hi", ask)
    assert len(ask.asked) == 1
    assert ask.asked[0][0] == "judge"
    assert opinion.failure is None
    assert opinion.verdict is not None
    assert opinion.verdict.scores["Warmth"].reason == "because"


async def test_a_bad_reply_is_asked_for_once_more_without_repeating_it() -> None:
    ask = Scripted("Ignore this. HOSTILE", GOOD)
    opinion = await pointwise().judge_output(CASE, "Hi", ask)
    first, second = (request for _, request in ask.asked)
    assert opinion.failure is None
    assert opinion.verdict is not None
    assert second.address != first.address
    assert "could not be used: the reply holds no JSON" in second.messages[-1].content
    assert "HOSTILE" not in second.messages[-1].content
    assert [m.role for m in second.messages] == ["system", "user"]


async def test_two_bad_replies_are_a_failure_and_not_a_zero() -> None:
    ask = Scripted("no", "no", GOOD)
    opinion = await pointwise().judge_output(CASE, "Hi", ask)
    assert len(ask.asked) == 2
    assert opinion.verdict is None
    assert opinion.failure is not None
    assert opinion.missing("Warmth") == opinion.failure


async def test_what_is_usable_in_the_second_reply_is_used() -> None:
    partly = scores(Warmth=9, Edge_Cases=5)
    opinion = await pointwise().judge_output(CASE, "Hi", Scripted(partly, partly))
    assert opinion.verdict is not None
    assert list(opinion.verdict.scores) == ["Edge Cases"]
    missing = opinion.missing("Warmth")
    assert missing is not None
    assert missing.kind is Missing.OUT_OF_RANGE


async def test_the_second_reply_counts_even_if_the_first_had_more() -> None:
    partly = scores(Warmth=9, Edge_Cases=5)
    opinion = await pointwise().judge_output(CASE, "Hi", Scripted(partly, "no"))
    assert opinion.verdict is None


async def test_a_call_without_an_answer_is_not_repeated_here() -> None:
    ask = Scripted(CallError(ErrorKind.TIMEOUT, "too slow"), GOOD)
    opinion = await pointwise().judge_output(CASE, "Hi", ask)
    assert len(ask.asked) == 1
    assert opinion.failure is not None
    assert opinion.failure.kind is Missing.TIMEOUT


async def test_other_errors_pass_through() -> None:
    with pytest.raises(RuntimeError, match="budget"):
        await pointwise().judge_output(CASE, "Hi", Scripted(RuntimeError("budget")))


async def test_an_empty_answer_is_judged_as_it_is() -> None:
    ask = Scripted(Completion(GOOD))
    opinion = await pointwise().judge_output(CASE, "", ask)
    assert opinion.verdict is not None
    assert "\n\n</data:answer " in user_message(ask.asked[0][1])


def test_the_hash_names_instructions_rubric_model_and_parameters() -> None:
    def of(**changed: Any) -> str:
        judge = Judge.of(changed.get("model", model()))
        return Pointwise(
            judge, changed.get("rubric", TWO), changed.get("brief", brief("pointwise"))
        ).hash

    heavier = TWO.model_copy(update={"pass_at": 0.5})
    hashes = {
        of(),
        of(model=model("anthropic")),
        of(model=model(temperature=0.0)),
        of(rubric=heavier),
        of(brief=brief("pairwise")),
    }
    assert len(hashes) == 5
    assert of() == of()
    assert of(model=model(name="renamed")) == of()
