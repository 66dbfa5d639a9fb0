"""Two prompts: better, the same, or not enough, and the cases that moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.records import Move
from edison_ci.stats.ab import DISAGREE, HeadToHead, Outcome, compare
from edison_ci.stats.gates import worst_plausible_change
from edison_ci.stats.paired import Pairs
from edison_ci.stats.pairwise import BothOrders, win_rate
from edison_ci.stats.power import cases_for_margin

if TYPE_CHECKING:
    from edison_ci.stats.ab import Comparison


def rng() -> np.random.Generator:
    return np.random.default_rng(2)


def ab(d: list[float], **more: object) -> Comparison:
    pairs = Pairs.of([max(0.0, -x) for x in d], [max(0.0, x) for x in d])
    return compare(pairs, rng=rng(), **more)  # type: ignore[arg-type]  # passed through


def test_a_clear_difference_has_a_winner() -> None:
    assert ab([0.2, 0.1, 0.3, 0.2, 0.1, 0.2, 0.3, 0.1]).outcome is Outcome.B
    assert ab([-0.2, -0.1, -0.3, -0.2, -0.1, -0.2, -0.3, -0.1]).outcome is Outcome.A


def test_prompts_are_the_same_only_if_an_unseen_case_could_not_change_it() -> None:
    assert ab([0.0] * 52).outcome is Outcome.UNCLEAR
    found = ab([0.0] * 53)
    assert found.outcome is Outcome.SAME and found.same_within is not None
    assert found.same_within.low == pytest.approx(-found.same_within.high)
    assert found.same_within.low == pytest.approx(worst_plausible_change([0.0] * 53))


def test_too_little_data_says_how_much_more() -> None:
    found = ab([0.1, -0.1] * 10)
    assert found.outcome is Outcome.UNCLEAR and found.n_needed is not None
    assert found.n_more == found.n_needed - 20
    sd = float(np.std([0.1, -0.1] * 10, ddof=1))
    assert found.n_needed == cases_for_margin(sd, power=0.9).value


def moves(found: Comparison) -> tuple[tuple[int, ...], ...]:
    return tuple(found.moved[move] for move in Move)


def test_no_case_and_one_case_decide_nothing() -> None:
    none, one = ab([]), ab([0.9])
    assert (none.outcome, none.value, none.p) == (Outcome.UNCLEAR, None, None)
    assert (one.outcome, one.interval) == (Outcome.UNCLEAR, None)


def test_an_unchanged_mean_can_hide_cases_that_moved() -> None:
    found = ab([0.5, -0.5, 0.25, -0.25, 0.1, -0.1])
    assert moves(found) == ((), (), (1, 3), (0, 2))
    passed = [(True, True), (True, True), (True, True), (True, True), (False, True), (True, False)]
    marked = ab([0.5, -0.5, 0.25, -0.25, 0.1, -0.1], passed=passed)
    assert moves(marked) == ((5,), (4,), (1, 3), (0, 2)), "passes apart from scores"
    torn = ab([0.5, -0.5], passed=[(True, False), (False, True)])
    assert moves(torn) == ((0,), (1,), (), ()), "no case is listed twice"
    with pytest.raises(ValueError, match="pass marks"):
        ab([0.1, 0.2], passed=[(True, True)])


def test_head_to_head_may_disagree_or_decide() -> None:
    wins = win_rate([BothOrders(0.0, 0.0)] * 12, rng=rng())  # of B: it loses every one
    d = [0.2, 0.1] * 6
    found = ab(d, head_to_head=HeadToHead(wins))
    assert found.outcome is Outcome.B and found.notes == (DISAGREE,)
    declared = ab(d, head_to_head=HeadToHead(wins, primary="pairwise"))
    assert declared.outcome is Outcome.A
    agreeing = win_rate([BothOrders(1.0, 1.0)] * 12, rng=rng())
    assert ab(d, head_to_head=HeadToHead(agreeing)).notes == ()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1, 1, allow_nan=False), min_size=2, max_size=14))
def test_swapping_the_prompts_swaps_the_outcome(d: list[float]) -> None:
    swap = {Outcome.A: Outcome.B, Outcome.B: Outcome.A}
    there, back = ab(d), ab([-x for x in d])
    assert back.outcome is swap.get(there.outcome, there.outcome)
    assert moves(there) == (moves(back)[1], moves(back)[0], moves(back)[3], moves(back)[2])


def test_clusters_need_more_cases() -> None:
    d = [0.1] * 5 + [-0.1] * 5 + [0.15] * 5 + [-0.15] * 5
    pairs = Pairs.of([max(0.0, -x) for x in d], [max(0.0, x) for x in d])
    grouped = Pairs(pairs.base, pairs.head, tuple("a" * 5 + "b" * 5 + "c" * 5 + "d" * 5))
    alone, together = compare(pairs, rng=rng()), compare(grouped, rng=rng())
    assert alone.n_needed is not None and together.n_needed is not None
    assert together.n_needed > 2 * alone.n_needed


@pytest.mark.nightly
def test_equal_prompts_have_a_winner_at_most_one_time_in_twenty() -> None:
    repeat, runs = np.random.default_rng(4), 500
    wrong = 0
    for _ in range(runs):
        base, head = repeat.binomial(3, 0.8, (2, 14)) / 3
        wrong += compare(Pairs.of(base, head), rng=repeat).outcome in (Outcome.A, Outcome.B)
    assert wrong / runs <= 0.05
