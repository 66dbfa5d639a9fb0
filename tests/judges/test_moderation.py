"""A screen by a model is a number, a threshold and what a hit does."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.judges.instructions import load_instructions
from edison_ci.judges.judge import Judge
from edison_ci.judges.moderation import Action, Moderator
from tests.judges.bench import Scripted, model, user_message


def moderator(action: Action = "block", threshold: float = 0.7) -> Moderator:
    return Moderator(Judge.of(model()), load_instructions("toxicity"), action, threshold)


@pytest.mark.parametrize(
    ("score", "action", "expected"),
    [(0.9, "block", "block"), (0.7, "flag", "flag"), (0.69, "block", "off"), (0.0, "flag", "off")],
)
async def test_a_hit_does_what_the_experiment_says(
    score: float, action: Action, expected: str
) -> None:
    ask = Scripted(f'{{"reason": "rude", "score": {score}}}')
    found = await moderator(action).screen("You fool.", ask)
    assert (found.kind, found.action, found.score) == ("toxicity", expected, score)
    assert "You fool." in user_message(ask.asked[0][1])


@pytest.mark.parametrize("reply", ["fine", '{"score": 7}', '{"score": true}', ""])
async def test_a_reply_that_is_no_use_is_neither_a_hit_nor_clean(reply: str) -> None:
    found = await moderator().screen("Hello.", Scripted(reply, reply))
    assert (found.action, found.score) == ("off", None)
    assert found.failure is not None


async def test_a_call_without_an_answer_is_a_failure() -> None:
    found = await moderator().screen("Hello.", Scripted(CallError(ErrorKind.QUOTA, "none left")))
    assert found.failure is not None


def test_kinds_have_instructions_of_their_own() -> None:
    texts = {
        load_instructions(kind).message()
        for kind in ("pointwise", "pairwise", "moderation", "toxicity")
    }
    assert len(texts) == 4


def endpoint(
    kind: Literal["moderation", "toxicity"] = "moderation", action: Action = "flag"
) -> Moderator:
    moderates = dataclasses.replace(model(), model="omni-moderation-latest")
    return Moderator(Judge.of(moderates), load_instructions(kind), action, 0.5)


SCORES = '{"flagged": true, "scores": {"violence": 0.91, "hate": 0.62, "new/kind": 0.3, "x": 0}}'


async def test_a_moderation_endpoint_gets_the_text_alone_and_its_highest_score_counts() -> None:
    ask = Scripted(SCORES)
    found = await endpoint().screen("You fool.", ask)
    assert (found.action, found.score) == ("flag", 0.91)
    assert found.reason == "violence 0.91, hate 0.62, new/kind 0.30"
    ((_, request),) = ask.asked
    assert [(message.role, message.content) for message in request.messages] == [
        ("user", "You fool.")
    ]
    assert (request.params, request.response_format) == ({}, None)


async def test_toxicity_takes_the_categories_of_hate_and_harassment() -> None:
    found = await endpoint("toxicity", "block").screen("You fool.", Scripted(SCORES))
    assert (found.action, found.score, found.reason) == ("block", 0.62, "hate 0.62")


async def test_an_endpoint_that_fails_is_neither_a_hit_nor_clean() -> None:
    for reply in (CallError(ErrorKind.BAD_RESPONSE, "odd"), "{}", '{"scores": {}}'):
        found = await endpoint().screen("Hello.", Scripted(reply))
        assert (found.action, found.score) == ("off", None)
        assert found.failure is not None


async def test_an_empty_answer_is_not_sent_empty() -> None:
    ask = Scripted(SCORES)
    await endpoint().screen("", ask)
    assert user_message(ask.asked[0][1]) == " "
