"""From any part of a value there is a way back to its line and column."""

from __future__ import annotations

import pytest

from edison_ci.documents.marks import Document, Fault, Mark, duplicate_key, shortened
from edison_ci.errors import Severity


def leaf(line: int, column: int, key_line: int = 0, key_column: int = 0) -> Mark:
    return Mark(line, column, key_line, key_column, None)


ROOT = Mark(
    0,
    0,
    0,
    0,
    {
        "a": leaf(1, 4, 1, 0),
        "list": Mark(2, 8, 2, 2, [leaf(3, 4), Mark(4, 4, 4, 4, {"b": leaf(5, 9, 5, 6)})]),
    },
)


def document(first_line: int = 1, first_column: int = 1) -> Document:
    return Document("f.yaml", None, ROOT, first_line, first_column)


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ((), "1:1", "1:1"),
        (("a",), "2:5", "2:1"),
        (("list",), "3:9", "3:3"),
        (("list", 0), "4:5", "1:1"),
        (("list", 1, "b"), "6:10", "6:7"),
    ],
)
def test_a_path_leads_to_its_value_or_its_key(
    path: tuple[str | int, ...], value: str, key: str
) -> None:
    assert str(document().locate(path)) == f"f.yaml:{value}"
    assert str(document().locate(path, key=True)) == f"f.yaml:{key}"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("nowhere",), "1:1"),
        (("list", 7), "3:9"),
        (("list", -1), "3:9"),
        (("list", "b"), "3:9"),
        (("list", 1, "c", "d"), "5:5"),
        (("a", "deeper"), "2:5"),
        ((0,), "1:1"),
    ],
)
def test_what_is_not_there_is_placed_at_its_nearest_parent(
    path: tuple[str | int, ...], place: str
) -> None:
    assert str(document().locate(path)) == f"f.yaml:{place}"
    assert str(document().locate(path, key=True)) == f"f.yaml:{place}"


def test_a_text_inside_a_file_counts_from_its_own_first_line() -> None:
    assert str(document(first_line=10).locate(("a",))) == "f.yaml:11:5"


def test_a_text_inside_a_line_shifts_only_the_columns_of_that_line() -> None:
    shifted = document(first_line=3, first_column=7)
    assert str(shifted.locate()) == "f.yaml:3:7"
    assert str(shifted.locate(("a",))) == "f.yaml:4:5"


def test_problems_and_warnings_stand_where_their_value_stands() -> None:
    problem = document().problem(("a",), "code", "wrong", "mend it")
    assert str(problem) == "f.yaml:2:5: wrong (mend it)"
    assert problem.severity is Severity.ERROR
    warning = document().warning(("a",), "code", "odd")
    assert str(warning) == "f.yaml:2:5: warning: odd"


def test_however_long_a_value_is_its_message_is_short() -> None:
    text = "x" * 1_000_000
    assert len(Fault("code", text, text).message) == 500
    assert len(Fault("code", text, text).hint) == 500
    assert len(document().problem((), "code", text, text).message) == 500
    assert len(document().warning((), "code", text, text).hint) == 500
    assert len(duplicate_key(text, (1, 0), (0, 0)).message) < 200


def test_a_shortened_text_says_so() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abc..."


def test_a_key_given_twice_names_the_line_or_the_column_of_the_first() -> None:
    assert duplicate_key("a", (4, 2), (1, 2)).message == "key 'a' is given twice, first in line 2"
    assert (
        duplicate_key("a", (4, 2), (1, 2), 3).message == "key 'a' is given twice, first in line 4"
    )
    assert duplicate_key("a", (4, 9), (4, 2)).message == "key 'a' is given twice, first in column 3"
    assert duplicate_key("a", (4, 9), (4, 2)).at == (4, 9)
