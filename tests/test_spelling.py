"""Names that can be read, and the nearest known one."""

from __future__ import annotations

import pytest

from edison_ci.spelling import did_you_mean, mixed_scripts, odd_character


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("promts", ["prompts", "models"], "did you mean 'prompts'?"),
        ("PROMPTS", ["prompts"], "did you mean 'prompts'?"),
        ("x", ["b", "a", "b"], "allowed: a, b"),
        ("x", [], ""),
    ],
)
def test_the_nearest_name_or_all_of_them_are_offered(
    name: str, known: list[str], hint: str
) -> None:
    assert did_you_mean(name, known) == hint


def test_a_long_list_is_not_offered() -> None:
    known = [f"name{i:02}" for i in range(26)]
    assert did_you_mean("x", known[:25]).startswith("allowed: name00, ")
    assert did_you_mean("x", known) == ""


def test_the_list_can_be_introduced_differently() -> None:
    assert did_you_mean("x", ["aa"], label="there are") == "there are: aa"


@pytest.mark.parametrize(
    ("text", "ascii_only", "found"),
    [
        ("plain-name_1", True, ""),
        ("caf\u00e9", True, "U+00E9 (latin small letter e with acute)"),
        ("caf\u00e9", False, ""),
        ("a\u200bb", False, "U+200B (zero width space)"),
        ("a\u202eb", False, "U+202E (right-to-left override)"),
        ("a\tb", True, "U+0009 (unnamed character)"),
    ],
)
def test_a_character_one_could_miss_is_named(text: str, ascii_only: bool, found: str) -> None:
    assert odd_character(text, ascii_only=ascii_only) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("paypal", ""),
        ("p\u0430ypal", "U+0430 (cyrillic small letter a)"),
        ("omicr\u03bfn", "U+03BF (greek small letter omicron)"),
        ("\u043f\u0440\u0438\u0432\u0435\u0442", ""),
        ("caf\u00e9", ""),
    ],
)
def test_a_letter_that_looks_like_another_is_named(text: str, found: str) -> None:
    assert mixed_scripts(text) == found
