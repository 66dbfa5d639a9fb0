"""Trials that stop when it is clear: sampled cases, and candidates that another one outdoes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.holdout import holdout_of
from edison_ci.config.load import load_project
from edison_ci.records import SuggestionStatus
from tests.features.refine.workbench import SHOUT, WELCOME, Museum, greeting, project, reply

if TYPE_CHECKING:
    from edison_ci.records import Request
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 120


@pytest.fixture
def museum(folder: Folder) -> Folder:
    return project(folder, cases=CASES)


@pytest.fixture
def sampled(museum: Folder) -> Folder:
    museum.edit("experiments/hello.yaml", "refine: {", "stop: {adaptive_sampling: true}\nrefine: {")
    return museum


def parts(folder: Folder) -> Counter[bool]:
    """Return how many training (False) and held-out cases (True) there are."""
    loaded = load_project(folder.path)
    experiment = loaded.experiments["hello"]
    return Counter(map(holdout_of(loaded, experiment).has, loaded.cases(experiment)))


def asked_with(museum: Museum, words: str) -> int:
    """Return how many calls had a prompt with these words."""
    return sum(words in request.messages[-1].content for request in museum.greeter.asked)


def test_a_clear_gain_stops_the_training_cases_and_is_verified_on_all_others(
    sampled: Folder,
) -> None:
    bench = Museum(sampled, [reply(WELCOME)])
    (one,) = bench.refine().suggestions
    training, held = parts(sampled)[False], parts(sampled)[True]
    assert one.status is SuggestionStatus.PROPOSED
    train, holdout = one.evidence["train"], one.evidence["holdout"]
    assert (train["n"], holdout["n"]) == (20, held), "one batch was enough"
    assert one.evidence["sampling"] == {"measured": 20, "planned": training, "clear": True}
    assert train["difference"]["method"] == "sequential test (e-values), valid at every look"
    assert 0 < train["difference"]["p_gain"] <= 0.1
    assert train["difference"]["low"] < 0.5 < train["difference"]["high"]
    assert holdout["difference"]["estimate"] == 0.5
    said = f"Stopped after 20 of {training} cases for training: already clear"
    assert said in one.evidence["sentence"]
    assert asked_with(bench, WELCOME) == 20 + held


def test_a_clear_loss_costs_one_batch_and_no_held_out_case(sampled: Folder) -> None:
    bench = Museum(sampled, [reply(SHOUT)])
    (one,) = bench.refine().suggestions
    assert (one.status, one.reason) == (SuggestionStatus.TRIED, "no gain on the training cases")
    assert one.evidence["train"]["decision"] == "worse"
    assert one.evidence["holdout"] is None
    assert asked_with(bench, SHOUT) == 20
    assert one.evidence["sentence"].startswith("The unseen cases were not measured; -50.0 points")
    assert "Improvement not verified" not in one.evidence["sentence"]


def test_an_unclear_change_takes_all_training_cases_and_no_others(sampled: Folder) -> None:
    bench = Museum(sampled, [reply("Smile a little.")])
    (one,) = bench.refine().suggestions
    training = parts(sampled)[False]
    assert (one.status, one.evidence["train"]["n"]) == (SuggestionStatus.TRIED, training)
    assert one.evidence["sampling"] == {"measured": training, "planned": training, "clear": False}
    assert asked_with(bench, "Smile") == training


def test_a_gain_that_only_all_cases_show_is_accepted_at_half_of_the_error(sampled: Folder) -> None:
    """Six cases of 70 gain: the e-values do not see it, the exact test on all of them does."""
    bench = Museum(sampled, [reply(WELCOME)])
    lucky = {f"Visitor{n}" for n in range(0, CASES, 10)}

    def answer(request: Request) -> str:
        said = greeting(request)
        name = said.partition("Hello ")[2].partition(".")[0]
        return said if name in lucky else said.removesuffix(" Welcome.")

    bench.greeter.answer = answer
    (one,) = bench.refine().suggestions
    train = one.evidence["train"]
    gained = len(train["fixed"])
    assert 5 <= gained <= 12
    assert train["difference"]["p_gain"] == pytest.approx(2 * 0.5**gained)
    assert one.evidence["sampling"]["clear"] is False
    assert one.status is SuggestionStatus.PROPOSED
    assert one.evidence["holdout"] is not None


def test_a_repeated_command_takes_the_same_cases(sampled: Folder) -> None:
    Museum(sampled, [reply(SHOUT)]).refine()
    again = Museum(sampled, [reply(SHOUT)])
    again.refine(force=True)
    assert again.greeter.asked == [], "everything is stored"


def test_without_the_setting_every_case_is_measured(museum: Folder) -> None:
    bench = Museum(museum, [reply(SHOUT)])
    (one,) = bench.refine().suggestions
    assert asked_with(bench, SHOUT) == CASES
    assert one.evidence["sampling"] is None


# --- several candidates ---------------------------------------------------------------------------


def test_a_candidate_that_another_one_outdoes_is_not_measured_further(museum: Folder) -> None:
    bench = Museum(museum, [reply(SHOUT, note="Louder."), reply(WELCOME)])
    first, second = bench.refine(candidates=2).suggestions
    training = parts(museum)[False]
    half = -(-training // 2)
    assert (first.status, second.status) == (SuggestionStatus.PROPOSED, SuggestionStatus.TRIED)
    assert asked_with(bench, WELCOME) == CASES
    assert asked_with(bench, SHOUT) == half
    reason = f"another candidate is better by 100 points on {half} training cases "
    reason += "(two-sided p < 0.001 for any difference)"
    assert second.reason == reason
    assert second.evidence["train"]["n"] == half
    assert second.evidence["holdout"] is None
    assert f"comparing 2 candidates on {half} training cases" in bench.steps
    assert second.cost_microusd > 0


def test_equal_candidates_are_both_measured_to_the_end(museum: Folder) -> None:
    bench = Museum(museum, [reply("Smile."), reply("Nod a little.")])
    bench.refine(candidates=2)
    assert asked_with(bench, "Smile.") == asked_with(bench, "Nod") == CASES


def test_pruning_can_be_switched_off(museum: Folder) -> None:
    stop = "stop: {prune_weak_prompts: false}\nrefine: {"
    museum.edit("experiments/hello.yaml", "refine: {", stop)
    bench = Museum(museum, [reply(SHOUT, note="Louder."), reply(WELCOME)])
    bench.refine(candidates=2)
    assert asked_with(bench, SHOUT) == CASES


def test_with_few_cases_there_is_one_look(folder: Folder) -> None:
    small = project(folder, cases=40)
    bench = Museum(small, [reply(SHOUT, note="Louder."), reply(WELCOME)])
    bench.refine(candidates=2)
    assert asked_with(bench, SHOUT) == parts(small)[False]
