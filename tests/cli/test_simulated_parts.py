"""A run is called simulated only in the parts that were."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.store.runs import simulation_label
from tests.loopback.server import LoopbackServer

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


@pytest.mark.parametrize(
    ("answers", "judges", "label"),
    [
        ({"a": True}, {"j": True}, "simulated"),
        ({"a": True}, {}, "simulated"),
        ({"a": False}, {"j": True}, "simulated judge"),
        ({"a": False}, {"j": True, "k": True}, "simulated judges"),
        ({"a": False}, {"j": True, "k": False}, "simulated judges of j"),
        ({"a": True}, {"j": False}, "simulated answers"),
        ({"a": True, "b": False}, {"j": True}, "simulated answers of a and judge"),
        ({}, {"j": True}, "simulated judge"),
        ({"a": False}, {"j": False}, ""),
    ],
)
def test_the_label_names_the_parts(
    answers: dict[str, bool], judges: dict[str, bool], label: str
) -> None:
    models = {"answers": answers, "judges": judges}
    assert simulation_label({part: known for part, known in models.items() if known}) == label


def test_real_answers_with_a_simulated_judge_are_not_called_simulated(
    edison: Edison, repo: Folder
) -> None:
    with LoopbackServer([]) as server:
        repo.write(
            "models.yaml",
            f"small: {{provider: openai_compatible, model: m, base_url: '{server.openai_url}', "
            "price: {in: 1, out: 2}}\n"
            "judge: {provider: sim, model: judge, price: {in: 1, out: 1}}\n",
        )
        done = edison(repo, "run")
        assert done.err.splitlines()[0].endswith("  simulated judge")
        assert "hello  COMPLETED  simulated judge\n" in done.out
        (run,) = json.loads(edison(repo, "status", "latest", "--json").out)["runs"]
        assert (run["simulated"], run["simulated_parts"]) == (True, ["judges"])
        assert "(simulated judge)" in edison(repo, "status").out
        text = edison(repo, "report").out
        assert "> **Simulated judge.** The answers are real; the judge is simulated" in text
        assert "Answers and grades come from a simulator" not in text
        page = edison(repo, "report", "--format", "html").out
        assert "<strong>Simulated judge.</strong>" in page
        assert '"simulated judge"' in edison(repo, "report", "--format", "sarif").out
        tried = edison(repo, "try", "hello", "--case", "bo")
        assert tried.out.splitlines()[0].endswith("  simulated judge")
        costs = json.loads(edison(repo, "costs", "--by", "model", "--json").out)
        paid = {row["key"]: row["simulated_microusd"] for row in costs["rows"]}
        assert paid["small"] == 0 < paid["judge"]
        regraded = json.loads(edison(repo, "regrade", "latest", "--json").out)["runs"][0]
        assert regraded["simulated_parts"] == ["judges"]
        assert server.chats > 0
