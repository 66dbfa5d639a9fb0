"""Floors and ceilings against Clopper-Pearson, and what more cases would settle."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from scipy.stats import beta

from edison_ci.records import Verdict
from edison_ci.stats.gates import Limit, decide_as_is, decide_level

PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def passed(passes: int, of: int) -> list[float]:
    return [1.0] * passes + [0.0] * (of - passes)


def test_a_pass_rate_is_held_against_one_sided_exact_bounds() -> None:
    found = decide_level(passed(46, 50), Limit(0.8))
    assert found.worst_plausible == pytest.approx(beta.ppf(0.05, 46, 5))
    assert found.verdict is PASS
    assert decide_level(passed(46, 50), Limit(0.9)).verdict is INCONCLUSIVE
    assert decide_level(passed(30, 50), Limit(0.9)).verdict is FAIL


def test_no_failure_proves_at_best_the_rule_of_three() -> None:
    # 0.05^(1/n) >= 0.95 from n = ln .05 / ln .95 = 58.4
    assert decide_level(passed(59, 59), Limit(0.95)).verdict is PASS
    short = decide_level(passed(40, 40), Limit(0.95))
    assert (short.verdict, short.n_needed, short.n_more) == (INCONCLUSIVE, 59, 19)
    assert short.worst_plausible == pytest.approx(0.05 ** (1 / 40))


def test_a_ceiling_is_a_floor_turned_around() -> None:
    for passes, limit in ((3, 0.2), (3, 0.02), (20, 0.2), (45, 0.8)):
        ceiling = decide_level(passed(passes, 50), Limit(limit, "at_most"))
        floor = decide_level(passed(50 - passes, 50), Limit(1 - limit))
        assert ceiling.verdict is floor.verdict
        assert ceiling.worst_plausible == pytest.approx(1 - (floor.worst_plausible or 0))


def test_a_rate_at_its_limit_cannot_be_settled_by_more_of_the_same() -> None:
    found = decide_level(passed(45, 50), Limit(0.9))
    assert (found.verdict, found.n_more) == (INCONCLUSIVE, None)


def test_too_few_cases_are_inconclusive() -> None:
    assert decide_level(passed(0, 0), Limit(0.5)).value is None
    assert decide_level(passed(1, 1), Limit(0.01)).verdict is INCONCLUSIVE
    assert decide_level([], Limit(0.5)).verdict is INCONCLUSIVE
    assert decide_level([0.9], Limit(0.5)).value == 0.9


def test_scores_are_held_against_the_effective_n_bounds() -> None:
    scores = np.random.default_rng(1).beta(8, 2, 80)
    found = decide_level(scores, Limit(0.7))
    assert found.verdict is PASS and found.interval is not None
    # One-sided 95% lies inside the two-sided 95% interval; the other end allows for the unseen.
    assert found.worst_plausible is not None and found.best_plausible is not None
    assert found.worst_plausible < found.interval.low < found.best_plausible < found.interval.high
    assert decide_level(scores, Limit(0.95)).verdict is FAIL
    near = decide_level(scores, Limit(float(scores.mean()) - 0.01))
    assert near.verdict is INCONCLUSIVE
    assert near.n_more is not None and near.n_more > 80


def test_the_cases_that_settle_a_score_floor_would_settle_it() -> None:
    scores = [0.7, 0.9, 0.8, 0.6] * 5
    found = decide_level(scores, Limit(0.72))
    assert found.verdict is INCONCLUSIVE and found.n_needed is not None
    copies = math.ceil(found.n_needed / 20) + 1
    assert decide_level(scores * copies, Limit(0.72)).verdict is PASS


def test_equal_scores_are_weak_evidence_of_a_floor() -> None:
    found = decide_level([1.0] * 20, Limit(0.9))
    assert (found.verdict, found.n_needed) == (INCONCLUSIVE, 29)  # ln .05 / ln .9 = 28.4


def test_a_score_floor_counts_unseen_cases_that_fail() -> None:
    """Forty scores of 95 do not show that fewer than 1 case in 20 fails."""
    scores = [0.95 + index % 2 / 1000 for index in range(40)]
    found = decide_level(scores, Limit(0.9))
    assert found.verdict is INCONCLUSIVE
    assert found.best_plausible == pytest.approx(0.956, abs=0.02)
    assert found.n_needed is not None
    enough = [0.95 + index % 2 / 1000 for index in range(found.n_needed)]
    assert decide_level(enough, Limit(0.9)).verdict is PASS
    assert decide_level(enough[:-1], Limit(0.9)).verdict is INCONCLUSIVE


def test_passes_and_the_same_passes_as_scores_are_decided_alike() -> None:
    """With an effective number of cases the bounds of yes-or-no scores are Clopper-Pearson's."""
    scores = passed(17, 20)
    exact, as_scores = (decide_level(s, Limit(0.99)) for s in (scores, [*scores[:-1], 1e-9]))
    assert exact.method == "exact binomial bound (Clopper-Pearson)"
    assert as_scores.method == "exact binomial bound (Clopper-Pearson) of the scores"
    assert exact.best_plausible == pytest.approx(beta.ppf(0.95, 18, 3))
    assert as_scores.best_plausible == pytest.approx(exact.best_plausible, abs=1e-6)
    assert exact.p is not None and as_scores.p is not None
    assert as_scores.p.value == pytest.approx(exact.p.value, abs=1e-6)


