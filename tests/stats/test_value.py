"""Best value: fronts, non-inferiority to the best, and the cheapest that is as good."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.stats.gates import worst_plausible_change
from edison_ci.stats.value import Contender, pareto_front, recommend
from edison_ci.stats.verdicts import GateRule

POINT = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


def test_a_point_is_off_the_front_when_another_is_better_everywhere() -> None:
    points = [(0.9, 10.0, 1.0), (0.8, 1.0, 1.0), (0.7, 5.0, 2.0), (0.8, 1.0, 1.0)]
    assert pareto_front(points) == (True, True, False, True)


def test_an_unknown_latency_is_not_compared() -> None:
    assert pareto_front([(0.9, 1.0, None), (0.8, 2.0, 0.1)]) == (True, False)
    assert pareto_front([(0.9, 1.0, 5.0), (0.8, 2.0, 0.1)]) == (True, True)


@settings(deadline=None)
@given(st.lists(POINT, min_size=1, max_size=8))
def test_there_is_always_a_front(points: list[tuple[int, int, int]]) -> None:
    floats: list[tuple[float, float, float | None]] = [
        (float(a), float(b), float(c)) for a, b, c in points
    ]
    front = pareto_front(floats)
    assert any(front)
    best = max(floats, key=lambda p: (p[0], -p[1], -(p[2] or 0)))
    assert front[floats.index(best)]


def scores(n: int = 150) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.default_rng(1).beta(8, 2, n)


def test_the_cheapest_model_that_is_as_good_is_recommended() -> None:
    best = scores()
    close = np.clip(best - 0.005 + np.random.default_rng(2).normal(0, 0.02, 150), 0, 1)
    models = [
        Contender("large", best, 10.0, [2.0] * 80),
        Contender("small", close, 1.2, [1.0] * 80),
        Contender("tiny", np.clip(best - 0.3, 0, 1), 0.1),
    ]
    found = recommend(models)
    assert (found.value, found.best) == ("small", "large")
    assert found.saving == pytest.approx(0.88)
    assert found.cheapest_on_front == "tiny"
    assert found.loss_per_saving == pytest.approx(found.loss / 8.8)
    by_name = {model.name: model for model in found.models}
    assert not by_name["tiny"].as_good and by_name["small"].as_good
    expected = worst_plausible_change(close - best, GateRule(confidence=0.975))
    assert by_name["small"].worst_plausible == pytest.approx(expected)
    assert by_name["large"].latency_p95 == 2.0 and by_name["tiny"].latency_median is None


def test_without_proof_the_best_is_recommended_and_the_loss_is_named() -> None:
    best = scores(20)
    found = recommend([Contender("large", best, 10.0), Contender("small", best - 0.001, 1.0)])
    assert found.value == "large" and found.cheapest_on_front == "small"
    assert found.loss == 0 and found.loss_per_saving is None


def test_equal_models_go_to_the_cheaper() -> None:
    best = scores(60)
    found = recommend([Contender("a", best, 2.0), Contender("b", best, 1.0)])
    assert (found.best, found.value) == ("b", "b")


def test_equal_cost_goes_to_the_faster() -> None:
    best = scores(100)
    slower = Contender("slow", best, 1.0, [3.0])
    faster = Contender("fast", best - 1e-6, 1.0, [1.0])
    assert recommend([slower, faster]).value == "fast"


def test_one_model_is_its_own_best_value_and_free_models_save_nothing() -> None:
    found = recommend([Contender("only", [0.5, 0.6], 0.0)])
    assert (found.value, found.saving, found.n) == ("only", 0.0, 2)


def test_models_are_compared_on_the_same_cases() -> None:
    with pytest.raises(ValueError, match="same cases"):
        recommend([Contender("a", [0.5], 1), Contender("b", [0.5, 0.6], 1)])
    with pytest.raises(ValueError, match="no model"):
        recommend([])


def test_clusters_widen_what_is_plausible() -> None:
    best = np.repeat(scores(20), 6)
    close = np.clip(best - np.repeat(np.random.default_rng(3).normal(0.01, 0.05, 20), 6), 0, 1)
    models = [Contender("a", best, 2.0), Contender("b", close, 1.0)]
    names = [str(i // 6) for i in range(120)]
    plain, grouped = recommend(models), recommend(models, clusters=names)
    worst = [min(m.worst_plausible or 0 for m in r.models) for r in (plain, grouped)]
    assert worst[1] < worst[0]
