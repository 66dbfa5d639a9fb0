"""recommend and costs: answers that are reused count at the prices of now."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

MODELS = (
    "small: {{provider: sim, model: small, price: {{in: {0}, out: {0}}}}}\n"
    "large: {{provider: sim, model: large, price: {{in: {1}, out: {1}}}}}\n"
    "judge: {{provider: sim, model: judge, price: free}}\n"
)


@pytest.fixture
def bought(edison: Edison, mini: Folder) -> Folder:
    """A project whose answers were bought when small was cheap."""
    mini.write("models.yaml", MODELS.format(1, 10))
    mini.edit("experiments/hello.yaml", "models: [small]", "models: [small, large]")
    done = edison(mini, "run", "-q")
    assert done.code == 0, done.all
    return mini


def costs_of(edison: Edison, folder: Folder) -> dict[str, tuple[float, float, str]]:
    (advice,) = json.loads(edison(folder, "leaderboard", "--recommend", "--json").out)[
        "experiments"
    ]
    return {
        one["name"]: (one["answer_cost_microusd"], one["answer_paid_microusd"], one["prices"])
        for one in advice["models"]
    }


def test_models_are_compared_at_the_prices_of_now(edison: Edison, bought: Folder) -> None:
    before = costs_of(edison, bought)
    assert before["small"][0] == before["small"][1] < before["large"][0]
    assert "Costs are at the current prices." in edison(bought, "leaderboard", "--recommend").out
    bought.write("models.yaml", MODELS.format(100, 10))
    edison(bought, "run", "-q")
    after = costs_of(edison, bought)
    assert after["small"][1] == before["small"][1], "what was paid stays"
    assert after["small"][0] == 100 * before["small"][0] > after["large"][0]
    assert after["large"] == before["large"]
    said = edison(bought, "leaderboard", "--recommend").out
    assert "Costs are at the current prices; paid were, for an answer: small $" in said


@pytest.mark.parametrize(
    ("before", "after"),
    [("model: small,", "model: large,"), ("small: {provider", "smaller: {provider")],
    ids=["another model of that name", "no such model"],
)
def test_a_model_that_is_another_one_now_keeps_what_was_paid(
    edison: Edison, bought: Folder, before: str, after: str
) -> None:
    paid = costs_of(edison, bought)["small"]
    bought.edit("models.yaml", "price: {in: 1, out: 1}", "price: {in: 100, out: 100}")
    bought.edit("models.yaml", before, after)
    bought.edit("experiments/hello.yaml", "models: [small, large]", "models: [large]")
    assert costs_of(edison, bought)["small"] == (paid[1], paid[1], "paid")
    assert "of small as they were paid" in edison(bought, "leaderboard", "--recommend").out


def saved(edison: Edison, folder: Folder, by: str) -> dict[str, Any]:
    document = json.loads(edison(folder, "costs", "--by", by, "--json").out)
    assert document["total"]["saved_microusd"] == sum(
        row["saved_microusd"] for row in document["rows"]
    )
    return {row["key"]: row["saved_microusd"] for row in document["rows"]}


def test_reuse_saves_what_the_calls_would_cost_now(edison: Edison, bought: Folder) -> None:
    edison(bought, "run", "-q")
    before = saved(edison, bought, "model")
    assert before["small"] > 0
    bought.write("models.yaml", MODELS.format(100, 10))
    after = saved(edison, bought, "model")
    assert after == {**before, "small": 100 * before["small"]}
    assert saved(edison, bought, "experiment") == {"hello": sum(after.values())}
    assert list(saved(edison, bought, "day").values()) == [sum(after.values())]
    assert "at the current prices" in edison(bought, "costs").out
