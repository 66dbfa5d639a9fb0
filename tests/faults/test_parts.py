"""Faults of which no process is needed to show them, and the page that lists all."""

from __future__ import annotations

import ast
import asyncio
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.prices import Price
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.budget import Budgeted, RunBudget, is_other_model
from edison_ci.providers.client import Concurrency, RateLimitSlot
from edison_ci.providers.resilience import Breaker, Clock
from edison_ci.records import Completion, Message, Request
from edison_ci.store.writer import Writer
from tests.conftest import ROOT
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from edison_ci.records import Json

pytestmark = pytest.mark.daily

NUMBERS = {
    *range(1, 9), *range(10, 14), 15, 17, 18, 20, 21, 22, *range(26, 32), *range(33, 42),
    *range(47, 53), 60, 62, 63,
}  # fmt: skip


def clock() -> Clock:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        await asyncio.sleep(0)

    return Clock(lambda: now, sleep, random.Random(0))


async def test_fault_26_a_probe_that_ends_without_a_word_lets_another_probe() -> None:
    breaker = Breaker(clock())
    for _ in range(5):
        assert not await breaker.wait()
        breaker.record_failure(CallError(ErrorKind.NETWORK, "no"), probe=False)
    assert await breaker.wait()
    breaker.record_abandoned(probe=True)  # cancelled, or no money
    assert await asyncio.wait_for(breaker.wait(), PATIENCE_S)


async def test_fault_26_calls_on_their_way_when_the_breaker_opens_are_no_probes() -> None:
    time = clock()
    breaker = Breaker(time)
    for _ in range(20):
        breaker.record_failure(CallError(ErrorKind.NETWORK, "no"), probe=False)
    assert breaker.closed_reason is None
    assert await breaker.wait()
    assert 9 <= time.monotonic() < 10


@pytest.mark.parametrize("answered", [False, True])
async def test_fault_26_a_service_that_answered_before_is_waited_for(answered: bool) -> None:
    time = clock()
    breaker = Breaker(time)
    refused = CallError(ErrorKind.NETWORK, "cannot connect to http://host", charged=False)
    if answered:
        breaker.record_success()
    for _ in range(5):
        assert not await breaker.wait()
        breaker.record_failure(refused, probe=False)
    assert await breaker.wait()
    assert time.monotonic() == pytest.approx(60 if answered else 2)
    breaker.record_failure(refused, probe=True)
    if answered:
        assert breaker.closed_reason is None
        assert await breaker.wait()
        assert time.monotonic() == pytest.approx(180)
    else:
        assert breaker.closed_reason == f"{refused} (no call was answered yet)"


async def test_fault_34_a_place_given_to_somebody_who_left_is_given_to_the_next() -> None:
    places = Concurrency(1, clock())
    await places.enter()
    first, second = (asyncio.create_task(places.enter()) for _ in range(2))
    await asyncio.sleep(0)
    places.leave()  # wakes the first, which is cancelled before it can take its place
    first.cancel()
    await asyncio.wait_for(second, PATIENCE_S)
    with pytest.raises(asyncio.CancelledError):
        await first


PRICE = Price.model_validate({"in": 1.0, "out": 0.0})


class Fine:
    async def complete(self, request: Request) -> Completion:
        return Completion("fine")


async def test_fault_39_tools_and_schemas_are_part_of_the_estimate(tmp_path: Path) -> None:
    tool: Json = {"name": "interim", "parameters": {"description": "x" * 5000}}
    with Writer(tmp_path / "results.db") as writer:
        budget = RunBudget(writer, "r", "me", ("project",), (), lambda: "2026-01-01T00:00:00.000Z",
                      lambda _: True)  # fmt: skip
        client = Budgeted(Fine(), budget, model="m", phase="generate", price=PRICE)
        plain = Request("p", "", "m", (Message("user", "hi"),), {"max_tokens": 1})
        telling = Request(
            "p", "", "m", plain.messages, plain.params, tools=[tool], response_format=tool
        )
        turn = RateLimitSlot(Concurrency(1, clock()), lambda: None, lambda: None)
        bare = await client.buy(plain, newer_than="", turn=turn)
        full = await client.buy(telling, newer_than="", turn=turn)
    assert full.cost_microusd > bare.cost_microusd + 2 * 5000


@pytest.mark.parametrize(
    ("asked", "served", "other"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", False),
        ("gpt-4", "gpt-4o", True),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", False),
        ("llama3", "llama3:latest", False),
        ("openai/gpt-4o", "gpt-4o", False),
        ("small", "sim/small", False),
        ("small-1", "tiny-0", True),
        ("small-1", "", False),
    ],
)
def test_fault_40_a_dated_or_tagged_name_is_the_same_model(
    asked: str, served: str, other: bool
) -> None:
    assert is_other_model(asked, served) is other


def test_the_page_names_every_number_and_tests_that_exist() -> None:
    page = (ROOT / "docs/faults.md").read_text(encoding="utf-8")
    told: set[int] = set()
    for row in re.findall(r"^\| ([0-9, ]+) \|", page, re.M):
        told |= {int(number) for number in row.split(",")}
    assert told == NUMBERS
    there = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        there |= {node.name for node in tree.body if isinstance(node, kinds)}
    named = set(re.findall(r"`(test_fault_\w+)`", page))
    assert named <= there, named - there
    numbered = {name for name in there if name.startswith("test_fault_")}
    small = {
        "test_fault_26_calls_on_their_way_when_the_breaker_opens_are_no_probes",
        "test_fault_34_a_place_given_to_somebody_who_left_is_given_to_the_next",
        "test_fault_40_a_dated_or_tagged_name_is_the_same_model",
    }
    assert numbered - small == named
