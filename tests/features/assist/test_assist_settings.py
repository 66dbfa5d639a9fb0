"""edison assist models, judges and limits: proposals that are checked against facts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.screen import OnTty
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

EXPERIMENT = "experiments/support-reply.yaml"
STOP = {
    "max_iterations": 6,
    "min_delta": 0.02,
    "window": 2,
    "alert_at": 0.8,
    "prune_weak_prompts": True,
    "stop_if_no_refinement": True,
    "adaptive_sampling": False,
    "reason": "Six rounds are enough.",
}


def told(edison: Edison, folder: Folder, *words: str) -> dict[str, Any]:
    done = edison(folder, "assist", *words, "--json")
    assert done.code == 0, done.all
    found: dict[str, Any] = json.loads(done.out)
    return found


def models(**chosen: str) -> str:
    rows = [{"role": role, "model": name, "reason": "It fits."} for role, name in chosen.items()]
    return json.dumps({"models": rows})


def panel(*names: str, combine: str = "mean", pairwise: str = "") -> str:
    rows = [{"model": name, "reason": "It is strict."} for name in names]
    return json.dumps({"judges": rows, "combine": combine, "pairwise": pairwise})


def limits(**changed: object) -> str:
    return json.dumps({**STOP, **changed})


@pytest.fixture
def over_http(support: Folder) -> Iterator[LoopbackServer]:
    """A model that answers over HTTP what the script says."""
    with LoopbackServer([]) as server:
        address = f"base_url: '{server.openai_url}', price: {{in: 9, out: 9}}"
        entry = f"\ndrafts: {{provider: openai_compatible, model: m, {address}}}\n"
        support.write("models.yaml", support.read("models.yaml") + entry)
        support.edit("edison.yaml", "refiner: refiner", "refiner: refiner\n  assistant: drafts")
        yield server


@pytest.fixture
def with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-one")


def test_simulated_models_are_proposed_where_no_other_can_be_reached(
    edison: Edison, support: Folder
) -> None:
    before = support.read(EXPERIMENT)
    found = told(edison, support, "models", "--yes")
    assert found["written"] is True
    assert found["drafts"][0]["notes"][0].startswith("fast: small (simulated, free). ")
    assert support.read(EXPERIMENT) == before.replace(
        "models: [small]                          #", "models: [small, large]                   #"
    ), "the rest of the file stays as it was"
    assert edison(support, "validate").code == 0
    with opened(support.path / ".edison/results.db") as connection:
        rows = connection.execute("select action, entity from audit").fetchall()
    assert rows == [("assist", EXPERIMENT)]


def test_models_of_a_vendor_with_a_key_are_added_and_expensive_ones_left_out(
    edison: Edison, support: Folder, over_http: LoopbackServer, with_key: None
) -> None:
    chosen = models(fast="openai/gpt-5-nano", smart="openai/gpt-5")
    over_http.script[:] = [rule(text=chosen)]
    found = told(edison, support, "models", "--yes")
    asked = over_http.requests[0].body.decode()
    assert "openai/gpt-5-nano: $0.000225 per 1K tokens" in asked
    assert "o3-pro" not in asked
    assert "openai/o3-pro" in found["too_expensive"]
    assert "smollm" not in support.read("models.yaml")
    assert "models: [gpt-5-nano, gpt-5]" in support.read(EXPERIMENT)
    added = "\ngpt-5:\n  provider: openai\n  model: gpt-5\n  key_env: OPENAI_API_KEY\n"
    assert support.read("models.yaml").endswith(added)
    assert "sk-not" not in support.read("models.yaml")
    assert edison(support, "validate").code == 0
    said = edison(support, "assist", "models")
    assert "not proposed, above $0.01 per 1K tokens: " in said.err


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (models(fast="openai/gpt-5"), "1 models; 2 to 3"),
        (models(fast="openai/gpt-99", smart="openai/gpt-5"), "'openai/gpt-99' is not one of"),
        (models(fast="openai/o3-pro", smart="openai/gpt-5"), "'openai/o3-pro' is not one of"),
        (models(fast="small", smart="large"), "'small' is not one of the models"),
        (models(fast="openai/gpt-5", smart="openai/gpt-5-nano"), "smart model costs less"),
        (models(fast="openai/gpt-5", smart="openai/gpt-5"), "a model is there twice"),
        (models(quick="openai/gpt-5-nano", smart="openai/gpt-5"), "'quick' is none of fast"),
        ("gpt-5 is what I would take.", "holds no JSON object with 'models'"),
    ],
)
def test_models_that_do_not_fit_the_facts_are_refused(
    edison: Edison,
    support: Folder,
    over_http: LoopbackServer,
    with_key: None,
    bad: str,
    reason: str,
) -> None:
    before = support.read(EXPERIMENT), support.read("models.yaml")
    over_http.script[:] = [rule(text=bad)]
    done = edison(support, "assist", "models", "--yes")
    assert (done.code, reason in done.err) == (3, True), done.err
    assert len(over_http.requests) == 2, "it was asked once more"
    assert (support.read(EXPERIMENT), support.read("models.yaml")) == before


def test_too_few_models_are_an_error_that_says_what_to_do(edison: Edison, support: Folder) -> None:
    lines = support.read("models.yaml").replace("large: {provider: sim, model: large}\n", "")
    support.write("models.yaml", lines + "\nbig: {provider: openai, model: gpt-5}\n")
    support.edit("models.yaml", "model: gpt-5}", "model: gpt-5, key_env: OPENAI_API_KEY}")
    done = edison(support, "assist", "models")
    assert done.code == 2
    assert "too few models can be reached: 1 of 2 that generate" in done.err
    assert "not proposed, key not set: big" in done.err


def test_judges_by_the_simulator_score_a_case_with_reasons(edison: Edison, support: Folder) -> None:
    support.write(
        "models.yaml",
        support.read("models.yaml")
        + "\nstern: {provider: sim, model: judge, options: {seed: 7}}\n",
    )
    before = support.read(EXPERIMENT)
    done = edison(support, "assist", "judges", "--try", "return-how")
    assert done.code == 0, done.all
    assert "+  pointwise: [judge, stern]              # two or more" in done.out
    assert "case return-how, answered by small (simulated):" in done.out
    assert "judge (simulated): " in done.out
    assert "stern (simulated): " in done.out
    assert "  Helpfulness: 100.0  names 'kettlecrag.example/returns'" in done.out
    assert support.read(EXPERIMENT) == before
    found = told(edison, support, "judges", "--try", "return-how", "--yes")
    first = found["tried"]["judges"][0]
    assert [row["name"] for row in first["criteria"]] == [
        "Helpfulness",
        "Empathy",
        "Accuracy",
        "Conciseness",
    ]
    weights = (0.35, 0.25, 0.25, 0.15)
    mean = sum(w * row["score"] for w, row in zip(weights, first["criteria"], strict=True))
    assert first["score"] == pytest.approx(mean)
    assert "pointwise: [judge, stern]" in support.read(EXPERIMENT)
    assert edison(support, "validate").code == 0
    unknown = edison(support, "assist", "judges", "--try", "return-hwo")
    assert (unknown.code, "return-how" in unknown.err) == (2, True)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (panel(), "judges is not a list of 1 to 5 models"),
        (panel(*["drafts"] * 6), "judges is not a list of 1 to 5 models"),
        (panel("small"), "'small' is not one of the models"),
        (panel("drafts", "drafts"), "a judge is there twice"),
        (panel("drafts", combine="median"), "median needs 3 judges, and there are 1"),
        (panel("drafts", combine="best"), "combine is none of mean, median, trimmed"),
        (panel("drafts", pairwise="nobody"), "'nobody' is not one of the models"),
    ],
)
def test_judges_that_do_not_fit_are_refused(
    edison: Edison, support: Folder, over_http: LoopbackServer, bad: str, reason: str
) -> None:
    before = support.read(EXPERIMENT)
    over_http.script[:] = [rule(text=bad)]
    done = edison(support, "assist", "judges", "--yes")
    assert (done.code, reason in done.err) == (3, True), done.err
    assert support.read(EXPERIMENT) == before


def test_a_pairwise_judge_is_written_below_the_others(
    edison: Edison, support: Folder, over_http: LoopbackServer
) -> None:
    over_http.script[:] = [rule(text=panel("drafts", pairwise="drafts"))]
    told(edison, support, "judges", "--yes")
    assert "  pointwise: [drafts]" in support.read(EXPERIMENT)
    assert "\n  pairwise: {by: drafts}\n" in support.read(EXPERIMENT)


def test_an_experiment_without_a_rubric_has_no_use_for_judges(
    edison: Edison, support: Folder
) -> None:
    support.edit(EXPERIMENT, "rubric: rubrics/support-reply.yaml\n", "")
    support.edit(EXPERIMENT, "judges:\n  pointwise: [judge]", "")
    done = edison(support, "assist", "judges")
    assert done.code == 2
    assert "has no rubric that judges could score" in done.err


def test_stop_rules_of_free_models_keep_the_budget(edison: Edison, support: Folder) -> None:
    found = told(edison, support, "limits", "--yes")
    assert "stop: {max_iterations: 8, budget_usd: 5, window: 2}\n" in support.read(EXPERIMENT)
    assert "the models are free, so the budget stays as it is" in found["drafts"][0]["notes"]
    again = told(edison, support, "limits", "--yes")
    assert (again["diff"], again["written"]) == ("", False)


def test_the_budget_follows_from_the_plan_and_not_from_the_model(
    edison: Edison, support: Folder, over_http: LoopbackServer
) -> None:
    support.edit(EXPERIMENT, "models: [small] ", "models: [drafts]")
    over_http.script[:] = [rule(text=limits(budget_usd=1_000_000))]
    told(edison, support, "limits", "--yes")
    plan = json.loads(edison(support, "plan", "--loop", "--json").out)["experiments"][0]
    assert plan["iterations"]["high"] == 6
    most = plan["cost_microusd"]["high"] / 1_000_000
    assert most > 2
    budget = float(support.read(EXPERIMENT).split("budget_usd: ")[1].split(",")[0])
    assert most <= budget <= max(1, 1.5 * most + 0.1)
    tokens = int(support.read(EXPERIMENT).split("max_total_tokens: ")[1].split("}")[0])
    assert plan["tokens"]["high"] <= tokens <= 1.5 * plan["tokens"]["high"] + 10_000


def test_a_loop_that_the_project_cannot_pay_is_refused(
    edison: Edison, support: Folder, over_http: LoopbackServer
) -> None:
    support.edit(EXPERIMENT, "models: [small] ", "models: [drafts]")
    support.edit("edison.yaml", "budget_usd: 5 ", "budget_usd: 2")
    before = support.read(EXPERIMENT)
    over_http.script[:] = [rule(text=limits(max_iterations=100))]
    done = edison(support, "assist", "limits", "--yes")
    assert (done.code, support.read(EXPERIMENT)) == (3, before)
    assert "100 iterations may cost $" in done.err
    assert "and the budget of the project is $2" in done.err
    asked = over_http.requests[0].body.decode()
    room = int(asked.split("room for at most ")[1].split(" ")[0])
    over_http.script[:] = [rule(text=limits(max_iterations=room))]
    assert edison(support, "assist", "limits", "--yes").code == 0, "as many as it was told"
    assert edison(support, "assist", "limits", "--by", "refiner").code == 0, "so does the simulator"
    support.edit("edison.yaml", "budget_usd: 2", "budget_usd: 0.01")
    done = edison(support, "assist", "limits")
    assert (done.code, "one iteration may cost $" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (limits(max_iterations=0), "max_iterations is not a number from 1 to 100"),
        (limits(max_iterations=2.5), "max_iterations is not a whole number"),
        (limits(window=7), "window is 7, and there are 6 iterations"),
        (limits(min_delta=2), "min_delta is not a number from 0 to 1"),
        (limits(alert_at=True), "alert_at is not a number from 0.5 to 1"),
        (limits(adaptive_sampling="yes"), "adaptive_sampling is neither true nor false"),
        (limits(reason=""), "reason has 0 characters"),
    ],
)
def test_stop_rules_that_do_not_fit_are_refused(
    edison: Edison, support: Folder, over_http: LoopbackServer, bad: str, reason: str
) -> None:
    over_http.script[:] = [rule(text=bad)]
    done = edison(support, "assist", "limits", "--yes")
    assert (done.code, reason in done.err) == (3, True), done.err


def test_a_proposal_is_edited_and_accepted_on_a_terminal(support: Folder) -> None:
    support.write("edit.sh", 'sed -i "s/window: 2/window: 4/" "$1"\n')
    support.write("spoil.sh", 'sed -i "s/window: 2/window: 44/" "$1"\n')
    env = {"EDITOR": "sh spoil.sh", "VISUAL": ""}
    with OnTty(support.path, "assist", "limits", size=(90, 60), env=env) as tty:
        tty.until(lambda text: "a accepts" in text)
        tty.press(b"e\n")
        tty.until(lambda text: "window is 44; at most 10" in text)
        tty.press(b"d\n")
        assert tty.end() == 0
    assert "window" not in support.read(EXPERIMENT)
    env = {"EDITOR": "sh edit.sh", "VISUAL": ""}
    with OnTty(support.path, "assist", "limits", size=(90, 60), env=env) as tty:
        tty.until(lambda text: "a accepts" in text)
        tty.press(b"e\n")
        tty.until(lambda text: f"Change {EXPERIMENT}?" in text)
        tty.press(b"y\n")
        assert tty.end() == 0
    assert "max_iterations: 8, budget_usd: 5, window: 4}" in support.read(EXPERIMENT)