@pytest.mark.parametrize("wanted", ["at_least", "at_most"])
def test_the_p_of_a_floor_is_the_level_at_which_it_would_just_fail(
    wanted: Literal["at_least", "at_most"],
) -> None:
    limit = Limit(0.93 if wanted == "at_least" else 0.75, wanted)
    found = decide_level(passed(17, 20), limit)
    assert found.p is not None and 0.1 < found.p.value < 0.45
    below, above = (
        decide_level(passed(17, 20), limit, confidence=1 - found.p.value * factor)
        for factor in (0.999, 1.001)
    )
    assert (below.verdict, above.verdict) == (INCONCLUSIVE, FAIL)


@pytest.mark.nightly
@pytest.mark.parametrize("n", [10, 30, 100])
def test_a_floor_that_is_just_kept_fails_at_most_one_time_in_twenty(n: int) -> None:
    rng, runs = np.random.default_rng(n), 1000
    fails = sum(
        decide_level(rng.beta(0.98, 0.02, n), Limit(0.98)).verdict is FAIL for _ in range(runs)
    )
    assert fails / runs <= 0.06


def test_clusters_are_the_units_of_a_floor() -> None:
    scores, names = [0.9, 0.9, 0.9, 0.7, 0.7, 0.7] * 9, [f"{index // 3}" for index in range(54)]
    alone = decide_level(scores, Limit(0.75))
    grouped = decide_level(scores, Limit(0.75), clusters=names)
    assert alone.verdict is PASS
    assert grouped.verdict is INCONCLUSIVE and grouped.n_more is not None


def test_shares_of_this_run_are_compared_as_they_are() -> None:
    limit = Limit(0.02, "at_most")
    assert decide_as_is(0.02, 50, limit).verdict is PASS
    assert decide_as_is(0.03, 50, limit).verdict is FAIL
    assert decide_as_is(None, 50, limit).verdict is INCONCLUSIVE
    assert decide_as_is(0.0, 0, limit).verdict is INCONCLUSIVE
    assert decide_as_is(0.01, 50, limit, advisory=True).notes


def test_a_limit_that_is_met_exactly_is_kept_whatever_the_last_digits() -> None:
    mean = (0.1 + 0.7) / 1  # 0.7999999999999999
    assert mean < 0.8
    assert decide_as_is(mean, 50, Limit(0.8)).verdict is PASS
    assert decide_as_is(1.1 * 300_000, 50, Limit(330_000, "at_most")).verdict is PASS
    assert decide_as_is(0.79, 50, Limit(0.8)).verdict is FAIL
    assert decide_as_is(330_001, 50, Limit(330_000, "at_most")).verdict is FAIL
