"""An adapter under the whole stack over real HTTP: never less is booked than was charged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from edison_ci.contracts import CallError
from edison_ci.providers.adapters import provider_for
from edison_ci.providers.budget import Budgeted, RunBudget
from edison_ci.providers.client import ClientLimits, build_client
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import SpendingCap, booked
from edison_ci.store.writer import Writer
from tests.loopback.fixture import loopback
from tests.loopback.script import Rule, rule
from tests.providers.kitchen import ask, model
from tests.providers.test_client import NOW, PRICE, FakeTime

if TYPE_CHECKING:
    from pathlib import Path

    from tests.loopback.server import LoopbackServer

__all__ = ["loopback"]

STORM = [
    rule(number=1, status=429, headers={"retry-after": "7"}),
    rule(number=2, do="truncate"),
    rule(number=3, do="close"),
    rule(number=4, status=500),
    rule(number=6, do="short"),
    rule(number=7, usage={"prompt_tokens": -5, "completion_tokens": "many"}),
    rule(number=8, usage=None),
]


async def spend(server: LoopbackServer, path: Path, calls: int) -> tuple[list[str], int, list[str]]:
    """Make calls through a client; return how each ended, what is booked, and all states."""
    entry = f"{{provider: openai_compatible, model: m, base_url: '{server.openai_url}'}}"
    provider = provider_for(model(entry), environ={})
    time = FakeTime()
    with Writer(path) as writer:
        reader = open_reader(path)
        budget = RunBudget(
            writer, "r", "me", ("run:r",), (), lambda: NOW, lambda owner: owner == "me"
        )
        budgeted = Budgeted(provider, budget, model="m", phase="generate", price=PRICE)
        client = build_client(
            budgeted, ClientLimits(concurrency=1, attempts=6), time.clock(), reader, ""
        )

        async def one(number: int) -> str:
            try:
                return (await client.answer(ask(f"Question {number}?"))).completion.text[:6]
            except CallError as error:
                return str(error.kind)

        ended = [await one(number) for number in range(calls)]
        total = booked(reader, SpendingCap("run:r", None), NOW[:10])[0]
        states = [row[0] for row in reader.execute("select state from attempt order by id")]
        reader.close()
    await provider.aclose()  # type: ignore[attr-defined]  # every online adapter has it
    return ended, total, states


async def test_what_is_charged_is_booked_to_the_cent(
    loopback: LoopbackServer, tmp_path: Path
) -> None:
    ended, total, states = await spend(loopback, tmp_path / "results.db", 5)
    assert ended == ["The an"] * 5
    assert total == loopback.ledger_total() > 0
    assert states == ["settled"] * 5


async def test_in_a_storm_nothing_is_lost_and_nothing_is_under_booked(
    loopback: LoopbackServer, tmp_path: Path
) -> None:
    loopback.script = list(STORM)
    ended, total, states = await spend(loopback, tmp_path / "results.db", 5)
    assert ended == ["The an"] * 5
    unclear, refused = ["unknown"] * 2, ["released"]
    first, second = [*refused, *unclear, *refused, "settled"], ["unknown", "settled"]
    assert states == [*first, *second, *["settled"] * 3]
    assert total >= loopback.ledger_total()


@pytest.mark.parametrize(
    ("fault", "kind", "made"),
    [
        (rule(status=401), "INVALID_KEY", ["released"]),
        (rule(status=400, body={"error": {"code": "insufficient_quota"}}), "QUOTA", ["released"]),
        (rule(do="html"), "BAD_RESPONSE", ["unknown", "unknown"]),
    ],
)
async def test_a_final_failure_is_made_once_and_a_garbled_reply_asked_for_twice(
    loopback: LoopbackServer, tmp_path: Path, fault: Rule, kind: str, made: list[str]
) -> None:
    loopback.script = [fault]
    ended, total, states = await spend(loopback, tmp_path / "results.db", 1)
    assert (ended, states, len(loopback.requests)) == ([kind], made, len(made))
    assert total >= loopback.ledger_total()
    assert (total == 0) is ("unknown" not in made)


async def test_many_calls_at_once_are_all_booked(loopback: LoopbackServer, tmp_path: Path) -> None:
    loopback.script = [rule(number=tuple(range(1, 60, 7)), do="close")]
    entry = f"{{provider: openai_compatible, model: m, base_url: '{loopback.openai_url}'}}"
    provider = provider_for(model(entry), environ={})
    with Writer(tmp_path / "results.db") as writer:
        reader = open_reader(tmp_path / "results.db")
        budget = RunBudget(
            writer, "r", "me", ("run:r",), (), lambda: NOW, lambda owner: owner == "me"
        )
        budgeted = Budgeted(provider, budget, model="m", phase="generate", price=PRICE)
        limits = ClientLimits(concurrency=20, attempts=5)
        client = build_client(budgeted, limits, FakeTime().clock(), reader, "")
        answers = await asyncio.gather(*(client.answer(ask(str(n))) for n in range(60)))
        total = booked(reader, SpendingCap("run:r", None), NOW[:10])[0]
        reader.close()
    await provider.aclose()  # type: ignore[attr-defined]  # every online adapter has it
    assert len(answers) == 60
    assert total >= loopback.ledger_total()
    assert loopback.peak <= 20
