"""Two answers are compared in both orders, and a judge that follows the order says nothing."""

from __future__ import annotations

import json

import pytest

from edison_ci.contracts import CallError, ErrorKind
from edison_ci.judges.instructions import load_instructions
from edison_ci.judges.judge import Judge
from edison_ci.judges.pairwise import Pairwise, read_place
from edison_ci.records import Completion, Request
from tests.judges.bench import (
    CASE,
    TWO,
    Answering,
    Scripted,
    model,
    system_message,
    user_message,
)

JUDGE = Pairwise(Judge.of(model()), load_instructions("pairwise"), TWO)


def says(winner: str) -> str:
    return json.dumps({"reason": "better", "winner": winner})


def block(request: Request, tag: str) -> str:
    return user_message(request).split(f"<data:{tag} ")[1].split("\n")[1]


def prefers(text: str) -> Answering:
    """A judge that prefers one answer wherever it stands."""
    return Answering(lambda r: says("first" if block(r, "first") == text else "second"))


async def test_a_judge_with_an_opinion_decides_in_both_orders() -> None:
    ask = prefers("good")
    found = await JUDGE.compare(CASE, "good", "bad", ask)
    assert (found.ab.winner, found.ba.winner, found.winner) == ("a", "a", "a")
    assert (found.value, found.consistent, found.order_effect) == (1.0, True, 0.0)
    reverse = await JUDGE.compare(CASE, "bad", "good", prefers("good"))
    assert (reverse.winner, reverse.value) == ("b", 0.0)
    shown = [(block(r, "first"), block(r, "second")) for _, r in ask.asked]
    assert sorted(shown) == [("bad", "good"), ("good", "bad")]


async def test_a_flip_is_a_tie_and_feeds_the_order_effect() -> None:
    always_first = await JUDGE.compare(CASE, "good", "bad", Scripted(says("first")))
    assert (always_first.winner, always_first.value) == ("tie", 0.5)
    assert always_first.consistent is False
    assert always_first.order_effect == 0.5
    always_second = await JUDGE.compare(CASE, "good", "bad", Scripted(says("second")))
    assert (always_second.winner, always_second.order_effect) == ("tie", -0.5)


async def test_half_a_win_counts_three_quarters_but_is_no_win() -> None:
    ask = Answering(lambda r: says("first" if block(r, "first") == "good" else "tie"))
    found = await JUDGE.compare(CASE, "good", "bad", ask)
    assert (found.value, found.winner, found.consistent) == (0.75, "tie", False)
    assert found.order_effect == 0.25


async def test_a_missing_order_makes_the_case_missing() -> None:
    def answer(request: Request) -> str | CallError:
        if block(request, "first") == "good":
            return says("first")
        return CallError(ErrorKind.TIMEOUT, "slow")

    found = await JUDGE.compare(CASE, "good", "bad", Answering(answer))
    assert found.ab.winner == "a"
    assert found.ba.failure is not None
    assert (found.value, found.winner, found.consistent, found.order_effect) == (None,) * 4


async def test_equal_answers_are_a_tie_and_cost_nothing() -> None:
    ask = Scripted(says("first"))
    found = await JUDGE.compare(CASE, "same", "same", ask)
    assert (found.winner, found.value, ask.asked) == ("tie", 0.5, [])


def test_the_request_tells_nothing_but_the_order_apart() -> None:
    one, other = JUDGE.request(CASE, "x", "y"), JUDGE.request(CASE, "y", "x")
    assert system_message(one) == system_message(other)
    assert '"weight": 0.5' in system_message(one)
    assert one.request_hash != other.request_hash


def test_the_judge_sees_the_objective_first_and_as_data() -> None:
    judge = Pairwise(
        Judge.of(model()), load_instructions("pairwise"), TWO, objective="Be brief and kind."
    )
    request = judge.request(CASE, "x", "y")
    told, said = system_message(request), user_message(request)
    assert "Be brief" not in told and "The objective: the first block" in told
    assert '"weight": 0.5' in told, "the weights stay what decides"
    assert said.split("\n")[2].startswith('<data:text "objective" ')
    assert said.split("\n")[3] == "Be brief and kind."
    assert judge.hash != JUDGE.hash


def test_without_a_rubric_the_objective_is_the_yardstick() -> None:
    judge = Pairwise(
        Judge.of(model()), load_instructions("pairwise"), objective="Be brief and kind."
    )
    request = judge.request(CASE, "x", "y")
    assert "serves the objective better" in system_message(request)
    assert "Be brief and kind." in user_message(request)
    other = Pairwise(
        Judge.of(model()), load_instructions("pairwise"), objective="Be thorough and kind."
    )
    assert other.hash != judge.hash


@pytest.mark.parametrize(
    "text",
    ["first", '{"winner": "a"}', '{"winner": ["first"]}', '{"winner": null}', says("First"),
     says("first") + says("first"), "", '{"better": "first"}'],
)  # fmt: skip
def test_other_replies_are_failures(text: str) -> None:
    outcome = read_place(Completion(text))
    assert outcome.value is None
    assert outcome.failure is not None


async def test_a_bad_reply_is_asked_for_once_more() -> None:
    ask = Scripted("hm", says("tie"))
    found = await JUDGE.compare(CASE, "x", "y", ask)
    assert found.winner == "tie"
    assert len(ask.asked) == 3


async def test_answers_that_changed_their_names_are_told_by_the_new_ones() -> None:
    found = await JUDGE.compare(CASE, "good", "worse", prefers("good"))
    turned = found.swap()
    assert (turned.ab.winner, turned.ba.winner, turned.value) == ("b", "b", 0.0)
    assert (turned.chars_a, turned.chars_b) == (5, 4)
    assert turned.swap() == found
    always_first = await JUDGE.compare(CASE, "good", "bad", Scripted(says("first")))
    assert always_first.swap().order_effect == always_first.order_effect == 0.5


async def test_nobody_is_asked_about_equal_answers() -> None:
    assert (await JUDGE.compare(CASE, "same", "same", Scripted())).asked is False
