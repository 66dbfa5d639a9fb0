"""Lower bound of a judge's agreement with people: known answers and the promise it makes."""

from __future__ import annotations

import numpy as np
import pytest

from edison_ci.stats.agreement import cohen
from edison_ci.stats.calibration import agreement_bound

HUMAN = [1, 1, 1, 1, 1, 1, 0, 0, 0, 0] * 4
JUDGE = [1, 1, 1, 1, 1, 0, 0, 0, 0, 1] * 4
CASES = [str(index) for index in range(40)]


def test_the_value_is_cohens_kappa_with_quadratic_weights() -> None:
    found = agreement_bound(HUMAN, JUDGE, CASES)
    plain = cohen(HUMAN, JUDGE, rng=np.random.default_rng(1), weights="quadratic")
    assert found is not None
    assert found.value == pytest.approx(plain.value)
    assert (found.units, found.level) == (40, 0.95)
    assert found.low < found.value


def test_the_bound_is_the_t_bound_of_fishers_z_with_one_more_case() -> None:
    """The linearized error is that of the infinitesimal jackknife: differentiate the weights."""
    human, judge = (np.array([*x, 0.0]) for x in (HUMAN, JUDGE))
    middle = (sum(HUMAN) + sum(JUDGE)) / 80
    human[-1], judge[-1] = middle - 0.3, middle + 0.3

    def kappa(weights: np.ndarray) -> float:
        w = weights / weights.sum()
        chance = w @ (human**2 + judge**2) - 2 * (w @ human) * (w @ judge)
        return float(1 - w @ (human - judge) ** 2 / chance)

    ones, step = np.ones(41), 1e-6
    slopes = [(kappa(ones + step * np.eye(41)[i]) - kappa(ones)) / step for i in range(41)]
    value = kappa(ones)
    se = np.sqrt(41 / 40 * np.sum(np.square(slopes))) / (1 - value**2)
    expected = np.tanh(np.arctanh(value) - 1.683851 * se)  # t(40) at 0.95
    found = agreement_bound(HUMAN, JUDGE, CASES)
    assert found is not None
    assert found.low == pytest.approx(expected, abs=2e-5)


def test_no_disagreement_in_few_cases_is_not_certainty() -> None:
    lows = []
    for n in (10, 20, 50, 200):
        scores = [float(index % 5 > 0) for index in range(n)]
        found = agreement_bound(scores, scores, CASES[:n] if n <= 40 else list(map(str, range(n))))
        assert found is not None
        assert found.value == 1
        lows.append(found.low)
    assert lows == sorted(lows)
    assert lows[0] < 0.6 < 0.9 < lows[-1]


def test_more_answers_to_the_same_cases_are_not_more_cases() -> None:
    once = agreement_bound(HUMAN, JUDGE, CASES)
    thrice = agreement_bound(HUMAN * 3, JUDGE * 3, CASES * 3)
    assert once is not None
    assert thrice is not None
    assert thrice.units == 40
    assert thrice.low == pytest.approx(once.low)
    clusters = agreement_bound(HUMAN * 3, JUDGE * 3, [str(index) for index in range(120)])
    assert clusters is not None
    assert clusters.low > once.low


def test_the_order_of_answers_does_not_matter() -> None:
    order = np.random.default_rng(3).permutation(40)
    human, judge = (list(np.array(x, dtype=float)[order]) for x in (HUMAN, JUDGE))
    shuffled = agreement_bound(human, judge, [CASES[i] for i in order])
    found = agreement_bound(HUMAN, JUDGE, CASES)
    assert found is not None
    assert shuffled is not None
    assert found.low == shuffled.low


def test_the_cases_needed_are_those_at_which_the_bound_reaches_the_floor() -> None:
    human, judge = HUMAN + [1] * 10, JUDGE + [1] * 10
    found = agreement_bound(human, judge, [str(index) for index in range(50)])
    assert found is not None
    floor = 0.5
    assert found.low < floor < found.value
    needed = found.units_needed(floor)
    assert needed is not None
    times = -(-needed // 50)  # rounded up

    def at(times: int) -> float:
        names = [str(index) for index in range(50 * times)]
        more = agreement_bound(human * times, judge * times, names)
        assert more is not None
        return more.low

    assert at(times - 1) < floor <= at(times)
    assert found.units_needed(found.value) is None
    assert found.units_needed(found.low) == 50


@pytest.mark.parametrize(
    ("human", "judge", "cases"), [([1, 1], [1, 1], ["a", "b"]), ([1, 0], [1, 0], ["a", "a"])]
)
def test_without_variation_or_from_one_case_there_is_no_bound(
    human: list[float], judge: list[float], cases: list[str]
) -> None:
    assert agreement_bound(human, judge, cases) is None


def test_scores_without_a_case_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 2 scores of 1 units"):
        agreement_bound([1, 0], [1, 0], ["a"])


@pytest.mark.parametrize(("passing", "n"), [(0.5, 20), (0.5, 50), (0.9, 20), (0.9, 50)])
def test_a_judge_at_the_floor_is_rarely_approved(passing: float, n: int) -> None:
    """It agrees in 60% of the cases and guesses in the others: kappa is 0.6."""
    rng, cases = np.random.default_rng(7), [str(index) for index in range(n)]
    approved = lucky = 0
    for _ in range(400):
        human, guess = ((rng.random(n) < passing).astype(float) for _ in range(2))
        judge = np.where(rng.random(n) < 0.6, human, guess)
        found = agreement_bound(human, judge, cases)
        approved += found is not None and found.low >= 0.6
        lucky += found is not None and found.value >= 0.6
    assert approved <= 0.07 * 400
    assert lucky >= 0.4 * 400, "the point estimate approves about every second time"
