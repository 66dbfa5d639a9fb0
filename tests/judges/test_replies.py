"""Replies are read tolerantly and believed strictly."""

from __future__ import annotations

import json

import pytest

from edison_ci.config.rubric import Scale
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.judges.replies import (
    MAX_REPLY,
    Failure,
    Missing,
    call_failure,
    check_scale,
    read_verdict,
)
from edison_ci.records import Completion, FinishReason
from tests.judges.bench import GOOD, TWO, criterion, scores
from tests.timing import within

CRITERIA = TWO.criteria

SURROUNDED = [
    GOOD,
    f"```json\n{GOOD}\n```",
    f"Sure! Here is my verdict:\n\n{GOOD}\n\nLet me know if you need more.",
    f"<think>perhaps {scores(Warmth=1, Edge_Cases=1)}?</think>\n{GOOD}",
    f"I have read {{the answer}} twice. {GOOD}",
    f"It opens with {{ and never closes. {GOOD}",
    GOOD.replace("Edge Cases", "edge  cases"),
    GOOD.replace('"flags": []', '"overall": 10, "flags": []'),
    GOOD.replace('"reason": "because", ', '"confidence": 0.5, '),
    f"[{GOOD}]",
]


def test_a_verdict_is_found_in_whatever_stands_around_it(subtests: pytest.Subtests) -> None:
    for text in SURROUNDED:
        with subtests.test(text=text):
            outcome = read_verdict(Completion(text), CRITERIA)
            assert outcome.failure is None
            assert outcome.value is not None
            assert {name: s.raw for name, s in outcome.value.scores.items()} == {
                "Warmth": 4,
                "Edge Cases": 5,
            }
            assert {name: s.share for name, s in outcome.value.scores.items()} == {
                "Warmth": 0.8,
                "Edge Cases": 0.5,
            }


