"""The benchmark of refining measures what it says: a true gain on cases that were held out."""

from __future__ import annotations

from benchmarks.refining import METHODS, TEMPLATES, Outcome, bench_in, outcome, project, table


def test_a_template_is_refined_and_its_true_gain_measured() -> None:
    found = outcome("customer-support", 3, "refine")
    assert found.accepted
    assert found.low > 0
    assert found.calls > 200


def test_a_seed_changes_models_and_holdout() -> None:
    for template in TEMPLATES:
        with project(template, 7) as folder:
            subject = bench_in(folder).subject
            assert subject.experiment.file.split is not None
            assert subject.experiment.file.split.seed == 7
            models = [subject.project.models[name] for name in ("small", "judge", "refiner")]
            assert {model.options["seed"] for model in models} == {7}


def test_nothing_gains_nothing() -> None:
    assert [*METHODS] == ["refine"]
    rows = table([Outcome("t", seed, "refine", seed > 0, 0.1 * seed, 0, 0, 9) for seed in (0, 1)])
    assert "| t | refine | 1 of 2 | 1 of 2 | +5.0 | +0.0 | +10.0 | 9 |" in rows
