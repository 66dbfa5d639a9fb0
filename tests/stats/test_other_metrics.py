"""Cost, tokens, latency and win rates: by hand, by reference, and in their promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t

from edison_ci.records import Verdict
from edison_ci.stats.other_metrics import (
    AmountRule,
    decide_amount,
    decide_tail,
    decide_win_rate,
    points_margin,
    tail_latency,
)
from edison_ci.stats.paired import Pairs

PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def costs(n: int, ratio: float, seed: int = 1, noise: float = 0.1) -> Pairs:
    repeat = np.random.default_rng(seed)
    base = repeat.lognormal(0, 0.5, n) * 1e-5
    return Pairs.of(base.tolist(), (base * ratio * repeat.lognormal(0, noise, n)).tolist())


def test_equal_costs_pass_and_doubled_ones_fail() -> None:
    assert decide_amount(costs(60, 1.0), rng=rng()).verdict is PASS
    found = decide_amount(costs(60, 2.0), rng=rng())
    assert found.verdict is FAIL and found.p is not None
    assert found.value == pytest.approx(1.0, abs=0.1)
    assert found.interval is not None
    assert found.interval.low < 1.0 < found.interval.high


def test_the_bound_is_the_one_of_the_contract() -> None:
    pairs = costs(30, 1.05)
    found = decide_amount(pairs, rng=rng())
    base, head = pairs.means("base"), pairs.means("head")
    # Fieller: at the worst plausible ratio the upper bound of head - ratio * base is 0.
    assert found.worst_plausible is not None
    e = head - (1 + found.worst_plausible) * base
    upper = e.mean() + t.ppf(0.95, 29) * e.std(ddof=1) / math.sqrt(30)
    assert upper == pytest.approx(0, abs=1e-15)
    assert found.verdict is (PASS if found.worst_plausible < 0.1 else INCONCLUSIVE)


def test_swapping_the_sides_turns_the_ratio_around() -> None:
    pairs = costs(40, 1.3)
    there, back = (
        decide_amount(pairs, rng=rng()),
        decide_amount(Pairs(pairs.head, pairs.base), rng=rng()),
    )
    assert there.value is not None and back.value is not None
    assert (1 + there.value) * (1 + back.value) == pytest.approx(1)
    assert there.interval is not None and back.interval is not None
    assert (1 + there.interval.low) * (1 + back.interval.high) == pytest.approx(1)


def test_an_increase_inside_the_margin_never_fails() -> None:
    found = decide_amount(costs(60, 1.05, noise=0.01), rng=rng())
    assert found.verdict is PASS
    wide = decide_amount(costs(8, 1.07, noise=0.3), AmountRule(margin=0.1), rng=rng())
    assert wide.verdict is INCONCLUSIVE and wide.n_more is not None


def test_micro_amounts_are_as_good_as_large_ones() -> None:
    small = costs(12, 1.4)
    large = Pairs.of((small.means("base") * 1e9).tolist(), (small.means("head") * 1e9).tolist())
    first, second = (decide_amount(x, rng=rng()) for x in (small, large))
    assert first.p is not None and second.p is not None
    assert first.p.value == second.p.value
    assert first.verdict is second.verdict


def test_nothing_spent_on_either_side_passes() -> None:
    assert decide_amount(Pairs.of([0, 0], [0, 0]), rng=rng()).verdict is PASS
    dear = decide_amount(Pairs.of([0] * 8, [1, 2, 1, 2, 1, 2, 1, 2]), rng=rng())
    assert (dear.verdict, dear.value, dear.interval) == (FAIL, None, None)


def test_amounts_need_two_cases_and_are_never_negative() -> None:
    assert decide_amount(Pairs.of([1], [1]), rng=rng()).verdict is INCONCLUSIVE
    assert decide_amount(Pairs.of([], []), rng=rng()).verdict is INCONCLUSIVE
    with pytest.raises(ValueError, match="negative"):
        decide_amount(Pairs.of([1, -1], [1, 1]), rng=rng())


def test_clustered_amounts_are_wider() -> None:
    pairs = costs(30, 1.05)
    names = tuple(str(i // 5) for i in range(30))
    doubled = Pairs(pairs.base * 2, pairs.head * 2, tuple(str(i % 30) for i in range(60)))
    alone, grouped = decide_amount(pairs, rng=rng()), decide_amount(doubled, rng=rng())
    assert grouped.interval == pytest.approx(alone.interval)
    assert decide_amount(Pairs(pairs.base, pairs.head, names), rng=rng()).interval is not None


def test_the_cases_needed_let_an_unchanged_head_pass_four_times_in_five() -> None:
    pairs = costs(60, 1.0, noise=0.5)
    needed = decide_amount(pairs, rng=rng()).n_needed
    assert needed is not None
    repeat, runs = np.random.default_rng(2), 400
    e = pairs.means("head") - 1.1 * pairs.means("base")
    e = e - e.mean() - 0.1 * pairs.means("base").mean()
    samples = repeat.choice(e, (runs, needed))
    error = samples.std(axis=1, ddof=1) / math.sqrt(needed)
    passed = np.mean(samples.mean(axis=1) + t.ppf(0.95, needed - 1) * error < 0)
    assert passed == pytest.approx(0.8, abs=0.06)


def test_costs_at_exactly_the_margin_pass_about_one_time_in_twenty() -> None:
    repeat, runs, n = np.random.default_rng(12), 4_000, 60
    base = repeat.lognormal(0, 0.5, (runs, n))
    e = base * 1.1 * repeat.lognormal(-0.02, 0.2, (runs, n)) - 1.1 * base  # lognormal mean 1
    upper = e.mean(axis=1) + t.ppf(0.95, n - 1) * e.std(axis=1, ddof=1) / math.sqrt(n)
    assert 0.03 <= np.mean(upper < 0) <= 0.075


def test_a_relative_margin_on_a_score_becomes_points() -> None:
    assert points_margin(0.1, [0.8, 0.6]) == pytest.approx(0.07)
    with pytest.raises(ValueError, match="base"):
        points_margin(0.1, [])


# --- latency ----------------------------------------------------------------------------------


def test_p95_is_an_order_statistic_from_60_calls_on() -> None:
    assert tail_latency(range(1, 60)).value is None
    found = tail_latency(np.arange(1.0, 101.0))
    assert (found.value, found.advisory) == (95, True)
    assert not tail_latency(np.arange(200.0)).advisory


def test_the_interval_of_p95_covers_it() -> None:
    repeat, hits, runs = np.random.default_rng(5), 0, 1_000
    truth = -math.log(0.05)
    for _ in range(runs):
        found = tail_latency(repeat.exponential(1, 150))
        assert found.interval is not None and found.value is not None
        assert found.interval.low <= found.value <= found.interval.high
        hits += found.interval.low <= truth <= found.interval.high
    assert hits / runs >= 0.94


def test_latency_is_compared_as_it_is_and_advises_below_200() -> None:
    base = np.arange(1.0, 101.0)
    assert decide_tail(base, base * 1.1).verdict is PASS
    slow = decide_tail(base, base * 1.2)
    assert slow.verdict is FAIL
    assert slow.value == pytest.approx(0.2)
    assert "advisory" in slow.notes[0]
    few = decide_tail(base[:40], base)
    assert (few.verdict, few.n_more) == (INCONCLUSIVE, 20)
    many = np.arange(1.0, 301.0)
    assert decide_tail(many, many).notes == ()


# --- win rate ---------------------------------------------------------------------------------


def test_a_win_rate_is_held_against_one_half() -> None:
    assert decide_win_rate([0.5] * 60, rng=rng()).verdict is PASS
    assert decide_win_rate([0.0] * 12 + [0.5] * 8, rng=rng()).verdict is FAIL
    found = decide_win_rate([1.0, 0.0, 0.5], rng=rng())
    assert found.verdict is INCONCLUSIVE
    assert found.value == pytest.approx(0)


def test_all_ties_of_a_win_rate_need_fewer_cases_because_a_loss_is_half() -> None:
    # Lw of n ties is -r (1 + t(.95, n)) / (n + 1): with r = .5 it is -.0501 at 26, -.0483 at 27.
    firsts = [n for n in range(2, 60) if decide_win_rate([0.5] * n, rng=rng()).verdict is PASS]
    assert firsts[0] == 27
