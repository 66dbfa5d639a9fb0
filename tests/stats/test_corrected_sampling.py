"""A random order that does not move, and what of it was looked at."""

from __future__ import annotations

from edison_ci.stats.corrected import random_order, random_sample

NAMES = [f"case {number}" for number in range(200)]


def test_the_order_depends_on_the_seed_and_on_nothing_else() -> None:
    order = random_order(NAMES)
    assert order == random_order(reversed(NAMES)) != random_order(NAMES, 1)
    assert sorted(order) == sorted(NAMES)
    assert order != NAMES


def test_names_that_are_added_move_no_others() -> None:
    before, after = random_order(NAMES), random_order([*NAMES, "new", "newer"])
    assert [name for name in after if name in set(NAMES)] == before


def test_the_beginning_of_the_order_is_a_random_sample() -> None:
    order = random_order(NAMES)
    found = random_sample(NAMES, order[:30])
    assert (found.n, found.of, found.picked, found.left_out) == (30, 200, 0, 0)
    assert found.cases == set(order[:30])


def test_what_was_picked_is_no_sample() -> None:
    order = random_order(NAMES)
    found = random_sample(NAMES, order[100:140])
    assert (found.n, found.picked) == (0, 40)
    found = random_sample(NAMES, [*order[:10], *order[100:140]])
    assert (found.n, found.picked) == (10, 40)


def test_one_in_twenty_may_have_been_passed_over_and_no_more() -> None:
    order = random_order(NAMES)
    found = random_sample(NAMES, [*order[:30], *order[31:60]])
    assert (found.n, found.left_out) == (59, 1)
    gaps = [name for place, name in enumerate(order[:60]) if place % 10 != 9]
    assert random_sample(NAMES, gaps).n == 9


def test_all_of_them_are_a_sample_whatever_the_order() -> None:
    assert random_sample(NAMES, set(NAMES), 7).n == 200
    assert random_sample([], []).n == 0
