"""Two versions of one text are put together line by line, and nothing is said twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edison_ci.refine.breeding import applied, crossed, edits

BASE = "one\ntwo\nthree\nfour\n"
LINES = st.lists(st.sampled_from(["one", "two", "three", "four", "five", "six", ""]), max_size=8)
TEXTS = LINES.map(lambda lines: "".join(f"{line}\n" for line in lines))


@given(TEXTS, TEXTS)
def test_the_edits_between_two_texts_make_one_of_the_other(before: str, after: str) -> None:
    assert applied(before, edits(before, after)) == after


@given(TEXTS, TEXTS, TEXTS)
def test_whatever_is_crossed_ends_as_a_text_and_holds_no_line_of_nobody(
    base: str, first: str, second: str
) -> None:
    found = crossed(base, first, second)
    if found is not None:
        assert found not in (base, first, second)
        known = {*base.split("\n"), *first.split("\n"), *second.split("\n")}
        assert {*found.split("\n")} <= known


@given(TEXTS, TEXTS)
def test_a_text_crossed_with_itself_or_with_the_base_is_nothing_new(base: str, text: str) -> None:
    assert crossed(base, text, text) is None
    assert crossed(base, text, base) is None
    assert crossed(base, base, text) is None


def test_changes_at_different_places_are_both_there() -> None:
    first = BASE.replace("one", "ONE")
    second = BASE.replace("four\n", "four\nfive\n")
    both = "ONE\ntwo\nthree\nfour\nfive\n"
    assert crossed(BASE, first, second) == crossed(BASE, second, first) == both


def test_additions_at_one_place_follow_each_other_and_are_said_once() -> None:
    first = BASE.replace("two\n", "two\n- Be kind.\n- Be brief.\n")
    second = BASE.replace("two\n", "two\n- be KIND\n- Be exact.\n")
    both = "one\ntwo\n- Be kind.\n- Be brief.\n- Be exact.\nthree\nfour\n"
    assert crossed(BASE, first, second) == both


def test_where_both_rewrite_a_line_the_first_one_keeps_its_own() -> None:
    first = BASE.replace("two", "TWO")
    second = BASE.replace("two", "2").replace("four", "4")
    assert crossed(BASE, first, second) == "one\nTWO\nthree\n4\n"


def test_an_addition_inside_what_the_other_takes_away_is_left_out() -> None:
    first = BASE.replace("two\nthree\n", "")
    second = BASE.replace("two\n", "two\nand a half\n").replace("four\n", "four\nfive\n")
    assert crossed(BASE, first, second) == "one\nfour\nfive\n"


def test_what_is_added_before_a_line_that_is_rewritten_stays_before_it() -> None:
    first = BASE.replace("two", "TWO")
    second = BASE.replace("one\n", "one\nadded\n")
    assert crossed(BASE, first, second) == "one\nadded\nTWO\nthree\nfour\n"
