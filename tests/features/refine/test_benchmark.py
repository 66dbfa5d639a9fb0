"""The benchmark of refining measures what it says: a true gain on cases that were held out."""

from __future__ import annotations

import asyncio
import json

import pytest

from benchmarks import refining
from benchmarks.refining import (
    METHODS,
    TEMPLATES,
    Aimless,
    Outcome,
    bench_in,
    outcome,
    page,
    project,
    seeds_of,
    table,
)
from edison_ci.features.refine.refiner import RefinePrompt, refiner_of
from edison_ci.features.refine.search import SearchLimits
from edison_ci.features.refine.weaknesses import WeakComponent, Weakness
from edison_ci.proposals.guardrails import GuardrailContext, check_diff

pytestmark = pytest.mark.daily


@pytest.mark.nightly
def test_a_template_is_refined_and_its_true_gain_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refining, "REPEATS", 2)
    found = outcome("customer-support", 3, "refine")
    assert found.accepted
    assert found.low > 0
    assert found.calls > 200


def test_a_seed_changes_models_and_holdout() -> None:
    for template in TEMPLATES:
        with project(template, 7) as folder:
            target = bench_in(folder).target
            assert target.experiment.file.split is not None
            assert target.experiment.file.split.seed == 7
            models = [target.project.models[name] for name in ("small", "judge", "refiner")]
            assert {model.options["seed"] for model in models} == {7}


@pytest.mark.nightly
def test_a_search_gains_on_answers_that_it_did_not_choose_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refining, "REPEATS", 2)
    monkeypatch.setattr(refining, "REACH", SearchLimits(population=2, generations=1))
    found = outcome("customer-support", 3, "optimize")
    assert found.accepted
    assert found.low > 0.1
    seeds = []
    for own in (None, 1003):
        with project("customer-support", 3, models_seed=own) as folder:
            seeds.append(bench_in(folder).target.project.models["small"].options["seed"])
    assert seeds == [3, 1003]


def test_aimless_edits_keep_the_guardrails_so_that_they_are_tried() -> None:
    for template in TEMPLATES:
        with project(template, 0) as folder:
            target = bench_in(folder).target
            model = target.project.models["refiner"]
            weakness = Weakness((WeakComponent("quality", "criterion", 0.5),), (), 9)
            question = RefinePrompt(target, refiner_of(model), weakness)
            for repeat in range(4):
                said = asyncio.run(Aimless(model).complete(question.request(repeat)))
                diff = json.loads(said.text)["diff"]
                assert check_diff(target, diff, "n", GuardrailContext()).ok


def test_nothing_gains_nothing() -> None:
    assert [*METHODS] == ["optimize", "refine", "random edits", "nothing"]
    assert outcome("customer-support", 0, "nothing").gain == 0
    found = [Outcome("t", seed, "refine", seed > 0, 0.1 * seed, 0, 0, 9) for seed in (0, 1)]
    assert "| t | refine | 1 of 2 | 1 of 2 | +5.0 | +0.0 | +10.0 | 9 |" in table(found)
    assert "## Seeds 0 to 9" in page(found)
    assert "## Seeds 10 to 19" not in page(found)
    wider = [Outcome("t", seed, "optimize", True, 0.2, 0, 0, 27) for seed in (0, 1)]
    said = "in 2 of 2 pairs of template and seed, +15.0 points on average, for 3.0 times the calls"
    assert said in page([*found, *wider])
    assert [*seeds_of("10-12"), *seeds_of("2")] == [10, 11, 12, 0, 1]
