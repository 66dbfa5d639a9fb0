"""Answers whose provider reports no usage: tokens are counted here and marked as estimated."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.store.database import open_reader
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

ANSWER = "Hello dear Ada and Bo, how are you today?"
COUNTED = 11
"""Tokens of that answer in o200k_base."""
EXPERIMENT = (
    "experiment: hello\nobjective: Greet people by their name.\n"
    "prompts: [prompts/hello.md]\nmodels: [small]\ndataset: datasets/names.jsonl\n"
    "checks:\n  - contains: Hello\n  - tokens: {max: 30}\n"
)


@pytest.fixture
def server(mini: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    monkeypatch.setenv("VENDOR_KEY", "k-123456789012")
    with LoopbackServer([rule(text=ANSWER, usage=None)]) as server:
        trusted = f"version: 1\nkeys:\n  - {{env: VENDOR_KEY, hosts: ['{server.url}']}}\n"
        mini.write(".edison/trust.yaml", trusted)
        mini.write("experiments/hello.yaml", EXPERIMENT)
        yield server


def ran(edison: Edison, folder: Folder, server: LoopbackServer, model: str) -> dict[str, Any]:
    at = f"base_url: '{server.openai_url}', key_env: VENDOR_KEY, price: {{in: 1, out: 10}}"
    folder.write("models.yaml", f"small: {{{model}, {at}}}\n")
    done = edison(folder, "run", "--json")
    (run,) = json.loads(done.out)["runs"]
    assert run["status"] == "COMPLETED", done.all
    return dict(run)


def rows(folder: Folder) -> list[tuple[Any, ...]]:
    with contextlib.closing(open_reader(folder.path / ".edison/results.db")) as reader:
        return reader.execute(
            "select a.cost_kind, a.tokens_in, a.tokens_out, a.cost_microusd, t.cost_microusd, "
            "t.est_microusd from answer a join attempt t on t.id = a.attempt"
        ).fetchall()


@pytest.mark.parametrize(
    ("model", "tokens_out"),
    [
        ("provider: openai, model: gpt-4.1", COUNTED + 4 + 3),
        ("provider: openai_compatible, model: any", -(-len(ANSWER) // 4) + 4),
    ],
    ids=["tokenizer", "about four bytes a token"],
)
def test_tokens_are_counted_and_the_budget_keeps_what_was_reserved(
    edison: Edison, mini: Folder, server: LoopbackServer, model: str, tokens_out: int
) -> None:
    run = ran(edison, mini, server, model)
    assert run["calls"]["estimated"] == 2
    found = rows(mini)
    for kind, read, written, cost, charged, reserved in found:
        assert (kind, written, cost) == ("estimated", tokens_out, read + 10 * tokens_out)
        assert cost < charged == reserved, "the true cost is not known"
    assert run["cost_microusd"] == sum(row[4] for row in found)
    assert edison(mini, "admin", "db", "check").code == 0


def test_costs_say_that_the_tokens_are_estimated(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    ran(edison, mini, server, "provider: openai, model: gpt-4.1")
    total = json.loads(edison(mini, "costs", "--json").out)["total"]
    found = rows(mini)
    assert total["estimated"] == 2
    assert total["estimated_microusd"] == sum(row[4] for row in found)
    assert (total["tokens_in"], total["tokens_out"]) == (
        sum(row[1] for row in found),
        sum(row[2] for row in found),
    )
    assert "for 2 answers without usage; their tokens are estimated" in edison(mini, "costs").out
    assert "estimated" in edison(mini, "explain", "ada@small").all


def test_models_are_compared_by_the_estimate_and_not_by_the_reservation(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    ran(edison, mini, server, "provider: openai, model: gpt-4.1")
    (advice,) = json.loads(edison(mini, "leaderboard", "--recommend", "--json").out)["experiments"]
    (small,) = advice["models"]
    assert small["estimated_answers"] == 2
    assert small["answer_cost_microusd"] == sum(row[3] for row in rows(mini)) / 2


def test_a_usage_in_the_reply_is_not_counted_again(
    edison: Edison, mini: Folder, server: LoopbackServer
) -> None:
    server.script[:] = [rule(text=ANSWER)]
    run = ran(edison, mini, server, "provider: openai, model: gpt-4.1")
    assert run["calls"]["estimated"] == 0
    assert {row[0] for row in rows(mini)} == {"billed"}
    assert run["cost_microusd"] == sum(row[3] for row in rows(mini))