HOSTILE = {
    "empty": ("", "empty"),
    "blank": (" \n", "empty"),
    "prose": ("I would give it five out of five.", "no JSON object"),
    "refusal": ("I'm sorry, I can't help with that.", "no JSON object"),
    "a list": ("[5, 5]", "no JSON object"),
    "a number": ("5", "no JSON object"),
    "null": ("null", "no JSON object"),
    "another object": ('{"score": 5}', "no JSON object"),
    "cut off": (GOOD[:-20], "no JSON object"),
    "two answers": (f"{GOOD}\n{scores(Warmth=5, Edge_Cases=10)}", "more than one"),
    "the same answer twice": (f"{GOOD}\n{GOOD}", "more than one"),
    "a broken and a good one": (f"{GOOD.replace('4', 'NaN')} {GOOD}", "more than one"),
    "two fences": (f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", "more than one"),
    "key twice": (
        '{"scores": {"Warmth": {"score": 0}, "Warmth": {"score": 5}}}',
        "given twice",
    ),
    "scores twice": (f'{{"scores": {{}}, {GOOD[1:]}', "given twice"),
    "scores a list": ('{"scores": [5, 5], "flags": []}', "not an object"),
    "scores null": ('{"scores": null, "flags": []}', "not an object"),
    "foreign": (scores(Warmth=5, Edge_Cases=5, Charm=5), "not asked for"),
    "only foreign": (scores(Charm=5), "not asked for"),
    "same criterion in two spellings": (
        scores(Warmth=1, warmth=5, Edge_Cases=5),
        "twice",
    ),
    "NaN": (GOOD.replace("4", "NaN"), "not a JSON number"),
    "Infinity": (GOOD.replace("4", "Infinity"), "not a JSON number"),
    "overflow": (GOOD.replace("4", "1e999"), "out of range"),
    "comment": (GOOD.replace("{", "{ /* fine */", 1), "not valid JSON"),
    "single quotes": (GOOD.replace('"', "'"), "no JSON object"),
    "deep": ('{"scores": ' + "[" * 100 + "]" * 100 + "}", "nested"),
    "a megabyte": ("x" * 1_000_000, "1,000,000 characters"),
    "a megabyte of answer": (GOOD + " " * 1_000_000, "characters"),
}


def test_a_reply_that_cannot_be_used_is_a_failure_with_its_reason(
    subtests: pytest.Subtests,
) -> None:
    for name, (text, reason) in HOSTILE.items():
        with subtests.test(name):
            outcome = read_verdict(Completion(text), CRITERIA)
            assert outcome.value is None
            assert outcome.failure is not None
            assert reason in outcome.failure.reason


PARTLY = {
    "missing": (scores(Edge_Cases=5), Missing.JUDGE_ERROR, "no score"),
    "above": (scores(Warmth=5.01, Edge_Cases=5), Missing.OUT_OF_RANGE, "between 0 and 5"),
    "below": (scores(Warmth=-1, Edge_Cases=5), Missing.OUT_OF_RANGE, "between 0 and 5"),
    "huge": (scores(Warmth=10**300, Edge_Cases=5), Missing.OUT_OF_RANGE, "between"),
    "true": (scores(Warmth=True, Edge_Cases=5), Missing.JUDGE_ERROR, "not a number"),
    "null": (scores(Warmth=None, Edge_Cases=5), Missing.JUDGE_ERROR, "not a number"),
    "text": (scores(Warmth="5", Edge_Cases=5), Missing.JUDGE_ERROR, "not a number"),
    "words": (scores(Warmth="five", Edge_Cases=5), Missing.JUDGE_ERROR, "not a number"),
    "list": (scores(Warmth=[5], Edge_Cases=5), Missing.JUDGE_ERROR, "not a number"),
    "object": (scores(Warmth={"score": 5}, Edge_Cases=5), Missing.JUDGE_ERROR, "not a number"),
    "bare": (
        '{"scores": {"Warmth": 5, "Edge Cases": {"score": 5}}}',
        Missing.JUDGE_ERROR,
        "no object",
    ),
    "no score": (
        '{"scores": {"Warmth": {"reason": "fine"}, "Edge Cases": {"score": 5}}}',
        Missing.JUDGE_ERROR,
        "no object",
    ),
}


def test_a_criterion_that_cannot_be_used_is_missing_and_the_others_are_kept(
    subtests: pytest.Subtests,
) -> None:
    for name, (text, kind, reason) in PARTLY.items():
        with subtests.test(name):
            outcome = read_verdict(Completion(text), CRITERIA)
            assert outcome.value is not None
            assert outcome.failure == outcome.value.missing["Warmth"]
            assert outcome.failure.kind is kind
            assert reason in outcome.failure.reason
            assert list(outcome.value.scores) == ["Edge Cases"]
            assert "Warmth" not in outcome.value.scores


def test_a_reply_in_which_no_score_can_be_used_has_no_verdict() -> None:
    outcome = read_verdict(Completion(scores(Warmth=99, Edge_Cases=99)), CRITERIA)
    assert outcome.value is None
    assert outcome.failure is not None
    assert outcome.failure.kind is Missing.OUT_OF_RANGE


def test_a_score_may_miss_its_scale_by_a_rounding_error_only() -> None:
    scale = Scale(min=0, max=1)
    assert check_scale(1 + 5e-10, scale, "x") == 1
    assert check_scale(-5e-10, scale, "x") == 0
    assert isinstance(check_scale(1 + 1e-6, scale, "x"), Failure)
    assert isinstance(check_scale(float("nan"), scale, "x"), Failure)


@pytest.mark.parametrize(
    ("low", "high", "raw", "share"),
    [
        (0, 1, 1, 1),
        (0, 3, 1, 1 / 3),
        (0, 5, 4, 0.8),
        (0, 10, 0, 0),
        (0, 100, 85, 0.85),
        (1, 5, 1, 0),
    ],
)
def test_every_scale_maps_to_0_1(low: float, high: float, raw: float, share: float) -> None:
    criteria = (criterion("Warmth", scale=Scale(min=low, max=high)), CRITERIA[1])
    outcome = read_verdict(Completion(scores(Warmth=raw, Edge_Cases=5)), criteria)
    assert outcome.value is not None
    assert outcome.value.scores["Warmth"].share == pytest.approx(share)


def test_where_low_is_good_the_share_is_turned_round() -> None:
    criteria = (criterion("Warmth", lower_is_better=True), CRITERIA[1])
    outcome = read_verdict(Completion(scores(Warmth=1, Edge_Cases=5)), criteria)
    assert outcome.value is not None
    assert outcome.value.scores["Warmth"].raw == 1
    assert outcome.value.scores["Warmth"].share == pytest.approx(0.8)


def test_flags_are_a_closed_set_and_do_not_change_scores() -> None:
    plain = read_verdict(Completion(GOOD), CRITERIA)
    flagged = read_verdict(
        Completion(scores(Warmth=4, Edge_Cases=5, flags=["toxicity", "pii", "pii"])), CRITERIA
    )
    assert plain.value is not None
    assert flagged.value is not None
    assert flagged.value.flags == ("pii", "toxicity")
    assert flagged.failure is None
    assert flagged.value.scores == plain.value.scores


@pytest.mark.parametrize("flags", [["block"], "pii", {"pii": True}, [None], [["pii"]], None, [1]])
def test_strange_flags_are_a_fault_but_cost_no_score(flags: object) -> None:
    text = json.dumps({**json.loads(GOOD), "flags": flags})
    outcome = read_verdict(Completion(text), CRITERIA)
    assert outcome.value is not None
    assert outcome.value.flags == ()
    assert outcome.failure is not None
    assert "flags" in outcome.failure.reason


def test_a_reply_that_was_cut_off_or_filtered_says_so() -> None:
    cut = read_verdict(Completion(GOOD[:-5], FinishReason.LENGTH), CRITERIA).failure
    filtered = read_verdict(Completion("", FinishReason.CONTENT_FILTER), CRITERIA).failure
    assert cut is not None
    assert "max_tokens" in cut.reason
    assert filtered is not None
    assert filtered.kind is Missing.REFUSED_TO_JUDGE


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        (ErrorKind.TIMEOUT, Missing.TIMEOUT),
        (ErrorKind.CONTENT_FILTER, Missing.REFUSED_TO_JUDGE),
        (ErrorKind.PROVIDER_ERROR, Missing.JUDGE_ERROR),
    ],
)
def test_a_failed_call_says_why_there_is_no_score(kind: ErrorKind, missing: Missing) -> None:
    assert call_failure(CallError(kind, "no")).kind is missing


@pytest.mark.parametrize(
    "unit",
    [
        "{",
        '{"',
        '{"a":',
        '{"scores":{',
        '"\\"',
        "\\",
        "{}",
        '{"scores":1}',
        "}",
        '\\"{',
        "<think>",
        "</think>",
    ],
)
def test_no_reply_takes_long_to_read(unit: str) -> None:
    text = (unit * MAX_REPLY)[:MAX_REPLY]
    with within(5):
        outcome = read_verdict(Completion(text), CRITERIA)
    assert outcome.value is None
