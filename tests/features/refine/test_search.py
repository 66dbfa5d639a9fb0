"""The search: selection of the population by Pareto front, and crossovers of two versions."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.features.refine.population import (
    Member,
    apply_edits,
    champions,
    cross,
    dominates,
    edits,
    front,
    pick_parent,
    rank,
    shares,
    survivors,
)

pytestmark = pytest.mark.daily

CASES = "abcdef"
SCORES = st.dictionaries(
    st.sampled_from(CASES), st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=6
)


@st.composite
def members(draw: st.DrawFn) -> list[Member]:
    scores = draw(st.lists(SCORES, min_size=1, max_size=8))
    return [Member(f"v{n}", "x" * n, one, born=n) for n, one in enumerate(scores)]


def member(name: str, *scores: float) -> Member:
    return Member(name, name, dict(zip(CASES, scores, strict=False)))


def test_a_version_that_is_best_on_one_case_is_ahead_although_its_mean_is_low() -> None:
    good, odd, poor = member("good", 1, 1, 0), member("odd", 0, 0, 1), member("poor", 1, 0, 0)
    assert front([good, odd, poor]) == [good, odd]
    assert shares([good, odd, poor]) == {"good": 2, "odd": 1}


@given(members())
def test_nobody_ahead_is_dominated_and_the_best_mean_of_whole_rows_is_ahead(
    found: list[Member],
) -> None:
    ahead = front(found)
    assert ahead
    for one in ahead:
        assert not any(dominates(other, one) for other in found)
    for one in found:
        assert one in ahead or any(dominates(other, one) for other in ahead)
    whole = [one for one in found if len(one.scores) == len(CASES)]
    if len(whole) == len(found):
        best = max(one.mean for one in found)
        assert any(math.isclose(one.mean, best) for one in ahead)


@given(members(), st.randoms(use_true_random=False))
def test_order_and_the_dominated_change_nothing(found: list[Member], rng: Random) -> None:
    shuffled = [*found]
    rng.shuffle(shuffled)
    held = shares(found)
    assert {key: round(value, 9) for key, value in shares(shuffled).items()} == {
        key: round(value, 9) for key, value in held.items()
    }
    assert shares(front(found)) == held
    assert math.isclose(sum(held.values()), len({case for one in found for case in one.scores}))
    assert pick_parent(shuffled, Random(3)).version == pick_parent(found, Random(3)).version


@given(members())
def test_who_has_children_holds_a_case(found: list[Member]) -> None:
    holders = {one.version for each in champions(found).values() for one in each}
    for seed in range(5):
        assert pick_parent(found, Random(seed)).version in holders


@given(members(), st.integers(1, 8), st.data())
def test_survivors_are_few_and_the_one_that_must_stay_is_among_them(
    found: list[Member], most: int, data: st.DataObject
) -> None:
    always = data.draw(st.sampled_from(found)).version
    kept = survivors(found, most, always=always)
    assert always in [one.version for one in kept]
    assert len(kept) == min(most, len(found))
    assert kept == rank(kept)
    if most >= len(found):
        assert {one.version for one in kept} == {one.version for one in found}


def test_a_survivor_is_kept_for_the_case_that_only_it_gets_right() -> None:
    best, same, odd = member("best", 1, 1, 0), member("same", 1, 0.9, 0), member("odd", 0, 0, 1)
    kept = survivors([best, same, odd], 2, always="best")
    assert [one.version for one in kept] == ["best", "odd"]


def test_children_come_as_often_as_cases_are_held() -> None:
    found = [member("good", 1, 1, 1, 0), member("odd", 0, 0, 0, 1)]
    rng = Random(0)
    drawn = [pick_parent(found, rng).version for _ in range(400)]
    assert 0.68 < drawn.count("good") / 400 < 0.82


def test_of_equals_the_shorter_text_comes_first() -> None:
    long, short = member("longer", 1), member("short", 1)
    assert rank([long, short]) == [short, long]


# --- crossovers ---

BASE = "one\ntwo\nthree\nfour\n"
LINES = st.lists(st.sampled_from(["one", "two", "three", "four", "five", "six", ""]), max_size=8)
TEXTS = LINES.map(lambda lines: "".join(f"{line}\n" for line in lines))


@given(TEXTS, TEXTS)
def test_the_edits_between_two_texts_make_one_of_the_other(before: str, after: str) -> None:
    assert apply_edits(before, edits(before, after)) == after


@given(TEXTS, TEXTS, TEXTS)
def test_whatever_is_crossed_ends_as_a_text_and_holds_no_line_of_nobody(
    base: str, first: str, second: str
) -> None:
    found = cross(base, first, second)
    if found is not None:
        assert found not in (base, first, second)
        known = {*base.split("\n"), *first.split("\n"), *second.split("\n")}
        assert {*found.split("\n")} <= known


@given(TEXTS, TEXTS)
def test_a_text_crossed_with_itself_or_with_the_base_is_nothing_new(base: str, text: str) -> None:
    assert cross(base, text, text) is None
    assert cross(base, text, base) is None
    assert cross(base, base, text) is None


def test_changes_at_different_places_are_both_there() -> None:
    first = BASE.replace("one", "ONE")
    second = BASE.replace("four\n", "four\nfive\n")
    both = "ONE\ntwo\nthree\nfour\nfive\n"
    assert cross(BASE, first, second) == cross(BASE, second, first) == both


def test_additions_at_one_place_follow_each_other_and_are_said_once() -> None:
    first = BASE.replace("two\n", "two\n- Be kind.\n- Be brief.\n")
    second = BASE.replace("two\n", "two\n- be KIND\n- Be exact.\n")
    both = "one\ntwo\n- Be kind.\n- Be brief.\n- Be exact.\nthree\nfour\n"
    assert cross(BASE, first, second) == both


def test_where_both_rewrite_a_line_the_first_one_keeps_its_own() -> None:
    first = BASE.replace("two", "TWO")
    second = BASE.replace("two", "2").replace("four", "4")
    assert cross(BASE, first, second) == "one\nTWO\nthree\n4\n"


def test_an_addition_inside_what_the_other_takes_away_is_left_out() -> None:
    first = BASE.replace("two\nthree\n", "")
    second = BASE.replace("two\n", "two\nand a half\n").replace("four\n", "four\nfive\n")
    assert cross(BASE, first, second) == "one\nfour\nfive\n"


def test_what_is_added_before_a_line_that_is_rewritten_stays_before_it() -> None:
    first = BASE.replace("two", "TWO")
    second = BASE.replace("one\n", "one\nadded\n")
    assert cross(BASE, first, second) == "one\nadded\nTWO\nthree\nfour\n"
