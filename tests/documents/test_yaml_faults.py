"""A YAML text that cannot be read is wrong where it can be mended."""

from __future__ import annotations

import pytest

from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_text import read_yaml


def fault_in(text: str) -> Fault:
    with pytest.raises(Fault) as raised:
        read_yaml(text, "f.yaml")
    return raised.value


def place_of(fault: Fault) -> str:
    return f"{fault.at[0] + 1}:{fault.at[1] + 1}"


SYNTAX_ERRORS = [
    ("a: [1, 2\nb: 3\n", "1:4", "this [ is not closed by line 2"),
    ("a: {b: 1\n\n\nc: 3\n", "1:4", "this { is not closed by line 4"),
    ("a: [1, 2", "1:4", "this [ is not closed by the end of the file"),
    ("a: 1\nb: 'x\nc: y\n", "2:4", "this quote is not closed by the end of the file"),
    ('a: "x', "1:4", "this quote is not closed by the end of the file"),
    ("a: [1 2, {]\n", "1:11", "did not find expected node content"),
    ("a: b: c\n", "1:5", "mapping values are not allowed in this context"),
    ("a: 1\n  b: 2\n", "2:4", "mapping values are not allowed in this context"),
    ("a:\n    b: 1\n  c: 2\n", "3:3", "did not find expected key"),
    ("a:\n\tb: 1\n", "2:1", "a tab is in the indentation of this line"),
    ("a: @b\n", "1:4", "found character that cannot start any token"),
    ("- a\nb: 1\n", "2:1", "did not find expected '-' indicator"),
    ("a: 1\nb c\nd: 1\n", "2:1", "could not find expected ':'"),
    ('a: "\\q"\n', "1:5", "found unknown escape character"),
    ("a: 'x' y\n", "1:8", "did not find expected key"),
    ("a: 'x\nb: 'y'\n", "1:4", "this quote is not closed by line 2"),
    ("a: [1,\nb: {c: 2]\n", "2:9", "did not find expected ',' or '}'"),
    ("a: [\nb: 1\n", "1:4", "this [ is not closed by the end of the file"),
    ("{a: 1}\nb: 1\n", "1:1", "the value that starts here ends before line 2"),
    (" a: 1\nb: 2\n", "1:2", "the value that starts here ends before line 2"),
]


def test_a_syntax_error_is_placed_where_it_is_mended(subtests: pytest.Subtests) -> None:
    for text, place, message in SYNTAX_ERRORS:
        with subtests.test(text=text):
            fault = fault_in(text)
            assert (fault.code, place_of(fault)) == ("syntax", place)
            assert fault.message == f"not valid YAML: {message}"
            assert fault.hint


def test_lines_in_messages_count_from_where_the_text_starts_in_its_file() -> None:
    with pytest.raises(Fault, match="by line 4"):
        read_yaml("a: [1\nb: 2\nc: 3\n", "f.md", first_line=3)
    with pytest.raises(Fault, match="by line 4"):
        read_yaml("a: [1\n", "f.md", first_line=3)


@pytest.mark.parametrize("text", ["a: [1", "a: {", "[", "{a", "a: '", "- [\n\n"])
def test_no_place_lies_beyond_the_end_of_the_text(text: str) -> None:
    line, column = fault_in(text).at
    lines = text.split("\n")
    assert line < len(lines)
    assert column <= len(lines[line])
