"""Early stopping: e-values by hand, planned looks by table, promises by simulation."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from edison_ci.records import Verdict
from edison_ci.stats.sequential import (
    BETS,
    Units,
    always_valid_interval,
    cases_for_evidence,
    decide_look,
    evidence,
    log_capital,
    planned_levels,
    repeated_p,
)
from edison_ci.stats.verdicts import GateRule, holm
from tests.stats.anytime import by_capital, by_looks, pairs_of

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
    assert cases_for_evidence(Units.of([0.0], None), margin=0.05) == 93
    few, enough = (decide_look(pairs_of([0.0] * n), looks=range(1, n + 1)) for n in (92, 93))
    assert (few.verdict, enough.verdict) == (INCONCLUSIVE, PASS)
    assert cases_for_evidence(Units.of([1.0, -1.0], None), margin=0.0001) is None


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


@pytest.mark.parametrize("fail_rule", ["beyond_zero", "beyond_margin"])
@pytest.mark.parametrize("mean", [0.0, -0.05, -0.12, -0.4])
def test_looks_decide_as_the_e_values_of_the_contract(
    mean: float, fail_rule: Literal["beyond_zero", "beyond_margin"]
) -> None:
    rng, rule = np.random.default_rng(7), GateRule(fail_rule=fail_rule)
    for _ in range(3):
        d = rng.normal(mean, 0.2, 130).clip(-1, 1).tolist()
        expected = by_capital(d, rule, n_max=130)
        assert by_looks(d, rule, n_max=130)[:3] == expected[:3]


def test_it_stops_at_the_first_clear_look() -> None:
    found = by_looks([-0.6] * 100, n_max=100)
    assert (found.verdict, found.n, found.looks) == (FAIL, 20, (20,))
    assert found.decision is not None and found.decision.interval is not None
    assert found.decision.interval.high < 0


def test_it_ends_inconclusive_while_unclear() -> None:
    assert by_looks([0.2, -0.2] * 20, n_max=40)[:2] == (INCONCLUSIVE, 40)
    nothing = decide_look(pairs_of([]), looks=[20])
    assert (nothing.verdict, nothing.value) == (INCONCLUSIVE, None)


def test_a_drop_smaller_than_the_margin_never_fails() -> None:
    assert by_looks([-0.04] * 2_000, n_max=2_000, batch=200).verdict is not FAIL


def test_beyond_margin_asks_for_a_drop_beyond_the_margin() -> None:
    rule = GateRule(fail_rule="beyond_margin")
    plain, strict = (by_looks([-0.12] * 400, r, n_max=400) for r in (GateRule(), rule))
    assert plain.verdict is FAIL and strict.verdict is FAIL
    assert plain.n < strict.n


def test_clusters_count_by_their_means() -> None:
    d = [-0.5, -0.7] * 40
    names = [str(i // 2) for i in range(80)]
    grouped = by_looks(d, n_max=40, batch=10, clusters=names)
    assert grouped.n <= 20 and grouped.verdict is FAIL
    assert grouped.decision is not None and grouped.decision.value == pytest.approx(-0.6)


@pytest.mark.parametrize(("mean", "wrong"), [(0.0, FAIL), (-0.05, PASS)])
def test_looking_every_twenty_cases_keeps_both_promises(mean: float, wrong: Verdict) -> None:
    repeat, runs = np.random.default_rng(3), 500
    errors = 0
    for _ in range(runs):
        # Rare complete breaks, the nastiest shape; else ties.
        size = abs(mean) or 0.05
        d = np.where(repeat.random(200) < size, -1.0, 0.0)
        if mean == 0:
            d *= repeat.choice([-1, 1], 200)
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
def test_levels_are_those_of_the_tables(looks: int, levels: tuple[float, ...]) -> None:
    """Jennison and Turnbull 2000, rounded."""
    assert planned_levels(looks) == pytest.approx(levels, abs=6e-5)


@pytest.mark.parametrize("alpha", [0.05, 0.005, 0.2])
def test_a_repeated_p_is_alpha_at_the_boundary_of_every_look(alpha: float) -> None:
    for look, level in enumerate(planned_levels(3, alpha=alpha), start=1):
        assert repeated_p(level, look=look, looks=3) == pytest.approx(alpha, abs=1e-8)


def test_a_repeated_p_is_never_smaller_than_that_of_its_look() -> None:
    found = [repeated_p(p, look=1, looks=3) for p in (0.0, 1e-12, 0.001, 0.3, 0.9, 1.0)]
    assert found == sorted(found) and (found[0], found[-1]) == (0.0, 1.0)
    assert repeated_p(0.04, look=3, looks=3) > 0.04
    assert repeated_p(0.04, look=1, looks=1) == 0.04
    with pytest.raises(ValueError, match="look"):
        repeated_p(0.04, look=3, looks=2)


def test_holm_on_repeated_p_values_keeps_alpha_where_divided_levels_do_not() -> None:
    """Any of ten: the boundary for a tenth of alpha, not a tenth of each level."""
    walks = np.random.default_rng(4).normal(size=(60_000, 10, 3)).cumsum(axis=2)
    p = ndtr(-walks / np.sqrt([1, 2, 3]))
    lowest = p.min(axis=1)
    divided = (10 * lowest <= planned_levels(3)).any(axis=1).mean()
    graphical = (lowest <= planned_levels(3, alpha=0.005)).any(axis=1).mean()
    assert graphical < 0.0505
    assert divided > graphical + 0.001
    for family in p[lowest[:, 1].argsort()[:40]]:
        smallest = repeated_p(float(family[:, 1].min()), look=2, looks=3)
        adjusted = min(holm([repeated_p(float(v), look=2, looks=3) for v in family[:, 1]]).value)
        assert adjusted == pytest.approx(min(1, 10 * smallest))


@pytest.mark.parametrize("looks", [2, 6])
def test_computed_levels_keep_the_error(looks: int) -> None:
    levels = np.array(planned_levels(looks, alpha=0.1))
    walks = np.random.default_rng(4).normal(size=(200_000, looks)).cumsum(axis=1)
    z = walks / np.sqrt(np.arange(1, looks + 1))
    crossed = float(np.mean((ndtr(-z) <= levels).any(axis=1)))
    assert crossed == pytest.approx(0.1, abs=0.003)


def test_one_look_has_the_whole_error_and_no_look_is_refused() -> None:
    assert planned_levels(1) == (0.05,)
    with pytest.raises(ValueError, match="looks"):
        planned_levels(0)


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
