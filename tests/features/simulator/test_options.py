from __future__ import annotations

import dataclasses
import json
from collections import Counter
from random import Random

import pytest

from edison_ci.config import provider_options
from edison_ci.errors import UsageError
from edison_ci.features.simulator.options import (
    Breakage,
    FaultKind,
    SimOptions,
    break_text,
    draw_breakage,
    draw_failure,
)
from tests.features.simulator.conftest import request

pytestmark = pytest.mark.daily


def test_options_come_from_a_mapping() -> None:
    options = SimOptions.from_mapping({"noise": 0.2, "seed": 7, "file": None})
    assert (options.noise, options.seed, options.file) == (0.2, 7, None)


def test_no_options_are_the_defaults() -> None:
    assert SimOptions.from_mapping({}) == SimOptions()


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="speed") as caught:
        SimOptions.from_mapping({"speed": 1})
    assert "latency_ms" in caught.value.hint


def test_options_and_defaults_agree_with_what_config_accepts() -> None:
    accepted = provider_options.OPTIONS["sim"]
    mine = {field.name: field.default for field in dataclasses.fields(SimOptions)}
    assert mine == {name: field.default for name, field in accepted.model_fields.items()}


MANY = [request(f"call {number}") for number in range(1_500)]


@pytest.mark.parametrize("rate", [0.1, 0.35])
def test_errors_appear_at_the_configured_rate(rate: float) -> None:
    options = SimOptions(error_rate=rate)
    count = sum(draw_failure(call, options) is not None for call in MANY)
    assert count / len(MANY) == pytest.approx(rate, abs=0.03)


@pytest.mark.parametrize("rate", [0.1, 0.35])
def test_malformed_answers_appear_at_the_configured_rate(rate: float) -> None:
    options = SimOptions(malformed_rate=rate)
    count = sum(draw_breakage(call, options) is not None for call in MANY)
    assert count / len(MANY) == pytest.approx(rate, abs=0.03)


def test_nothing_fails_by_default() -> None:
    assert not any(
        draw_failure(call, SimOptions()) or draw_breakage(call, SimOptions()) for call in MANY
    )


def test_every_kind_of_fault_and_breakage_occurs() -> None:
    options = SimOptions(error_rate=1, malformed_rate=1)
    kinds = Counter(fault.kind for call in MANY if (fault := draw_failure(call, options)))
    assert set(kinds) == set(FaultKind) and min(kinds.values()) > 250
    assert {draw_breakage(call, options) for call in MANY} == set(Breakage)


def test_an_attempt_has_its_own_chance_so_a_retry_can_succeed() -> None:
    options = SimOptions(error_rate=0.5)
    failed = [call for call in MANY if draw_failure(call, options)]
    again = sum(draw_failure(call, options, attempt=1) is not None for call in failed)
    assert again / len(failed) == pytest.approx(0.5, abs=0.06)


def test_the_same_attempt_fails_in_the_same_way_again() -> None:
    options = SimOptions(error_rate=0.5, malformed_rate=0.5)
    assert [draw_failure(call, options) for call in MANY] == [
        draw_failure(call, options) for call in MANY
    ]
    assert [draw_breakage(c, options) for c in MANY] == [draw_breakage(c, options) for c in MANY]


def test_another_seed_fails_other_calls() -> None:
    ones = [draw_failure(call, SimOptions(error_rate=0.5, seed=1)) is None for call in MANY]
    twos = [draw_failure(call, SimOptions(error_rate=0.5, seed=2)) is None for call in MANY]
    assert ones != twos


def test_only_rate_limits_ask_to_wait() -> None:
    options = SimOptions(error_rate=1)
    for fault in filter(None, (draw_failure(call, options) for call in MANY)):
        assert (fault.retry_after_s is not None) is (fault.kind == FaultKind.RATE_LIMIT)
        assert fault.message.startswith("simulated")


def test_cut_json_does_not_parse() -> None:
    for seed in range(50):
        text = break_text('{"a": [1, 2, 3], "b": "text"}', Breakage.CUT, Random(seed))
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


def test_prose_stands_around_the_answer() -> None:
    text = break_text('{"a": 1}', Breakage.PROSE_AROUND, Random(1))
    assert '{"a": 1}' in text and not text.startswith("{") and not text.endswith("}")


def test_the_closing_tag_is_missing() -> None:
    text = break_text("<response>fine</response>", Breakage.NO_CLOSING_TAG, Random(1))
    assert text == "<response>fine"


def test_an_empty_answer_can_be_broken_too() -> None:
    assert break_text("", Breakage.CUT, Random(1)) == ""
    assert break_text("no tags here", Breakage.NO_CLOSING_TAG, Random(1)) != "no tags here"
