from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.checks import time_limit
from edison_ci.contracts import CallError
from edison_ci.errors import UsageError
from edison_ci.features.simulator.options import Fault, SimOptions
from edison_ci.features.simulator.provider import SimulatedProvider, echo, parse_script, script
from edison_ci.records import Completion, FinishReason, Message, Request
from tests.features.simulator.conftest import request

if TYPE_CHECKING:
    from edison_ci.records import Json

pytestmark = pytest.mark.daily


def test_echo_returns_the_last_user_message() -> None:
    messages = (Message("user", "first"), Message("assistant", "no"), Message("user", "second"))
    completion = echo(Request("sim", "", "echo", messages, {}))
    assert (completion.text, completion.served_model) == ("second", "sim/echo")


def test_echo_without_a_user_message_is_empty() -> None:
    assert echo(Request("sim", "", "echo", (), {})).text == ""


def test_the_first_fitting_line_answers() -> None:
    lines = parse_script(
        [
            {"match": "blue", "text": "sky"},
            {"match": "/gr(ee|a)n/", "text": "grass", "finish_reason": "length", "latency_ms": 40},
            {"match": "", "text": "anything else"},
        ]
    )
    assert script(request("is it blue or green?", model="script"), lines) == Completion(
        "sky", tokens_in=9, tokens_out=1, served_model="sim/script"
    )
    found = script(request("a gran tree"), lines)
    assert isinstance(found, Completion)
    assert (found.text, found.finish_reason, found.latency_ms) == ("grass", FinishReason.LENGTH, 40)
    other = script(request("red"), lines)
    assert isinstance(other, Completion) and other.text == "anything else"


def test_a_line_can_be_an_error() -> None:
    lines = parse_script([{"match": "x", "error": "QUOTA", "text": "no money left"}])
    assert script(request("x"), lines) == Fault("QUOTA", "no money left")


def test_a_request_no_line_fits_is_a_fault() -> None:
    found = script(request("y"), parse_script([{"match": "x", "text": "z"}]))
    assert isinstance(found, Fault) and found.kind == "BAD_REQUEST"


@pytest.mark.parametrize(
    "row",
    [
        {"match": "/(/"},
        {"match": 3},
        {"text": None},
        {"finish_reason": "tired"},
        {"latency_ms": -1},
        {"latency_ms": True},
        {"matches": "x"},
    ],
)
def test_a_wrong_row_is_named(row: dict[str, Json]) -> None:
    with pytest.raises(UsageError, match="row 2"):
        parse_script([{"match": "fine", "text": "ok"}, row])


@pytest.mark.nightly
async def test_a_prompt_that_takes_for_ever_to_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time_limit, "LIMIT_S", 0.2)
    monkeypatch.setattr(time_limit, "_TICK_S", 0.05)
    time_limit.stop_clock()
    said = "Write a story about " + "1" * 200_000
    asked = Request("sim", "", "small", (Message("user", said),), {})
    with pytest.raises(CallError, match=r"the simulator takes longer than 0\.2 s"):
        await SimulatedProvider(SimOptions.from_mapping({})).complete(asked)
    time_limit.stop_clock()


def test_a_pattern_that_takes_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edison_ci.checks.patterns.LIMIT_S", 0.2)
    lines = parse_script([{"match": "/(a|aa)+$/", "text": "x"}])
    asked = Request("sim", "", "script", (Message("user", "a" * 60 + "b"),), {})
    with pytest.raises(UsageError, match=r"takes longer than 0\.2 s"):
        script(asked, lines)
