"""Head-to-heads in both orders: values, order effects, verdicts, length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import linregress, t

from edison_ci.stats.pairwise import BothOrders, Preference, length_effect, win_rate

VALUES = st.sampled_from([0.0, 0.5, 1.0])
CASES = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=30)


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def cases(*values: tuple[float | None, float | None]) -> list[BothOrders]:
    return [BothOrders(first, second) for first, second in values]


def test_a_clear_winner_is_named() -> None:
    found = win_rate(cases(*[(1.0, 1.0)] * 15, *[(0.0, 0.0)] * 3), rng=rng())
    assert found.value == pytest.approx(15 / 18)
    assert found.preference is Preference.A
    turned = win_rate(cases(*[(0.0, 0.0)] * 15, *[(1.0, 1.0)] * 3), rng=rng())
    assert turned.preference is Preference.B


def test_a_judge_that_follows_position_makes_ties_and_a_warning() -> None:
    found = win_rate(cases(*[(1.0, 0.0)] * 20), rng=rng())
    assert (found.value, found.preference) == (0.5, Preference.UNCLEAR)
    assert found.p is not None and found.p.value == 1
    assert found.order is not None
    assert (found.order.value, found.order.consistency) == (0.5, 0.0)
    assert found.order.warn


def test_an_order_effect_by_hand() -> None:
    # b = (w_AB + 1 - w_BA) / 2 - 1/2: (1, 0) -> 1/2; (0, 1) -> -1/2; (1, 1) -> 0; (1, .5) -> 1/4
    found = win_rate(cases((1, 0), (0, 1), (1, 1), (1, 0.5)), rng=rng())
    assert found.order is not None
    assert found.order.value == pytest.approx(1 / 16)
    assert found.order.consistency == 0.25


def test_a_consistent_judge_is_not_warned_of() -> None:
    found = win_rate(cases(*[(1.0, 1.0), (0.0, 0.0)] * 10), rng=rng())
    assert found.order is not None and not found.order.warn


def test_cases_that_lack_an_order_are_excluded_and_counted() -> None:
    found = win_rate(cases((1, 1), (None, 1), (0, None), (0, 0)), rng=rng())
    assert (found.n, found.excluded, found.value) == (2, 2, 0.5)
    none = win_rate(cases((None, 1)), rng=rng())
    assert (none.value, none.n, none.excluded, none.preference) == (None, 0, 1, Preference.UNCLEAR)


def test_all_ties_are_one_half_with_width_and_p_one() -> None:
    found = win_rate(cases(*[(0.5, 0.5)] * 30), rng=rng())
    assert found.value == 0.5 and found.p is not None and found.p.value == 1
    assert found.interval is not None and found.interval.high > found.interval.low
    assert found.preference is Preference.EQUIVALENT  # q = 1 - .05^(1/30) = .095
    assert win_rate(cases(*[(0.5, 0.5)] * 20), rng=rng()).preference is Preference.UNCLEAR


def test_one_case_has_no_interval_and_no_winner() -> None:
    found = win_rate(cases((1, 1)), rng=rng())
    assert (found.interval, found.preference) == (None, Preference.UNCLEAR)


def test_clusters_move_together() -> None:
    values = [BothOrders(1.0, 1.0, cluster=str(i // 5)) for i in range(20)]
    found = win_rate(values, rng=rng())
    assert found.p is not None and found.p.value == pytest.approx(2 / 16)
    assert found.preference is Preference.UNCLEAR
    mixed = win_rate([BothOrders(1, 1, "a"), BothOrders(1, 1), BothOrders(0, 1)], rng=rng())
    assert mixed.p is not None and mixed.p.differing == 2


@settings(max_examples=40, deadline=None)
@given(CASES)
def test_swapping_the_systems_mirrors_everything(values: list[tuple[float, float]]) -> None:
    found = win_rate(cases(*values), rng=rng())
    # B's value when B is shown first is 1 - A's value when A is shown second.
    other = win_rate(cases(*[(1 - second, 1 - first) for first, second in values]), rng=rng())
    assert found.value is not None and other.value is not None
    assert other.value == pytest.approx(1 - found.value)
    assert found.p is not None and other.p is not None
    assert found.p.value == pytest.approx(other.p.value)
    assert found.order is not None and other.order is not None
    assert found.order.value == pytest.approx(other.order.value)


def test_both_orders_cancel_a_judge_that_favours_the_first() -> None:
    repeat, runs, wrong = np.random.default_rng(7), 300, {"one": 0, "both": 0}
    for _ in range(runs):
        first = (repeat.random((2, 60)) < 0.62).astype(float)  # prefers what it reads first
        both = cases(*zip(first[0].tolist(), (1 - first[1]).tolist(), strict=True))
        wrong["both"] += win_rate(both, rng=repeat).preference in (Preference.A, Preference.B)
        once = cases(*zip(first[0].tolist(), first[0].tolist(), strict=True))
        wrong["one"] += win_rate(once, rng=repeat).preference in (Preference.A, Preference.B)
    assert wrong["both"] / runs <= 0.05 + 2.5 * (0.05 * 0.95 / runs) ** 0.5
    assert wrong["one"] / runs > 0.25


# --- length -----------------------------------------------------------------------------------


def test_the_length_effect_is_a_regression() -> None:
    repeat = np.random.default_rng(2)
    a, b = repeat.uniform(50, 500, (2, 40))
    w = np.clip(0.5 + 0.3 * np.log(a / b) + repeat.normal(0, 0.2, 40), 0, 1)
    found = length_effect(w, a, b)
    expected = linregress(np.log(a / b), w - 0.5)
    assert found is not None and found.interval is not None
    assert found.value == pytest.approx(expected.slope)
    reach = t.ppf(0.975, 38) * expected.stderr
    assert found.interval == pytest.approx((expected.slope - reach, expected.slope + reach))
    assert found.warn


def test_lengths_that_do_not_vary_say_nothing() -> None:
    assert length_effect([0, 1, 0.5], [10, 20, 30], [10, 20, 30]) is None
    assert length_effect([0, 1], [10, 20], [5, 30]) is None
    ties = length_effect([0.5] * 5, [1, 2, 3, 4, 5], [5, 4, 3, 2, 2])
    assert ties is not None and ties.interval is None and not ties.warn
    with pytest.raises(ValueError, match="lengths"):
        length_effect([0.5, 1.0], [0, 1], [1, 1])
