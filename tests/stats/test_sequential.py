"""Early stopping: e-values by hand, planned looks by table, promises by simulation."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.stats.evidence import (
    BETS,
    always_valid_interval,
    cases_for_evidence,
    evidence,
    log_capital,
)
from edison_ci.stats.paired import Pairs
from edison_ci.stats.sequential import (
    decide_anytime,
    decide_planned,
    halved,
    planned_levels,
    sampling_order,
)
from edison_ci.stats.verdicts import GateRule, Verdict

PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
DIFFERENCES = st.lists(st.floats(-1, 1, allow_nan=False), min_size=1, max_size=30)


# --- evidence ---------------------------------------------------------------------------------


def test_e_values_are_those_of_the_contract() -> None:
    d, margin = [0.2, -0.5, 0.0, 1.0, -1.0], 0.05
    for_pass = np.mean([math.prod(1 + f / (1 - margin) * (x + margin) for x in d) for f in BETS])
    for_fail = np.mean([math.prod(1 - f * x for x in d) for f in BETS])
    assert evidence(d, null="at most", mean=-margin).value == pytest.approx(for_pass)
    assert evidence(d, null="at least", mean=0.0).value == pytest.approx(for_fail)


@settings(deadline=None)
@given(DIFFERENCES)
def test_the_order_of_cases_does_not_change_the_last_e_value(d: list[float]) -> None:
    there = log_capital(d, null="at most", mean=-0.05)[-1]
    back = log_capital(d[::-1], null="at most", mean=-0.05)[-1]
    assert there == pytest.approx(back, abs=1e-9)


@settings(deadline=None)
@given(DIFFERENCES, st.floats(-0.9, 0.9))
def test_swapping_the_sides_swaps_the_claims(d: list[float], mean: float) -> None:
    up = evidence(d, null="at most", mean=mean)
    down = evidence([-x for x in d], null="at least", mean=-mean)
    assert up.log_value == pytest.approx(down.log_value, abs=1e-9)
    assert 0 < up.p <= 1


def test_an_e_value_is_one_on_average_when_the_claim_just_holds() -> None:
    # Mean exactly -0.05: -1 with chance .05, else 0; three cases, enumerated.
    total = 0.0
    for index in range(8):
        d = [-1.0 if index >> bit & 1 else 0.0 for bit in range(3)]
        broken = sum(x < 0 for x in d)
        e = evidence(d, null="at most", mean=-0.05).value
        total += 0.05**broken * 0.95 ** (3 - broken) * e
    assert total == pytest.approx(1)


def test_extreme_evidence_stays_a_number() -> None:
    found = evidence([1.0] * 3_000, null="at most", mean=-0.05)
    assert found.value == math.inf and math.isfinite(found.log_value) and found.p >= 0
    assert evidence([], null="at most", mean=0.0).p == 1


def test_ties_alone_pass_at_93_cases() -> None:
    assert cases_for_evidence([0.0], margin=0.05) == 93
    assert decide_anytime([0.0] * 100, n_max=100, batch=1).n == 93
    assert cases_for_evidence([1.0, -1.0], margin=0.0001) is None


@settings(max_examples=30, deadline=None)
@given(DIFFERENCES)
def test_an_always_valid_interval_contains_the_mean(d: list[float]) -> None:
    found = always_valid_interval(d)
    assert found is not None
    assert -1 <= found.low <= np.mean(d) + 1e-9
    assert np.mean(d) - 1e-9 <= found.high <= 1


def test_always_valid_intervals_narrow_and_need_a_case() -> None:
    d = [0.1, -0.1] * 200
    few, many = always_valid_interval(d[:40]), always_valid_interval(d)
    assert few is not None and many is not None
    assert few.low < many.low < 0 < many.high < few.high
    assert always_valid_interval([]) is None


@pytest.mark.parametrize("mean", [-1.0, 1.0, 2.0, math.nan])
def test_a_claim_outside_the_range_is_refused(mean: float) -> None:
    with pytest.raises(ValueError, match="between"):
        log_capital([0.1], null="at most", mean=mean)


# --- the anytime rule -------------------------------------------------------------------------


def test_it_stops_at_the_first_clear_look() -> None:
    found = decide_anytime([-0.6] * 100, n_max=100)
    assert (found.verdict, found.n, found.looks) == (FAIL, 20, (20,))
    assert found.saved == pytest.approx(0.8)
    assert found.interval is not None and found.interval.high < 0


def test_it_goes_on_while_unclear_and_ends_inconclusive() -> None:
    d = [0.2, -0.2] * 20
    going = decide_anytime(d, n_max=100)
    assert (going.verdict, going.go_on, going.saved) == (INCONCLUSIVE, True, 0.0)
    ended = decide_anytime(d, n_max=40)
    assert (ended.verdict, ended.go_on, ended.n) == (INCONCLUSIVE, False, 40)
    assert decide_anytime([], n_max=40).value is None


def test_a_look_between_batches_does_not_happen() -> None:
    assert decide_anytime([-0.6] * 19, n_max=100).looks == ()
    assert decide_anytime([0.0] * 50, n_max=50, batch=20).looks == (20, 40, 50)


def test_a_drop_smaller_than_the_margin_never_fails() -> None:
    found = decide_anytime([-0.04] * 2_000, n_max=2_000)
    assert found.verdict is not FAIL


def test_beyond_margin_asks_for_a_drop_beyond_the_margin() -> None:
    rule = GateRule(fail_rule="beyond_margin")
    plain, strict = (decide_anytime([-0.12] * 400, r, n_max=400) for r in (GateRule(), rule))
    assert plain.verdict is FAIL and strict.verdict is FAIL
    assert plain.n < strict.n


def test_clusters_count_by_their_means() -> None:
    d = [-0.5, -0.7] * 40
    names = [str(i // 2) for i in range(80)]
    grouped = decide_anytime(d, n_max=40, batch=10, clusters=names)
    assert grouped.looks[-1] <= 20 and grouped.verdict is FAIL
    assert grouped.value == pytest.approx(-0.6)
    with pytest.raises(ValueError, match="clusters"):
        decide_anytime(d, n_max=40, clusters=["a"])


def test_plans_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="n_max"):
        decide_anytime([0.1], n_max=1)
    with pytest.raises(ValueError, match="differences"):
        decide_anytime([math.nan], n_max=10)


def test_a_split_halves_the_error() -> None:
    assert halved(GateRule()).alpha == pytest.approx(0.025)


def test_the_sampling_order_is_random_and_repeatable() -> None:
    ids = [f"c{i}" for i in range(30)]
    first, again = (sampling_order(x, rng=np.random.default_rng(1)) for x in (ids, ids[::-1]))
    assert first == again != tuple(sorted(ids))
    assert sorted(first) == sorted(ids)


@pytest.mark.parametrize(("mean", "wrong"), [(0.0, FAIL), (-0.05, PASS)])
def test_looking_every_twenty_cases_keeps_both_promises(mean: float, wrong: Verdict) -> None:
    draw, runs = np.random.default_rng(3), 500
    errors = 0
    for _ in range(runs):
        # Rare complete breaks, the nastiest shape; else ties.
        size = abs(mean) or 0.05
        d = np.where(draw.random(200) < size, -1.0, 0.0)
        if mean == 0:
            d *= draw.choice([-1, 1], 200)
        log_e = log_capital(d, null="at most", mean=-0.05), log_capital(d, null="at least", mean=0)
        hit = [bool((x[19::20] >= math.log(20)).any()) for x in log_e]
        errors += hit[0] if wrong is PASS else hit[1]
    assert errors / runs <= 0.05


# --- planned looks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("looks", "levels"),
    [
        (2, (0.0088, 0.0467)),
        (3, (0.0015, 0.0181, 0.0437)),
        (4, (0.00026, 0.0071, 0.0227, 0.0415)),
        (5, (0.00005, 0.0028, 0.0119, 0.0251, 0.0400)),
    ],
)
def test_levels_are_tabled_and_the_table_is_what_integration_gives(
    looks: int, levels: tuple[float, ...]
) -> None:
    assert planned_levels(looks) == levels
    assert planned_levels(looks, alpha=0.05 + 1e-9) == pytest.approx(levels, abs=6e-5)


@pytest.mark.parametrize("looks", [2, 6])
def test_computed_levels_keep_the_error(looks: int) -> None:
    levels = np.array(planned_levels(looks, alpha=0.1))
    walks = np.random.default_rng(4).normal(size=(200_000, looks)).cumsum(axis=1)
    z = walks / np.sqrt(np.arange(1, looks + 1))
    from scipy.special import ndtr

    crossed = float(np.mean((ndtr(-z) <= levels).any(axis=1)))
    assert crossed == pytest.approx(0.1, abs=0.003)


def test_one_look_has_the_whole_error_and_no_look_is_refused() -> None:
    assert planned_levels(1) == (0.05,)
    with pytest.raises(ValueError, match="looks"):
        planned_levels(0)
    with pytest.raises(ValueError, match="not one of"):
        decide_planned(Pairs.of([0.1], [0.2]), look=4, looks=3, rng=np.random.default_rng(1))


def test_an_early_look_needs_more_evidence_and_shows_the_same_interval() -> None:
    d = [-0.1] * 7 + [0.0] * 3  # p = 1/128
    pairs = Pairs.of([-x for x in d], [0.0] * 10)
    first, second = (
        decide_planned(pairs, look=look, looks=3, rng=np.random.default_rng(1)) for look in (1, 2)
    )
    assert (first.verdict, second.verdict) == (INCONCLUSIVE, FAIL)
    assert first.interval == second.interval and first.level == 0.95
    assert (first.alpha, second.alpha) == (0.0015, 0.0181)


def test_an_always_valid_interval_agrees_with_the_capital_at_its_ends() -> None:
    d = np.random.default_rng(2).normal(0.1, 0.3, 90).clip(-1, 1)
    looks = [20, 50, 90]
    found = always_valid_interval(d, looks=looks)
    assert found is not None

    def refused(null: Literal["at most", "at least"], mean: float) -> bool:
        rows = log_capital(d, null=null, mean=mean)[np.array(looks) - 1]
        return bool(rows.max() >= math.log(40))

    assert refused("at most", found.low) and not refused("at most", found.low + 0.005)
    assert refused("at least", found.high) and not refused("at least", found.high - 0.005)
