"""Suggested lines get a file from one text to the other, and only where a diff shows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.git.forge import SuggestedLines
from edison_ci.proposals.proposal import fits_diff, suggested_lines, visible_lines

TEXT = "one\ntwo\nthree\nfour\n"
_LINES = st.lists(st.sampled_from(["", "a", "b", "c", "```"]), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("after", "first", "last", "replacement"),
    [
        ("one\n2\nthree\nfour\n", 2, 2, "2"),
        ("one\nfour\n", 2, 3, ""),
        ("one\ntwo\nthree\nfour\nfive\n", 4, 4, "four\nfive"),
        ("zero\none\ntwo\nthree\nfour\n", 1, 1, "zero\none"),
        ("one\ntwo\n2b\nthree\nfour\n", 2, 2, "two\n2b"),
    ],
)
def test_a_change_names_the_lines_it_replaces(
    after: str, first: int, last: int, replacement: str
) -> None:
    (found,) = suggested_lines("p.md", TEXT, after, "note")
    assert found == SuggestedLines("p.md", first, last, replacement, "note")


@given(_LINES, _LINES)
def test_accepting_every_suggestion_makes_the_new_text(old: list[str], new: list[str]) -> None:
    before, after = "\n".join(["first", *old]), "\n".join(["first", *new])
    lines = before.split("\n")
    for one in reversed(suggested_lines("p.md", before, after)):
        kept = one.replacement.split("\n") if one.replacement else []
        lines[one.first_line - 1 : one.last_line] = kept
    assert "\n".join(lines) == after


def test_what_a_diff_shows_are_the_lines_of_the_new_file() -> None:
    patch = "@@ -1,3 +1,3 @@ head\n one\n-two\n+2\n three\n@@ -10 +20,2 @@\n+x\n+y\n\\ No newline"
    assert visible_lines(patch) == {1, 2, 3, 20, 21}
    assert visible_lines("") == frozenset()


def test_one_line_elsewhere_and_nothing_is_suggested() -> None:
    found = suggested_lines("p.md", TEXT, "1\ntwo\nthree\n4\n")
    assert len(found) == 2
    assert fits_diff(found, frozenset({1, 4}))
    assert not fits_diff(found, frozenset({1, 2, 3}))
    assert not fits_diff([], frozenset({1}))
