"""Floors and ceilings against Clopper-Pearson, and what more cases would settle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta

from edison_ci.records import Verdict
from edison_ci.stats.gates import Limit, decide_as_is, decide_pass_level, decide_score_level

PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def test_a_pass_rate_is_held_against_one_sided_exact_bounds() -> None:
    found = decide_pass_level(46, 50, Limit(0.8))
    assert found.worst_plausible == pytest.approx(beta.ppf(0.05, 46, 5))
    assert found.verdict is PASS
    assert decide_pass_level(46, 50, Limit(0.9)).verdict is INCONCLUSIVE
    assert decide_pass_level(30, 50, Limit(0.9)).verdict is FAIL


def test_no_failure_proves_at_best_the_rule_of_three() -> None:
    # 0.05^(1/n) >= 0.95 from n = ln .05 / ln .95 = 58.4
    assert decide_pass_level(59, 59, Limit(0.95)).verdict is PASS
    short = decide_pass_level(40, 40, Limit(0.95))
    assert (short.verdict, short.n_needed, short.n_more) == (INCONCLUSIVE, 59, 19)
    assert short.worst_plausible == pytest.approx(0.05 ** (1 / 40))


def test_a_ceiling_is_a_floor_turned_around() -> None:
    for passes, limit in ((3, 0.2), (3, 0.02), (20, 0.2), (45, 0.8)):
        ceiling = decide_pass_level(passes, 50, Limit(limit, "at_most"))
        floor = decide_pass_level(50 - passes, 50, Limit(1 - limit))
        assert ceiling.verdict is floor.verdict
        assert ceiling.worst_plausible == pytest.approx(1 - (floor.worst_plausible or 0))


def test_a_rate_at_its_limit_cannot_be_settled_by_more_of_the_same() -> None:
    found = decide_pass_level(45, 50, Limit(0.9))
    assert (found.verdict, found.n_more) == (INCONCLUSIVE, None)


def test_too_few_cases_are_inconclusive() -> None:
    assert decide_pass_level(0, 0, Limit(0.5)).value is None
    assert decide_pass_level(1, 1, Limit(0.01)).verdict is INCONCLUSIVE
    assert decide_score_level([], Limit(0.5)).verdict is INCONCLUSIVE
    assert decide_score_level([0.9], Limit(0.5)).value == 0.9


def test_scores_are_held_against_the_effective_n_bounds() -> None:
    scores = np.random.default_rng(1).beta(8, 2, 80)
    found = decide_score_level(scores, Limit(0.7))
    assert found.verdict is PASS and found.interval is not None
    # One-sided 95% lies inside the two-sided 95% interval.
    assert found.worst_plausible is not None
    assert found.interval.low < found.worst_plausible < found.interval.high
    assert decide_score_level(scores, Limit(0.95)).verdict is FAIL
    near = decide_score_level(scores, Limit(float(scores.mean()) - 0.01))
    assert near.verdict is INCONCLUSIVE
    assert near.n_more is not None and near.n_more > 80


def test_the_cases_that_settle_a_score_floor_would_settle_it() -> None:
    scores = [0.7, 0.9, 0.8, 0.6] * 5
    found = decide_score_level(scores, Limit(0.72))
    assert found.verdict is INCONCLUSIVE and found.n_needed is not None
    copies = math.ceil(found.n_needed / 20) + 1
    assert decide_score_level(scores * copies, Limit(0.72)).verdict is PASS


def test_equal_scores_are_weak_evidence_of_a_floor() -> None:
    found = decide_score_level([1.0] * 20, Limit(0.9))
    assert (found.verdict, found.n_needed) == (INCONCLUSIVE, 29)  # ln .05 / ln .9 = 28.4


def test_clusters_are_the_units_of_a_floor() -> None:
    scores, names = [0.9, 0.9, 0.9, 0.7, 0.7, 0.7] * 3, list("aaabbbcccdddeeefff")
    alone = decide_score_level(scores, Limit(0.75))
    grouped = decide_score_level(scores, Limit(0.75), clusters=names)
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
